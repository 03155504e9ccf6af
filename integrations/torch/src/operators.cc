// Registers the operators. The names of arguments are those of the library's structs, which its messages name.
#include "operators.h"

#include <exception>

namespace {

constexpr const char* kSchemas[] = {
    "append_slots(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!)? v_cache, Tensor slot_mapping, *, "
    "Tensor? k_scale=None, Tensor? v_scale=None, Tensor? rotary_cos=None, Tensor? rotary_sin=None, "
    "Tensor? positions=None, bool rotary_interleaved=False) -> ()",

    "flash_attn_with_kvcache(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? k=None, Tensor? v=None, *, "
    "Tensor? qv=None, Tensor? cache_seqlens=None, Tensor? cache_batch_idx=None, Tensor? cache_leftpad=None, "
    "Tensor? block_table=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k_new=None, "
    "Tensor? rotary_cos=None, Tensor? rotary_sin=None, Tensor? rotary_seqlens=None, "
    "Tensor? q_descale=None, Tensor? k_descale=None, Tensor? v_descale=None, "
    "Tensor? alibi_slopes=None, Tensor? sinks=None, Tensor? indices=None, "
    "float? softmax_scale=None, bool causal=False, int window_left=-1, int window_right=-1, "
    "int attention_chunk=0, float softcap=0.0, bool rotary_interleaved=True, bool alibi_signed=False, "
    "int num_splits=0) -> (Tensor out, Tensor softmax_lse)",

    "merge_states(Tensor[] outputs, Tensor[] lses) -> (Tensor out, Tensor lse)",
};

// False if the process has loaded another copy of this library before. That copy then serves all calls.
bool is_first_copy = true;

void register_kernels(torch::stable::detail::StableLibrary& m) {
  if (!is_first_copy) return;
  m.impl("append_slots", &kvc_torch::append_slots);
  m.impl("flash_attn_with_kvcache", &kvc_torch::flash_attn_with_kvcache);
  m.impl("merge_states", &kvc_torch::merge_states);
}

}  // namespace

// A fragment, because PyTorch refuses a second STABLE_TORCH_LIBRARY of a namespace without a report, and crashes then.
STABLE_TORCH_LIBRARY_FRAGMENT(kvcache, m) {
  try {
    for (const char* schema : kSchemas) m.def(schema);
  } catch (const std::exception&) {
    is_first_copy = false;
  }
}

STABLE_TORCH_LIBRARY_IMPL(kvcache, CPU, m) { register_kernels(m); }

STABLE_TORCH_LIBRARY_IMPL(kvcache, CUDA, m) { register_kernels(m); }
