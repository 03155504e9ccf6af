// Every tensor argument with a wrong dtype, device, rank, shape, stride or alignment. Then the right one works.
#include <algorithm>

#include "fixture.h"

namespace kvt {
namespace {

struct Spoiled {
  const char *what;
  Statuses statuses;
  std::function<void(DLTensor *, std::vector<int64_t> *shape, std::vector<int64_t> *strides)> spoil;
};

using Shape = std::vector<int64_t>;

std::vector<Spoiled> all_spoiled(bool must_be_f32) {
  std::vector<Spoiled> all;
  auto dtype = [&](const char *what, DLDataType type) {
    all.push_back({what, {KVC_ERROR_DTYPE}, [type](DLTensor *t, Shape *, Shape *) { t->dtype = type; }});
  };
  dtype("int32", {kDLInt, 32, 1});
  dtype("float64", {kDLFloat, 64, 1});
  dtype("uint8", {kDLUInt, 8, 1});
  dtype("two lanes", {kDLFloat, 32, 2});
  dtype("float8", {kDLFloat8_e4m3fn, 8, 1});
  dtype("bfloat32", {kDLBfloat, 32, 1});
  dtype("nothing", {0, 0, 0});
  if (must_be_f32) {
    dtype("float16", {kDLFloat, 16, 1});
    dtype("bfloat16", {kDLBfloat, 16, 1});
  }
  for (DLDeviceType type : {kDLCUDA, kDLCUDAHost, kDLMetal, static_cast<DLDeviceType>(99)}) {
    if (type == kDLCUDAHost) continue;  // this is host memory, so both results are right
    all.push_back(
        {"device", {KVC_ERROR_DEVICE}, [type](DLTensor *t, Shape *, Shape *) { t->device.device_type = type; }});
  }
  all.push_back({"one dimension less", {KVC_ERROR_RANK}, [](DLTensor *t, Shape *, Shape *) { t->ndim--; }});
  all.push_back({"one dimension more", {KVC_ERROR_RANK}, [](DLTensor *t, Shape *shape, Shape *strides) {
                   shape->push_back(1);
                   strides->push_back(1);
                   t->ndim++;
                 }});
  all.push_back({"no dimension", {KVC_ERROR_RANK}, [](DLTensor *t, Shape *, Shape *) { t->ndim = 0; }});
  all.push_back({"negative rank", {KVC_ERROR_RANK}, [](DLTensor *t, Shape *, Shape *) { t->ndim = -1; }});
  all.push_back({"a row less", {KVC_ERROR_SHAPE}, [](DLTensor *, Shape *shape, Shape *) { (*shape)[0]--; }});
  all.push_back({"a head more", {KVC_ERROR_SHAPE}, [](DLTensor *, Shape *shape, Shape *) { (*shape)[1]++; }});
  all.push_back({"no head", {KVC_ERROR_SHAPE}, [](DLTensor *, Shape *shape, Shape *) { (*shape)[1] = 0; }});
  all.push_back({"negative rows", {KVC_ERROR_SHAPE}, [](DLTensor *, Shape *shape, Shape *) { (*shape)[0] = -4; }});
  all.push_back(
      {"innermost stride 2", {KVC_ERROR_STRIDE}, [](DLTensor *, Shape *, Shape *strides) { strides->back() = 2; }});
  all.push_back(
      {"innermost stride 0", {KVC_ERROR_STRIDE}, [](DLTensor *, Shape *, Shape *strides) { strides->back() = 0; }});
  all.push_back(
      {"innermost stride -1", {KVC_ERROR_STRIDE}, [](DLTensor *, Shape *, Shape *strides) { strides->back() = -1; }});
  all.push_back({"unaligned", {KVC_ERROR_STRIDE}, [](DLTensor *t, Shape *, Shape *) { t->byte_offset = 1; }});
  all.push_back({"4 bytes before the end of the address space", {KVC_ERROR_STRIDE}, [](DLTensor *t, Shape *, Shape *) {
                   t->byte_offset = ~static_cast<uint64_t>(reinterpret_cast<uintptr_t>(t->data)) - 3;
                 }});
  return all;
}

void spoil(DLTensor *copy, const DLTensor *original, const Spoiled &s, Shape *shape, Shape *strides) {
  *copy = *original;
  shape->assign(original->shape, original->shape + original->ndim);
  strides->assign(original->strides, original->strides + original->ndim);
  s.spoil(copy, shape, strides);
  copy->shape = shape->data();
  copy->strides = strides->data();
}

TEST(Tensors, AppendRefusesWrongOnes) {
  for (int layer = 0; layer < 3; layer++) {
    World w;
    const kvc_forward f = w.begin({w.seq}, {3});
    LayerTensors t(w.spec.layers[layer], 3);
    for (const Spoiled &s : all_spoiled(false)) {
      for (int which = 0; which < 2; which++) {
        SCOPED_TRACE(std::string(which ? "v " : "k ") + s.what);
        kvc_append_args args = t.append_args();
        DLTensor bad;
        Shape shape, strides;
        spoil(&bad, which ? args.v : args.k, s, &shape, &strides);
        (which ? args.v : args.k) = &bad;
        refused(w.cache, s.statuses, "kvc_forward_append",
                [&](kvc_error *e) { return kvc_forward_append(w.cache, f, layer, &args, e); }, {which ? "v" : "k"});
        kvc_attend_args attend = t.attend_args();
        (which ? attend.v : attend.k) = &bad;
        refused(w.cache, s.statuses, "kvc_forward_attend",
                [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, layer, &attend, e); }, {which ? "v" : "k"});
      }
    }
    // A head dim that differs from the layer's.
    for (int64_t change : {-1, 1}) {
      LayerSpec other = w.spec.layers[layer];
      other.dv = other.v_dim() + static_cast<int>(change);
      LayerTensors wrong(other, 3);
      kvc_append_args args = t.append_args();
      args.v = wrong.v.dl();
      refused(w.cache, {KVC_ERROR_SHAPE}, "kvc_forward_append",
              [&](kvc_error *e) { return kvc_forward_append(w.cache, f, layer, &args, e); });
    }
    kvc_append_args args = t.append_args();
    args.flags = 0x80;
    refused(w.cache, {KVC_ERROR_UNSUPPORTED, KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_append",
            [&](kvc_error *e) { return kvc_forward_append(w.cache, f, layer, &args, e); });
    args.flags = 0;
    EXPECT_EQ(kvc_forward_append(w.cache, f, layer, &args, nullptr), KVC_OK) << "the right one works";
  }
}

TEST(Tensors, AttendRefusesWrongOnes) {
  for (int layer = 0; layer < 3; layer++) {
    World w;
    const kvc_forward f = w.begin({w.seq}, {3});
    LayerTensors t(w.spec.layers[layer], 3);
    const std::vector<uint8_t> clean = t.out.bytes();
    const char *names[] = {"q", "out", "lse"};
    for (int which = 0; which < 3; which++) {
      for (const Spoiled &s : all_spoiled(which == 2)) {
        SCOPED_TRACE(std::string(names[which]) + " " + s.what);
        // The innermost dimension of lse counts heads. A wrong count there is reported as one of the second dimension
        // of other tensors.
        kvc_attend_args args = t.attend_args();
        const DLTensor **slots[] = {&args.q, &args.out, &args.lse};
        DLTensor bad;
        Shape shape, strides;
        spoil(&bad, *slots[which], s, &shape, &strides);
        *slots[which] = &bad;
        refused(w.cache, s.statuses, "kvc_forward_attend",
                [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, layer, &args, e); }, {names[which]});
      }
    }
    kvc_attend_args args = t.attend_args();
    args.flags = 0x80;
    refused(w.cache, {KVC_ERROR_UNSUPPORTED, KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, layer, &args, e); });
    EXPECT_EQ(t.out.bytes(), clean) << "a refused attend wrote";
    args = t.attend_args();
    EXPECT_EQ(kvc_forward_attend(w.cache, f, layer, &args, nullptr), KVC_OK) << "the right one works";
    EXPECT_NE(t.out.bytes(), clean);
  }
}

// Two tensors with different strides that overlap only far from their beginnings: out is in the left halves of rows. q
// begins in the first right half, and its stride is one and a half rows.
TEST(Tensors, InputsThatRunIntoOutputs) {
  World w;
  const kvc_forward f = w.begin({w.seq}, {3});
  LayerTensors t(w.spec.layers[0], 3);
  kvc_attend_args args = t.attend_args();
  const int64_t heads = args.out->shape[1], dims = args.out->shape[2], half = heads * dims;
  ASSERT_EQ(args.q->shape[2], dims);
  Tensor both(DType::kF32, {8 * half, 1});
  int64_t shape[] = {3, heads, dims}, out_strides[] = {2 * half, dims, 1}, q_strides[] = {3 * half, dims, 1};
  DLTensor out = *both.dl(), q = *both.dl();
  out.ndim = q.ndim = 3;
  out.shape = q.shape = shape;
  out.strides = out_strides, q.strides = q_strides;
  q.byte_offset += static_cast<uint64_t>(half) * sizeof(float);
  args.out = &out, args.q = &q;
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_attend",
          [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &args, e); }, {"out", "q", "overlaps"});
  q_strides[0] = 2 * half;  // q and out alternate
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_attend(w.cache, f, 0, &args, &error), KVC_OK) << error.message;
}

TEST(Tensors, ImportRefusesWrongOnes) {
  World w;
  std::vector<LayerTensors> tensors;
  for (const LayerSpec &l : w.spec.layers) tensors.emplace_back(l, 3);
  std::vector<const DLTensor *> k, v;
  auto reset = [&] {
    k.clear();
    v.clear();
    for (LayerTensors &t : tensors) {
      k.push_back(t.k.dl());
      v.push_back(t.v.dl());
    }
  };
  reset();
  kvc_import_args args;
  kvc_import_args_init(&args);
  args.num_layers = 3;
  for (const Spoiled &s : all_spoiled(false)) {
    for (int layer = 0; layer < 3; layer++) {
      for (int which = 0; which < 2; which++) {
        SCOPED_TRACE(std::string(which ? "v " : "k ") + s.what + " in layer " + std::to_string(layer));
        reset();
        DLTensor bad;
        Shape shape, strides;
        spoil(&bad, (which ? v : k)[layer], s, &shape, &strides);
        (which ? v : k)[layer] = &bad;
        args.k = k.data();
        args.v = v.data();
        const kvc_error error = refused(w.cache, s.statuses, "kvc_seq_import", [&](kvc_error *e) {
          return kvc_seq_import(w.cache, w.seq, &args, nullptr, e);
        });
        // (If the first tensor has another number of tokens, all other tensors are reported.)
        const bool counts = std::string(s.what).find("row") != std::string::npos;
        if (!counts) {
          EXPECT_EQ(error.index, layer);
        }
      }
    }
  }
  reset();
  args.k = k.data();
  args.v = v.data();
  for (int32_t layers : {0, 2, 4, -1}) {
    args.num_layers = layers;
    refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_OUT_OF_RANGE}, "kvc_seq_import",
            [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, &args, nullptr, e); });
  }
  args.num_layers = 3;
  args.flags = 0x40;
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_UNSUPPORTED}, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, &args, nullptr, e); });
  args.flags = 0;
  args.reserved = 1;
  refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT, KVC_ERROR_UNSUPPORTED}, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, &args, nullptr, e); });
  args.reserved = 0;
  EXPECT_EQ(kvc_seq_import(w.cache, w.seq, &args, nullptr, nullptr), KVC_OK);
  EXPECT_EQ(w.length(w.seq), 23);
}

TEST(Tensors, ImportRefusesImpossibleNumbersOfTokens) {
  World w;
  for (const int64_t tokens : {int64_t{0}, int64_t{-1}, int64_t{5} - (int64_t{1} << 32), int64_t{1} << 40}) {
    std::vector<LayerTensors> tensors;
    for (const LayerSpec &l : w.spec.layers) tensors.emplace_back(l, 3);
    std::vector<const DLTensor *> k, v;
    for (LayerTensors &t : tensors) {
      t.k.dl()->shape[0] = t.v.dl()->shape[0] = tokens;
      k.push_back(t.k.dl());
      v.push_back(t.v.dl());
    }
    kvc_import_args args;
    kvc_import_args_init(&args);
    args.num_layers = static_cast<int32_t>(k.size());
    args.k = k.data();
    args.v = v.data();
    refused(w.cache, {KVC_ERROR_SHAPE, KVC_ERROR_STRIDE, KVC_ERROR_BATCH_TOO_LARGE}, "kvc_seq_import",
            [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, &args, nullptr, e); });
  }
}

TEST(Tensors, StridesOfDimensionsOfSizeOneAreIgnored) {
  CacheSpec spec;
  spec.groups = {{0, 8}};
  spec.layers = {LayerSpec{0, 1, 1, 1}};
  World w(spec, 1, 0);
  const kvc_forward f = w.begin({w.seq}, {1});
  LayerTensors t(spec.layers[0], 1);
  kvc_attend_args args = t.attend_args();
  std::vector<int64_t> odd{-5, 77, 9};
  DLTensor copies[5] = {*args.q, *args.k, *args.v, *args.out, *args.lse};
  for (DLTensor &c : copies) c.strides = odd.data();
  args.q = &copies[0];
  args.k = &copies[1];
  args.v = &copies[2];
  args.out = &copies[3];
  args.lse = &copies[4];
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_attend(w.cache, f, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_EQ(t.out.at(0, 0, 0), t.v.at(0, 0, 0));
  EXPECT_EQ(kvc_forward_abort(w.cache, f, nullptr), KVC_OK);
}

TEST(Tensors, StreamMustBeNullOnTheCpu) {
  World w;
  int something = 0;
  kvc_seq child = 0;
  kvc_forward f = 0;
  const int32_t one = 1;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &w.seq;
  batch.append_lengths = &one;
  batch.num_sequences = 1;
  const Statuses device{KVC_ERROR_DEVICE};
  refused(w.cache, device, "kvc_forward_begin",
          [&](kvc_error *e) { return kvc_forward_begin(w.cache, &batch, &something, &f, e); }, {"stream"});
  refused(w.cache, device, "kvc_seq_fork",
          [&](kvc_error *e) { return kvc_seq_fork(w.cache, 1, &w.seq, nullptr, &child, &something, e); }, {"stream"});
  kvc_export_args args;
  kvc_export_args_init(&args);
  args.position_begin = 16;
  DLManagedTensorVersioned *k = nullptr;
  refused(w.cache, device, "kvc_seq_export",
          [&](kvc_error *e) { return export_kv(w.cache, w.seq, &args, &k, nullptr, &something, e); }, {"stream"});
  std::vector<LayerTensors> tensors;
  for (const LayerSpec &l : w.spec.layers) tensors.emplace_back(l, 3);
  std::vector<const DLTensor *> ks, vs;
  for (LayerTensors &t : tensors) {
    ks.push_back(t.k.dl());
    vs.push_back(t.v.dl());
  }
  kvc_import_args import;
  kvc_import_args_init(&import);
  import.num_layers = 3;
  import.k = ks.data();
  import.v = vs.data();
  refused(w.cache, device, "kvc_seq_import",
          [&](kvc_error *e) { return kvc_seq_import(w.cache, w.seq, &import, &something, e); }, {"stream"});
}

// Outputs of attend may be beside its inputs in one buffer, but must not overlap them.
TEST(Tensors, OutputsApartFromInputs) {
  World w;
  const LayerSpec &l = w.spec.layers[0];  // 4 query heads, 2 kv heads of 8 dims
  const kvc_forward f = w.begin({w.seq}, {3});
  const int64_t width = 2 * l.hq * l.d + 2 * l.hkv * l.d + l.hq;  // q, out, k, v and lse of a token
  std::vector<float> buffer(static_cast<size_t>(3 * width), 0.25f);
  const auto view = [&](int64_t column, int64_t heads, int64_t dims, int64_t *shape, int64_t *strides) {
    shape[0] = 3, shape[1] = heads, shape[2] = dims;
    strides[0] = width, strides[1] = dims, strides[2] = 1;
    return DLTensor{buffer.data() + column, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, strides, 0};
  };
  int64_t shapes[5][3], strides[5][3];
  const int64_t wide = l.hq * l.d, narrow = l.hkv * l.d;
  const DLTensor q = view(0, l.hq, l.d, shapes[0], strides[0]);
  const DLTensor k = view(2 * wide, l.hkv, l.d, shapes[2], strides[2]);
  const DLTensor v = view(2 * wide + narrow, l.hkv, l.d, shapes[3], strides[3]);
  DLTensor lse = view(2 * wide + 2 * narrow, l.hq, 1, shapes[4], strides[4]);
  lse.ndim = 2;
  const std::vector<float> before = buffer;
  for (const auto &[column, name] : {std::pair<int64_t, const char *>{0, "q"},
                                     {wide - 1, "q"},
                                     {2 * wide - l.hq * l.d + 1, "k"},
                                     {width - wide, "lse"}}) {
    const DLTensor out = view(column, l.hq, l.d, shapes[1], strides[1]);
    kvc_attend_args args;
    kvc_attend_args_init(&args);
    args.q = &q, args.k = &k, args.v = &v, args.out = &out, args.lse = &lse;
    refused(w.cache, {KVC_ERROR_INVALID_ARGUMENT}, "kvc_forward_attend",
            [&](kvc_error *e) { return kvc_forward_attend(w.cache, f, 0, &args, e); }, {"out", "overlaps", name});
  }
  EXPECT_EQ(buffer, before);
  const DLTensor out = view(wide, l.hq, l.d, shapes[1], strides[1]);
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = &q, args.k = &k, args.v = &v, args.out = &out, args.lse = &lse;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_forward_attend(w.cache, f, 0, &args, &error), KVC_OK) << error.message;
  EXPECT_NE(buffer, before);
}

}  // namespace
}  // namespace kvt
