// Section 11 of the header: tables of forwards and plans, for other kernels.
#include "api/boundary.h"
#include "stateless/device_plan.h"

using namespace kvc;
using namespace kvc::api;

struct kvc_plan {
  std::shared_ptr<kvc::Context> context;
  std::unique_ptr<kvc::DevicePlan> plan;
};

namespace {

// Runs a call on a plan. If the device has found a bad value in an array of an earlier call, returns this error and
// does not run `body`.
template <class Body>
kvc_status plan_call(const char* function, kvc_plan* plan, kvc_error* error, Body body) noexcept {
  return call(function, error, [&]() -> Status {
    KVC_TRY(check_not_null(plan, "plan"));
    KVC_TRY(plan->context->check_earlier());
    return body(*plan->plan);
  });
}

// Fills a caller's kvc_tables with `fill`, which reads the fields that the caller has set.
template <class Fill>
Status fill_tables(kvc_tables* tables, Fill fill) {
  kvc_tables in, out;
  KVC_TRY(read_struct(tables, "tables", &in));
  kvc_tables_init(&out);
  out.flags = in.flags;
  out.part = in.part;
  out.pad_value = in.pad_value;
  out.arrays = in.arrays;
  KVC_TRY(fill(&out));
  write_struct(out, tables);
  return Status();
}

}  // namespace

kvc_status kvc_forward_tables(kvc_cache* cache, kvc_forward forward, int32_t group, kvc_tables* tables,
                              kvc_error* error) {
  return cache_call("kvc_forward_tables", cache, error, [&](Cache& c) {
    return fill_tables(tables, [&](kvc_tables* out) {
      return c.steps.in_group(forward, group, true, [&](Step& step) { return step.tables(group, out); });
    });
  });
}

kvc_status kvc_plan_create(kvc_context* context, const kvc_plan_config* config, kvc_plan** plan, kvc_error* error) {
  return call("kvc_plan_create", error, [&]() -> Status {
    KVC_TRY(check_not_null(context, "context"));
    KVC_TRY(check_not_null(plan, "plan"));
    kvc_plan_config known;
    KVC_TRY(read_struct(config, "config", &known));
    auto handle = std::make_unique<kvc_plan>();
    handle->context = context->context;
    KVC_TRY(DevicePlan::create(context->context, known, &handle->plan));
    *plan = handle.release();
    return Status();
  });
}

void kvc_plan_destroy(kvc_plan* plan) { delete plan; }

kvc_status kvc_plan_build(kvc_plan* plan, const kvc_plan_args* args, void* stream, uint64_t* generation,
                          kvc_error* error) {
  const kvc_status status = plan_call("kvc_plan_build", plan, error, [&](DevicePlan& p) -> Status {
    KVC_TRY(plan->context->check_stream(stream));
    kvc_plan_args known;
    KVC_TRY(read_struct(args, "args", &known));
    return p.build(known, stream, generation);
  });
  if (status == KVC_OK || plan == nullptr) return status;
  const kvc_status marked = call("kvc_plan_build", error, [&] { return plan->plan->refuse(stream); });
  return marked != KVC_OK ? marked : status;
}

kvc_status kvc_plan_tables(kvc_plan* plan, int32_t step, kvc_tables* tables, kvc_error* error) {
  return plan_call("kvc_plan_tables", plan, error, [&](DevicePlan& p) {
    return fill_tables(tables, [&](kvc_tables* out) { return p.tables(step, out); });
  });
}

kvc_status kvc_plan_check(kvc_plan* plan, uint64_t generation, kvc_error* error) {
  return plan_call("kvc_plan_check", plan, error, [&](DevicePlan& p) { return p.check(generation); });
}
