#include <stdexcept>
#include <string>
#include <vector>

#include "arguments.h"
#include "library.h"
#include "operators.h"

namespace kvc_torch {
namespace {

// Tensors of a list, and pointers to their views.
class List {
 public:
  List(const std::vector<Tensor>& tensors, const char* name) {
    for (const Tensor& tensor : tensors) views_.push_back(view(tensor, name, false));
    for (const DLTensor& one : views_) pointers_.push_back(&one);
  }
  const DLTensor* const* pointers() const { return pointers_.data(); }

 private:
  std::vector<DLTensor> views_;
  std::vector<const DLTensor*> pointers_;
};

}  // namespace

void merge_states(StableIValue* stack, uint64_t, uint64_t) {
  const auto outputs = take<std::vector<Tensor>>(stack[0]), lses = take<std::vector<Tensor>>(stack[1]);
  if (outputs.empty() || outputs.size() != lses.size())
    throw std::runtime_error("kvcache::merge_states: " + std::to_string(outputs.size()) + " outputs and " +
                             std::to_string(lses.size()) + " lses: as many of both are needed, at least one");
  const List output_list(outputs, "outputs"), lse_list(lses, "lses");
  const DLTensor& first = *output_list.pointers()[0];
  if (first.ndim != 3)
    throw std::runtime_error("kvcache::merge_states: outputs[0] has " + std::to_string(first.ndim) +
                             " dimensions, not the three of [T, H, Dv]");
  const Tensor& like = outputs[0];
  const Tensor out = new_tensor(like, {first.shape, first.shape + 3}, aoti_torch_dtype_float32());
  const Tensor lse = new_tensor(like, {first.shape, first.shape + 2}, aoti_torch_dtype_float32());
  const DLTensor out_view = view(out, "out", true), lse_view = view(lse, "lse", true);
  kvc_merge_args args;
  kvc_merge_args_init(&args);
  args.num_parts = static_cast<int32_t>(outputs.size());
  args.outputs = output_list.pointers();
  args.lses = lse_list.pointers();
  args.out = &out_view;
  args.lse = &lse_view;
  const Place place = place_of(like);
  kvc_error error = KVC_ERROR_INIT;
  check(library().merge_states(place.context, &args, place.stream, &error), error);
  stack[0] = give(out);
  stack[1] = give(lse);
}

}  // namespace kvc_torch
