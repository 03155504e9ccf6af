#include "step/latent_attend.h"

#include <algorithm>
#include <cinttypes>

#include "base/checked.h"
#include "base/element_bytes.h"
#include "kernels/common/stored_format.h"
#include "plan/work_shape.h"
#include "tensor/tensor_check.h"

namespace kvc {
namespace {

constexpr int32_t kPageSize = 1 << 30;  // tokens of the single page of decompressed K and V: more than any position
constexpr int64_t kZeroBytes = KVC_BACKEND_NODE_FANOUT * static_cast<int64_t>(sizeof(int32_t));
constexpr DLDataType kFloat = {kDLFloat, 32, 1};

// Shifts a pointer. The result may lie outside of its array. It is used only with indices that lead back into the
// array.
void* shifted(void* data, int64_t bytes) noexcept {
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(bytes));
}

// The part of a tensor that begins at a token and a head.
kvc_backend_tensor from(kvc_backend_tensor tensor, int64_t token, int64_t head) noexcept {
  const int64_t elements = token * tensor.token_stride + head * tensor.head_stride;
  tensor.data = shifted(tensor.data, elements * element_bytes(tensor.dtype));
  return tensor;
}

kvc_backend_tensor compact(void* data, int64_t heads, int64_t dims, DLDataType dtype) noexcept {
  return {data, heads * dims, dims, dtype, 0};
}

// How the work of the absorbed form is cut into items. `layer` may have only some of the heads of the cache's layer.
WorkShape shape_of(const Context& context, const kvc_backend_layer& layer, bool streaming, bool deterministic) {
  kvc_backend_tiling tiling = {};
  context.backend().tiling(context.device(), &layer, &tiling);
  WorkShape shape = work_shape_of(layer, tiling, context.parallel_items(tiling));
  shape.streaming = streaming;
  shape.sharing = PrefixSharing::kNever;
  if (deterministic) shape.fix_splits();
  return shape;
}

// How the work of the decompressed form is cut into items. Each item has one head and all keys of its queries, and
// tiles of queries are as long as possible.
WorkShape decompressed_shape_of(const Context& context, const kvc_backend_layer& layer) {
  WorkShape shape = shape_of(context, layer, false, false);
  shape.tiling.decode_max_queries = 0;
  shape.tiling.heads_per_item = 1;
  shape.num_threads = 1;
  return shape;
}

// The index arrays of rows [begin, end). Arrays with an entry for each row then begin at row `begin`; token numbers
// stay the same. Null arrays stay null. The addresses may be of the host or of the device.
kvc_backend_plan_arrays rows_between(kvc_backend_plan_arrays arrays, int32_t begin, int32_t end) noexcept {
  kvc_backend_rows& rows = arrays.rows;
  rows.num_rows = end - begin;
  const auto from = [begin](auto** array) {
    if (*array != nullptr) *array += begin;
  };
  from(&rows.token_begin);
  from(&rows.kv_lengths);
  from(&rows.stream_sinks);
  from(&rows.stream_windows);
  from(&rows.tree_begin);
  from(&rows.tree_offset);
  from(&arrays.tables.roots);
  from(&arrays.tables.levels);
  return arrays;
}

// Checks an up-projection [heads, *dims, latent_dims]. Sets *dims, which must be in 1..most.
Status check_projection(const DLTensor& tensor, const char* name, int64_t heads, int64_t latent_dims, int64_t most,
                        DLDevice device, kvc_backend_tensor* out, int64_t* dims) {
  *dims = tensor.ndim == 3 && tensor.shape != nullptr ? tensor.shape[1] : 1;
  KVC_TRY(check_rows(&tensor, {name, heads, *dims, latent_dims, device}, out));
  if (tensor.shape[0] == heads && *dims >= 1 && *dims <= most) return Status();
  return Status::error(KVC_ERROR_SHAPE, "%s has %" PRId64 " heads of %" PRId64 " dims, not %" PRId64 " of 1..%" PRId64,
                       name, tensor.shape[0], *dims, heads, most);
}

}  // namespace

Status read_projections(const kvc_attend_args& args, const kvc_backend_layer& layer, DLDevice device,
                        LatentCall* call) {
  call->shape = {layer.head_dim, layer.v_head_dim, layer.v_head_dim, layer.v_head_dim};
  if (args.w_uk == nullptr && args.w_uv == nullptr) return Status();
  if (layer.row_kind != KVC_BACKEND_ROW_LATENT) {
    return Status::error(KVC_ERROR_INVALID_ARGUMENT, "w_uk or w_uv is given, and the layer's group is not MLA");
  }
  if (args.w_uk == nullptr || args.w_uv == nullptr) {
    return Status::error(KVC_ERROR_NULL_ARGUMENT, "%s is NULL and %s is not: give both or neither",
                         args.w_uk == nullptr ? "w_uk" : "w_uv", args.w_uk == nullptr ? "w_uv" : "w_uk");
  }
  LatentShape& s = call->shape;
  KVC_TRY(check_projection(*args.w_uk, "w_uk", layer.num_q_heads, s.latent_dims, kMaxProjectedDims - s.rotary_dims(),
                           device, &call->w_uk, &s.nope_dims));
  return check_projection(*args.w_uv, "w_uv", layer.num_q_heads, s.latent_dims, kMaxProjectedDims, device, &call->w_uv,
                          &s.v_dims);
}

// One call of attend. It takes its arrays one after another from the scratch buffer.
class LatentScratch::Run {
 public:
  Run(LatentScratch& scratch, const Context& context, const LatentCall& call, DeviceStep* step, void* stream)
      : scratch_(scratch),
        context_(context),
        call_(call),
        rows_(call.plan.arrays.rows),
        layer_(*call.attend.layer),
        step_(*step),
        stream_(stream),
        element_(call.attend.q.dtype) {}

  Status run() {
    int32_t begin = 0;  // the first absorbed row that is not computed yet
    for (int32_t row = 0; row < rows_.num_rows; ++row) {
      const bool inert = tokens_of(row) == 0 || rows_.kv_lengths[row] < 0, alone = !inert && is_decompressed(row);
      if (!inert && !alone) continue;
      KVC_TRY(run_absorbed(begin, row));
      if (alone) KVC_TRY(run_decompressed(row));
      begin = row + 1;
    }
    return run_absorbed(begin, rows_.num_rows);
  }

 private:
  // Where the result for some of the heads is written. `out` is [T, heads, Dv], and begins at the first of these heads.
  // `lse` has the LSE of the same heads.
  struct Result {
    kvc_backend_tensor out;
    float* lse;
    int64_t lse_token_stride, lse_head_stride;
  };

  int64_t tokens_of(int32_t row) const noexcept { return rows_.token_begin[row + 1] - rows_.token_begin[row]; }
  bool has_flag(uint32_t flag) const noexcept { return (call_.plan.flags & flag) != 0; }

  int64_t past_of(int32_t row) const noexcept {
    return has_flag(KVC_ATTEND_SELF) ? 0 : rows_.kv_lengths[row] - tokens_of(row);
  }

  bool is_decompressed(int32_t row) const noexcept {
    const bool streams = rows_.stream_windows != nullptr && rows_.stream_windows[row] > 0;
    if (call_.attend.lists.block_tokens > 0) return false;
    // The two forms give different bits, and the choice depends on how tokens are cut into steps. So a deterministic
    // cache always uses the absorbed form.
    if (has_flag(KVC_ATTEND_PAST) || streams || call_.slots == nullptr ||
        kernels::place_of_scales(layer_.format) != KVC_BACKEND_SCALES_NONE || scratch_.deterministic_)
      return false;
    return decompresses(call_.shape, tokens_of(row), past_of(row));
  }

  char* take(int64_t bytes) noexcept {
    char* data = static_cast<char*>(scratch_.buffer_->data()) + used_;
    used_ += ceil_div(bytes, kLatentAlignment) * kLatentAlignment;
    return data;
  }

  // Calls body(first head, heads) until all heads are done, each time with as many heads as scratch holds for the
  // tokens.
  template <class Body>
  Status for_each_heads(int64_t tokens, Body body) {
    const int64_t start = used_, room = scratch_.buffer_->bytes() - start - kLatentPadding;
    const int64_t head_bytes = latent_head_bytes(call_.shape, tokens, element_bytes(element_));
    const int32_t at_once = latent_heads_at_once(layer_.num_q_heads, head_bytes, room);
    for (int32_t head = 0; head < layer_.num_q_heads; head += at_once) {
      KVC_TRY(body(head, std::min(at_once, layer_.num_q_heads - head)));
      used_ = start;
    }
    return Status();
  }

  Status run_absorbed(int32_t begin, int32_t end) {
    if (begin >= end) return Status();
    const int64_t tokens = rows_.token_begin[end] - rows_.token_begin[begin];
    used_ = 0;
    return for_each_heads(tokens, [&](int32_t head, int32_t heads) {
      return absorbed(begin, end, head, heads, call_.plan.flags, call_.attend.sinks, result(head));
    });
  }

  Status run_decompressed(int32_t row) {
    const int64_t token = rows_.token_begin[row], tokens = tokens_of(row);
    used_ = 0;
    void* rows = take(tokens * layer_.k.row_bytes);
    kvc_backend_gather gather = {};
    gather.layer = &layer_;
    gather.num_tokens = tokens;
    gather.slots = call_.slots + token;
    gather.k = rows;
    gather.step = step_.get();
    KVC_TRY(call_backend(&kvc_backend::gather, gather));
    kvc_backend_tensor stored = compact(rows, 1, layer_.head_dim, kernels::stored_dtype(layer_));
    stored.head_stride = 0;
    return for_each_heads(tokens, [&](int32_t head, int32_t heads) { return both_parts(row, stored, head, heads); });
  }

  Status both_parts(int32_t row, const kvc_backend_tensor& stored, int32_t head, int32_t heads) {
    const Result whole = result(head);
    if (past_of(row) == 0) return decompressed(row, stored, head, heads, whole);
    const int64_t token = rows_.token_begin[row], tokens = tokens_of(row), dims = call_.shape.v_dims;
    Result parts[2];
    kvc_backend_state states[2];
    for (int i = 0; i < 2; ++i) {
      const kvc_backend_tensor out = compact(take(tokens * heads * dims * 4), heads, dims, kFloat);
      auto* lse = reinterpret_cast<float*>(take(tokens * heads * 4));
      states[i] = {out, lse, heads, 1};
      parts[i] = {from(out, -token, 0), static_cast<float*>(shifted(lse, -token * heads * 4)), heads, 1};
    }
    KVC_TRY(decompressed(row, stored, head, heads, parts[0]));
    KVC_TRY(absorbed(row, row + 1, head, heads, call_.plan.flags | KVC_ATTEND_PAST, nullptr, parts[1]));
    kvc_backend_merge merge = {};
    merge.parts = states;
    merge.num_parts = 2;
    merge.num_heads = heads;
    merge.dims = static_cast<int32_t>(dims);
    merge.num_tokens = tokens;
    merge.result = {from(whole.out, token, 0), whole.lse, whole.lse_token_stride, whole.lse_head_stride};
    if (whole.lse != nullptr) merge.result.lse += token * whole.lse_token_stride;
    return call_backend(&kvc_backend::merge, merge);
  }

  // The part of the caller's output that begins at `head`.
  Result result(int32_t head) const noexcept {
    const kvc_backend_attend& a = call_.attend;
    float* lse = a.lse == nullptr ? nullptr : a.lse + head * a.lse_head_stride;
    return {from(a.out, 0, head), lse, a.lse_token_stride, a.lse_head_stride};
  }

  // The arguments of the caller's attend, changed for `layer`, whose heads begin at `head`, and for a plan whose rows
  // begin at `row`.
  kvc_backend_attend part(const kvc_backend_layer& layer, int32_t row, int32_t head, const float* sinks,
                          const Result& to) const noexcept {
    kvc_backend_attend args = call_.attend;
    args.layer = &layer;
    args.out = to.out;
    args.lse = to.lse;
    args.lse_token_stride = to.lse_token_stride;
    args.lse_head_stride = to.lse_head_stride;
    args.sinks = sinks == nullptr ? nullptr : sinks + head;
    if (args.alibi_slopes != nullptr) args.alibi_slopes += head;
    if (args.bias.relative != nullptr) args.bias.relative += head * args.bias.relative_head_stride;
    if (args.bias.keys != nullptr) args.bias.keys += row * args.bias.key_row_stride;
    return args;
  }

  PlanKey key_of(int32_t begin, int32_t end, uint32_t flags, bool decompressed, const WorkShape& shape) const noexcept {
    return {call_.plan.arrays.tables.roots,
            call_.plan.arrays.key_sets,
            begin,
            end,
            flags,
            decompressed,
            WorkPlan::listed_keys(call_.attend.lists),
            shape};
  }

  // Finds the plan for a key. If no earlier layer has made it, makes and stages it. layer: the layer with the heads of
  // this part.
  Status find_plan(const PlanKey& key, const kvc_backend_layer& layer, const kvc_backend_plan** out) {
    KeptPlan& kept = scratch_.find_plan(key);
    *out = &kept.plan;
    if (kept.made) return Status();
    kvc_backend_plan_arrays host = rows_between(call_.plan.arrays, key.begin, key.end);
    kept.plan.device = rows_between(call_.plan.device, key.begin, key.end);
    if (key.decompressed) {
      static constexpr int32_t kPages[KVC_BACKEND_NODE_FANOUT] = {};
      static constexpr int64_t kPageBegin = 0;
      host.tables = {nullptr, nullptr, nullptr, kPages, &kPageBegin};
      const void* const zeros = scratch_.zeros_ ? scratch_.zeros_->data() : nullptr;
      kept.plan.device.tables = {nullptr, nullptr, nullptr, static_cast<const int32_t*>(zeros),
                                 static_cast<const int64_t*>(zeros)};
    }
    kept.key = key;
    kept.layer = layer;
    kept.work.set_shape(key.shape);
    kept.work.build(host.rows, key.flags, nullptr, nullptr, key.listed_keys);
    kept.work.fill(host.rows, host.tables, host.key_sets, kept.layer, &kept.plan);
    if (step_.get() != nullptr) KVC_TRY(step_.stage_plan(&kept.plan, stream_));
    kept.made = true;
    return Status();
  }

  // Computes attention of rows [begin, end) and heads [head, head + heads) in latent space.
  Status absorbed(int32_t begin, int32_t end, int32_t head, int32_t heads, uint32_t flags, const float* sinks,
                  const Result& to) {
    const LatentShape& s = call_.shape;
    const int64_t token = rows_.token_begin[begin], tokens = rows_.token_begin[end] - token;
    const kvc_backend_tensor q =
        compact(take(tokens * heads * s.row_dims * element_bytes(element_)), heads, s.row_dims, element_);
    const kvc_backend_tensor o = compact(take(tokens * heads * s.latent_dims * 4), heads, s.latent_dims, kFloat);
    KVC_TRY(project(tokens, heads, from(call_.attend.q, token, head), s.nope_dims, from(call_.w_uk, head, 0), false,
                    s.latent_dims, s.rotary_dims(), q));
    kvc_backend_layer layer = layer_;
    layer.num_q_heads = heads;
    kvc_backend_attend args = part(layer, begin, head, sinks, to);
    args.q = from(q, -token, 0);
    args.out = from(o, -token, 0);
    const WorkShape shape = shape_of(context_, layer, scratch_.streaming_, scratch_.deterministic_);
    KVC_TRY(find_plan(key_of(begin, end, flags, false, shape), layer, &args.plan));
    KVC_TRY(attend(args));
    return project(tokens, heads, o, s.latent_dims, from(call_.w_uv, head, 0), true, s.v_dims, 0,
                   from(to.out, token, 0));
  }

  Status attend(const kvc_backend_attend& args) {
    kvc_error error = KVC_ERROR_INIT;
    return Status::from(context_.backend().attend(context_.device(), &args, stream_, &error), error);
  }

  // Computes attention between the new tokens of a row, over K and V that it computes from `stored`.
  Status decompressed(int32_t row, const kvc_backend_tensor& stored, int32_t head, int32_t heads, const Result& to) {
    const LatentShape& s = call_.shape;
    const int64_t tokens = tokens_of(row), q_dims = s.nope_dims + s.rotary_dims();
    const int64_t first = rows_.kv_lengths[row] - tokens;
    const kvc_backend_tensor k =
        compact(take(tokens * heads * q_dims * element_bytes(element_)), heads, q_dims, element_);
    const kvc_backend_tensor v =
        compact(take(tokens * heads * s.v_dims * element_bytes(element_)), heads, s.v_dims, element_);
    KVC_TRY(project(tokens, heads, stored, s.latent_dims, from(call_.w_uk, head, 0), true, s.nope_dims, s.rotary_dims(),
                    k));
    KVC_TRY(project(tokens, heads, stored, s.latent_dims, from(call_.w_uv, head, 0), true, s.v_dims, 0, v));
    kvc_backend_layer layer = layer_;
    layer.num_q_heads = layer.num_kv_heads = heads;
    layer.head_dim = static_cast<int32_t>(q_dims);
    layer.v_head_dim = static_cast<int32_t>(s.v_dims);
    layer.rope_offset += static_cast<int32_t>(s.nope_dims - s.latent_dims);
    layer.format = kernels::stored_format(element_);
    layer.row_kind = KVC_BACKEND_ROW_KV;
    layer.num_pages = 1;
    layer.page_size = kPageSize;
    const auto pool_of = [&](const kvc_backend_tensor& rows, int64_t dims) {
      const int64_t bytes = element_bytes(rows.dtype);
      return kvc_backend_pool{from(rows, -first, 0).data, 0, rows.head_stride * bytes, rows.token_stride * bytes,
                              dims * bytes};
    };
    layer.k = pool_of(k, q_dims);
    layer.v = pool_of(v, s.v_dims);
    kvc_backend_attend args = part(layer, row, head, call_.attend.sinks, to);
    args.q = from(call_.attend.q, 0, head);
    const uint32_t flags = call_.plan.flags | KVC_ATTEND_SELF;
    const WorkShape shape = decompressed_shape_of(context_, layer);
    KVC_TRY(find_plan(key_of(row, row + 1, flags, true, shape), layer, &args.plan));
    return attend(args);
  }

  Status project(int64_t tokens, int32_t heads, const kvc_backend_tensor& in, int64_t in_dims,
                 const kvc_backend_tensor& weights, bool transposed, int64_t out_dims, int64_t tail_dims,
                 const kvc_backend_tensor& out) {
    kvc_backend_project args = {};
    args.num_tokens = tokens;
    args.num_heads = heads;
    args.in_dims = static_cast<int32_t>(in_dims);
    args.out_dims = static_cast<int32_t>(out_dims);
    args.tail_dims = static_cast<int32_t>(tail_dims);
    args.transposed = transposed ? 1 : 0;
    args.in = in;
    args.weights = weights;
    args.out = out;
    return call_backend(&kvc_backend::project, args);
  }

  template <class Function, class Args>
  Status call_backend(Function function, const Args& args) {
    kvc_error error = KVC_ERROR_INIT;
    return Status::from((context_.backend().*function)(context_.device(), &args, stream_, &error), error);
  }

  LatentScratch& scratch_;
  const Context& context_;
  const LatentCall& call_;
  const kvc_backend_rows& rows_;
  const kvc_backend_layer& layer_;
  DeviceStep& step_;
  void* const stream_;
  const DLDataType element_;  // type of q, and of projected q, K and V
  int64_t used_ = 0;          // bytes of scratch that are in use
};

LatentScratch::Needs LatentScratch::needs(const Context& context, const Geometry& geometry) {
  Needs needs;
  for (const LayerGeometry& of : geometry.layers) {
    if (!kernels::has_latent_rows(of.layer)) continue;
    kvc_backend_layer layer = of.layer;
    if (layer.num_q_heads > needs.layer.num_q_heads) needs.layer = layer;
    const int64_t bytes = latent_scratch_bytes(layer.head_dim, layer.v_head_dim, geometry.limits.tokens);
    needs.buffer_bytes = std::max(needs.buffer_bytes, bytes);
    // A call may have as many heads as latent_heads_at_once returns, or as many as remain. So all numbers are tried.
    for (int32_t heads = 1; heads <= of.layer.num_q_heads; ++heads) {
      layer.num_q_heads = heads;
      const WorkShape shape = shape_of(context, layer, geometry.limits.streaming, geometry.deterministic);
      needs.items = std::max(needs.items, WorkPlan::max_items(shape, geometry.limits));
      needs.tiles = std::max(needs.tiles, WorkPlan::max_tiles(shape, geometry.limits));
      needs.partial_floats = std::max(needs.partial_floats, WorkPlan::max_partial_floats(shape, geometry.limits));
    }
  }
  for (const LayerGeometry& of : geometry.layers) {
    if (!kernels::has_latent_rows(of.layer)) continue;
    const kvc_backend_layer& layer = of.layer;
    needs.items = std::max(needs.items, max_decompressed_items(layer.head_dim, layer.v_head_dim, geometry.limits.tokens,
                                                               layer.num_q_heads, needs.buffer_bytes));
  }
  return needs;
}

int64_t LatentScratch::bytes_needed(const Context& context, const Geometry& geometry) {
  const Needs n = needs(context, geometry);
  if (n.buffer_bytes == 0) return 0;
  const int64_t items = static_cast<int64_t>(kPlans) * n.items * static_cast<int64_t>(sizeof(kvc_backend_item));
  const int64_t staged = context.is_host() ? 0 : items;  // the device's copy
  return (n.buffer_bytes + n.partial_floats * 4 + items + staged) * geometry.max_open_forwards;
}

Status LatentScratch::create(const std::shared_ptr<Context>& context, const Geometry& geometry, int32_t first_slot,
                             std::unique_ptr<LatentScratch>* out) {
  const Needs n = needs(*context, geometry);
  if (n.buffer_bytes == 0) return Status();
  auto scratch = std::make_unique<LatentScratch>();
  scratch->streaming_ = geometry.limits.streaming;
  scratch->deterministic_ = geometry.deterministic;
  scratch->widest_ = n.layer;
  KVC_TRY(DeviceMemory::allocate(context, n.buffer_bytes, DeviceMemory::kPageAlignment, false, &scratch->buffer_));
  if (n.partial_floats > 0) {
    KVC_TRY(DeviceMemory::allocate(context, n.partial_floats * 4, DeviceMemory::kPageAlignment, false,
                                   &scratch->partials_));
  }
  if (!context->is_host())
    KVC_TRY(DeviceMemory::allocate(context, kZeroBytes, kLatentAlignment, false, &scratch->zeros_));
  scratch->tile_counters_.resize(static_cast<size_t>(n.tiles));
  scratch->plans_.reserve(kPlans);
  for (size_t i = 0; i < kPlans; ++i) {
    KeptPlan& kept = scratch->plans_.emplace_back(KeptPlan{WorkPlan(n.items, n.tiles)});
    kept.work.fill({}, {}, nullptr, scratch->widest_, &kept.plan);
    kept.plan.slot = first_slot + static_cast<int32_t>(i);
    kept.plan.counters = scratch->tile_counters_.data();
    kept.plan.partials = scratch->partials_ ? static_cast<float*>(scratch->partials_->data()) : nullptr;
  }
  *out = std::move(scratch);
  return Status();
}

void LatentScratch::list_plans(std::vector<const kvc_backend_plan*>* plans) const {
  for (const KeptPlan& kept : plans_) plans->push_back(&kept.plan);
}

void LatentScratch::start() noexcept {
  for (KeptPlan& kept : plans_) kept.made = false;
}

LatentScratch::KeptPlan& LatentScratch::find_plan(const PlanKey& key) noexcept {
  for (KeptPlan& kept : plans_) {
    if (kept.made && kept.key == key) return kept;
  }
  KeptPlan& kept = plans_[next_plan_];
  next_plan_ = (next_plan_ + 1) % kPlans;
  kept.made = false;
  return kept;
}

Status LatentScratch::attend(const Context& context, const LatentCall& call, DeviceStep* step, void* stream) {
  return Run(*this, context, call, step, stream).run();
}

}  // namespace kvc
