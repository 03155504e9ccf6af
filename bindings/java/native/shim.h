/* What Java's native layer is in C: the functions of the loaded library with a number for each pointer (calls.inc), and
 * the few things that Java cannot do itself. SWIG makes JNI of this file and of calls.inc; nothing here knows JNI but
 * where buffers become addresses and back. The library is loaded by path, so that the jar's, the system's or the user's
 * own does. */
#ifndef KVCACHE_JAVA_SHIM_H_
#define KVCACHE_JAVA_SHIM_H_

#include <dlfcn.h>
#include <jni.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvcache.h"
#include "kvcache_transport.h"

static const kvc_api *kvj_api;

/* NULL, or what is wrong, in static memory: Java calls this under a lock. */
static const char *kvj_open(const char *path) {
  static char problem[1024];
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const kvc_api *api;
  const struct kvc_api *(*get_api)(uint32_t);
  if (library == NULL) {
    snprintf(problem, sizeof(problem), "%s", dlerror());
    return problem;
  }
  *(void **)&get_api = dlsym(library, "kvc_get_api");
  api = get_api == NULL ? NULL : get_api(KVC_ABI_VERSION);
  if (get_api == NULL) {
    snprintf(problem, sizeof(problem), "it has no kvc_get_api: it is not libkvcache");
  } else if (api == NULL) {
    snprintf(problem, sizeof(problem), "the library is of another version; this package needs %d.%d", KVC_VERSION_MAJOR,
             KVC_VERSION_MINOR);
  } else if (api->struct_size < sizeof(kvc_api)) {
    snprintf(problem, sizeof(problem),
             "the library is older than this package: its table of functions has %u bytes, %zu are needed",
             api->struct_size, sizeof(kvc_api));
  } else {
    kvj_api = api;
    return NULL;
  }
  dlclose(library);
  return problem;
}

static int64_t kvj_address(JNIEnv *jni, jobject buffer) {
  return (int64_t)(intptr_t)(*jni)->GetDirectBufferAddress(jni, buffer);
}

static jobject kvj_view(JNIEnv *jni, int64_t address, int64_t bytes) {
  return (*jni)->NewDirectByteBuffer(jni, (void *)(intptr_t)address, bytes);
}

/* Calls run(). Java's linker keeps the memory alive until this returns (Segments.java). */
static void kvj_run_holding(void (*run)(void), void *memory) {
  (void)memory;
  run();
}

static int64_t kvj_holder(void) { return (int64_t)(intptr_t)&kvj_run_holding; }

static void kvj_release(int64_t managed) {
  DLManagedTensorVersioned *tensor = (DLManagedTensorVersioned *)(intptr_t)managed;
  if (tensor->deleter != NULL) tensor->deleter(tensor);
}

static int32_t kvj_no_transport(kvc_error *error, kvc_status status, const char *what) {
  snprintf(error->message, sizeof(error->message), "kvc_transport_open: %s", what);
  return (int32_t)(error->code = status);
}

/* Opens the transport of a plug-in, which stays loaded, and gives it to a cache. */
static int32_t kvj_useTransport(int64_t cache, int64_t library, int64_t options, int64_t error) {
  kvc_error *const failure = (kvc_error *)(intptr_t)error;
  void *const plugin = dlopen((const char *)(intptr_t)library, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  kvc_transport_open_fn open;
  kvc_transport transport;
  kvc_status status;
  if (plugin == NULL) return kvj_no_transport(failure, KVC_ERROR_IO, dlerror());
  *(void **)&open = dlsym(plugin, "kvc_transport_open");
  if (open == NULL) return kvj_no_transport(failure, KVC_ERROR_UNSUPPORTED, dlerror());
  kvc_transport_init(&transport);
  status = open(KVC_TRANSPORT_VERSION, (const char *)(intptr_t)options, &transport, failure);
  if (status != KVC_OK) return (int32_t)status;
  status = kvj_api->cache_set_transport((kvc_cache *)(intptr_t)cache, &transport, failure);
  if (status != KVC_OK) transport.close(transport.self);
  return (int32_t)status;
}

#endif
