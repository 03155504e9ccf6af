package kvcache

import (
	"math"
	"sync/atomic"
)

// handle counts the users of a context or a cache of C: its owner, until close, and each call that is inside it. The
// last user destroys it, so no call races its destruction.
type handle struct {
	lib     *library
	address uintptr
	users   atomic.Int64
	closed  atomic.Bool
	destroy func(*library, *arena, uintptr)
	adopted *adopted  // memory that C reads as long as it exists; nil of most
	pool    *hostPool // whose function C may call as long as it exists; nil of most
}

func newHandle(lib *library, address uintptr, destroy func(*library, *arena, uintptr)) *handle {
	h := &handle{lib: lib, address: address, destroy: destroy}
	h.users.Store(1)
	return h
}

// enter returns whether the handle may be used until leave.
func (h *handle) enter() bool { return h != nil && !h.closed.Load() && h.join() }

// join is enter for calls that must also reach a closed handle while another call is inside it.
func (h *handle) join() bool {
	for {
		users := h.users.Load()
		if users == 0 {
			return false
		}
		if h.users.CompareAndSwap(users, users+1) {
			return true
		}
	}
}

func (h *handle) leave() {
	if h.users.Add(-1) == 0 {
		a := takeArena()
		defer a.giveBack()
		h.destroy(h.lib, a, h.address)
		h.adopted.release()
		h.pool.release()
	}
}

func (h *handle) close() {
	if h != nil && h.closed.CompareAndSwap(false, true) {
		h.leave()
	}
}

// narrow converts to C's int32. A number that does not fit stays out of range, so the library refuses it.
func narrow(n int) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }
