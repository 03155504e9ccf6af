package kvcache

import (
	"context"
	"errors"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// longStep is a step whose one attend takes long: prefill on one thread, in float64.
func longStep(t *testing.T, ctx context.Context) (*Cache, *Step, Attend) {
	const rows = 3000
	slow := must(NewContext(ContextConfig{Threads: 1, SIMD: "reference"}))(t)
	t.Cleanup(func() { slow.Close() })
	cache := newCache(t, func(c *Config) { c.Context, c.CapacityTokens, c.MaxBatchTokens = slow, rows, rows })
	s := must(cache.Begin(ctx, Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{rows}}))(t)
	return cache, s, randomTokens(rand.New(rand.NewSource(1)), rows).attend()
}

func TestContextCancelsAnAttend(t *testing.T) {
	for name, attend := range map[string]func(ctx context.Context, s *Step, args Attend) error{
		"of Begin":  func(_ context.Context, s *Step, args Attend) error { return s.Attend(nil, 0, args) },
		"of Attend": func(ctx context.Context, s *Step, args Attend) error { return s.Attend(ctx, 0, args) },
	} {
		t.Run(name, func(t *testing.T) {
			reason := errors.New("the user has left")
			ctx, cancel := context.WithCancelCause(background)
			begin := ctx
			if name == "of Attend" {
				begin = background
			}
			cache, s, args := longStep(t, begin)
			defer s.Close()
			before := must(cache.Stats(0))(t).Sequences
			time.AfterFunc(20*time.Millisecond, func() { cancel(reason) })
			start := time.Now()
			err := attend(ctx, s, args)
			if !errors.Is(err, ErrCancelled) || !errors.Is(err, reason) || !errors.Is(err, context.Canceled) {
				t.Fatalf("%v after %v", err, time.Since(start))
			}
			if err := s.End(); !errors.Is(err, ErrCancelled) || !errors.Is(err, reason) {
				t.Error(err)
			}
			check(t, s.Close())
			if stats := must(cache.Stats(0))(t); stats.PagesUsed != 0 || stats.Sequences != before {
				t.Errorf("%+v", stats)
			}
		})
	}
}

func TestContextsThatHaveEnded(t *testing.T) {
	late, stop := context.WithTimeout(background, 0)
	defer stop()
	if _, err := newCache(t).Begin(late, Batch{}); !errors.Is(err, ErrCancelled) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	cache := newCache(t)
	ids := must(cache.AddMany(1))(t)
	batch := Batch{Sequences: ids, AppendLengths: []int32{1}}
	_, err := cache.Begin(ended, batch)
	if !errors.Is(err, ErrCancelled) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	x := randomTokens(rand.New(rand.NewSource(1)), 1).attend()

	s := must(cache.Begin(nil, batch))(t) // no context is none that ends
	if err := s.Attend(ended, 0, x); !errors.Is(err, ErrCancelled) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	check(t, s.Close())

	ctx, cancel := context.WithCancel(background)
	s = must(cache.Begin(ctx, batch))(t)
	check(t, s.Attend(ctx, 0, x))
	cancel()
	if err := s.End(); !errors.Is(err, ErrCancelled) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	check(t, s.Close())

	ctx, cancel = context.WithCancel(background)
	s = must(cache.Begin(ctx, batch))(t)
	check(t, s.Attend(ctx, 0, x))
	check(t, s.End())
	cancel() // too late
	if length := must(cache.Length(ids[0]))(t); length != 1 {
		t.Error(length)
	}
}

func TestCloseAndCancelWhileAttending(t *testing.T) {
	for name, stop := range map[string]func(*Cache, *Step){
		"Step.Close":  func(_ *Cache, s *Step) { s.Close() },
		"Step.Cancel": func(_ *Cache, s *Step) { s.Cancel() },
		"Cache.Close": func(c *Cache, s *Step) {
			c.Close() // released when Attend returns, but refused from now on
			_, err := c.Add()
			refused(t, err, ErrNullArgument, "closed")
			s.Cancel()
		},
	} {
		t.Run(name, func(t *testing.T) {
			for tries := 0; ; tries++ {
				cache, s, args := longStep(t, background)
				time.AfterFunc(20*time.Millisecond, func() { stop(cache, s) })
				err := s.Attend(background, 0, args)
				if (errors.Is(err, ErrNullArgument) || errors.Is(err, ErrStaleID)) && tries < 20 {
					continue // a busy machine: the cache or the step was closed before Attend began
				}
				refused(t, err, ErrCancelled, "Step.Attend")
				check(t, s.Close())
				break
			}
		})
	}
}

func TestOneStepFromManyGoroutines(t *testing.T) {
	cache, s, args := longStep(t, background)
	go func() {
		for {
			positions, err := s.Positions() // may be read meanwhile
			if err != nil {
				return
			}
			if len(positions) != 3000 {
				t.Error(len(positions))
			}
		}
	}()
	failed := make(chan error, 4)
	for range cap(failed) {
		go func() { failed <- s.Attend(background, 0, args) }()
	}
	busy := 0
	for range cap(failed) - 1 { // all but one are told so at once
		if err := <-failed; errors.Is(err, ErrBusy) || errors.Is(err, ErrOrder) {
			busy++
		}
	}
	_ = s.Cancel()
	<-failed
	if busy < 1 {
		t.Error("no call was refused")
	}
	check(t, s.Close())
	check(t, cache.Close())
}

func TestManyGoroutines(t *testing.T) {
	shared := must(NewContext(ContextConfig{Threads: 2}))(t)
	defer shared.Close()
	caches := []*Cache{}
	for range 2 {
		caches = append(caches, newCache(t, func(c *Config) { c.Context, c.MaxOpenForwards, c.CapacityTokens = shared, 8, 4096 }))
	}
	var group sync.WaitGroup
	for worker := range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			r, cache := rand.New(rand.NewSource(int64(worker))), caches[worker%2]
			for range 15 {
				sequence := must(cache.Add())(t)
				var past history
				for _, n := range []int{r.Intn(9) + 1, 1, 1} {
					x := randomTokens(r, n)
					past = past.with(x)
					step(t, cache, sequence, x)
					near(t, "out", x.out, past.attention(x.q))
				}
				child := must(cache.Fork(sequence))(t)
				check(t, cache.Remove(sequence, child[0]))
			}
		}()
	}
	for range 4 { // whole contexts come and go meanwhile
		group.Add(1)
		go func() {
			defer group.Done()
			for range 10 {
				cache := must(New(Config{Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16}}, CapacityTokens: 64}))(t)
				step(t, cache, must(cache.Add())(t), randomTokens(rand.New(rand.NewSource(1)), 3))
				check(t, cache.Close())
			}
		}()
	}
	group.Wait()
	for _, cache := range caches {
		check(t, cache.CheckInvariants())
		if stats := must(cache.Stats(0))(t); stats.PagesUsed != 0 || stats.Sequences != 0 {
			t.Errorf("%+v", stats)
		}
	}
}

// A cache that is closed while goroutines use it: each call works or is refused.
func TestCloseWhileOthersCall(t *testing.T) {
	for range 20 {
		cache := must(New(Config{Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16}}, CapacityTokens: 64}))(t)
		var group sync.WaitGroup
		for range 4 {
			group.Add(1)
			go func() {
				defer group.Done()
				x := randomTokens(rand.New(rand.NewSource(1)), 1)
				for range 1000 {
					sequence, err := cache.Add()
					if err != nil {
						refused(t, err, ErrNullArgument, "closed")
						return
					}
					s, err := cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}})
					if err == nil {
						_ = s.Attend(background, 0, x.attend())
						s.Close()
					}
					_ = cache.Remove(sequence)
				}
			}()
		}
		time.Sleep(time.Millisecond)
		check(t, cache.Close())
		group.Wait()
		if cache.handle.users.Load() != 0 {
			t.Fatal("the cache is not released")
		}
	}
}

func residentBytes(t *testing.T) int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	_, after, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

func TestNothingLeaks(t *testing.T) {
	rounds := 10000
	if testing.Short() { // where every call is watched
		rounds = 1000
	}
	x := randomTokens(rand.New(rand.NewSource(1)), 2)
	context := newContext(t)
	own, table := newOwnCache(rand.New(rand.NewSource(1)), 4, 1), make([]int32, 4)
	round := func() {
		plan := must(NewPlan(PlanConfig{Context: context}))(t)
		must(plan.Build(PlanStep{SeqLens: I32([]int32{3}), BlockTable: I32(table, 1, 4)}))(t)
		must(plan.Tables(0, TablesWhole))(t)
		check(t, plan.Close())
		check(t, context.AppendSlots(AppendSlots{K: F32(x.k[:kvHeads*dim], 1, kvHeads, dim), V: F32(x.v[:kvHeads*dim], 1, kvHeads, dim),
			KCache: own.pool(own.k), VCache: own.pool(own.v), SlotMapping: I32([]int32{1})}))
		adopted := make([]float32, 2*4*kvHeads*16*dim)
		cache := must(New(Config{Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16, KVStorage: F32(adopted, 4, 2, kvHeads, 16, dim)}},
			CapacityTokens: 64}))(t)
		sequence := must(cache.Add())(t)
		step(t, cache, sequence, x)
		must(cache.Export(sequence, Export{}))(t)
		view := must(cache.ViewPool(0, PoolK, false))(t)
		_, err := cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1000}})
		refused(t, err, ErrOutOfPages)
		must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}}))(t) // left open
		check(t, cache.Close())
		check(t, view.Close())
	}
	for range rounds / 10 {
		round()
	}
	runtime.GC()
	before, threads := residentBytes(t), threadCount(t)
	for range rounds {
		round()
	}
	runtime.GC()
	if grown := residentBytes(t) - before; grown > 8<<20 {
		t.Errorf("%d bytes more after %d rounds", grown, rounds)
	}
	if now := threadCount(t); now > threads+4 {
		t.Errorf("%d threads, %d before", now, threads)
	}
	if n := pinned(); n != 0 {
		t.Errorf("%d sets of pools are pinned", n)
	}
	if n := len(free.list); n > 200 {
		t.Errorf("%d arenas", n)
	}
}

func threadCount(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}
