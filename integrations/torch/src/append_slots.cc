#include "arguments.h"
#include "library.h"
#include "operators.h"

namespace kvc_torch {
namespace {

using Args = kvc_append_slots_args;
constexpr auto kRequired = Field<Args>::kRequired, kOptional = Field<Args>::kOptional;
constexpr Field<Args> kFields[] = {
    {"k", &Args::k, kRequired},
    {"v", &Args::v, kRequired},
    {"k_cache", &Args::k_cache, kRequired, true},
    {"v_cache", &Args::v_cache, kOptional, true},
    {"slot_mapping", &Args::slot_mapping, kRequired},
    {"k_scale", &Args::k_scale},
    {"v_scale", &Args::v_scale},
    {"rotary_cos", &Args::rotary_cos},
    {"rotary_sin", &Args::rotary_sin},
    {"positions", &Args::positions},
};
constexpr size_t kInterleaved = std::size(kFields);

}  // namespace

void append_slots(StableIValue* stack, uint64_t, uint64_t) {
  Tensors tensors(kFields, stack);
  Args args;
  kvc_append_slots_args_init(&args);
  if (take<bool>(stack[kInterleaved])) args.flags = KVC_APPEND_SLOTS_ROTARY_INTERLEAVED;
  tensors.borrow(&args);
  const Place place = place_of(*tensors[0]);
  kvc_error error = KVC_ERROR_INIT;
  check(library().append_slots(place.context, &args, place.stream, &error), error);
}

}  // namespace kvc_torch
