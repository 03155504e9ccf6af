// The stateless calls as C functions: a first program, NULL, structs of other versions, batch 0, no allocation.
// tests/stateless tests what they compute.
#include "fixture.h"

namespace kvt {
namespace {

// One row of 5 tokens and a new one, in a contiguous cache of 8.
struct Decode {
  Tensor q{DType::kF32, {1, 2, 4}}, out{DType::kF32, {1, 2, 4}}, k{DType::kF32, {1, 1, 4}}, v{DType::kF32, {1, 1, 4}};
  Tensor k_cache{DType::kF32, {8, 1, 4}}, v_cache{DType::kF32, {8, 1, 4}};
  DLTensor tensors[6];
  int64_t shapes[6][4];
  int32_t length = 5;
  int64_t one = 1;
  DLTensor lengths = {&length, {kDLCPU, 0}, 1, {kDLInt, 32, 1}, &one, nullptr, 0};
  kvc_flash_attn_args args;

  Decode() {
    Tensor *const all[6] = {&q, &out, &k, &v, &k_cache, &v_cache};
    for (int i = 0; i < 6; i++) {
      tensors[i] = *all[i]->dl(true);
      shapes[i][0] = 1;
      std::copy_n(tensors[i].shape, 3, shapes[i] + 1);
      tensors[i].ndim = 4;
      tensors[i].shape = shapes[i];
      tensors[i].strides = nullptr;
      for (int64_t t = 0; t < all[i]->dim(0); t++) {
        for (int64_t h = 0; h < all[i]->dim(1); h++) {
          for (int64_t d = 0; d < 4; d++) all[i]->set(t, h, d, static_cast<float>((t + 2 * h + 3 * d + i) % 5));
        }
      }
    }
    kvc_flash_attn_args_init(&args);
    args.q = &tensors[0], args.out = &tensors[1], args.k = &tensors[2], args.v = &tensors[3];
    args.k_cache = &tensors[4], args.v_cache = &tensors[5];
    args.cache_seqlens = &lengths;
  }
};

TEST(Stateless, NullAndStructs) {
  const ContextPtr context = make_context(1);
  Decode d;
  const auto flash = [&](const kvc_flash_attn_args *a, kvc_error *e) {
    return kvc_flash_attn_with_kvcache(context.get(), a, nullptr, e);
  };
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_flash_attn_with_kvcache",
          [&](kvc_error *e) { return kvc_flash_attn_with_kvcache(nullptr, &d.args, nullptr, e); });
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_flash_attn_with_kvcache",
          [&](kvc_error *e) { return flash(nullptr, e); });
  refused(nullptr, {KVC_ERROR_DEVICE}, "kvc_flash_attn_with_kvcache",
          [&](kvc_error *e) { return kvc_flash_attn_with_kvcache(context.get(), &d.args, &d, e); });
  kvc_append_slots_args slots;
  kvc_append_slots_args_init(&slots);
  const auto append = [&](const kvc_append_slots_args *a, kvc_error *e) {
    return kvc_append_slots(context.get(), a, nullptr, e);
  };
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_append_slots",
          [&](kvc_error *e) { return kvc_append_slots(nullptr, &slots, nullptr, e); });
  refused(nullptr, {KVC_ERROR_NULL_ARGUMENT}, "kvc_append_slots", [&](kvc_error *e) { return append(nullptr, e); });
  for (uint32_t size : {0u, 8u, static_cast<uint32_t>(sizeof slots - 8), 1u << 20}) {
    d.args.struct_size = size;
    refused(nullptr, {KVC_ERROR_STRUCT_SIZE}, "kvc_flash_attn_with_kvcache",
            [&](kvc_error *e) { return flash(&d.args, e); });
    slots.struct_size = size;
    refused(nullptr, {KVC_ERROR_STRUCT_SIZE}, "kvc_append_slots", [&](kvc_error *e) { return append(&slots, e); });
  }
  // A struct of a later version: zeros after our fields are defaults, and other values are unknown.
  d.args.struct_size = sizeof d.args;
  std::vector<uint64_t> later(sizeof d.args / 8 + 4, 0);
  std::memcpy(later.data(), &d.args, sizeof d.args);
  auto *longer = reinterpret_cast<kvc_flash_attn_args *>(later.data());
  longer->struct_size = static_cast<uint32_t>(later.size() * 8);
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(flash(longer, &error), KVC_OK) << error.message;
  later.back() = 1;
  refused(nullptr, {KVC_ERROR_UNSUPPORTED}, "kvc_flash_attn_with_kvcache",
          [&](kvc_error *e) { return flash(longer, e); });
}

TEST(Stateless, AppendsAndDoesNotAdvance) {
  const ContextPtr context = make_context(1);
  Decode d;
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(kvc_flash_attn_with_kvcache(context.get(), &d.args, nullptr, &error), KVC_OK) << error.message;
  EXPECT_EQ(d.length, 5);
  for (int64_t i = 0; i < 4; i++) EXPECT_EQ(d.k_cache.at(5, 0, i), d.k.at(0, 0, i));
  const std::vector<uint8_t> first = d.out.bytes();
  // Now by its slot, and without k: the same.
  int64_t slot = 5;
  DLTensor mapping = {&slot, {kDLCPU, 0}, 1, {kDLInt, 64, 1}, &d.one, nullptr, 0};
  kvc_append_slots_args slots;
  kvc_append_slots_args_init(&slots);
  slots.k = d.k.dl(), slots.v = d.v.dl(), slots.k_cache = &d.tensors[4], slots.v_cache = &d.tensors[5];
  slots.slot_mapping = &mapping;
  ASSERT_EQ(kvc_append_slots(context.get(), &slots, nullptr, &error), KVC_OK) << error.message;
  d.length = 6;
  d.args.k = d.args.v = nullptr;
  ASSERT_EQ(kvc_flash_attn_with_kvcache(context.get(), &d.args, nullptr, &error), KVC_OK) << error.message;
  EXPECT_TRUE(d.out.bytes() == first);
}

TEST(Stateless, NoRows) {
  const ContextPtr context = make_context(1);
  Decode d;
  for (int i = 0; i < 4; i++) d.shapes[i][0] = 0;
  d.one = 0;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_flash_attn_with_kvcache(context.get(), &d.args, nullptr, &error), KVC_OK) << error.message;
}

}  // namespace
}  // namespace kvt
