// Section 2 of the header: version and build.
#include "kvcache.h"

#define KVC_TEXT2(x) #x
#define KVC_TEXT(x) KVC_TEXT2(x)
#define KVC_VERSION_TEXT KVC_TEXT(KVC_VERSION_MAJOR) "." KVC_TEXT(KVC_VERSION_MINOR) "." KVC_TEXT(KVC_VERSION_PATCH)

const char* kvc_version(void) { return KVC_VERSION_TEXT; }

uint32_t kvc_abi_version(void) { return KVC_ABI_VERSION; }

const char* kvc_build_info(void) {
  return "{\"version\": \"" KVC_VERSION_TEXT "\", \"abi\": \"" KVC_TEXT(KVC_VERSION_MAJOR) "." KVC_TEXT(
      KVC_VERSION_MINOR) "\", \"compiler\": \"" __VERSION__
                         "\", \"dlpack\": \"" KVC_TEXT(DLPACK_MAJOR_VERSION) "." KVC_TEXT(
                             DLPACK_MINOR_VERSION) "\", \"backends\": [\"cpu\"], \"simd\": [" KVCACHE_SIMD_TARGETS
                                                   "], \"features\": []}";
}
