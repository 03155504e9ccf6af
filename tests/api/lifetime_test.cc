// Lifetimes: exports after destroy, adopted storage, and forwards that are open at destroy.
#include <atomic>
#include <thread>

#include "fixture.h"

namespace kvt {
namespace {

TEST(Lifetime, ExportsOutliveCacheAndContext) {
  Managed k, v, pool, writable;
  {
    World w;
    kvc_export_args args;
    kvc_export_args_init(&args);
    DLManagedTensorVersioned *kt = nullptr, *vt = nullptr, *pt = nullptr, *wt = nullptr;
    ASSERT_EQ(export_kv(w.cache, w.seq, &args, &kt, &vt, nullptr, nullptr), KVC_OK);
    ASSERT_EQ(kvc_cache_export_pool(w.cache, 0, KVC_POOL_K, 0, &pt, nullptr, nullptr), KVC_OK);
    ASSERT_EQ(kvc_cache_export_pool(w.cache, 2, KVC_POOL_V, KVC_POOL_WRITABLE, &wt, nullptr, nullptr), KVC_OK);
    k.reset(kt);
    v.reset(vt);
    pool.reset(pt);
    writable.reset(wt);
  }
  const LayerTensors t(World::default_spec().layers[0], 20);
  for (int i = 0; i < 20; i++) {
    for (int h = 0; h < 2; h++) {
      for (int d = 0; d < 8; d++) {
        EXPECT_EQ(at(k->dl_tensor, {i, h, d}), t.k.at(i, h, d));
        EXPECT_EQ(at(v->dl_tensor, {i, h, d}), t.v.at(i, h, d));
      }
    }
  }
  EXPECT_EQ(k->version.major, 1u);
  EXPECT_EQ(pool->dl_tensor.ndim, 4);
  EXPECT_TRUE(pool->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
  EXPECT_FALSE(writable->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
  float sum = 0;
  for (int64_t p = 0; p < pool->dl_tensor.shape[0]; p++) sum += std::fabs(at(pool->dl_tensor, {p, 0, 0, 0}));
  EXPECT_NE(sum, 0.0f);
  set(writable->dl_tensor, {0, 0, 0, 0}, 2.0f);
  EXPECT_EQ(at(writable->dl_tensor, {0, 0, 0, 0}), 2.0f);
  std::thread([&] { pool.reset(); }).join();  // on any thread
}

TEST(Lifetime, ExportsAreCopiesAndPoolsAreViews) {
  World w;
  kvc_export_args args;
  kvc_export_args_init(&args);
  DLManagedTensorVersioned *before = nullptr, *after = nullptr, *view = nullptr;
  ASSERT_EQ(export_kv(w.cache, w.seq, &args, &before, nullptr, nullptr, nullptr), KVC_OK);
  Managed b(before);
  ASSERT_EQ(kvc_cache_export_pool(w.cache, 0, KVC_POOL_K, KVC_POOL_WRITABLE, &view, nullptr, nullptr), KVC_OK);
  Managed p(view);
  int32_t pages[8];
  int64_t count = 0;
  ASSERT_EQ(kvc_seq_pages(w.cache, w.seq, 0, pages, 8, &count, nullptr), KVC_OK);
  const float old = at(b->dl_tensor, {5, 1, 3});
  EXPECT_EQ(at(p->dl_tensor, {pages[1], 1, 1, 3}), old) << "page 1, slot 1 is token 5";
  set(p->dl_tensor, {pages[1], 1, 1, 3}, 42.0f);
  ASSERT_EQ(export_kv(w.cache, w.seq, &args, &after, nullptr, nullptr, nullptr), KVC_OK);
  Managed a(after);
  EXPECT_EQ(at(a->dl_tensor, {5, 1, 3}), 42.0f);
  EXPECT_EQ(at(b->dl_tensor, {5, 1, 3}), old);
}

TEST(Lifetime, DestroyAbortsOpenForwards) {
  World w(World::default_spec(), 2);
  const kvc_forward a = w.begin({w.seq}, {3}), b = w.begin({w.forked}, {1});
  w.attend_all(a, 3);
  EXPECT_NE(b, 0u);
  w.cache_owner.reset();
}

// Storage of the caller: [pages, 2, Hkv, page, D] (HND), or with tokens before heads (NHD). K and V are together or
// apart.
struct Storage {
  std::vector<float> data;
  std::vector<int64_t> shape, strides;
  DLManagedTensorVersioned tensor{};
  int deleted = 0;

  Storage(std::vector<int64_t> s, std::vector<int64_t> order) : shape(std::move(s)) {
    strides.assign(shape.size(), 0);
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = stride;
      stride *= shape[order[i]];
    }
    data.assign(static_cast<size_t>(stride), NAN);
    tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    tensor.manager_ctx = this;
    tensor.deleter = [](DLManagedTensorVersioned *t) { static_cast<Storage *>(t->manager_ctx)->deleted++; };
    tensor.dl_tensor.data = data.data();
    tensor.dl_tensor.device = {kDLCPU, 0};
    tensor.dl_tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dl_tensor.dtype = {kDLFloat, 32, 1};
    tensor.dl_tensor.shape = shape.data();
    tensor.dl_tensor.strides = strides.data();
  }
};

CacheSpec storage_spec() {
  CacheSpec spec;
  spec.page_size = 4;
  spec.max_sequences = 4;
  spec.max_batch_tokens = 32;
  spec.groups = {{0, 10}};
  spec.layers = {LayerSpec{0, 4, 2, 8}};
  return spec;
}

std::vector<uint8_t> outputs(kvc_cache *cache) {
  kvc_seq s = 0;
  EXPECT_EQ(kvc_seq_add(cache, 1, &s, nullptr), KVC_OK);
  std::vector<uint8_t> bytes;
  for (int32_t n : {13, 1, 5}) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &s;
    batch.append_lengths = &n;
    batch.num_sequences = 1;
    kvc_forward f = 0;
    EXPECT_EQ(kvc_forward_begin(cache, &batch, nullptr, &f, nullptr), KVC_OK);
    LayerTensors t(storage_spec().layers[0], n);
    const kvc_attend_args args = t.attend_args();
    EXPECT_EQ(kvc_forward_attend(cache, f, 0, &args, nullptr), KVC_OK);
    EXPECT_EQ(kvc_forward_end(cache, f, nullptr), KVC_OK);
    bytes.insert(bytes.end(), t.out.bytes().begin(), t.out.bytes().end());
  }
  return bytes;
}

TEST(Lifetime, AdoptedStorage) {
  ContextPtr context = make_context();
  CachePtr own = make_cache(context.get(), storage_spec());
  const std::vector<uint8_t> expected = outputs(own.get());
  for (int layout = 0; layout < 3; layout++) {  // HND, NHD, K and V apart
    SCOPED_TRACE(layout);
    Storage kv({10, 2, 2, 4, 8},
               layout == 1 ? std::vector<int64_t>{0, 1, 3, 2, 4} : std::vector<int64_t>{0, 1, 2, 3, 4});
    Storage k({10, 2, 4, 8}, {0, 1, 2, 3}), v({10, 2, 4, 8}, {0, 2, 1, 3});
    BuiltConfig b(storage_spec());
    if (layout < 2) {
      b.layers[0].kv_storage = &kv.tensor;
    } else {
      b.layers[0].k_storage = &k.tensor;
      b.layers[0].v_storage = &v.tensor;
    }
    kvc_cache *cache = nullptr;
    kvc_error error = KVC_ERROR_INIT;
    ASSERT_EQ(kvc_cache_create(context.get(), &b.config, &cache, &error), KVC_OK) << error.message;
    CachePtr owner(cache);
    EXPECT_EQ(outputs(cache), expected);
    kvc_seq s = 0;
    EXPECT_EQ(kvc_seq_add(cache, 1, &s, nullptr), KVC_OK);
    Managed view;
    DLManagedTensorVersioned *t = nullptr;
    ASSERT_EQ(kvc_cache_export_pool(cache, 0, KVC_POOL_K, 0, &t, nullptr, nullptr), KVC_OK);
    view.reset(t);
    EXPECT_EQ(static_cast<char *>(t->dl_tensor.data) + t->dl_tensor.byte_offset,
              reinterpret_cast<char *>(layout < 2 ? kv.data.data() : k.data.data()))
        << "no copy";
    const kvc_status together = kvc_cache_export_pool(cache, 0, KVC_POOL_KV, 0, &t, nullptr, nullptr);
    EXPECT_EQ(together, layout < 2 ? KVC_OK : KVC_ERROR_UNSUPPORTED);
    if (together == KVC_OK) Managed(t).reset();
    owner.reset();
    EXPECT_EQ(kv.deleted + k.deleted, 0) << "the view keeps the memory";
    view.reset();
    if (layout < 2) {
      EXPECT_EQ(kv.deleted, 1);
    } else {
      EXPECT_EQ(k.deleted, 1);
      EXPECT_EQ(v.deleted, 1);
    }
  }
}

TEST(Lifetime, StorageThatIsRefusedStaysTheCallers) {
  ContextPtr context = make_context();
  struct {
    const char *what;
    kvc_status status;
    std::function<void(Storage &)> change;
  } cases[] = {
      {"dtype", KVC_ERROR_DTYPE, [](Storage &s) { s.tensor.dl_tensor.dtype = {kDLFloat, 16, 1}; }},
      {"device", KVC_ERROR_DEVICE, [](Storage &s) { s.tensor.dl_tensor.device.device_type = kDLCUDA; }},
      {"rank", KVC_ERROR_RANK, [](Storage &s) { s.tensor.dl_tensor.ndim = 4; }},
      {"pages", KVC_ERROR_SHAPE, [](Storage &s) { s.shape[0] = 9; }},
      {"page size", KVC_ERROR_SHAPE, [](Storage &s) { s.shape[3] = 5; }},
      {"heads", KVC_ERROR_SHAPE, [](Storage &s) { s.shape[2] = 1; }},
      {"head dim", KVC_ERROR_SHAPE, [](Storage &s) { s.shape[4] = 7; }},
      {"K and V", KVC_ERROR_SHAPE, [](Storage &s) { s.shape[1] = 3; }},
      {"stride", KVC_ERROR_STRIDE, [](Storage &s) { s.strides[4] = 2; }},
      {"alignment", KVC_ERROR_STRIDE, [](Storage &s) { s.tensor.dl_tensor.byte_offset = 2; }},
  };
  for (const auto &c : cases) {
    SCOPED_TRACE(c.what);
    Storage kv({10, 2, 2, 4, 8}, {0, 1, 2, 3, 4});
    c.change(kv);
    BuiltConfig b(storage_spec());
    b.layers.push_back(b.layers[0]);
    b.config.layers = b.layers.data();
    b.config.num_layers = 2;
    b.layers[1].kv_storage = &kv.tensor;
    kvc_cache *cache = nullptr;
    const kvc_error error = refused(nullptr, {c.status}, "kvc_cache_create", [&](kvc_error *e) {
      return kvc_cache_create(context.get(), &b.config, &cache, e);
    });
    EXPECT_EQ(error.index, 1) << error.message;
    EXPECT_EQ(kv.deleted, 0);
  }
  // K without V, or all three.
  Storage kv({10, 2, 2, 4, 8}, {0, 1, 2, 3, 4}), k({10, 2, 4, 8}, {0, 1, 2, 3}), v({10, 2, 4, 8}, {0, 1, 2, 3});
  for (int which = 0; which < 3; which++) {
    BuiltConfig b(storage_spec());
    if (which != 1) b.layers[0].k_storage = &k.tensor;
    if (which != 0) b.layers[0].v_storage = &v.tensor;
    if (which == 2) b.layers[0].kv_storage = &kv.tensor;
    kvc_cache *cache = nullptr;
    refused(nullptr, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_NULL_ARGUMENT}, "kvc_cache_create",
            [&](kvc_error *e) { return kvc_cache_create(context.get(), &b.config, &cache, e); });
  }
  // D != Dv cannot be one tensor.
  BuiltConfig b(storage_spec());
  b.layers[0].v_head_dim = 4;
  b.layers[0].kv_storage = &kv.tensor;
  kvc_cache *cache = nullptr;
  refused(nullptr, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_SHAPE, KVC_ERROR_UNSUPPORTED}, "kvc_cache_create",
          [&](kvc_error *e) { return kvc_cache_create(context.get(), &b.config, &cache, e); });
  EXPECT_EQ(kv.deleted + k.deleted + v.deleted, 0);
}

// An import undoes an export bit by bit, in every dtype, also where rotated K is stored.
TEST(Lifetime, ImportIsTheInverseOfExport) {
  World w;
  kvc_seq copy = 0;
  // Pages that left the window cannot be exported, so the sequence is shorter than the window.
  const int64_t cut = 0;
  ASSERT_EQ(kvc_seq_truncate(w.cache, 1, &w.seq, &cut, nullptr), KVC_OK);
  w.step(w.seq, 7);
  ASSERT_EQ(kvc_seq_add(w.cache, 1, &copy, nullptr), KVC_OK);
  std::vector<Managed> owners;
  std::vector<const DLTensor *> k, v;
  for (int l = 0; l < 3; l++) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.layer = l;
    DLManagedTensorVersioned *kt = nullptr, *vt = nullptr;
    ASSERT_EQ(export_kv(w.cache, w.seq, &args, &kt, &vt, nullptr, nullptr), KVC_OK);
    owners.emplace_back(kt);
    owners.emplace_back(vt);
    k.push_back(&kt->dl_tensor);
    v.push_back(&vt->dl_tensor);
  }
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.flags = KVC_IMPORT_AS_STORED;
  args.num_layers = 3;
  args.k = k.data();
  args.v = v.data();
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_seq_import(w.cache, copy, &args, nullptr, &error), KVC_OK) << error.message;
  EXPECT_EQ(w.length(copy), 7);
  for (int l = 0; l < 3; l++) {
    kvc_export_args again;
    kvc_export_args_init(&again);
    again.layer = l;
    DLManagedTensorVersioned *kt = nullptr, *vt = nullptr;
    ASSERT_EQ(export_kv(w.cache, copy, &again, &kt, &vt, nullptr, nullptr), KVC_OK);
    Managed ko(kt), vo(vt);
    for (auto [a, b] : {std::pair{&kt->dl_tensor, k[l]}, {&vt->dl_tensor, v[l]}}) {
      const int64_t bytes = a->shape[0] * a->shape[1] * a->shape[2] * a->dtype.bits / 8;
      EXPECT_EQ(std::memcmp(a->data, b->data, bytes), 0) << "layer " << l;
    }
  }
}

}  // namespace
}  // namespace kvt
