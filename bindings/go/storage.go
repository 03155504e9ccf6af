package kvcache

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Storage decides whether a cache has page pools.
type Storage int32

const (
	StorageOwn  Storage = kvcStorageOwn  // for every layer: in memory of its own, or the caller's (Layer.KVStorage)
	StorageNone Storage = kvcStorageNone // tables only: the caller has pools and kernels of its own (Cache.TakeCopies)
)

// Copy is a copy of Count tokens from one run of slots to another, in each layer of Group. A cache with StorageNone
// leaves it to its engine. Where the runs overlap, TargetSlot is the smaller, so copy() is right.
type Copy struct {
	SourceSlot, TargetSlot int64
	Group, Count           int32
}

// TakeCopies returns the copies that wait, in order, and removes them from the cache. Call it after Fork, Commit and
// Begin, before the next step reads or stores. Begin is refused (ErrOrder) while copies of earlier calls wait. A cache
// with pools has none.
func (c *Cache) TakeCopies() ([]Copy, error) {
	a, h, err := c.enter("Cache.TakeCopies")
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	const size = uint32(unsafe.Sizeof(kvcCopy{}))
	count := &a.numbers[0]
	if err := a.check(h.lib.cacheTakeCopies(a, h.address, nil, size, 0, count)); err != nil {
		return nil, err
	}
	for *count > 0 { // more may have come meanwhile
		taken := make([]kvcCopy, *count)
		status := h.lib.cacheTakeCopies(a, h.address, &taken[0], size, int64(len(taken)), count)
		if status == ErrBufferTooSmall {
			a.err.init()
			continue
		}
		if err := a.check(status); err != nil {
			return nil, err
		}
		copies := make([]Copy, *count)
		for i, t := range taken[:*count] {
			copies[i] = Copy{SourceSlot: t.sourceSlot, TargetSlot: t.targetSlot, Group: t.group, Count: t.count}
		}
		return copies, nil
	}
	return nil, nil
}

// adopted is page pools in the caller's slices. They are pinned until the cache and all views of its pools are gone;
// each of these holds a share. The library gets no deleter, so it never calls into Go. nil means no pools.
type adopted struct {
	users  atomic.Int64
	pinner runtime.Pinner
	any    bool
}

// pinnedPools keeps what is pinned reachable: a Pinner must not be collected before it is unpinned.
var pinnedPools sync.Map

func newAdopted() *adopted {
	k := new(adopted)
	k.users.Store(1)
	return k
}

func (k *adopted) share() *adopted {
	if k == nil || !k.any {
		return nil
	}
	k.users.Add(1)
	return k
}

func (k *adopted) release() {
	if k != nil && k.users.Add(-1) == 0 {
		k.pinner.Unpin()
		pinnedPools.Delete(k)
	}
}

// pool is what the library gets of a pool, and reads until the last user is gone. It is nil for an absent pool.
func (k *adopted) pool(t *Tensor) *dlManagedTensor {
	if !t.present() {
		return nil
	}
	p := new(struct {
		managed dlManagedTensor
		slot    tensorSlot
	})
	p.slot.tensor.shape = &p.slot.dims[0]
	p.slot.tensor.device.deviceType = dlCPU
	p.slot.fill(t)
	p.managed.major, p.managed.minor, p.managed.tensor = 1, 1, p.slot.tensor
	k.any = true
	pinnedPools.Store(k, nil)
	k.pinner.Pin(p)
	if t.data != nil {
		k.pinner.Pin(t.data)
	}
	return &p.managed
}
