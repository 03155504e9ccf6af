#include "kvcache.h"

namespace {

struct Name {
  kvc_status status;
  const char* name;
};

#define KVC_NAME(code) {code, #code}
constexpr Name kNames[] = {
    KVC_NAME(KVC_OK),
    KVC_NAME(KVC_ERROR_INVALID_ARGUMENT),
    KVC_NAME(KVC_ERROR_NULL_ARGUMENT),
    KVC_NAME(KVC_ERROR_STRUCT_SIZE),
    KVC_NAME(KVC_ERROR_UNSUPPORTED),
    KVC_NAME(KVC_ERROR_DTYPE),
    KVC_NAME(KVC_ERROR_DEVICE),
    KVC_NAME(KVC_ERROR_RANK),
    KVC_NAME(KVC_ERROR_SHAPE),
    KVC_NAME(KVC_ERROR_STRIDE),
    KVC_NAME(KVC_ERROR_OUT_OF_RANGE),
    KVC_NAME(KVC_ERROR_STALE_ID),
    KVC_NAME(KVC_ERROR_DUPLICATE),
    KVC_NAME(KVC_ERROR_EARLIER_CALL),
    KVC_NAME(KVC_ERROR_OUT_OF_PAGES),
    KVC_NAME(KVC_ERROR_OUT_OF_MEMORY),
    KVC_NAME(KVC_ERROR_TOO_MANY_SEQUENCES),
    KVC_NAME(KVC_ERROR_TOO_MANY_FORWARDS),
    KVC_NAME(KVC_ERROR_BATCH_TOO_LARGE),
    KVC_NAME(KVC_ERROR_BUFFER_TOO_SMALL),
    KVC_NAME(KVC_ERROR_TREE_TOO_LARGE),
    KVC_NAME(KVC_ERROR_BUSY),
    KVC_NAME(KVC_ERROR_ORDER),
    KVC_NAME(KVC_ERROR_CANCELLED),
    KVC_NAME(KVC_ERROR_EVICTED),
    KVC_NAME(KVC_ERROR_UNCOMMITTED),
    KVC_NAME(KVC_ERROR_STALE),
    KVC_NAME(KVC_ERROR_SUSPENDED),
    KVC_NAME(KVC_ERROR_DEVICE_UNAVAILABLE),
    KVC_NAME(KVC_ERROR_DEVICE_FAILED),
    KVC_NAME(KVC_ERROR_IO),
    KVC_NAME(KVC_ERROR_CORRUPT),
    KVC_NAME(KVC_ERROR_LAYOUT),
    KVC_NAME(KVC_ERROR_INTERNAL),
};
#undef KVC_NAME

const char* band_name(kvc_status status) {
  if (status < 0) return "KVC_ERROR_UNKNOWN";
  if (status < 100) return "KVC_ERROR_UNKNOWN_MISUSE";
  if (status < 200) return "KVC_ERROR_UNKNOWN_CAPACITY";
  if (status < 300) return "KVC_ERROR_UNKNOWN_STATE";
  if (status < 400) return "KVC_ERROR_UNKNOWN_DEVICE";
  if (status < 500) return "KVC_ERROR_UNKNOWN_DATA";
  return "KVC_ERROR_UNKNOWN_INTERNAL";
}

}  // namespace

const char* kvc_status_name(kvc_status status) {
  for (const Name& entry : kNames) {
    if (entry.status == status) return entry.name;
  }
  return band_name(status);
}
