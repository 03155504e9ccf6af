/* What Java's native layer is in C: the functions of the loaded library with a number for each pointer (calls.inc), and
 * the few things that Java cannot do itself. SWIG makes JNI of this file and of calls.inc; nothing here knows JNI but
 * where buffers become addresses and back. The library is loaded by path, so that the jar's, the system's or the user's
 * own does. */
#ifndef KVCACHE_JAVA_SHIM_H_
#define KVCACHE_JAVA_SHIM_H_

#include <dlfcn.h>
#include <jni.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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

/* A job is one call of parallel_for. The program's function gets its items as (job, number, index), and may use them at
 * any time, on any thread, again and again. So
 *
 *   1. an item runs only if waiting[index] is the number of the job, and the thread that runs it first sets that to 0.
 * Numbers are never used again, and jobs are never freed: later uses change nothing;
 *   2. parallel_for runs the items that nothing has begun, and returns when all are done. This is C, so that no
 * exception of Java can prevent it. */
enum { kvj_max_items = 1024 }; /* num_threads is at most that */

typedef struct kvj_job {
  struct kvj_job *next; /* in the list of free jobs */
  kvc_parallel_item_fn item;
  void *arg;
  int64_t n, done; /* done changes under the mutex */
  pthread_mutex_t mutex;
  pthread_cond_t all_done;
  _Atomic int64_t waiting[kvj_max_items]; /* the number of the job whose item has not begun; 0 = none */
} kvj_job;

static pthread_mutex_t kvj_jobs_mutex = PTHREAD_MUTEX_INITIALIZER;
static kvj_job *kvj_free_jobs;
static int64_t kvj_last_number;

static kvj_job *kvj_take_job(int64_t *number) {
  kvj_job *job;
  pthread_mutex_lock(&kvj_jobs_mutex);
  *number = ++kvj_last_number;
  job = kvj_free_jobs;
  if (job != NULL) kvj_free_jobs = job->next;
  pthread_mutex_unlock(&kvj_jobs_mutex);
  if (job == NULL) {
    job = (kvj_job *)calloc(1, sizeof(kvj_job));
    if (job == NULL) return NULL;
    pthread_mutex_init(&job->mutex, NULL);
    pthread_cond_init(&job->all_done, NULL);
  }
  return job;
}

static void kvj_give_job_back(kvj_job *job) {
  pthread_mutex_lock(&kvj_jobs_mutex);
  job->next = kvj_free_jobs;
  kvj_free_jobs = job;
  pthread_mutex_unlock(&kvj_jobs_mutex);
}

static void kvj_runItem(int64_t address, int64_t number, int64_t index) {
  kvj_job *const job = (kvj_job *)(intptr_t)address;
  int64_t waiting = number;
  if (index < 0 || index >= kvj_max_items) return;
  if (!atomic_compare_exchange_strong(&job->waiting[index], &waiting, 0)) return;
  job->item(job->arg, index);
  pthread_mutex_lock(&job->mutex);
  if (++job->done == job->n) pthread_cond_signal(&job->all_done);
  pthread_mutex_unlock(&job->mutex);
}

static JavaVM *kvj_vm;
static jweak kvj_pool_class; /* the class may be unloaded with its loader */
static jmethodID kvj_pool_run;

/* Calls HostPool.run. If it cannot be called, nothing runs. That is so on a thread that is not Java's, and without
 * memory or stack for the call. HostPool.run itself throws nothing. */
static void kvj_call_pool(int64_t user, kvj_job *job, int64_t number, int64_t n) {
  JNIEnv *jni = NULL;
  jclass pool;
  if ((*kvj_vm)->GetEnv(kvj_vm, (void **)&jni, JNI_VERSION_1_8) != JNI_OK) return;
  pool = (jclass)(*jni)->NewLocalRef(jni, kvj_pool_class);
  if (pool == NULL) return;
  (*jni)->CallStaticVoidMethod(jni, pool, kvj_pool_run, (jlong)user, (jlong)(intptr_t)job, (jlong)number, (jint)n);
  if ((*jni)->ExceptionCheck(jni)) (*jni)->ExceptionClear(jni);
  (*jni)->DeleteLocalRef(jni, pool);
}

static void kvj_parallel_for(void *user, int64_t n, kvc_parallel_item_fn item, void *arg) {
  int64_t i, number;
  kvj_job *const job = n > kvj_max_items ? NULL : kvj_take_job(&number);
  if (job == NULL) {
    for (i = 0; i < n; i++) item(arg, i);
    return;
  }
  job->item = item;
  job->arg = arg;
  job->n = n;
  job->done = 0;
  for (i = 0; i < n; i++) atomic_store(&job->waiting[i], number);
  kvj_call_pool((int64_t)(intptr_t)user, job, number, n);
  for (i = 0; i < n; i++) kvj_runItem((int64_t)(intptr_t)job, number, i);
  pthread_mutex_lock(&job->mutex);
  while (job->done < n) pthread_cond_wait(&job->all_done, &job->mutex);
  pthread_mutex_unlock(&job->mutex);
  kvj_give_job_back(job);
}

/* The kvc_parallel_for_fn of every context. Java calls this once, before it opens the first such context. */
static int64_t kvj_parallelFor(JNIEnv *jni) {
  const jclass pool = (*jni)->FindClass(jni, "dev/kvcache/HostPool");
  if (pool == NULL) return 0; /* Java throws what was wrong */
  kvj_pool_run = (*jni)->GetStaticMethodID(jni, pool, "run", "(JJJI)V");
  if (kvj_pool_run == NULL || (*jni)->GetJavaVM(jni, &kvj_vm) != JNI_OK) return 0;
  kvj_pool_class = (*jni)->NewWeakGlobalRef(jni, pool);
  return (int64_t)(intptr_t)&kvj_parallel_for;
}

#endif
