package kvcache

// Seq is a sequence of a cache: an opaque id. A stale one is an error.
type Seq uint64

// Add makes an empty sequence; it takes no page.
func (c *Cache) Add() (Seq, error) {
	a, h, err := c.enter("Cache.Add")
	if err != nil {
		return 0, err
	}
	defer leave(a, h)
	a.seq = 0
	err = a.check(h.lib.seqAdd(a, h.address, 1, &a.seq))
	return a.seq, err
}

// AddMany makes n empty sequences, or none.
func (c *Cache) AddMany(n int) ([]Seq, error) {
	return results[Seq](c, "Cache.AddMany", n, func(l *library, a *arena, cache uintptr, out *Seq) Status {
		return l.seqAdd(a, cache, int64(n), out)
	})
}

// Remove removes sequences, all or none, and frees every page that no other one shares.
func (c *Cache) Remove(sequences ...Seq) error {
	a, h, err := c.enter("Cache.Remove")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.seqRemove(a, h.address, int64(len(sequences)), first(sequences)))
}

// Fork makes a child of each parent; a parent may occur often. Whole pages are shared.
func (c *Cache) Fork(parents ...Seq) ([]Seq, error) { return c.ForkAt(parents, nil) }

// ForkAt makes a child of each parent with its first positions[i] tokens; -1 means all of them. Without positions all
// children have all tokens.
func (c *Cache) ForkAt(parents []Seq, positions []int64) ([]Seq, error) {
	if positions != nil && len(positions) != len(parents) {
		return nil, misuse(ErrInvalidArgument, "Cache.ForkAt: %d parents, but %d positions", len(parents), len(positions))
	}
	return results[Seq](c, "Cache.Fork", len(parents), func(l *library, a *arena, cache uintptr, out *Seq) Status {
		return l.seqFork(a, cache, int64(len(parents)), first(parents), first(positions), out, 0)
	})
}

// Truncate drops the tokens of each sequence from lengths[i] on.
func (c *Cache) Truncate(sequences []Seq, lengths []int64) error {
	if len(lengths) != len(sequences) {
		return misuse(ErrInvalidArgument, "Cache.Truncate: %d sequences, but %d lengths", len(sequences), len(lengths))
	}
	a, h, err := c.enter("Cache.Truncate")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.seqTruncate(a, h.address, int64(len(sequences)), first(sequences), first(lengths)))
}

// Commit keeps the path to node leaves[i] of each sequence's token tree, and drops its other nodes; -1 = drop all.
func (c *Cache) Commit(sequences []Seq, leaves []int32) error {
	if len(leaves) != len(sequences) {
		return misuse(ErrInvalidArgument, "Cache.Commit: %d sequences, but %d leaves", len(sequences), len(leaves))
	}
	a, h, err := c.enter("Cache.Commit")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.seqCommit(a, h.address, int64(len(sequences)), first(sequences), first(leaves), 0))
}

// Length is a sequence's length in tokens, without those of open steps and uncommitted nodes.
func (c *Cache) Length(sequence Seq) (int64, error) {
	a, h, err := c.enter("Cache.Length")
	if err != nil {
		return 0, err
	}
	defer leave(a, h)
	a.seq, a.numbers[0] = sequence, 0
	err = a.check(h.lib.seqLengths(a, h.address, 1, &a.seq, &a.numbers[0]))
	return a.numbers[0], err
}

// Lengths are the lengths of sequences.
func (c *Cache) Lengths(sequences ...Seq) ([]int64, error) {
	return results[int64](c, "Cache.Lengths", len(sequences), func(l *library, a *arena, cache uintptr, out *int64) Status {
		return l.seqLengths(a, cache, int64(len(sequences)), first(sequences), out)
	})
}

// MaxAppend is how many tokens each sequence, alone, could append in one step now.
func (c *Cache) MaxAppend(sequences ...Seq) ([]int64, error) {
	return results[int64](c, "Cache.MaxAppend", len(sequences), func(l *library, a *arena, cache uintptr, out *int64) Status {
		return l.seqMaxAppend(a, cache, int64(len(sequences)), first(sequences), out)
	})
}

// ExclusivePages is how many pages of a group the removal of each sequence, alone, would make available: those that no
// other sequence, pin, save or load holds. A page that the prefix index holds too counts, because it can be evicted then.
func (c *Cache) ExclusivePages(group int, sequences ...Seq) ([]int64, error) {
	return results[int64](c, "Cache.ExclusivePages", len(sequences), func(l *library, a *arena, cache uintptr, out *int64) Status {
		return l.seqExclusivePages(a, cache, narrow(group), int64(len(sequences)), first(sequences), out)
	})
}

// TreeNodes are the numbers of uncommitted tree nodes of sequences.
func (c *Cache) TreeNodes(sequences ...Seq) ([]int32, error) {
	return results[int32](c, "Cache.TreeNodes", len(sequences), func(l *library, a *arena, cache uintptr, out *int32) Status {
		return l.seqTreeNodes(a, cache, int64(len(sequences)), first(sequences), out)
	})
}

// EncoderLengths are the lengths of the encoder sequences in a cross group.
func (c *Cache) EncoderLengths(group int, sequences ...Seq) ([]int64, error) {
	return results[int64](c, "Cache.EncoderLengths", len(sequences), func(l *library, a *arena, cache uintptr, out *int64) Status {
		return l.seqEncoderLengths(a, cache, narrow(group), int64(len(sequences)), first(sequences), out)
	})
}

// results makes a call that fills n elements. The library gets an address even if n is 0, so that it checks the other
// arguments.
func results[T any](c *Cache, function string, n int, call func(*library, *arena, uintptr, *T) Status) ([]T, error) {
	a, h, err := c.enter(function)
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	if n < 0 {
		return nil, misuse(ErrInvalidArgument, "%s: n is %d", function, n)
	}
	out := make([]T, max(n, 1))
	if err := a.check(call(h.lib, a, h.address, &out[0])); err != nil {
		return nil, err
	}
	return out[:n], nil
}

// Pages are the page ids of a sequence in a group: entry i holds positions [i * page size, (i+1) * page size); -1 where the
// page was freed, because it left a window.
func (c *Cache) Pages(sequence Seq, group int) ([]int32, error) {
	a, h, err := c.enter("Cache.Pages")
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	var pages []int32
	for {
		status := h.lib.seqPages(a, h.address, sequence, narrow(group), first(pages), int64(len(pages)), &a.numbers[0])
		if status != kvcOk && status != ErrBufferTooSmall {
			return nil, a.failure(status)
		}
		count := a.numbers[0]
		if status == kvcOk && count <= int64(len(pages)) {
			return pages[:count], nil
		}
		a.err.init()
		pages = make([]int32, count)
	}
}

// NearestPosition returns the positions nearest to the given one, at or below it and at or above it (-1 = none), where
// Fork and Truncate work in every group.
func (c *Cache) NearestPosition(sequence Seq, position int64) (before, after int64, err error) {
	a, h, err := c.enter("Cache.NearestPosition")
	if err != nil {
		return 0, 0, err
	}
	defer leave(a, h)
	err = a.check(h.lib.seqNearestPosition(a, h.address, sequence, position, &a.numbers[0], &a.numbers[1]))
	if err != nil {
		return 0, 0, err
	}
	return a.numbers[0], a.numbers[1], nil
}

// RopeSet is one of longrope's factor sets.
type RopeSet int32

const (
	RopeSetShort RopeSet = kvcRopeSetShort
	RopeSetLong  RopeSet = kvcRopeSetLong
)

// SetRope chooses which of longrope's factor sets rotates the keys and queries of sequences.
func (c *Cache) SetRope(set RopeSet, sequences ...Seq) error {
	a, h, err := c.enter("Cache.SetRope")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.seqSetRope(a, h.address, int64(len(sequences)), first(sequences), int32(set)))
}

// Checkpoint keeps the recurrent states that sequences have now. Fork and Truncate then work at these lengths later.
func (c *Cache) Checkpoint(sequences ...Seq) error {
	a, h, err := c.enter("Cache.Checkpoint")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.seqCheckpoint(a, h.address, int64(len(sequences)), first(sequences)))
}

// Window is a streaming window. A query sees Window keys: the sequence's first Sinks tokens, and its newest ones. Zero
// is no window.
type Window struct{ Sinks, Window int64 }

// SetStreaming gives sequences a streaming window, so that they can continue without end in bounded memory.
// prefixIsSink: the tokens that a sequence holds now become sinks too.
func (c *Cache) SetStreaming(window Window, prefixIsSink bool, sequences ...Seq) error {
	a, h, err := c.enter("Cache.SetStreaming")
	if err != nil {
		return err
	}
	defer leave(a, h)
	sinks, windows := make([]int64, len(sequences)), make([]int64, len(sequences))
	for i := range sequences {
		sinks[i], windows[i] = window.Sinks, window.Window
	}
	return a.check(h.lib.seqSetStreaming(a, h.address, int64(len(sequences)), first(sequences), first(sinks), first(windows),
		flag(prefixIsSink, kvcStreamingPrefixIsSink)))
}

// Streaming are the streaming windows of sequences.
func (c *Cache) Streaming(sequences ...Seq) ([]Window, error) {
	n := len(sequences)
	sinks := make([]int64, max(n, 1))
	windows, err := results[int64](c, "Cache.Streaming", n, func(l *library, a *arena, cache uintptr, out *int64) Status {
		return l.seqGetStreaming(a, cache, int64(n), first(sequences), &sinks[0], out)
	})
	if err != nil {
		return nil, err
	}
	found := make([]Window, n)
	for i := range found {
		found[i] = Window{Sinks: sinks[i], Window: windows[i]}
	}
	return found, nil
}
