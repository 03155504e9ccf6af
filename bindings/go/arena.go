package kvcache

import (
	"runtime"
	"sync"
	"unsafe"
)

// arena holds all that a call to the library needs besides the caller's own slices, so that a call allocates nothing. C
// gets addresses within shared. So
//
//  1. an arena is made once and pinned for ever. After a call it returns to the list of free ones. There are as many arenas as
//     there were calls inside the library at once;
//  2. every Go address that C reads is in an argument, in shared, or in a slice that is pinned for the call (data);
//  3. after the call, nothing in the arena points to the caller's memory (giveBack).
type arena struct {
	*shared
	words  [maxWords]uintptr        // purego: the arguments as registers hold them
	held   [maxWords]unsafe.Pointer // purego: what keeps them alive, and on the heap
	self   runtime.Pinner
	data   [3]runtime.Pinner // each pins five addresses without an allocation
	pinned int
	used   int // tensors that hold an address of the caller's

	lengths []int32 // of a batch: C reads this copy
}

// shared is the part of an arena that C sees: all of its pointers are to pinned memory. With cgo it is C's memory, which
// cgo's checks of arguments need not search.
type shared struct {
	err          kvcError
	batch        kvcBatch
	attend       kvcAttendArgs
	append       kvcAppendArgs
	selects      kvcSelectArgs
	flash        kvcFlashAttnArgs
	slots        kvcAppendSlotsArgs
	keys         kvcPageKeysArgs
	plan         kvcPlanArgs
	tables       kvcTables
	query        kvcPrefixQuery
	hit          kvcPrefixHit
	options      kvcPrefixOptions
	published    kvcPrefixPublished
	events       kvcEventsArgs
	eventsRange  kvcEventsRange
	save         kvcSaveArgs
	load         kvcLoadArgs
	tier         kvcTierConfig
	loadOptions  kvcPrefixLoadOptions
	jobInfo      kvcJobInfo
	pendingHow   kvcPendingOptions
	pendingInfo  kvcPendingInfo
	traffic      kvcTierTraffic
	receive      kvcReceiveArgs
	transferInfo kvcTransferInfo
	transport    kvcTransport
	tensors      [maxTensors]tensorSlot
	seq          Seq
	numbers      [2]int64
	id           uint64
	descriptor   int32
	handle       uintptr
}

const (
	maxTensors = 24 // of kvc_flash_attn_args
	maxWords   = 10 // most parameters of a function
)

// tensorSlot is a DLTensor with room for its shape. tensor.shape points to dims for ever.
type tensorSlot struct {
	tensor  dlTensor
	dims    [maxRank]int64
	strides [maxRank]int64
}

var free struct {
	sync.Mutex
	list []*arena
}

func takeArena() *arena {
	free.Lock()
	if n := len(free.list); n > 0 {
		a := free.list[n-1]
		free.list = free.list[:n-1]
		free.Unlock()
		return a
	}
	free.Unlock()
	a := new(arena)
	a.shared = newShared(&a.self)
	a.err.init()
	for i := range a.tensors {
		slot := &a.tensors[i]
		slot.tensor.shape = &slot.dims[0]
		slot.tensor.device.deviceType = dlCPU
	}
	return a
}

func (a *arena) giveBack() {
	if a.pinned > 0 {
		for i := range a.data[:min(len(a.data), (a.pinned+4)/5)] {
			a.data[i].Unpin()
		}
		a.pinned = 0
	}
	for i := range a.tensors[:a.used] {
		a.tensors[i].tensor.data = nil
	}
	a.used = 0
	free.Lock()
	free.list = append(free.list, a)
	free.Unlock()
}

// pin pins p until giveBack. It does nothing for addresses outside of Go's memory.
func (a *arena) pin(p unsafe.Pointer) {
	if p != nil {
		a.data[min(a.pinned/5, len(a.data)-1)].Pin(p)
		a.pinned++
	}
}

// tensor writes t as a DLTensor to slot i. It returns nil for an absent tensor.
func (a *arena) tensor(i int, t *Tensor) *dlTensor {
	if !t.present() {
		return nil
	}
	slot := &a.tensors[i]
	a.pin(t.data)
	slot.fill(t)
	a.used = max(a.used, i+1)
	return &slot.tensor
}

func (s *tensorSlot) fill(t *Tensor) {
	s.dims = t.dims
	s.tensor.data = t.data
	s.tensor.ndim = int32(t.rank)
	s.tensor.dtype = t.dtype.dl()
	s.tensor.strides = nil
	if t.strides != nil {
		s.strides = *t.strides
		s.tensor.strides = &s.strides[0]
	}
}

// list writes any number of tensors as DLTensors, and the array of their addresses for C, with nil for absent ones. No
// other goroutine has the slice. Its tensors were checked, and are read again here.
func (a *arena) list(tensors []Tensor) **dlTensor {
	if len(tensors) == 0 {
		return nil
	}
	slots, list := make([]tensorSlot, len(tensors)), make([]*dlTensor, len(tensors))
	for i := range tensors {
		if tensors[i].present() {
			a.pin(tensors[i].data)
			slots[i].fill(&tensors[i])
			slots[i].tensor.device.deviceType = dlCPU
			slots[i].tensor.shape = &slots[i].dims[0]
			list[i] = &slots[i].tensor
		}
	}
	a.pin(unsafe.Pointer(&slots[0]))
	a.pin(unsafe.Pointer(&list[0]))
	return &list[0]
}

// address returns the address of a slice's first element, pinned for the call; nil for an empty slice. It is for slices
// in structs. Arguments are kept alive by the call itself.
func address[T any](a *arena, s []T) *T {
	p := unsafe.SliceData(s)
	if len(s) == 0 {
		return nil
	}
	a.pin(unsafe.Pointer(p))
	return p
}

// first returns the address of a slice's first element; nil for an empty slice.
func first[T any](s []T) *T {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}
