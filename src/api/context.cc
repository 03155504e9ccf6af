// Section 4 of the header: contexts.
#include "api/boundary.h"

using namespace kvc;
using namespace kvc::api;

kvc_status kvc_context_create(const kvc_context_config* config, kvc_context** context, kvc_error* error) {
  return call("kvc_context_create", error, [&]() -> Status {
    KVC_TRY(check_not_null(context, "context"));
    kvc_context_config known;
    kvc_context_config_init(&known);
    if (config != nullptr) KVC_TRY(read_struct(config, "config", &known));
    auto handle = std::make_unique<kvc_context>();
    KVC_TRY(Context::create(known, &handle->context));
    *context = handle.release();
    return Status();
  });
}

void kvc_context_destroy(kvc_context* context) { delete context; }

kvc_status kvc_context_check(kvc_context* context, kvc_error* error) {
  return context_call("kvc_context_check", context, error, [](kvc_context&) { return Status(); });
}

kvc_status kvc_context_describe(kvc_context* context, char* buffer, int64_t capacity, int64_t* length,
                                kvc_error* error) {
  return call("kvc_context_describe", error, [&]() -> Status {
    KVC_TRY(check_not_null(context, "context"));
    KVC_TRY(check_buffer(buffer, capacity, "buffer"));
    return write_text(context->context->describe(), buffer, capacity, length);
  });
}
