// The rules of extensible structs: an older and shorter one, a newer and longer one, arrays with a foreign stride.
#include "fixture.h"

namespace kvt {
namespace {

static_assert(sizeof(kvc_error) % 8 == 0 && sizeof(kvc_context_config) % 8 == 0 && sizeof(kvc_layer_config) % 8 == 0);
static_assert(sizeof(kvc_group_config) % 8 == 0 && sizeof(kvc_cache_config) % 8 == 0 && sizeof(kvc_estimate) % 8 == 0);
static_assert(sizeof(kvc_batch) % 8 == 0 && sizeof(kvc_append_args) % 8 == 0 && sizeof(kvc_attend_args) % 8 == 0);
static_assert(sizeof(kvc_forward_info) % 8 == 0 && sizeof(kvc_export_args) % 8 == 0 &&
              sizeof(kvc_import_args) % 8 == 0);
static_assert(sizeof(kvc_stats) % 8 == 0);

// `item` as a caller with a longer struct passes it: `extra` bytes of a later version follow.
template <class T>
std::vector<uint64_t> longer(const T &item, size_t extra, uint8_t last) {
  std::vector<uint64_t> words((sizeof(T) + extra + 7) / 8, 0);
  if (words.size() * 8 < sizeof(T)) std::abort();  // cannot happen, but gcc 12 warns without it
  std::memcpy(words.data(), &item, sizeof(T));
  reinterpret_cast<T *>(words.data())->struct_size = static_cast<uint32_t>(sizeof(T) + extra);
  reinterpret_cast<uint8_t *>(words.data())[sizeof(T) + extra - 1] = last;
  return words;
}

// Makes `call(pointer, error)` with every size of an input struct. `undo` reverts a success.
template <class T>
void check_input(
    kvc_cache *cache, const char *function, const T &good,
    const std::function<kvc_status(const T *, kvc_error *)> &call, const std::function<void()> &undo = [] {}) {
  for (uint32_t size : {0u, 1u, 4u, 7u, static_cast<uint32_t>(sizeof(T) - 8), static_cast<uint32_t>(sizeof(T) - 1)}) {
    T bad = good;
    bad.struct_size = size;
    refused(cache, {KVC_ERROR_STRUCT_SIZE}, function, [&](kvc_error *e) { return call(&bad, e); },
            {std::to_string(size)});
  }
  for (size_t extra : {8, 64, 256}) {
    const auto words = longer(good, extra, 1);
    refused(cache, {KVC_ERROR_UNSUPPORTED}, function,
            [&](kvc_error *e) { return call(reinterpret_cast<const T *>(words.data()), e); });
  }
  for (size_t extra : {0, 8, 64, 256}) {
    const auto words = longer(good, extra, extra ? 0 : reinterpret_cast<const uint8_t *>(&good)[sizeof(T) - 1]);
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = call(reinterpret_cast<const T *>(words.data()), &error);
    EXPECT_EQ(status, KVC_OK) << function << ": " << error.message;
    if (status == KVC_OK) undo();
  }
}

// An output struct: the library fills no more than the caller's size.
template <class T>
void check_output(kvc_cache *cache, const char *function, const std::function<kvc_status(T *, kvc_error *)> &call) {
  T good{};
  good.struct_size = sizeof(T);
  ASSERT_EQ(call(&good, nullptr), KVC_OK) << function;
  EXPECT_EQ(good.struct_size, sizeof(T));
  for (uint32_t size : {0u, 4u, static_cast<uint32_t>(sizeof(T) - 8)}) {
    T bad{};
    bad.struct_size = size;
    refused(cache, {KVC_ERROR_STRUCT_SIZE}, function, [&](kvc_error *e) { return call(&bad, e); });
    T zero{};
    zero.struct_size = size;
    EXPECT_EQ(std::memcmp(&bad, &zero, sizeof(T)), 0) << function << " wrote into a refused struct";
  }
  T zero{};
  auto words = longer(zero, 64, 0);
  words.push_back(0x1234567812345678ull);
  EXPECT_EQ(call(reinterpret_cast<T *>(words.data()), nullptr), KVC_OK) << function;
  EXPECT_EQ(words.back(), 0x1234567812345678ull) << function << " wrote past the caller's struct";
  EXPECT_EQ(reinterpret_cast<T *>(words.data())->struct_size, sizeof(T) + 64);
  EXPECT_EQ(std::memcmp(reinterpret_cast<char *>(words.data()) + 8, reinterpret_cast<char *>(&good) + 8, sizeof(T) - 8),
            0);
}

TEST(Structs, Inputs) {
  World w;
  kvc_context *context = nullptr;
  kvc_context_config context_config;
  kvc_context_config_init(&context_config);
  check_input<kvc_context_config>(
      nullptr, "kvc_context_create", context_config,
      [&](const kvc_context_config *c, kvc_error *e) { return kvc_context_create(c, &context, e); },
      [&] { kvc_context_destroy(context); });

  BuiltConfig built(World::default_spec());
  kvc_cache *cache = nullptr;
  check_input<kvc_cache_config>(
      nullptr, "kvc_cache_create", built.config,
      [&](const kvc_cache_config *c, kvc_error *e) { return kvc_cache_create(w.context.get(), c, &cache, e); },
      [&] { kvc_cache_destroy(cache); });
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  check_input<kvc_cache_config>(nullptr, "kvc_cache_estimate", built.config,
                                [&](const kvc_cache_config *c, kvc_error *e) {
                                  return kvc_cache_estimate(w.context.get(), c, -1, &estimate, e);
                                });

  const int32_t four = 4;
  kvc_forward f = 0;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &w.seq;
  batch.append_lengths = &four;
  batch.num_sequences = 1;
  check_input<kvc_batch>(
      w.cache, "kvc_forward_begin", batch,
      [&](const kvc_batch *b, kvc_error *e) { return kvc_forward_begin(w.cache, b, nullptr, &f, e); },
      [&] { kvc_forward_abort(w.cache, f, nullptr); });
  check_input<kvc_batch>(w.cache, "kvc_cache_can_fit", batch,
                         [&](const kvc_batch *b, kvc_error *e) { return kvc_cache_can_fit(w.cache, b, e); });

  LayerTensors t(w.spec.layers[0], 4);
  auto again = [&] {
    if (f) kvc_forward_abort(w.cache, f, nullptr);
    f = w.begin({w.seq}, {4});
  };
  f = 0;
  again();
  check_input<kvc_append_args>(
      w.cache, "kvc_forward_append", t.append_args(),
      [&](const kvc_append_args *a, kvc_error *e) { return kvc_forward_append(w.cache, f, 0, a, e); }, again);
  check_input<kvc_attend_args>(
      w.cache, "kvc_forward_attend", t.attend_args(),
      [&](const kvc_attend_args *a, kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, a, e); }, again);
  kvc_forward_abort(w.cache, f, nullptr);

  kvc_export_args exports;
  kvc_export_args_init(&exports);
  DLManagedTensorVersioned *k = nullptr;
  check_input<kvc_export_args>(
      w.cache, "kvc_seq_export", exports,
      [&](const kvc_export_args *a, kvc_error *e) { return export_kv(w.cache, w.seq, a, &k, nullptr, nullptr, e); },
      [&] { Managed owner(k); });

  std::vector<LayerTensors> tensors;
  for (const LayerSpec &l : w.spec.layers) tensors.emplace_back(l, 3);
  std::vector<const DLTensor *> ks, vs;
  for (LayerTensors &x : tensors) {
    ks.push_back(x.k.dl());
    vs.push_back(x.v.dl());
  }
  kvc_import_args import;
  kvc_import_args_init(&import);
  import.num_layers = 3;
  import.k = ks.data();
  import.v = vs.data();
  check_input<kvc_import_args>(w.cache, "kvc_seq_import", import, [&](const kvc_import_args *a, kvc_error *e) {
    return kvc_seq_import(w.cache, w.seq, a, nullptr, e);
  });

  kvc_save_args save;
  kvc_save_args_init(&save);
  save.write = [](void *, const void *, int64_t) -> int32_t { return 0; };
  check_input<kvc_save_args>(w.cache, "kvc_seq_save", save, [&](const kvc_save_args *a, kvc_error *e) {
    return kvc_seq_save(w.cache, w.seq, a, nullptr, e);
  });
}

TEST(Structs, Outputs) {
  World w;
  BuiltConfig built(World::default_spec());
  check_output<kvc_estimate>(nullptr, "kvc_cache_estimate", [&](kvc_estimate *out, kvc_error *e) {
    return kvc_cache_estimate(w.context.get(), &built.config, -1, out, e);
  });
  check_output<kvc_stats>(w.cache, "kvc_cache_stats",
                          [&](kvc_stats *out, kvc_error *e) { return kvc_cache_stats(w.cache, 0, out, e); });
  const kvc_forward f = w.begin({w.seq}, {4});
  check_output<kvc_forward_info>(w.cache, "kvc_forward_get_info", [&](kvc_forward_info *out, kvc_error *e) {
    return kvc_forward_get_info(w.cache, f, out, e);
  });
  kvc_forward_abort(w.cache, f, nullptr);
}

// Arrays of extensible structs: the distance of elements is items[0].struct_size, whatever the library's own size is.
template <class T>
std::vector<uint64_t> spread(const std::vector<T> &items, size_t stride) {
  std::vector<uint64_t> words(items.size() * stride / 8, 0);
  for (size_t i = 0; i < items.size(); i++) {
    T item = items[i];
    item.struct_size = static_cast<uint32_t>(stride);
    std::memcpy(reinterpret_cast<char *>(words.data()) + i * stride, &item, sizeof(T));
  }
  return words;
}

TEST(Structs, ArraysWithAForeignStride) {
  ContextPtr context = make_context();
  BuiltConfig built(World::default_spec());
  auto create = [&](const void *layers, const void *groups, kvc_error *e) {
    kvc_cache_config config = built.config;
    if (layers) config.layers = static_cast<const kvc_layer_config *>(layers);
    if (groups) config.groups = static_cast<const kvc_group_config *>(groups);
    kvc_estimate estimate;
    kvc_estimate_init(&estimate);
    const kvc_status status = kvc_cache_estimate(context.get(), &config, -1, &estimate, nullptr);
    kvc_cache *cache = nullptr;
    const kvc_status created = kvc_cache_create(context.get(), &config, &cache, e);
    EXPECT_EQ(status, created);
    kvc_cache_destroy(cache);
    return created;
  };
  for (size_t extra : {8, 40}) {
    const size_t stride = sizeof(kvc_layer_config) + extra, group_stride = sizeof(kvc_group_config) + extra;
    auto layers = spread(built.layers, stride);
    auto groups = spread(built.groups, group_stride);
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(create(layers.data(), groups.data(), &error), KVC_OK) << error.message;

    // Values that this library does not know, in element 2 of the layers and 1 of the groups.
    reinterpret_cast<char *>(layers.data())[3 * stride - 1] = 1;
    error = refused(nullptr, {KVC_ERROR_UNSUPPORTED}, "kvc_cache_create",
                    [&](kvc_error *e) { return create(layers.data(), nullptr, e); });
    EXPECT_EQ(error.index, 2);
    reinterpret_cast<char *>(groups.data())[2 * group_stride - 1] = 1;
    error = refused(nullptr, {KVC_ERROR_UNSUPPORTED}, "kvc_cache_create",
                    [&](kvc_error *e) { return create(nullptr, groups.data(), e); });
    EXPECT_TRUE(error.index == 1 || error.group == 1) << error.message;
  }
  // Sizes that differ between elements, and that are too short.
  for (int element : {1, 2}) {
    for (uint32_t size : {0u, static_cast<uint32_t>(sizeof(kvc_layer_config) + 8),
                          static_cast<uint32_t>(sizeof(kvc_layer_config) - 8)}) {
      std::vector<kvc_layer_config> layers = built.layers;
      layers[element].struct_size = size;
      const kvc_error error = refused(nullptr, {KVC_ERROR_STRUCT_SIZE}, "kvc_cache_create",
                                      [&](kvc_error *e) { return create(layers.data(), nullptr, e); });
      EXPECT_EQ(error.index, element) << error.message;
    }
  }
  for (uint32_t size : {0u, static_cast<uint32_t>(sizeof(kvc_group_config) + 8)}) {
    std::vector<kvc_group_config> groups = built.groups;
    groups[1].struct_size = size;
    const kvc_error error = refused(nullptr, {KVC_ERROR_STRUCT_SIZE}, "kvc_cache_create",
                                    [&](kvc_error *e) { return create(nullptr, groups.data(), e); });
    EXPECT_EQ(error.index, 1) << error.message;
  }
  for (uint32_t size : {0u, 8u}) {
    std::vector<kvc_layer_config> layers = built.layers;
    for (auto &l : layers) l.struct_size = size;
    const kvc_error error = refused(nullptr, {KVC_ERROR_STRUCT_SIZE}, "kvc_cache_create",
                                    [&](kvc_error *e) { return create(layers.data(), nullptr, e); });
    EXPECT_EQ(error.index, 0) << error.message;
  }
}

// kvc_error is frozen. Without initialisation it has a random size, and the library never writes beyond that size.
TEST(Structs, ErrorOfAnotherSize) {
  World w;
  for (uint32_t size : {0u, 1u, 8u, 40u}) {
    kvc_error error;
    std::memset(&error, 0x33, sizeof(error));
    error.struct_size = size;
    const kvc_status status = kvc_seq_remove(w.cache, 1, nullptr, &error);
    EXPECT_TRUE(status == KVC_ERROR_NULL_ARGUMENT || status == KVC_ERROR_STRUCT_SIZE) << status;
    const unsigned char *bytes = reinterpret_cast<unsigned char *>(&error);
    for (size_t i = std::max<size_t>(size, 4); i < sizeof(error); i++) ASSERT_EQ(bytes[i], 0x33) << size << " at " << i;
  }
  // If it claims to be longer than in this library, it is refused, or used with the library's size (the layout is
  // frozen).
  struct {
    kvc_error error = KVC_ERROR_INIT;
    uint64_t more = 0x5555;
  } big;
  big.error.struct_size = sizeof(big);
  const kvc_status status = kvc_seq_remove(w.cache, 1, nullptr, &big.error);
  EXPECT_TRUE(status == KVC_ERROR_NULL_ARGUMENT || status == KVC_ERROR_STRUCT_SIZE) << status;
  EXPECT_EQ(big.more, 0x5555u);
}

TEST(Structs, ErrorIsWrittenOnlyOnFailure) {
  World w;
  kvc_error error, copy;
  std::memset(&error, 0x44, sizeof(error));
  error.struct_size = sizeof(error);
  copy = error;
  kvc_seq s = 0;
  int64_t n = 0;
  EXPECT_EQ(kvc_seq_add(w.cache, 1, &s, &error), KVC_OK);
  EXPECT_EQ(kvc_seq_lengths(w.cache, 1, &s, &n, &error), KVC_OK);
  EXPECT_EQ(kvc_seq_remove(w.cache, 1, &s, &error), KVC_OK);
  EXPECT_EQ(std::memcmp(&error, &copy, sizeof(error)), 0);
  EXPECT_EQ(kvc_seq_remove(w.cache, 1, &s, &error), KVC_ERROR_STALE_ID);
  EXPECT_EQ(error.code, KVC_ERROR_STALE_ID);
  EXPECT_EQ(error.index, 0);
  EXPECT_EQ(error.required, 0);
  EXPECT_EQ(error.available, 0);
  EXPECT_EQ(error.group, -1);
}

}  // namespace
}  // namespace kvt
