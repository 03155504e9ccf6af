//go:build kvcache_cgo

package kvcache

/*
#include <stdint.h>

void kvcgoRunOnHost(uintptr_t, int64_t, uintptr_t, uintptr_t);
static uintptr_t kvcgo_parallel_for(void) { return (uintptr_t)&kvcgoRunOnHost; }
*/
import "C"

//export kvcgoRunOnHost
func kvcgoRunOnHost(user C.uintptr_t, n C.int64_t, item, arg C.uintptr_t) {
	runOnHost(uintptr(user), int64(n), uintptr(item), uintptr(arg))
}

// parallelForOfC is the address of runOnHost in C.
func parallelForOfC() uintptr { return uintptr(C.kvcgo_parallel_for()) }
