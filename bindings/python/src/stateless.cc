#include "stateless.h"

#include <array>
#include <vector>

#include "array.h"
#include "context.h"
#include "dtype.h"
#include "error.h"

namespace kvcpy {

namespace {

// A field of a C struct and the name of its argument.
template <class Args>
struct Field {
  const char* name;
  const DLTensor* Args::* member;
  bool written = false;
};

using Flash = kvc_flash_attn_args;
constexpr Field<Flash> kFlashFields[] = {
    {"q", &Flash::q},
    {"k_cache", &Flash::k_cache},
    {"v_cache", &Flash::v_cache},
    {"k", &Flash::k},
    {"v", &Flash::v},
    {"qv", &Flash::qv},
    {"out", &Flash::out, true},
    {"softmax_lse", &Flash::softmax_lse, true},
    {"cache_seqlens", &Flash::cache_seqlens},
    {"seqused_k", &Flash::seqused_k},
    {"cache_batch_idx", &Flash::cache_batch_idx},
    {"cache_leftpad", &Flash::cache_leftpad},
    {"block_table", &Flash::block_table},
    {"cu_seqlens_q", &Flash::cu_seqlens_q},
    {"cu_seqlens_k_new", &Flash::cu_seqlens_k_new},
    {"rotary_cos", &Flash::rotary_cos},
    {"rotary_sin", &Flash::rotary_sin},
    {"rotary_seqlens", &Flash::rotary_seqlens},
    {"q_descale", &Flash::q_descale},
    {"k_descale", &Flash::k_descale},
    {"v_descale", &Flash::v_descale},
    {"alibi_slopes", &Flash::alibi_slopes},
    {"sinks", &Flash::sinks},
    {"indices", &Flash::indices},
};
constexpr size_t kFlashK = 3, kFlashOut = 6, kFlashLse = 7, kFlashCuQ = 13;

using Slots = kvc_append_slots_args;
constexpr Field<Slots> kSlotFields[] = {
    {"k", &Slots::k},
    {"v", &Slots::v},
    {"k_cache", &Slots::k_cache, true},
    {"v_cache", &Slots::v_cache, true},
    {"slot_mapping", &Slots::slot_mapping},
    {"k_scale", &Slots::k_scale},
    {"v_scale", &Slots::v_scale},
    {"rotary_cos", &Slots::rotary_cos},
    {"rotary_sin", &Slots::rotary_sin},
    {"positions", &Slots::positions},
};

// Borrows the arrays that are not None into the struct's fields.
template <class Args, size_t kCount>
class Arguments {
 public:
  // If `stream` is None, the call runs on the current stream of the library of the first array.
  Arguments(const Field<Args> (&fields)[kCount], nb::tuple arrays, nb::handle dtype, DLDevice device, nb::handle stream)
      : fields_(fields), integers_as_(dtype_from_python(dtype)) {
    if (nb::len(arrays) != kCount) throw nb::value_error("as many arrays as the struct has");
    for (size_t i = 0; i < kCount; ++i) objects_[i] = arrays[i];
    work_ = Work::on(device, stream, objects_[0]);
  }
  void borrow(size_t i, bool written, Args* args) {
    if (objects_[i].is_none()) return;
    if (written) {
      arrays_[i].write(objects_[i], fields_[i].name, integers_as_, work_);
    } else {
      arrays_[i].read(objects_[i], fields_[i].name, integers_as_, work_);
    }
    args->*fields_[i].member = arrays_[i].tensor();
  }
  nb::object& operator[](size_t i) { return objects_[i]; }
  Work& work() { return work_; }

 private:
  const Field<Args> (&fields_)[kCount];
  DLDataType integers_as_;
  Work work_;
  std::array<nb::object, kCount> objects_;
  std::array<ArrayArgument, kCount> arrays_;
};

// Makes the outputs that the caller did not give: `out` with the shape of q and the dims of V, and the LSE with the
// shape [B, Hq, Sq] or [Hq, Tq].
void make_outputs(Arguments<Flash, std::size(kFlashFields)>& arrays, const Flash& args, bool wants_lse) {
  if (args.q == nullptr || args.v_cache == nullptr || args.q->ndim < 3 || args.v_cache->ndim != 4) return;
  std::vector<int64_t> shape(args.q->shape, args.q->shape + args.q->ndim);
  shape.back() = args.v_cache->shape[3];
  if (arrays[kFlashOut].is_none())
    arrays[kFlashOut] = new_output(arrays[0], *args.q, shape, OutputType::kAsInput, arrays.work());
  if (!wants_lse || !arrays[kFlashLse].is_none()) return;
  const std::vector<int64_t> lse = arrays[kFlashCuQ].is_none()
                                       ? std::vector<int64_t>{shape[0], shape[shape.size() - 2], shape[1]}
                                       : std::vector<int64_t>{shape[1], shape[0]};
  arrays[kFlashLse] = new_output(arrays[0], *args.q, lse, OutputType::kFloat32, arrays.work());
}

nb::object flash_attn(const Context& self, nb::tuple given, bool wants_lse, uint32_t flags, double softmax_scale,
                      double softcap, nb::tuple numbers, nb::handle dtype, nb::handle stream) {
  Arguments<Flash, std::size(kFlashFields)> arrays(kFlashFields, given, dtype, self.handle()->device, stream);
  Flash args;
  kvc_flash_attn_args_init(&args);
  const bool appends = !arrays[kFlashK].is_none();
  for (size_t i = 0; i < std::size(kFlashFields); ++i) {
    const bool cache = i == 1 || i == 2;
    if (!kFlashFields[i].written) arrays.borrow(i, cache && appends, &args);
  }
  make_outputs(arrays, args, wants_lse);
  arrays.borrow(kFlashOut, true, &args);
  arrays.borrow(kFlashLse, true, &args);
  args.flags = flags;
  args.softmax_scale = softmax_scale;
  args.softcap = softcap;
  int32_t* const fields[] = {&args.window_left, &args.window_right, &args.attention_chunk, &args.num_splits};
  for (size_t i = 0; i < std::size(fields); ++i) *fields[i] = saturate(nb::cast<int64_t>(numbers[i]));
  kvc_context* context = self.handle()->context;
  call_without_gil(
      [&](kvc_error* error) { return kvc_flash_attn_with_kvcache(context, &args, arrays.work().stream(), error); });
  arrays.work().hand_back();
  nb::object out = finish_output(arrays[0], arrays[kFlashOut]);
  if (!wants_lse) return out;
  return nb::make_tuple(out, finish_output(arrays[0], arrays[kFlashLse]));
}

void append_slots(const Context& self, nb::tuple given, bool interleaved, nb::handle dtype, nb::handle stream) {
  Arguments<Slots, std::size(kSlotFields)> arrays(kSlotFields, given, dtype, self.handle()->device, stream);
  Slots args;
  kvc_append_slots_args_init(&args);
  for (size_t i = 0; i < std::size(kSlotFields); ++i) arrays.borrow(i, kSlotFields[i].written, &args);
  args.flags = interleaved ? KVC_APPEND_SLOTS_ROTARY_INTERLEAVED : 0;
  kvc_context* context = self.handle()->context;
  call_without_gil([&](kvc_error* error) { return kvc_append_slots(context, &args, arrays.work().stream(), error); });
  arrays.work().hand_back();
}

}  // namespace

void bind_stateless(nb::module_& module) {
  module.def(
      "compute_device",
      [](nb::handle array) {
        const DLDevice device = compute_device(array);
        return nb::make_tuple(static_cast<int>(device.device_type), device.device_id);
      },
      nb::arg("array"));
  module.def("flash_attn", &flash_attn, nb::arg("context"), nb::arg("arrays"), nb::arg("wants_lse"), nb::arg("flags"),
             nb::arg("softmax_scale"), nb::arg("softcap"), nb::arg("numbers"), nb::arg("dtype").none(),
             nb::arg("stream").none());
  module.def("append_slots", &append_slots, nb::arg("context"), nb::arg("arrays"), nb::arg("interleaved"),
             nb::arg("dtype").none(), nb::arg("stream").none());
}

}  // namespace kvcpy
