//go:build !kvcache_cgo

package kvcache

import (
	"runtime"
	"sync"
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

// callWith calls a function of C with an address of C.
func callWith(function, argument uintptr) { _, _, _ = purego.SyscallN(function, argument) }

// callItem calls a kvc_parallel_item_fn.
func callItem(function, argument uintptr, i int) {
	a := takeArena()
	defer a.giveBack()
	a.words[0], a.words[1] = argument, uintptr(i)
	a.call(function, 2)
}

// parallelForOfC is the address of runOnHost in C. There is one for the process, because callbacks are never freed.
var parallelForOfC = sync.OnceValue(func() uintptr { return purego.NewCallback(runOnHost) })

// openTransport calls kvc_transport_open of a plug-in, which fills a.transport.
func (a *arena) openTransport(function uintptr, options []byte) Status {
	a.words[0] = kvcTransportVersion
	a.words[1] = a.hold(1, unsafe.Pointer(&options[0]))
	a.words[2] = a.hold(2, unsafe.Pointer(&a.transport))
	a.words[3] = a.hold(3, unsafe.Pointer(&a.err))
	return Status(a.call(function, 4))
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
