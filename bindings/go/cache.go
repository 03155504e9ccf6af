// Package kvcache is libkvcache for Go: a paged KV cache and the attention that reads it, for LLM engines.
//
// A Cache has page pools for every layer of a model. A sequence (Seq) is an id in it. Each step of the model is a Step.
// Begin reserves pages for the new tokens of a batch, or changes nothing and reports what is missing. Attend stores a
// layer's new K and V, and computes attention over everything stored. End keeps the new tokens; Close without End drops
// them.
//
// Tensors are slices with dimensions: F32(slice, rows, heads, dim). Errors are values: *Error with a Status, *OutOfPages.
// A context that ends cancels the step that was begun with it.
//
// For engines with their own kernels, pools or cache there are Step.Tables and Plan, Layer.KVStorage and StorageNone,
// and Context.FlashAttnWithKVCache.
//
// Any goroutine may call methods; calls on one Step must follow each other. The library is found at run time (Load).
// The garbage collector releases unreachable objects that were not closed, except a PoolView, whose slice may be
// elsewhere. It never removes a sequence or ends a step, because page ids would depend on it.
package kvcache

import (
	"runtime"
)

// Cache is page pools for every layer of a model, and the sequences in them.
type Cache struct {
	handle   *handle
	pageSize int
}

// WholeCache is the group of Stats and Estimate that stands for all groups.
const WholeCache = -1

// New creates a cache. It reserves all its memory; the system provides a page of it when it is first written.
func New(config Config) (*Cache, error) {
	a, context, err := config.enter("New")
	if err != nil {
		return nil, err
	}
	defer leave(a, context)
	kept := newAdopted()
	defer kept.release()
	c, err := config.c(a, kept)
	if err != nil {
		return nil, err
	}
	if err := a.check(context.lib.cacheCreate(a, context.address, c, &a.handle)); err != nil {
		return nil, err
	}
	cache := &Cache{newHandle(context.lib, a.handle, (*library).cacheDestroy), int(c.pageSize)}
	if cache.pageSize == 0 {
		cache.pageSize = 16
	}
	cache.handle.adopted, cache.handle.pool = kept.share(), context.pool.share()
	runtime.AddCleanup(cache, (*handle).close, cache.handle)
	return cache, nil
}

// enter enters the Context of the config, or a new one that lives as long as its cache.
func (config *Config) enter(function string) (*arena, *handle, error) {
	if config.Context != nil {
		return config.Context.enter(function)
	}
	context, err := NewContext(ContextConfig{})
	if err != nil {
		return nil, nil, err
	}
	defer context.Close()
	return context.enter(function)
}

// Estimate is what a cache would need.
type Estimate struct {
	Pages            int64 // all groups: their sum
	PageBytes        int64 // bytes of one page in all layers of the group (all groups: 0)
	TokenBytes       int64 // bytes one token takes in all layers while it is stored
	StorageBytes     int64 // pools
	BookkeepingBytes int64
	ScratchBytes     int64 // all groups only
}

// EstimateOf returns what New would allocate for a group or for WholeCache, or the error of New.
func EstimateOf(config Config, group int) (Estimate, error) {
	a, context, err := config.enter("EstimateOf")
	if err != nil {
		return Estimate{}, err
	}
	defer leave(a, context)
	kept := newAdopted()
	defer kept.release()
	c, err := config.c(a, kept)
	if err != nil {
		return Estimate{}, err
	}
	e := new(kvcEstimate)
	e.init()
	if err := a.check(context.lib.cacheEstimate(a, context.address, c, narrow(group), e)); err != nil {
		return Estimate{}, err
	}
	return Estimate{Pages: e.numPages, PageBytes: e.pageBytes, TokenBytes: e.tokenBytes, StorageBytes: e.storageBytes,
		BookkeepingBytes: e.bookkeepingBytes, ScratchBytes: e.scratchBytes}, nil
}

// Close aborts open steps and releases the cache: now, or when the last call that is inside it returns. Later calls
// return errors. Closing it again does nothing.
func (c *Cache) Close() error {
	if c != nil {
		c.handle.close()
	}
	return nil
}

func (c *Cache) enter(function string) (*arena, *handle, error) {
	if c == nil || !c.handle.enter() {
		return nil, nil, misuse(ErrNullArgument, "%s: the Cache is nil or closed", function)
	}
	return takeArena(), c.handle, nil
}

// Clear removes every sequence, everything that the prefix index holds, and every pin.
func (c *Cache) Clear() error {
	a, h, err := c.enter("Cache.Clear")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.cacheClear(a, h.address))
}

// Stats has the counts of one group or of the whole cache.
type Stats struct {
	Sequences          int
	PagesTotal         int64
	PagesUsed          int64
	PagesFree          int64
	PagesShared        int64 // used pages that belong to two or more sequences
	PagesPeak          int64 // most pages ever used at once
	TokensHeld         int64 // tokens stored, a shared one counted once
	TokensShared       int64
	TokensLogical      int64 // what a cache without sharing would hold
	FragmentationBytes int64 // bytes of used pages that hold no token
	StorageBytes       int64
	PagesPublished     int64 // pages that the prefix index holds
	PagesIdle          int64 // of those, pages that nothing else holds: calls that are short of pages evict them. They count as used
	PagesEvicted       int64 // pages that such calls have evicted
	PrefixAttaches     int64 // calls of AttachPrefix that succeeded (of the cache, in every group)
	PrefixTokens       int64 // tokens that they found, likewise
}

// Stats counts a group, or WholeCache. For dashboards, not for every step.
func (c *Cache) Stats(group int) (Stats, error) {
	a, h, err := c.enter("Cache.Stats")
	if err != nil {
		return Stats{}, err
	}
	defer leave(a, h)
	s := new(kvcStats)
	s.init()
	if err := a.check(h.lib.cacheStats(a, h.address, narrow(group), s)); err != nil {
		return Stats{}, err
	}
	return Stats{Sequences: int(s.numSequences), PagesTotal: s.pagesTotal, PagesUsed: s.pagesUsed, PagesFree: s.pagesFree,
		PagesShared: s.pagesShared, PagesPeak: s.pagesPeak, TokensHeld: s.tokensHeld, TokensShared: s.tokensShared,
		TokensLogical: s.tokensLogical, FragmentationBytes: s.fragmentationBytes, StorageBytes: s.storageBytes,
		PagesPublished: s.pagesPublished, PagesIdle: s.pagesIdle, PagesEvicted: s.pagesEvicted,
		PrefixAttaches: s.prefixAttaches, PrefixTokens: s.prefixTokens}, nil
}

// Describe returns the cache at this moment as one JSON object: the pages of each group, the sequences and which pages they share,
// the prefix index, tiers and open steps. It has no tokens. It is for dashboards, as it walks the page tables.
func (c *Cache) Describe() (string, error) {
	a, h, err := c.enter("Cache.Describe")
	if err != nil {
		return "", err
	}
	defer leave(a, h)
	return describe(a, func(buffer *byte, capacity int64, length *int64) Status {
		return h.lib.cacheDescribe(a, h.address, buffer, capacity, length)
	})
}

// Digest is a hash of all bookkeeping: equal after equal calls on equal configs.
func (c *Cache) Digest() (uint64, error) {
	a, h, err := c.enter("Cache.Digest")
	if err != nil {
		return 0, err
	}
	defer leave(a, h)
	err = a.check(h.lib.cacheDigest(a, h.address, &a.id))
	return a.id, err
}

// CheckInvariants checks the bookkeeping. An error with ErrInternal says which invariant does not hold.
func (c *Cache) CheckInvariants() error {
	a, h, err := c.enter("Cache.CheckInvariants")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.cacheCheckInvariants(a, h.address))
}
