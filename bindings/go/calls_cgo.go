//go:build kvcache_cgo

package kvcache

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static void kvcgo_delete(uintptr_t fn, void *tensor) { ((void (*)(void *))fn)(tensor); }
static void kvcgo_call_with(uintptr_t fn, uintptr_t argument) { ((void (*)(uintptr_t))fn)(argument); }
static void kvcgo_item(uintptr_t fn, uintptr_t argument, int64_t i) {
  ((void (*)(uintptr_t, int64_t))fn)(argument, i);
}
static int32_t kvcgo_open_transport(uintptr_t fn, uint32_t version, const char *options, void *transport, void *error) {
  return ((int32_t (*)(uint32_t, const char *, void *, void *))fn)(version, options, transport, error);
}
static uintptr_t kvcgo_get_api(uintptr_t fn, uint32_t version) { return ((uintptr_t (*)(uint32_t))fn)(version); }
static uintptr_t kvcgo_open(const char *path, char **problem) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) *problem = dlerror();
  return (uintptr_t)library;
}
static uintptr_t kvcgo_symbol(uintptr_t library, const char *name) { return (uintptr_t)dlsym((void *)library, name); }
static void kvcgo_close(uintptr_t library) { dlclose((void *)library); }
*/
import "C"

import (
	"errors"
	"runtime"
	"unsafe"
)

func newShared(*runtime.Pinner) *shared {
	return (*shared)(C.calloc(1, C.size_t(unsafe.Sizeof(shared{})))) // C.calloc does not return when there is no memory
}

func callDeleter(function uintptr, tensor *dlManagedTensor) {
	C.kvcgo_delete(C.uintptr_t(function), unsafe.Pointer(tensor))
}

// callWith calls a function of C with an address of C.
func callWith(function, argument uintptr) {
	C.kvcgo_call_with(C.uintptr_t(function), C.uintptr_t(argument))
}

// callItem calls a kvc_parallel_item_fn.
func callItem(function, argument uintptr, i int) {
	C.kvcgo_item(C.uintptr_t(function), C.uintptr_t(argument), C.int64_t(i))
}

// openTransport calls kvc_transport_open of a plug-in, which fills a.transport.
func (a *arena) openTransport(function uintptr, options []byte) Status {
	return Status(C.kvcgo_open_transport(C.uintptr_t(function), kvcTransportVersion, (*C.char)(unsafe.Pointer(&options[0])),
		unsafe.Pointer(&a.transport), unsafe.Pointer(&a.err)))
}

func callGetAPI(function uintptr) uintptr {
	return uintptr(C.kvcgo_get_api(C.uintptr_t(function), kvcAbiVersion))
}

func openLibrary(path string) (uintptr, error) {
	runtime.LockOSThread() // dlerror speaks of this thread
	defer runtime.UnlockOSThread()
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	var problem *C.char
	library := C.kvcgo_open(text, &problem)
	if library == 0 {
		return 0, errors.New(C.GoString(problem))
	}
	return uintptr(library), nil
}

func findSymbol(library uintptr, name string) (uintptr, error) {
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	symbol := C.kvcgo_symbol(C.uintptr_t(library), text)
	if symbol == 0 {
		return 0, errors.New("no symbol " + name)
	}
	return uintptr(symbol), nil
}

func closeLibrary(library uintptr) { C.kvcgo_close(C.uintptr_t(library)) }
