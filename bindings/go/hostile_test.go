package kvcache

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Arguments that no sane program passes, and goroutines that change arguments during a call: errors, never a crash.

// ones are n floats.
func ones(n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = 1
	}
	return values
}

// Rows without number in one place are no reason to crash: a call reads the rows of its step, and outputs are the caller's.
func TestRowsWithoutEnd(t *testing.T) {
	const rows = 1 << 57 // of 64 floats: no more than 2^63 of them fit a tensor
	cache := newCache(t)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{3}}))(t)
	defer s.Close()
	refused(t, s.Attend(background, 0, Attend{Q: F32(ones(64), 1<<62, 4, 16).WithStrides(0, 16, 1)}), ErrShape, "Q")
	q, kv := F32(ones(64), rows, 4, 16).WithStrides(0, 16, 1), F32(ones(32), rows, 2, 16).WithStrides(0, 16, 1)
	out := F32(make([]float32, 3*64), 3, 4, 16)
	check(t, s.Attend(background, 0, Attend{Q: q, K: kv, V: kv, Out: out}))
	for _, x := range out.Float32s() {
		if x != 1 {
			t.Fatal(x)
		}
	}
	context := must(NewContext(ContextConfig{Threads: 1}))(t)
	defer context.Close()
	pool := F32(ones(4*16*16), 4, 16, 1, 16)
	flash := FlashAttn{Q: F32(ones(64), rows, 1, 4, 16).WithStrides(0, 0, 16, 1), KCache: pool, VCache: pool,
		Out: F32(make([]float32, 64), 1, 1, 4, 16), CacheSeqlens: I32([]int32{4}), BlockTable: I32([]int32{0}, 1, 1)}
	refused(t, context.FlashAttnWithKVCache(flash), ErrShape, "rows")
	flash.Out = F32(make([]float32, 64), rows, 1, 4, 16).WithStrides(0, 0, 16, 1)
	refused(t, context.FlashAttnWithKVCache(flash), ErrShape, "rows")
	k := F32(ones(16), rows, 1, 16).WithStrides(0, 16, 1)
	err := context.AppendSlots(AppendSlots{K: k, V: k, KCache: F32(ones(1024), 4, 16, 1, 16), VCache: F32(ones(1024), 4, 16, 1, 16),
		SlotMapping: I64([]int64{-1}, rows).WithStrides(0)})
	if !errors.Is(err, ErrShape) && !errors.Is(err, ErrOutOfMemory) {
		t.Error(err)
	}
}

// rewrite writes garbage into an array and restores it, again and again, until the function that it returns is called.
func rewrite[T int32 | int64](array []T, garbage T) (stop func()) {
	good := append([]T{}, array...)
	var done atomic.Bool
	var ended sync.WaitGroup
	ended.Add(1)
	go func() {
		defer ended.Done()
		for !done.Load() {
			overwrite(array, good, garbage)
		}
	}()
	return func() {
		done.Store(true)
		ended.Wait()
	}
}

// overwrite is a race on purpose, which the race detector does not look for.
//
//go:norace
func overwrite[T int32 | int64](array, good []T, garbage T) {
	for i := range array {
		array[i] = garbage
	}
	for i := range array {
		array[i] = good[i]
	}
}

// hammer calls for a while. Each call succeeds, or is refused for what it has read.
func hammer(t *testing.T, call func() error) {
	t.Helper()
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); {
		if err := call(); err != nil && !errors.Is(err, ErrOutOfRange) && !errors.Is(err, ErrInvalidArgument) && !errors.Is(err, ErrBatchTooLarge) {
			t.Fatal(err)
		}
	}
}

// A batch of whose lengths another goroutine makes larger ones than there are parents.
func TestLengthsThatChangeDuringACall(t *testing.T) {
	cache := newCache(t)
	sequence := must(cache.Add())(t)
	batch := Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{4}, TreeParents: []int32{TreeRoot, 0, 1, 2}}
	defer rewrite(batch.AppendLengths, 60)()
	hammer(t, func() error {
		s, err := cache.Begin(background, batch)
		if err != nil {
			return err
		}
		positions := must(s.Positions())(t)
		if len(positions) != 4 {
			t.Fatalf("%d positions of a batch with four parents", len(positions))
		}
		return s.Abort()
	})
}

// Siblings share the pages of their encoder sequence, and a step that appends to it attends to nothing.
func TestEncoderStepOfForksIsDescribed(t *testing.T) {
	cache := newCache(t, func(c *Config) {
		cross := c.Layers[0]
		cross.Group = 1
		c.Layers = append(c.Layers, cross)
		c.Groups = []Group{Full(), Cross()}
		c.SharePrefixes = ShareAlways
	})
	a := must(cache.Add())(t)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{a}, AppendLengths: []int32{32}, EncoderGroup: Index(1)}))(t)
	frames := F32(ones(32*32), 32, 2, 16)
	check(t, s.Append(background, 1, Append{K: frames, V: frames}))
	check(t, s.End())
	forks := must(cache.Fork(a, a))(t)
	s = must(cache.Begin(background, Batch{Sequences: append(forks, a), AppendLengths: []int32{1, 1, 1}, EncoderGroup: Index(1)}))(t)
	defer s.Close()
	if text := must(s.Describe())(t); !strings.Contains(text, `"rows": 3`) {
		t.Error(text)
	}
}

// No token is stored, and the tables of cos and sin have no rows: nothing is read of them.
func TestPaddingAloneWithEmptyRotaryTables(t *testing.T) {
	context := must(NewContext(ContextConfig{Threads: 1}))(t)
	defer context.Close()
	k, empty := F32(ones(3*16), 3, 1, 16), F32([]float32{}, 0, 8)
	args := AppendSlots{K: k, V: k, KCache: F32(ones(1024), 4, 16, 1, 16), VCache: F32(ones(1024), 4, 16, 1, 16),
		SlotMapping: I64([]int64{-1, -1, -1}), RotaryCos: empty, RotarySin: empty, Positions: I64([]int64{0, 0, 0})}
	check(t, context.AppendSlots(args))
	args.SlotMapping = I64([]int64{-1, 0, -1})
	refused(t, context.AppendSlots(args), ErrOutOfRange)
}

func TestBlockTablesThatChangeDuringACall(t *testing.T) {
	const rows, pages = 64, 64
	context := must(NewContext(ContextConfig{}))(t)
	defer context.Close()
	pool := F32(ones(rows*pages*16*16), rows*pages, 16, 1, 16)
	table, lengths := make([]int32, rows*pages), make([]int32, rows)
	for i := range table {
		table[i], lengths[i/pages] = int32(i), 16*pages
	}
	call := FlashAttn{Q: F32(ones(rows*2*16), rows, 1, 2, 16), KCache: pool, VCache: pool, Out: F32(ones(rows*2*16), rows, 1, 2, 16),
		CacheSeqlens: I32(lengths), BlockTable: I32(table, rows, pages)}
	defer rewrite(table, 1<<30)()
	defer rewrite(lengths, 1<<30)()
	hammer(t, func() error { return context.FlashAttnWithKVCache(call) })
}

func TestSlotsThatChangeDuringACall(t *testing.T) {
	context := must(NewContext(ContextConfig{}))(t)
	defer context.Close()
	k, slots := F32(ones(4096*16), 4096, 1, 16), make([]int64, 4096)
	for i := range slots {
		slots[i] = int64(i)
	}
	args := AppendSlots{K: k, V: k, KCache: F32(ones(4096*16), 64, 64, 1, 16), VCache: F32(ones(4096*16), 64, 64, 1, 16), SlotMapping: I64(slots)}
	defer rewrite(slots, 1<<40)()
	hammer(t, func() error { return context.AppendSlots(args) })
}
