#include "step.h"

#include <string>

#include "array.h"
#include "dtype.h"
#include "error.h"

namespace kvcpy {

Step Step::begin(nb::handle_t<Cache> cache, nb::handle sequences, nb::handle lengths, nb::handle layers,
                 nb::handle parents, nb::handle spans, nb::handle encoder_group, nb::handle graph, nb::handle stream) {
  auto handle = nb::inst_ptr<Cache>(cache)->open();
  Work work = nb::inst_ptr<Cache>(cache)->work(stream);
  const Batch batch("Cache.forward", sequences, lengths, layers, parents, spans, encoder_group, graph);
  kvc_forward forward = 0;
  call_without_gil(
      [&](kvc_error* error) { return kvc_forward_begin(handle->cache, &batch.batch, work.stream(), &forward, error); });
  return Step(nb::borrow(cache), forward, std::move(work));
}

std::shared_ptr<CacheHandle> Step::open() const { return nb::inst_ptr<Cache>(cache_)->open(); }

// Returns the flags KVC_ATTEND_* for the arguments.
static uint32_t attend_flags(bool causal, bool alibi_signed, bool rel_bias_zero, bool spans, bool step_window,
                             nb::handle part) {
  const uint32_t flags = (causal ? 0 : KVC_ATTEND_NON_CAUSAL) | (alibi_signed ? KVC_ATTEND_ALIBI_SIGNED : 0) |
                         (rel_bias_zero ? KVC_ATTEND_REL_BIAS_ZERO : 0) | (spans ? 0 : KVC_ATTEND_NO_SPANS) |
                         (step_window ? KVC_ATTEND_STEP_WINDOW : 0);
  if (part.is_none()) return flags;
  const std::string name = PyUnicode_Check(part.ptr()) ? nb::borrow<nb::str>(part).c_str() : "";
  if (name == "past") return flags | KVC_ATTEND_PAST;
  if (name == "self") return flags | KVC_ATTEND_SELF;
  raise(KVC_ERROR_INVALID_ARGUMENT, -1, "attend: part must be None, \"past\" or \"self\", not %s",
        nb::repr(part).c_str());
}

nb::object Step::attend(int64_t layer, nb::handle q, nb::handle k, nb::handle v, nb::handle out, nb::handle lse,
                        nb::handle dtype, double softcap, double softmax_scale, nb::handle alibi_slopes,
                        nb::handle sinks, bool causal, bool alibi_signed, nb::handle part, nb::handle rope_cos_sin,
                        nb::handle w_uk, nb::handle w_uv, nb::handle indices, int64_t index_block, nb::handle rel_bias,
                        bool rel_bias_zero, nb::handle key_bias, nb::handle mask, bool spans, bool step_window) const {
  auto handle = open();
  Work work = work_;
  const DLDataType integers_as = dtype_from_python(dtype);
  ArrayArgument q_array, k_array, v_array, out_array, lse_array, slopes_array, sinks_array, rotation, uk_array,
      uv_array, indices_array, rel_bias_array, key_bias_array, mask_array;
  if (!w_uk.is_none()) uk_array.read(w_uk, "w_uk", integers_as, work);
  if (!w_uv.is_none()) uv_array.read(w_uv, "w_uv", integers_as, work);
  if (!rope_cos_sin.is_none()) rotation.read(rope_cos_sin, "rope_cos_sin", kNoDtype, work);
  q_array.read(q, "q", integers_as, work);
  if (!k.is_none()) k_array.read(k, "k", integers_as, work);
  if (!v.is_none()) v_array.read(v, "v", integers_as, work);
  if (!alibi_slopes.is_none()) slopes_array.read(alibi_slopes, "alibi_slopes", kNoDtype, work);
  if (!sinks.is_none()) sinks_array.read(sinks, "sinks", kNoDtype, work);
  if (!indices.is_none()) indices_array.read(indices, "indices", kNoDtype, work);
  if (!rel_bias.is_none()) rel_bias_array.read(rel_bias, "rel_bias", kNoDtype, work);
  if (!key_bias.is_none()) key_bias_array.read(key_bias, "key_bias", kNoDtype, work);
  if (!mask.is_none()) mask_array.read(mask, "mask", kNoDtype, work);

  // Without a valid q or layer, the shape of a new output is unknown. The call below then fails before it writes an
  // output.
  const DLTensor* const up = uv_array.tensor();
  const int64_t v_head_dim =
      up != nullptr && up->ndim == 3 ? up->shape[1] : nb::inst_ptr<Cache>(cache_)->v_head_dim(layer);
  const DLTensor& q_tensor = *q_array.tensor();
  const bool can_allocate = q_tensor.ndim == 3 && v_head_dim >= 0;
  const bool new_lse = lse.ptr() == Py_True;
  const bool want_lse = !lse.is_none() && lse.ptr() != Py_False;
  nb::object out_object = nb::borrow(out), lse_object = nb::borrow(lse);
  if (out.is_none() && can_allocate)
    out_object =
        new_output(q, q_tensor, {q_tensor.shape[0], q_tensor.shape[1], v_head_dim}, OutputType::kAsInput, work);
  if (new_lse && can_allocate)
    lse_object = new_output(q, q_tensor, {q_tensor.shape[0], q_tensor.shape[1]}, OutputType::kFloat32, work);
  if (!out.is_none() || can_allocate) out_array.write(out_object, "out", integers_as, work);
  if (want_lse && (!new_lse || can_allocate)) lse_array.write(lse_object, "lse", kNoDtype, work);

  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = &q_tensor;
  args.k = k_array.tensor();
  args.v = v_array.tensor();
  args.out = out_array.tensor() ? out_array.tensor() : &q_tensor;
  args.lse = lse_array.tensor();
  args.flags = attend_flags(causal, alibi_signed, rel_bias_zero, spans, step_window, part);
  args.softcap = softcap;
  args.softmax_scale = softmax_scale;
  args.alibi_slopes = slopes_array.tensor();
  args.sinks = sinks_array.tensor();
  args.rope_cos_sin = rotation.tensor();
  args.w_uk = uk_array.tensor();
  args.w_uv = up;
  args.indices = indices_array.tensor();
  args.rel_bias = rel_bias_array.tensor();
  args.key_bias = key_bias_array.tensor();
  args.mask = mask_array.tensor();
  args.index_block = indices.is_none() && index_block == 1 ? 0 : saturate(index_block);
  call_without_gil(
      [&](kvc_error* error) { return kvc_forward_attend(handle->cache, forward_, saturate(layer), &args, error); });
  work.hand_back();
  if (out.is_none()) out_object = finish_output(q, std::move(out_object));
  if (!want_lse) return out_object;
  if (new_lse) lse_object = finish_output(q, std::move(lse_object));
  return nb::make_tuple(out_object, lse_object);
}

nb::object Step::select(int64_t layer, nb::handle q, int64_t count, nb::handle weights, nb::handle out,
                        nb::handle dtype, bool each_head, int64_t index_block, int64_t first_blocks,
                        int64_t last_blocks, nb::handle candidates, int64_t candidate_block,
                        nb::handle rope_cos_sin) const {
  auto handle = open();
  Work work = work_;
  ArrayArgument q_array, weights_array, out_array, candidates_array, rotation;
  q_array.read(q, "q", dtype_from_python(dtype), work);
  if (!weights.is_none()) weights_array.read(weights, "weights", kNoDtype, work);
  if (!candidates.is_none()) candidates_array.read(candidates, "candidates", kNoDtype, work);
  if (!rope_cos_sin.is_none()) rotation.read(rope_cos_sin, "rope_cos_sin", kNoDtype, work);
  const DLTensor& q_tensor = *q_array.tensor();
  nb::object lists = nb::borrow(out);
  if (out.is_none() && q_tensor.ndim == 3) {
    const int64_t heads = each_head ? q_tensor.shape[1] : 1;
    lists = new_output(q, q_tensor, {q_tensor.shape[0], heads, count}, OutputType::kInt32, work);
  }
  if (!lists.is_none()) out_array.write(lists, "indices", kNoDtype, work);
  kvc_select_args args;
  kvc_select_args_init(&args);
  args.rule = each_head ? KVC_SELECT_EACH_HEAD : KVC_SELECT_RELU_SUM;
  args.q = &q_tensor;
  args.weights = weights_array.tensor();
  args.indices = out_array.tensor();
  args.candidates = candidates_array.tensor();
  args.rope_cos_sin = rotation.tensor();
  args.index_block = saturate(index_block);
  args.candidate_block = candidates.is_none() && candidate_block == 1 ? 0 : saturate(candidate_block);
  args.first_blocks = saturate(first_blocks);
  args.last_blocks = saturate(last_blocks);
  call_without_gil(
      [&](kvc_error* error) { return kvc_forward_select(handle->cache, forward_, saturate(layer), &args, error); });
  work.hand_back();
  return out.is_none() ? finish_output(q, std::move(lists)) : lists;
}

void Step::append(int64_t layer, nb::handle k, nb::handle v, bool as_stored, nb::handle dtype, nb::handle k_scale,
                  nb::handle v_scale, nb::handle rope_cos_sin) const {
  auto handle = open();
  Work work = work_;
  const DLDataType integers_as = dtype_from_python(dtype);
  ArrayArgument k_array, v_array, k_scale_array, v_scale_array, rotation;
  if (!rope_cos_sin.is_none()) rotation.read(rope_cos_sin, "rope_cos_sin", kNoDtype, work);
  k_array.read(k, "k", integers_as, work);
  if (!v.is_none()) v_array.read(v, "v", integers_as, work);
  if (!k_scale.is_none()) k_scale_array.read(k_scale, "k_scale", kNoDtype, work);
  if (!v_scale.is_none()) v_scale_array.read(v_scale, "v_scale", kNoDtype, work);
  kvc_append_args args;
  kvc_append_args_init(&args);
  args.flags = as_stored ? KVC_APPEND_AS_STORED : 0;
  args.k = k_array.tensor();
  args.v = v_array.tensor();
  args.k_scale = k_scale_array.tensor();
  args.v_scale = v_scale_array.tensor();
  args.rope_cos_sin = rotation.tensor();
  call_without_gil(
      [&](kvc_error* error) { return kvc_forward_append(handle->cache, forward_, saturate(layer), &args, error); });
  work.hand_back();
}

nb::object Step::load_state(int64_t layer, int64_t state, nb::handle out, nb::handle dtype, int64_t token) const {
  auto handle = open();
  Work work = work_;
  ArrayArgument array;
  array.write(out, "out", dtype_from_python(dtype), work);
  call_without_gil([&](kvc_error* error) {
    return kvc_forward_load_state(handle->cache, forward_, saturate(layer), saturate(state), saturate(token),
                                  array.tensor(), error);
  });
  work.hand_back();
  return nb::borrow(out);
}

void Step::store_state(int64_t layer, int64_t state, nb::handle tensor, nb::handle dtype, int64_t token) const {
  auto handle = open();
  Work work = work_;
  ArrayArgument array;
  array.read(tensor, "tensor", dtype_from_python(dtype), work);
  call_without_gil([&](kvc_error* error) {
    return kvc_forward_store_state(handle->cache, forward_, saturate(layer), saturate(state), saturate(token),
                                   array.tensor(), error);
  });
  work.hand_back();
}

void Step::end() {
  auto handle = open();
  call_without_gil([&](kvc_error* error) { return kvc_forward_end(handle->cache, forward_, error); });
  closed_ = true;
}

void Step::abort() {
  auto handle = open();
  call_without_gil([&](kvc_error* error) { return kvc_forward_abort(handle->cache, forward_, error); });
  closed_ = true;
}

void Step::cancel() const {
  auto handle = open();
  call_quick([&](kvc_error* error) { return kvc_forward_cancel(handle->cache, forward_, error); });
}

void Step::leave(bool failed) {
  if (closed_) return;
  if (failed && nb::inst_ptr<Cache>(cache_)->closed()) return;  // the exception that leaves the block says more
  if (failed) return abort();
  try {
    end();
  } catch (nb::python_error&) {
    if (!closed_ && !nb::inst_ptr<Cache>(cache_)->closed()) {
      auto handle = open();
      if (kvc_forward_abort(handle->cache, forward_, nullptr) == KVC_OK) closed_ = true;
    }
    throw;
  }
}

void Step::read_info() {
  auto handle = open();
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  call_quick([&](kvc_error* error) { return kvc_forward_get_info(handle->cache, forward_, &info, error); });
  positions_ = int32_array(info.positions_host, info.num_tokens);
  last_rows_ = int32_array(info.last_rows_host, info.num_sequences);
}

nb::object Step::positions() {
  if (!positions_.is_valid()) read_info();
  return positions_;
}

nb::object Step::last_rows() {
  if (!last_rows_.is_valid()) read_info();
  return last_rows_;
}

nb::str Step::describe_text() const {
  auto handle = open();
  const std::string text = read_text([&](char* buffer, int64_t capacity, int64_t* length, kvc_error* error) {
    return kvc_forward_describe(handle->cache, forward_, buffer, capacity, length, error);
  });
  return nb::str(text.data(), text.size());
}

nb::object Step::describe() const { return parse_json(describe_text().c_str()); }

Tables Step::tables(int64_t group, nb::handle part, bool slots, nb::handle pad, nb::handle arrays) const {
  auto handle = open();
  kvc_tables tables = Tables::wanted(part, slots, pad, arrays);
  call_quick(
      [&](kvc_error* error) { return kvc_forward_tables(handle->cache, forward_, saturate(group), &tables, error); });
  return Tables(tables, nb::handle(), handle, work_);
}

int Step::traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  Step& step = *nb::inst_ptr<Step>(self);
  Py_VISIT(step.cache_.ptr());
  Py_VISIT(step.positions_.ptr());
  Py_VISIT(step.last_rows_.ptr());
  return 0;
}

int Step::clear_references(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  Step& step = *nb::inst_ptr<Step>(self);
  step.positions_.reset();
  step.last_rows_.reset();
  return 0;  // a cycle through cache_ is broken when the attributes of the Cache are cleared
}

const PyType_Slot Step::kSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&Step::traverse)},
                                    {Py_tp_clear, reinterpret_cast<void*>(&Step::clear_references)},
                                    {0, nullptr}};

static constexpr char kTablesDoc[] =
    R"(Tables of a group for other attention kernels, the new tokens included.

Args:
    group: index of the group.
    part: "whole"; with trees that branch "prefix" and "branches", attention over which merges by LSE.
    slots: tables of page size 1: slots where pages were.
    pad: what block_table has after a row's pages; None: -1.
    arrays: of "dense", "csr" and "tokens"; None: all.

Returns:
    Tables, new arrays. Of a graph -1 as padding is 0, and shapes are those of its capacity.

Raises: OutOfRange (group), InvalidArgument (a recurrent group; a part that does not fit), Unsupported (spans), StaleId,
Busy; ValueError for unknown names.)";

static constexpr char kAttendDoc[] =
    R"(Stores a layer's new K and V, and computes softmax(scores, masked) V over all that is stored.

Scores are scale * q.k, then softcap, then ALiBi, then + rel_bias and key_bias.

Args:
    layer: index of the layer.
    q: [>= T, q_heads, head_dim] float32, float16 or bfloat16; innermost stride 1. Any array with __dlpack__, or a numpy
        array of ml_dtypes.bfloat16. Not copied; may be read-only.
    k: [>= T, kv_heads, head_dim]; None, with v, if the layer was appended already, has a kv_layer, or is of a Cross group.
    v: [>= T, kv_heads, v_head_dim]. MLA: None, and k has whole rows; or their latent parts [>= T, 1, latent_dim], and
        k the rest [>= T, 1, head_dim - latent_dim].
    out: [>= T, q_heads, v_head_dim], written; None for a new array of q's kind and type. Rows of inert rows, and rows
        from T on, are not written (0 in a new array).
    lse: False or None: not wanted. True: also return it, new. An array [>= T, q_heads] float32: written.
    dtype: the element type that unsigned-integer arrays of its width stand for, "bf16" for numpy.uint16.
    softcap: scores become softcap * tanh(score / softcap); 0 = none.
    softmax_scale: 0 = the layer's.
    alibi_slopes: [q_heads] float32: slope * |p_q - p_k| is subtracted from scores.
    alibi_signed: slope * (p_q - p_k) is subtracted: keys after the query score higher. It matters only where queries
        see such keys.
    sinks: [q_heads] float32: a logit of each head that takes part in the softmax and has no value. Of two parts, give it
        to one.
    causal: False: a query also sees the tokens of its row that come after it.
    part: "past": only the keys of earlier steps, before or after k and v are given; "self": only this step's. Each once,
        instead of one attend; Context.merge_states makes the whole of them. None: all keys.
    rope_cos_sin: None: what the layer's rope settings give at the tokens' positions. Else [>= T, 2, rope_dim / 2]
        float32, compact: cos and sin of each pair's angle, for q and k (M-RoPE, dynamic NTK).
    w_uk, w_uv: MLA: up-projections [q_heads, nope, latent_dim] and [q_heads, v, latent_dim], of which views of
        kv_b_proj.weight.reshape(q_heads, nope + v, latent_dim) will do. q is then [>= T, q_heads, nope + rotary] and out
        [>= T, q_heads, v]. None, both: q and out are in latent space.
    indices: [>= T, 1 or kv_heads, k] int32: a query attends only to the tokens that its list names, for all heads or for
        its kv head, and of these to those that it sees without a list. Entries count from the sequence's first token
        (Cross: from the encoder's), in any order; negative ones are padding. None: no lists.
    index_block: b: an entry i names the tokens [i * b, (i + 1) * b).
    rel_bias: [q_heads, E] or [>= T, q_heads, E] float32: the head's entry at d = p_q - p_k is added to scores. A larger
        d gets the last entry (T5), a negative d the first.
    rel_bias_zero: such a d gets 0 (Inkling).
    key_bias: [>= rows, >= keys, 1 or kv_heads] float32: entry [r, j] is added to scores of key j in row r. Keys are
        numbered as in indices; `keys` is the largest number of tokens of a row, new ones included.
    mask: [>= T, >= keys] or [>= T, 1 or kv_heads, >= keys] bool or uint8: False or 0 hides key j from the query. It cannot
        show a hidden key. With causal=False, in a layer without window and chunks, it alone decides what a query sees.
    spans: False: this layer ignores the step's spans.
    step_window: the window (or chunk) of every query begins where that of the row's first new token does. Not with trees.

Returns:
    out, or (out, lse).

Raises:
    Order, Cancelled, Busy, StaleId, OutOfRange, DType, Device, Rank, Shape, Stride; InvalidArgument for an output that
    is read-only or of JAX, and for a tensor that requires a gradient; TypeError for what is no array; ValueError for
    an unknown part.)";

static constexpr char kSelectDoc[] =
    R"(Chooses, for each query, the tokens or blocks with the highest scores among those that it sees.

A token's score is the sum over heads of weight * max(0, q.k), or with each_head q.k of each head. Of equal scores the lowest
entry is chosen. The lists can be indices of an attend in the same step.

Args:
    layer: index of a layer with keys_only=True, after its append in this step.
    q: [>= T, q_heads, head_dim], as attend.
    count: entries of each list.
    weights: [>= T, q_heads] float32, of any sign; None: all 1, and with each_head.
    out: [>= T, lists, count] int32, written; lists is 1, or q_heads with each_head. None for a new array of q's kind.
    dtype: as attend.
    each_head: a list for each head of q, by its own scores.
    index_block: b: an entry i is the tokens [i * b, (i + 1) * b), and its score is the largest of those that the query sees.
    first_blocks: the first entries of the sequence, this many, are always chosen. They count towards `count`.
    last_blocks: the same for the entry of the query's own token and those before it.
    candidates: [>= T, 1 or lists, n] int32: only tokens that it names are scored. None: all.
    candidate_block: what an entry of candidates names, as index_block.
    rope_cos_sin: as attend, for q.

Returns:
    The lists, in ascending order. If fewer than `count` entries are visible, -1 fills the rest.

Raises: as attend; Unsupported for a backend that does not select, and a sequence longer than its streaming window.)";

static constexpr char kStepDoc[] =
    R"(One step of the model over a batch: made by Cache.forward(), used by one thread at a time.

Per layer either attend(layer, q, k, v), or append(layer, k, v) and attend(layer, q); layers in any order, each once. The
T rows of q, k and v are the rows of the batch in order.

`with cache.forward(...) as step:` ends the step, and aborts it if an exception leaves the block or if it cannot end. A
Step that is only dropped, without end() or abort(), stays open: no finaliser closes it.)";

static constexpr char kLoadStateDoc[] =
    R"(Copies a recurrent layer's state out: row i of `out` becomes that of sequence i before this step, or StateTensor.fill.

Args:
    layer: a RecurrentLayer.
    state: index into its states.
    out: [>= rows, *shape] of the state's dtype, written; each row compact. Rows of inert rows are left alone.
    dtype: as attend.
    token: i = before token i of each row, 0 to max_draft_states - 1. Before a tree node: after its parent. Else: no change.

Returns:
    out.

Raises: OutOfRange, InvalidArgument (another kind of layer), Cancelled, Busy, StaleId, DType, Shape and so on.)";

void Step::bind(nb::module_& module) {
  nb::class_<Step>(module, "Step", nb::type_slots(kSlots), nb::is_weak_referenceable(), kStepDoc)
      .def("attend", &Step::attend, nb::arg("layer"), nb::arg("q"), nb::arg("k") = nb::none(),
           nb::arg("v") = nb::none(), nb::arg("out") = nb::none(), nb::arg("lse").none() = false,
           nb::arg("dtype") = nb::none(), nb::kw_only(), nb::arg("softcap") = 0.0, nb::arg("softmax_scale") = 0.0,
           nb::arg("alibi_slopes") = nb::none(), nb::arg("sinks") = nb::none(), nb::arg("causal") = true,
           nb::arg("alibi_signed") = false, nb::arg("part") = nb::none(), nb::arg("rope_cos_sin") = nb::none(),
           nb::arg("w_uk") = nb::none(), nb::arg("w_uv") = nb::none(), nb::arg("indices") = nb::none(),
           nb::arg("index_block") = 1, nb::arg("rel_bias") = nb::none(), nb::arg("rel_bias_zero") = false,
           nb::arg("key_bias") = nb::none(), nb::arg("mask") = nb::none(), nb::arg("spans") = true,
           nb::arg("step_window") = false, kAttendDoc)
      .def("select", &Step::select, nb::arg("layer"), nb::arg("q"), nb::arg("count"), nb::arg("weights") = nb::none(),
           nb::arg("out") = nb::none(), nb::arg("dtype") = nb::none(), nb::kw_only(), nb::arg("each_head") = false,
           nb::arg("index_block") = 1, nb::arg("first_blocks") = 0, nb::arg("last_blocks") = 0,
           nb::arg("candidates") = nb::none(), nb::arg("candidate_block") = 1, nb::arg("rope_cos_sin") = nb::none(),
           kSelectDoc)
      .def("append", &Step::append, nb::arg("layer"), nb::arg("k"), nb::arg("v") = nb::none(),
           nb::arg("as_stored") = false, nb::arg("dtype") = nb::none(), nb::arg("k_scale") = nb::none(),
           nb::arg("v_scale") = nb::none(), nb::arg("rope_cos_sin") = nb::none(),
           R"(Stores a layer's new K and V, rounded or quantised to the layer's dtype and rotated if the layer says so.

Args:
    layer, k, v, dtype, rope_cos_sin: as attend.
    as_stored: k is already as the cache stores it: do not rotate it. Of a quantised layer k and v may be stored bytes.
    k_scale, v_scale: with stored bytes of int8: their scales, [>= T, kv_heads] float32.

Raises: as attend.)")
      .def("load_state", &Step::load_state, nb::arg("layer"), nb::arg("state"), nb::arg("out"),
           nb::arg("dtype") = nb::none(), nb::arg("token") = -1, kLoadStateDoc)
      .def("store_state", &Step::store_state, nb::arg("layer"), nb::arg("state"), nb::arg("tensor"),
           nb::arg("dtype") = nb::none(), nb::arg("token") = -1,
           R"(Copies it in: row i of `tensor` becomes the state of sequence i once the step ends.

Every state of every recurrent layer is to be stored before that. Arguments and exceptions as load_state.

Args:
    token: i = after token i of each row, if that is its last, or a tree node below max_draft_states, to be committed.)")
      .def("end", &Step::end, R"(Closes the step and keeps its tokens.

Raises: Order (with .index, the first layer without its append), Cancelled, Busy, StaleId; the step stays open.)")
      .def("abort", &Step::abort, R"(Closes the step and drops its tokens; everything else is untouched.

Raises: Busy (another thread computes in it: cancel first), StaleId.)")
      .def("cancel", &Step::cancel, R"(Stops a step that computes in another thread: its attend raises Cancelled.

After that only abort() is accepted. Does not wait. Raises StaleId.)")
      .def("_describe", &Step::describe_text, "The text of describe().")
      .def("describe", &Step::describe,
           "What was planned, a dict: rows, tokens, and per group kernels, splits and bytes.")
      .def("tables", &Step::tables, nb::arg("group") = 0, nb::kw_only(), nb::arg("part") = "whole",
           nb::arg("slots") = false, nb::arg("pad") = nb::none(), nb::arg("arrays") = nb::none(), kTablesDoc)
      .def_prop_ro("positions", &Step::positions,
                   "Position of each of the T tokens in its sequence, int32 numpy array; 0 in inert rows.")
      .def_prop_ro("last_rows", &Step::last_rows,
                   "Index in [0, T) of each row's last token, int32 numpy array; -1 if it has none.")
      .def_prop_ro(
          "closed", [](const Step& self) { return self.closed_; }, "True after end() or abort() of this object.")
      .def("__enter__", [](nb::handle_t<Step> self) { return nb::borrow(self); })
      .def(
          "__exit__", [](Step& self, nb::handle type, nb::handle, nb::handle) { self.leave(!type.is_none()); },
          nb::arg("type") = nb::none(), nb::arg("value") = nb::none(), nb::arg("traceback") = nb::none());
}

}  // namespace kvcpy
