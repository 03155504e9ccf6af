// Calls on forwards and ids that must be refused.
#include <vector>

#include "harness.h"
#include "harness_call.h"

namespace kvt {

void Harness::check_misuse(int forward) {
  Open &open = forwards_.at(forward);
  const int layers = static_cast<int>(spec_.layers.size());
  auto with_cancel = [&](Faults faults) {
    if (open.cancelled) faults.push_back({KVC_ERROR_CANCELLED});
    return faults;
  };
  const int layer = static_cast<int>(uniform(open.layer_begin, open.layer_end - 1));
  const LayerSpec &l = spec_.layers[layer];
  Tensor k(DType::kF32, {open.tokens + 1, l.hkv, l.d}), v(DType::kF32, {open.tokens + 1, l.hkv, l.v_dim()});
  Tensor q(DType::kF32, {open.tokens + 1, l.hq, l.d}), out(DType::kF32, {open.tokens + 1, l.hq, l.v_dim()});
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = k.dl();
  append.v = v.dl();
  kvc_attend_args attend;
  kvc_attend_args_init(&attend);
  attend.q = q.dl();
  attend.out = out.dl();
  const std::vector<uint8_t> clean = out.bytes();
  for (int bad : {-1, layers, open.layer_begin - 1, open.layer_end}) {
    call("kvc_forward_append", with_cancel({{KVC_ERROR_OUT_OF_RANGE}}),
         [&](kvc_error *e) { return kvc_forward_append(cache_.get(), open.id, bad, &append, e); });
    call("kvc_forward_attend", with_cancel({{KVC_ERROR_OUT_OF_RANGE}}),
         [&](kvc_error *e) { return kvc_forward_attend(cache_.get(), open.id, bad, &attend, e); });
  }
  if (!appends(open, layer)) {
    call("kvc_forward_append", with_cancel({{KVC_ERROR_INVALID_ARGUMENT, layer}}),
         [&](kvc_error *e) { return kvc_forward_append(cache_.get(), open.id, layer, &append, e); });
  } else if (open.appended.count(layer)) {
    call("kvc_forward_append", with_cancel({{KVC_ERROR_ORDER}}),
         [&](kvc_error *e) { return kvc_forward_append(cache_.get(), open.id, layer, &append, e); });
    attend.k = k.dl();
    attend.v = v.dl();
    call("kvc_forward_attend", with_cancel({{KVC_ERROR_ORDER}}),
         [&](kvc_error *e) { return kvc_forward_attend(cache_.get(), open.id, layer, &attend, e); });
    attend.k = attend.v = nullptr;
    if (open.attended.count(layer)) {
      call("kvc_forward_attend", with_cancel({{KVC_ERROR_ORDER}}),
           [&](kvc_error *e) { return kvc_forward_attend(cache_.get(), open.id, layer, &attend, e); });
    }
  } else {
    call("kvc_forward_attend", with_cancel({{KVC_ERROR_ORDER}}),
         [&](kvc_error *e) { return kvc_forward_attend(cache_.get(), open.id, layer, &attend, e); });
  }
  if (out.bytes() != clean) fail("a refused attend wrote its output");
  // The id of a sequence is not one of a forward, and that of a closed forward is stale.
  std::vector<kvc_forward> gone;
  if (!stale_forwards_.empty())
    gone.push_back(stale_forwards_[uniform(0, static_cast<int64_t>(stale_forwards_.size()) - 1)]);
  gone.push_back(0);
  for (kvc_forward id : gone) {
    const Faults stale{{KVC_ERROR_STALE_ID}};
    call("kvc_forward_end", stale, [&](kvc_error *e) { return kvc_forward_end(cache_.get(), id, e); });
    call("kvc_forward_abort", stale, [&](kvc_error *e) { return kvc_forward_abort(cache_.get(), id, e); });
    call("kvc_forward_cancel", stale, [&](kvc_error *e) { return kvc_forward_cancel(cache_.get(), id, e); });
    call("kvc_forward_append", stale,
         [&](kvc_error *e) { return kvc_forward_append(cache_.get(), id, layer, &append, e); });
    call("kvc_forward_attend", stale,
         [&](kvc_error *e) { return kvc_forward_attend(cache_.get(), id, layer, &attend, e); });
  }
}

void Harness::check_stale(kvc_seq id) {
  const Faults stale{{KVC_ERROR_STALE_ID}};
  int64_t value = 77;
  call("kvc_seq_lengths", stale, [&](kvc_error *e) { return kvc_seq_lengths(cache_.get(), 1, &id, &value, e); });
  call("kvc_seq_max_append", stale, [&](kvc_error *e) { return kvc_seq_max_append(cache_.get(), 1, &id, &value, e); });
  call("kvc_seq_pages", stale, [&](kvc_error *e) { return kvc_seq_pages(cache_.get(), id, 0, nullptr, 0, &value, e); });
  call("kvc_seq_nearest_position", stale,
       [&](kvc_error *e) { return kvc_seq_nearest_position(cache_.get(), id, 0, &value, nullptr, e); });
}

}  // namespace kvt
