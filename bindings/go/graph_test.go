package kvcache

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

const graphTokens = 8 // of graphs here

func newGraph(t testing.TB, cache *Cache, config GraphConfig) *Graph {
	t.Helper()
	return must(cache.NewGraph(config))(t)
}

// program is a model that was recorded once: a step, and arrays that stay where they are.
type program struct {
	step *Step
	tokens
}

func record(s *Step) *program {
	return &program{s, randomTokens(rand.New(rand.NewSource(1)), graphTokens)}
}

func (p *program) replay() error { return p.step.Attend(nil, 0, p.attend()) }

// refill makes the next step's inputs, and marks the outputs.
func (p *program) refill(r *rand.Rand) {
	x := randomTokens(r, graphTokens)
	copy(p.q, x.q)
	copy(p.k, x.k)
	copy(p.v, x.v)
	for i := range p.out {
		p.out[i] = 7
	}
}

func TestReplaysHaveTheBitsOfPlainSteps(t *testing.T) {
	cache, r := newCache(t), rand.New(rand.NewSource(2))
	graph := newGraph(t, cache, GraphConfig{MaxSequences: 3, MaxTokens: graphTokens})
	replayed, plain := must(cache.AddMany(3))(t), must(cache.AddMany(3))(t)
	var recorded *program
	for round := range 30 {
		rows, lengths := []int{round % 3, (round + 1) % 3}[:1+round%2], []int32{int32(1 + round%4), int32(1 + round%3)}[:1+round%2]
		batch := func(of []Seq) Batch {
			b := Batch{AppendLengths: lengths}
			for _, row := range rows {
				b.Sequences = append(b.Sequences, of[row])
			}
			return b
		}
		check(t, graph.CanFit(batch(replayed)))
		s := must(graph.Begin(background, batch(replayed)))(t)
		if recorded == nil {
			recorded = record(s) // with the first step, replayed in all
		}
		recorded.refill(r)
		check(t, recorded.replay())
		positions, same := must(recorded.step.Positions())(t), must(s.Positions())(t)
		check(t, s.End())

		other := must(cache.Begin(background, batch(plain)))(t)
		x := recorded.tokens
		x.out = make([]float32, len(x.out))
		check(t, other.Attend(background, 0, x.attend()))
		if want := must(other.Positions())(t); !slices.Equal(positions, want) || !slices.Equal(same, want) {
			t.Errorf("round %d: positions %v and %v instead of %v", round, positions, same, want)
		}
		written := len(positions) * qHeads * dim
		check(t, other.End())
		for i, value := range recorded.out {
			if i < written && math.Float32bits(value) != math.Float32bits(x.out[i]) || i >= written && value != 7 {
				t.Fatalf("round %d: element %d of %d is %v instead of %v", round, i, written, value, x.out[i])
			}
		}
	}
	if a, b := must(cache.Lengths(replayed...))(t), must(cache.Lengths(plain...))(t); !slices.Equal(a, b) || a[0] == 0 {
		t.Error(a, b)
	}
	check(t, graph.Close())
}

func TestStaleReplaysTouchNothing(t *testing.T) {
	cache := newCache(t)
	graph, ids := newGraph(t, cache, GraphConfig{MaxTokens: graphTokens}), must(cache.AddMany(1))(t)
	s := must(graph.Begin(background, Batch{Sequences: ids, AppendLengths: []int32{2}}))(t)
	recorded := record(s)
	check(t, recorded.replay())
	word := must(s.Tables(0, TablesOptions{}))(t).GenerationWord
	if *word == 0 {
		t.Error("the open step's tables are stale")
	}
	check(t, s.End())
	recorded.refill(rand.New(rand.NewSource(3)))
	before, digest := slices.Clone(recorded.out), must(cache.Digest())(t)
	refused(t, recorded.replay(), ErrStale, "no step is open in graph")
	allRefused(t, "no step is open", ErrStale, callsOfStep(s))
	if !slices.Equal(recorded.out, before) || must(cache.Digest())(t) != digest || *word != 0 {
		t.Error("something has changed, generation ", *word)
	}
	check(t, s.Close())
	check(t, graph.Close())
	refused(t, recorded.replay(), ErrStaleID)
	allRefused(t, "closed graph", ErrStaleID, callsOfStep(s))
	allRefused(t, "closed graph", ErrStaleID, map[string]error{"Close": graph.Close(), "CanFit": graph.CanFit(Batch{Sequences: ids, AppendLengths: []int32{1}})})
	_, err := graph.Begin(background, Batch{Sequences: ids, AppendLengths: []int32{1}})
	refused(t, err, ErrStaleID, "no graph of this cache")
	check(t, s.Close())
}

// Steps of a graph have one id, but what ends one of them leaves the next alone.
func TestOldStepsEndNoLaterOne(t *testing.T) {
	cache := newCache(t)
	graph, ids := newGraph(t, cache, GraphConfig{MaxTokens: graphTokens}), must(cache.AddMany(1))(t)
	batch := Batch{Sequences: ids, AppendLengths: []int32{2}}
	ctx, cancel := context.WithCancel(background)
	old := must(graph.Begin(ctx, batch))(t)
	recorded := record(old)
	check(t, recorded.replay())
	check(t, old.End())

	s := must(graph.Begin(background, batch))(t)
	cancel() // as a deferred cancel of the old step's context does
	old.cancelFor(ctx)
	refused(t, old.End(), ErrStale, "Step.End", "another one is open")
	refused(t, old.Abort(), ErrStale, "Step.Abort")
	refused(t, old.Cancel(), ErrStale, "Step.Cancel")
	check(t, old.Close())
	old.closed.Store(false) // as after a device error, which only the library has seen
	check(t, old.Close())
	check(t, recorded.replay()) // in s, although the old step's context has ended
	check(t, s.End())
	refused(t, old.Cancel(), ErrStale, "no step is open in graph")
	if length := must(cache.Length(ids[0]))(t); length != 4 {
		t.Error(length)
	}

	ctx, cancel = context.WithCancel(background)
	defer cancel()
	s = must(graph.Begin(ctx, batch))(t)
	cancel() // of the open step: a replay is cancelled, whichever step it was recorded with
	if err := recorded.replay(); !errors.Is(err, ErrCancelled) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	refused(t, s.End(), ErrCancelled)
	check(t, s.Close())
	s = must(graph.Begin(background, batch))(t)
	check(t, s.Cancel())
	refused(t, recorded.replay(), ErrCancelled)
	check(t, s.Abort())
	check(t, graph.Close())
}

func TestGraphsThatRefuse(t *testing.T) {
	cache := newCache(t, func(c *Config) { c.MaxOpenForwards = 1 })
	graph, ids := newGraph(t, cache, GraphConfig{MaxSequences: 2, MaxTokens: 4, MaxPagesPerRow: 1}), must(cache.AddMany(3))(t)
	for name, c := range map[string]struct {
		lengths             []int32
		required, available int64
	}{
		"tokens": {[]int32{3, 2}, 5, 4},
		"rows":   {[]int32{1, 1, 1}, 3, 2},
	} {
		batch := Batch{Sequences: ids[:len(c.lengths)], AppendLengths: c.lengths}
		refusal := graph.CanFit(batch)
		_, err := graph.Begin(background, batch)
		for _, err := range []error{refusal, err} {
			refused(t, err, ErrBatchTooLarge, "graph")
			var e *Error
			if errors.As(err, &e); e.Required != c.required || e.Available != c.available {
				t.Errorf("%s: %+v", name, e)
			}
		}
	}
	_, err := graph.Begin(background, Batch{Sequences: ids})
	refused(t, err, ErrInvalidArgument, "Graph.Begin")
	ended, cancel := context.WithCancel(background)
	cancel()
	_, err = graph.Begin(ended, Batch{Sequences: ids[:1], AppendLengths: []int32{1}})
	refused(t, err, ErrCancelled, "Graph.Begin")

	one := Batch{Sequences: ids[:1], AppendLengths: []int32{1}}
	s := must(graph.Begin(background, one))(t)
	plain := must(cache.Begin(background, Batch{Sequences: ids[2:], AppendLengths: []int32{1}}))(t) // the one that may be open
	check(t, plain.Close())
	another := Batch{Sequences: ids[1:2], AppendLengths: []int32{1}}
	_, err = graph.Begin(background, another)
	refused(t, err, ErrBusy)
	refused(t, graph.CanFit(another), ErrBusy)
	refused(t, graph.Close(), ErrBusy, "a step is open in graph")
	check(t, s.Close()) // aborts
	s = must(graph.Begin(background, Batch{Sequences: ids[:1], AppendLengths: []int32{4}}))(t)
	x := randomTokens(rand.New(rand.NewSource(1)), 4)
	check(t, s.Attend(background, 0, x.attend()))
	check(t, s.End())
	s = must(graph.Begin(background, one))(t)
	_, err = s.Tables(0, TablesOptions{}) // 5 tokens are two pages
	refused(t, err, ErrBatchTooLarge, "2 pages")
	check(t, s.Abort())
	check(t, graph.Close())

	for _, wrong := range []GraphConfig{{MaxSequences: -1}, {MaxSequences: 65}, {MaxTokens: 1 << 40}, {MaxPagesPerRow: 1<<26 + 1}} {
		_, err := cache.NewGraph(wrong)
		refused(t, err, ErrOutOfRange, "Max")
	}
	all := []*Graph{}
	for range 64 {
		all = append(all, newGraph(t, cache, GraphConfig{MaxSequences: 1, MaxTokens: 1}))
	}
	_, err = cache.NewGraph(GraphConfig{})
	refused(t, err, ErrTooManyForwards, "64 graphs")
	check(t, all[17].Close())
	newGraph(t, cache, GraphConfig{MaxSequences: 1, MaxTokens: 1})
	runtime.KeepAlive(all)
}

func TestGraphTablesStayWhereTheyAre(t *testing.T) {
	cache := newCache(t)
	graph, ids := newGraph(t, cache, GraphConfig{MaxSequences: 5, MaxTokens: graphTokens, MaxPagesPerRow: 9}), must(cache.AddMany(2))(t)
	var first Tables
	for round, lengths := range [][]int32{{8}, {1, 3}} {
		s := must(graph.Begin(background, Batch{Sequences: ids[:len(lengths)], AppendLengths: lengths}))(t)
		if round == 0 {
			first = must(s.Tables(0, TablesOptions{}))(t)
		} else if *first.GenerationWord != 0 {
			t.Error("not filled yet, but not stale")
		}
		tables := must(s.Tables(0, TablesOptions{}))(t)
		if &tables.BlockTable[0] != &first.BlockTable[0] || &tables.SlotMapping[0] != &first.SlotMapping[0] {
			t.Error("the arrays are elsewhere")
		}
		if tables.MaxPages != 9 || len(tables.BatchRows) != 5 || len(first.SlotMapping) != graphTokens || tables.Rows != len(lengths) ||
			*first.GenerationWord != int64(tables.Generation) || tables.Generation == 0 {
			t.Errorf("%+v", tables)
		}
		if round == 1 && (!slices.Equal(first.CacheSeqlens, []int32{9, 3, 0, 0, 0}) || !slices.Equal(first.SlotMapping[4:], []int64{-1, -1, -1, -1}) ||
			!slices.Equal(first.BatchRows, []int32{0, 1, -1, -1, -1})) {
			t.Errorf("the old slices do not show the new step: %+v", first)
		}
		x := randomTokens(rand.New(rand.NewSource(1)), graphTokens).attend()
		check(t, s.Append(background, 0, Append{K: x.K, V: x.V}))
		check(t, s.End())
	}
	check(t, graph.Close())
}

// A graph that is only dropped is released; as long as a step's tables are held, it is not.
func TestForgottenGraphs(t *testing.T) {
	cache := newCache(t)
	ids := must(cache.AddMany(1))(t)
	tables := func() Tables {
		s := must(newGraph(t, cache, GraphConfig{MaxTokens: 4}).Begin(background, Batch{Sequences: ids, AppendLengths: []int32{3}}))(t)
		tables := must(s.Tables(0, TablesOptions{}))(t)
		check(t, s.Abort())
		return tables
	}()
	for range 200 { // of 64 at once
		graph, err := cache.NewGraph(GraphConfig{MaxTokens: 4})
		for try := 0; errors.Is(err, ErrTooManyForwards) && try < 100; try++ {
			runtime.GC()
			time.Sleep(time.Millisecond)
			graph, err = cache.NewGraph(GraphConfig{MaxTokens: 4})
		}
		check(t, err)
		s := must(graph.Begin(background, Batch{Sequences: ids, AppendLengths: []int32{3}}))(t)
		check(t, s.Abort())
	}
	held := tables.owner.(*Graph)
	check(t, held.Close()) // it was there still
}

// Replays, and old steps that are ended and cancelled meanwhile, of several graphs at once.
func TestGraphsFromManyGoroutines(t *testing.T) {
	cache := newCache(t)
	var all sync.WaitGroup
	for range 4 {
		graph, ids := newGraph(t, cache, GraphConfig{MaxTokens: graphTokens}), must(cache.AddMany(1))(t)
		all.Go(func() {
			batch, previous := Batch{Sequences: ids, AppendLengths: []int32{2}}, context.CancelFunc(func() {})
			var recorded *program
			for range 30 {
				ctx, cancel := context.WithCancel(background)
				s, err := graph.Begin(ctx, batch)
				if err != nil {
					cancel()
					t.Error(err)
					return
				}
				if recorded == nil {
					recorded = record(s)
				}
				late := make(chan struct{})
				old := recorded.step
				go func() {
					defer close(late)
					previous()
					if old != s {
						_, _, _ = old.Cancel(), old.End(), old.Close()
					}
					_, _ = old.Positions()
					if err := graph.Close(); !errors.Is(err, ErrBusy) {
						t.Error(err)
					}
				}()
				if err := recorded.replay(); err != nil {
					t.Error(err)
				}
				<-late
				if err := s.End(); err != nil {
					t.Error(err)
				}
				previous = cancel
			}
			previous()
			if length, err := cache.Length(ids[0]); err != nil || length != 60 {
				t.Error(length, err)
			}
		})
	}
	all.Wait()
}

func TestReplaysAllocateNothing(t *testing.T) {
	cache := newCache(t)
	graph, ids := newGraph(t, cache, GraphConfig{MaxTokens: graphTokens}), must(cache.AddMany(1))(t)
	batch := Batch{Sequences: ids, AppendLengths: []int32{1}}
	s := must(graph.Begin(background, batch))(t)
	recorded := record(s)
	check(t, s.Abort())
	if n := testing.AllocsPerRun(100, func() {
		s := must(graph.Begin(background, batch))(t)
		check(t, recorded.replay())
		check(t, s.Abort())
	}); n > 1 { // the Step
		t.Errorf("a step allocates %v times", n)
	}
}
