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

#endif
