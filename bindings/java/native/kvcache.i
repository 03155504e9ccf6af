/* SWIG's input: the flat shim becomes the static native methods of the Java class dev.kvcache.Jni. */
%module(jniclassname="Jni") JniModule
%pragma(java) jniclassclassmodifiers="final class"
%pragma(java) moduleclassmodifiers="final class"
%include <stdint.i>

%{
#include "shim.h"
#include "calls.inc"
%}

/* Buffers go in and out as themselves. */
%typemap(in, numinputs=0) JNIEnv *jni "$1 = jenv;"
%typemap(jni) jobject "jobject"
%typemap(in) jobject "$1 = $input;"
%typemap(out) jobject "$result = $1;"
%typemap(javain) jobject "$javainput"
%typemap(jtype) jobject buffer "java.nio.Buffer"
%typemap(jstype) jobject buffer "java.nio.Buffer"
%typemap(jtype) jobject kvj_view "java.nio.ByteBuffer"
%typemap(jstype) jobject kvj_view "java.nio.ByteBuffer"
%typemap(javaout) jobject { return $jnicall; }

static const char *kvj_open(const char *path);
static int64_t kvj_address(JNIEnv *jni, jobject buffer);
static jobject kvj_view(JNIEnv *jni, int64_t address, int64_t bytes);
static int64_t kvj_holder(void);
static void kvj_release(int64_t managed);
static int32_t kvj_useTransport(int64_t cache, int64_t library, int64_t options, int64_t error);
static int64_t kvj_parallelFor(JNIEnv *jni);
static void kvj_runItem(int64_t address, int64_t number, int64_t index);
%include "calls.inc"
