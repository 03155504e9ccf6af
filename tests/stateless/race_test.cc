// Another thread writes index tensors during a call. The call may be refused, and its results may be anything, but it
// reads and writes nothing outside of its tensors. The ids that the thread writes are far outside.
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "flash_call.h"

namespace kvt {
namespace {

constexpr auto kEach = std::chrono::milliseconds(400);

// Calls `body` repeatedly, while a thread switches between two values of `target`. Its stores are atomic, so the thread
// sanitizer reports every load of the library that is not.
template <class T>
void race(std::vector<T> *target, size_t first, T good, T bad, const std::function<kvc_status(kvc_error *)> &body) {
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    T *const values = target->data();
    while (!stop.load(std::memory_order_relaxed)) {
      for (const T value : {bad, good}) {
        for (size_t i = first; i < target->size(); i++) __atomic_store_n(values + i, value, __ATOMIC_RELAXED);
        std::this_thread::yield();
      }
    }
  });
  const auto end = std::chrono::steady_clock::now() + kEach;
  int taken = 0, refused = 0;
  while (std::chrono::steady_clock::now() < end) {
    kvc_error error = KVC_ERROR_INIT;
    const kvc_status status = body(&error);
    status == KVC_OK ? taken++ : refused++;
    if (status != KVC_OK && status != KVC_ERROR_OUT_OF_RANGE && status != KVC_ERROR_BUFFER_TOO_SMALL) {
      ADD_FAILURE() << kvc_status_name(status) << ": " << error.message;
      break;
    }
  }
  stop = true;
  writer.join();
  EXPECT_GT(taken + refused, 0);
}

FlashSetting setting_of(New append) {
  FlashSetting s;
  s.page = 4, s.sk = 4000, s.rows = 4, s.d = s.dv = 16, s.append = append, s.flags = KVC_FLASH_ATTN_CAUSAL;
  return s;
}

TEST(RefusedRaces, BlockTables) {
  const ContextPtr context = make_context(2);
  for (const New append : {New::kNone, New::kEqual}) {
    FlashCall call(setting_of(append));
    const kvc_flash_attn_args args = call.args();
    const auto body = [&](kvc_error *e) { return kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, e); };
    race<int32_t>(&call.table.values, 0, 1, INT32_MAX / 2, body);
    race<int32_t>(&call.table.values, 0, 1, INT32_MIN / 2, body);
  }
}

TEST(RefusedRaces, LengthsAndOffsets) {
  const ContextPtr context = make_context(2);
  FlashSetting setting = setting_of(New::kRagged);
  setting.ragged_q = true, setting.pad = Pad::kLeft, setting.which = Rows::kPermuted;
  FlashCall call(setting);
  const kvc_flash_attn_args args = call.args();
  const auto body = [&](kvc_error *e) { return kvc_flash_attn_with_kvcache(context.get(), &args, nullptr, e); };
  race<int32_t>(&call.lengths.values, 0, 16, INT32_MAX, body);
  race<int32_t>(&call.pads.values, 0, 0, INT32_MIN, body);
  race<int32_t>(&call.cu_q.values, 1, call.cu_q.values.back(), INT32_MAX, body);
  race<int32_t>(&call.cu_new.values, 1, 0, -1000000, body);
}

TEST(RefusedRaces, SlotMappings) {
  const ContextPtr context = make_context(1);  // all tokens have the same slot, so two threads would both write it
  Array k(DType::kF32, {512, 2, 16}), k_cache(DType::kF32, {40, 16, 2, 16}), v_cache = k_cache;
  Indexes<int64_t> slots(std::vector<int64_t>(512, 3));
  kvc_append_slots_args args;
  kvc_append_slots_args_init(&args);
  args.k = args.v = k.dl(), args.k_cache = k_cache.dl(), args.v_cache = v_cache.dl(), args.slot_mapping = slots.dl();
  race<int64_t>(&slots.values, 0, 3, int64_t{1} << 40,
                [&](kvc_error *e) { return kvc_append_slots(context.get(), &args, nullptr, e); });
}

}  // namespace
}  // namespace kvt
