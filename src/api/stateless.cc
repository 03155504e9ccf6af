// Section 10 of the header: stateless calls.
#include "api/boundary.h"
#include "stateless/append_slots.h"
#include "stateless/flash_attn.h"

using namespace kvc;
using namespace kvc::api;

namespace {

// Runs body(scratch) with a scratch of the context that no other call uses.
template <class Body>
Status with_scratch(kvc_context& context, Body body) {
  struct Lease {
    StatelessScratches& scratches;
    std::unique_ptr<StatelessScratch> scratch;
    ~Lease() { scratches.give(std::move(scratch)); }
  };
  const Lease lease = {context.stateless, context.stateless.take()};
  return body(*lease.scratch);
}

}  // namespace

kvc_status kvc_flash_attn_with_kvcache(kvc_context* context, const kvc_flash_attn_args* args, void* stream,
                                       kvc_error* error) {
  return context_call("kvc_flash_attn_with_kvcache", context, error, [&](kvc_context& on) -> Status {
    kvc_flash_attn_args known;
    KVC_TRY(read_struct(args, "args", &known));
    return with_scratch(
        on, [&](StatelessScratch& scratch) { return flash_attn_with_kvcache(on.context, scratch, known, stream); });
  });
}

kvc_status kvc_append_slots(kvc_context* context, const kvc_append_slots_args* args, void* stream, kvc_error* error) {
  return context_call("kvc_append_slots", context, error, [&](kvc_context& on) -> Status {
    kvc_append_slots_args known;
    KVC_TRY(read_struct(args, "args", &known));
    return with_scratch(on,
                        [&](StatelessScratch& scratch) { return append_slots(on.context, scratch, known, stream); });
  });
}
