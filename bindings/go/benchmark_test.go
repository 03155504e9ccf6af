package kvcache

import (
	"context"
	"math/rand"
	"testing"
)

// steadyStep is a step of one row over a short context, on one thread: what a call costs, not what attention costs.
func steadyStep(t testing.TB, ctx context.Context) (*Cache, func()) {
	single := must(NewContext(ContextConfig{Threads: 1}))(t)
	t.Cleanup(func() { single.Close() })
	cache := newCache(t, func(c *Config) { c.Context = single; c.CapacityTokens = 1024 })
	batch := Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{1}}
	x := randomTokens(rand.New(rand.NewSource(1)), 1).attend()
	return cache, func() {
		s := must(cache.Begin(ctx, batch))(t)
		check(t, s.Attend(ctx, 0, x))
		check(t, s.Abort())
	}
}

// Hot calls allocate nothing; a step is one object of its own, and what a context that can end needs.
func TestHotCallsAllocateNothing(t *testing.T) {
	cache, whole := steadyStep(t, background)
	sequence := must(cache.Add())(t)
	expect := func(what string, most float64, call func()) {
		t.Helper()
		if n := testing.AllocsPerRun(200, call); n > most {
			t.Errorf("%s allocates %v times", what, n)
		}
	}
	batch := Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}}
	expect("Length", 0, func() { must(cache.Length(sequence))(t) })
	expect("CanFit", 0, func() { check(t, cache.CanFit(batch)) })
	expect("a whole step", 1, whole)

	x, state := randomTokens(rand.New(rand.NewSource(1)), 1).attend(), AttendFlags(0)
	x.LSE, x.AlibiSlopes, x.Sinks = F32(make([]float32, 4), 1, 4), F32(make([]float32, 4)), F32(make([]float32, 4))
	many := newCache(t, func(c *Config) {
		for range 299 {
			c.Layers = append(c.Layers, c.Layers[0])
		}
	})
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	batch.Sequences = []Seq{must(many.Add())(t)}
	s := must(many.Begin(ctx, batch))(t)
	defer s.Close()
	layer := 0
	expect("Attend with every option", 0, func() {
		x.Flags = state
		check(t, s.Attend(ctx, layer, x))
		layer++
	})
	expect("End that is refused", 5, func() { _ = s.End() }) // the error, and its text in the names of C and of Go

	decode := decodeOverOwnCache(t)
	expect("FlashAttnWithKVCache", 0, decode)
	table := make([]int32, 8)
	plan := newPlan(t, PlanConfig{Mode: PlanDecode})
	prepared := PlanStep{SeqLens: I32(make([]int32, 2)), BlockTable: I32(table, 2, 4)}
	expect("Plan.Build and Tables", 0, func() {
		must(plan.Build(prepared))(t)
		tables, err := plan.Tables(0, TablesWhole)
		if err != nil || tables.Rows != 2 {
			t.Error(tables.Rows, err)
		}
	})
	append_ := AppendSlots{K: x.K, V: x.V, KCache: F32(make([]float32, 4*kvHeads*dim), 1, 4, kvHeads, dim),
		VCache: F32(make([]float32, 4*kvHeads*dim), 1, 4, kvHeads, dim), SlotMapping: I32(make([]int32, 1))}
	single := newContext(t)
	expect("AppendSlots", 0, func() { check(t, single.AppendSlots(append_)) })
	tablesOf := Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}}
	expect("Step.Tables", 1, func() { // the step itself
		s := must(cache.Begin(background, tablesOf))(t)
		if _, err := s.Tables(0, TablesOptions{}); err != nil {
			t.Error(err)
		}
		check(t, s.Abort())
	})
}

// decodeOverOwnCache is one decode row over a paged cache of the caller's, on one thread.
func decodeOverOwnCache(t testing.TB) func() {
	context := newContext(t)
	x := randomTokens(rand.New(rand.NewSource(1)), 1)
	own := newOwnCache(rand.New(rand.NewSource(1)), 4, 1)
	args := own.args([]int32{1})
	args.Q, args.K, args.V = F32(x.q, 1, 1, qHeads, dim), F32(x.k, 1, 1, kvHeads, dim), F32(x.v, 1, 1, kvHeads, dim)
	args.Out, args.Causal = F32(x.out, 1, 1, qHeads, dim), true
	return func() { check(t, context.FlashAttnWithKVCache(args)) }
}

func BenchmarkFlashAttn(b *testing.B) {
	decode := decodeOverOwnCache(b)
	b.ReportAllocs()
	for b.Loop() {
		decode()
	}
}

func BenchmarkLength(b *testing.B) { // a trivial call
	cache, _ := steadyStep(b, background)
	sequence := must(cache.Add())(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cache.Length(sequence); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVersion(b *testing.B) { // nothing but the way to C and back
	l, a := must(load())(b), takeArena()
	defer a.giveBack()
	b.ReportAllocs()
	for b.Loop() {
		l.abiVersion(a)
	}
}

// One decode row in a layer of a model with many: Begin and Abort are outside the time.
func BenchmarkAttend(b *testing.B) {
	single := must(NewContext(ContextConfig{Threads: 1}))(b)
	defer single.Close()
	const layers = 4096
	cache := newCache(b, func(c *Config) {
		c.Context, c.Layers = single, make([]Layer, layers)
		for i := range c.Layers {
			c.Layers[i] = Layer{QHeads: 4, KVHeads: 2, HeadDim: 16}
		}
	})
	batch := Batch{Sequences: []Seq{must(cache.Add())(b)}, AppendLengths: []int32{1}}
	x := randomTokens(rand.New(rand.NewSource(1)), 1).attend()
	whole := func(most int) { // one step
		b.StopTimer()
		s := must(cache.Begin(background, batch))(b)
		b.StartTimer()
		for layer := range min(most, layers) {
			if err := s.Attend(background, layer, x); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		check(b, s.Abort())
		b.StartTimer()
	}
	whole(layers) // the first touch of each pool
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= layers {
		whole(left)
	}
}

func BenchmarkStep(b *testing.B) {
	_, whole := steadyStep(b, background)
	b.ReportAllocs()
	for b.Loop() {
		whole()
	}
}

func BenchmarkStepWithCancel(b *testing.B) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	_, whole := steadyStep(b, ctx)
	b.ReportAllocs()
	for b.Loop() {
		whole()
	}
}
