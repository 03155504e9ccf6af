//go:build !kvcache_cgo

package kvcache

import (
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

func newShared(pinner *runtime.Pinner) *shared {
	s := new(shared)
	pinner.Pin(s)
	return s
}

// hold notes an argument that is an address: the object is then on the heap, where it does not move, and alive.
func (a *arena) hold(i int, p unsafe.Pointer) uintptr {
	a.held[i] = p
	return uintptr(p)
}

func (a *arena) call(function uintptr, n int) uintptr {
	result, _, _ := purego.SyscallN(function, a.words[:n]...) // an array that exists: `...` of words would allocate one
	clear(a.held[:n])
	return result
}

func callDeleter(function uintptr, tensor *dlManagedTensor) {
	a := takeArena()
	defer a.giveBack()
	a.words[0] = a.hold(0, unsafe.Pointer(tensor))
	a.call(function, 1)
}

func callGetAPI(function uintptr) uintptr {
	table, _, _ := purego.SyscallN(function, kvcAbiVersion)
	return table
}

func openLibrary(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

func findSymbol(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }

func closeLibrary(library uintptr) { _ = purego.Dlclose(library) }
