/* Native methods of Host.java, over a library that is loaded by its path. */
#define _GNU_SOURCE
#include <jni.h>

#include "../loaded.h"

static void *library;
static const kvc_api *api;
static kvc_context *context;
static kvc_cache *cache;

JNIEXPORT void JNICALL Java_Host_load(JNIEnv *env, jclass host, jstring path) {
  const char *chars = (*env)->GetStringUTFChars(env, path, NULL);
  (void)host;
  if (!chars) return; /* an exception is pending */
  api = load(chars, RTLD_LOCAL, &library);
  (*env)->ReleaseStringUTFChars(env, path, chars);
}

/* A context of the calling thread's own, a prompt, and nothing of it left. */
JNIEXPORT void JNICALL Java_Host_round(JNIEnv *env, jclass host) {
  kvc_context *own_context = NULL;
  kvc_cache *own = make_cache(api, &own_context);
  (void)env, (void)host;
  prompt(api, own);
  api->cache_destroy(own);
  api->context_destroy(own_context);
}

/* Workers that stay until close(). */
JNIEXPORT void JNICALL Java_Host_open(JNIEnv *env, jclass host) {
  (void)env, (void)host;
  cache = make_cache(api, &context);
  prompt(api, cache);
  check_threads("kvc-", THREADS - 1);
}

JNIEXPORT void JNICALL Java_Host_close(JNIEnv *env, jclass host) {
  (void)env, (void)host;
  api->cache_destroy(cache);
  api->context_destroy(context);
  check_threads("kvc-", 0);
}

JNIEXPORT void JNICALL Java_Host_unload(JNIEnv *env, jclass host) {
  (void)env, (void)host;
  check(dlclose(library) == 0, "dlclose", 0);
}
