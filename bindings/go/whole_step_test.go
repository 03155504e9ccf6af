package kvcache

import (
	"context"
	"errors"
	"math/rand"
	"runtime"
	"testing"
)

var errBody = errors.New("the model is ill")

// oneStep is how Cache.Step and Graph.Step begin.
type oneStep func(context.Context, Batch, func(*Step) error) error

// withEach runs a test with Cache.Step and with Graph.Step. The batch has three tokens of a new sequence.
func withEach(t *testing.T, test func(t *testing.T, cache *Cache, run oneStep, batch Batch)) {
	for _, name := range []string{"Cache.Step", "Graph.Step"} {
		t.Run(name, func(t *testing.T) {
			cache := newCache(t)
			run := cache.Step
			if name == "Graph.Step" {
				graph := must(cache.NewGraph(GraphConfig{MaxTokens: 3}))(t)
				defer graph.Close()
				run = graph.Step
			}
			test(t, cache, run, Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{3}})
		})
	}
}

func attendOnce(s *Step) error {
	return s.Attend(background, 0, randomTokens(rand.New(rand.NewSource(1)), 3).attend())
}

// expectLength also checks that no step is open: a sequence in an open step is busy.
func expectLength(t *testing.T, cache *Cache, batch Batch, want int64) {
	t.Helper()
	if length := must(cache.Length(batch.Sequences[0]))(t); length != want {
		t.Errorf("length %d instead of %d", length, want)
	}
	if used := must(cache.Stats(WholeCache))(t).PagesUsed; used != (want+3)/4 {
		t.Errorf("%d pages for %d tokens", used, want)
	}
	check(t, cache.CanFit(batch))
}

func TestStepEndsByItself(t *testing.T) {
	withEach(t, func(t *testing.T, cache *Cache, run oneStep, batch Batch) {
		var kept *Step
		check(t, run(background, batch, func(s *Step) error {
			kept = s
			return attendOnce(s)
		}))
		expectLength(t, cache, batch, 3)
		if err := kept.End(); err == nil {
			t.Error("the step is still open")
		}
		check(t, run(nil, batch, attendOnce)) // no context is none that ends
		expectLength(t, cache, batch, 6)
	})
}

func TestStepAbortsOnAnError(t *testing.T) {
	withEach(t, func(t *testing.T, cache *Cache, run oneStep, batch Batch) {
		err := run(background, batch, func(s *Step) error {
			check(t, attendOnce(s))
			return errBody
		})
		if err != errBody {
			t.Errorf("%v is not the error of the body", err)
		}
		expectLength(t, cache, batch, 0)
		err = run(background, batch, func(s *Step) error { return nil })
		refused(t, err, ErrOrder, "Step.End")
		expectLength(t, cache, batch, 0)
		check(t, run(background, batch, attendOnce))
	})
}

func TestStepAbortsOnAPanic(t *testing.T) {
	withEach(t, func(t *testing.T, cache *Cache, run oneStep, batch Batch) {
		func() {
			defer func() {
				if value := recover(); value != errBody {
					t.Errorf("panic with %v", value)
				}
			}()
			_ = run(background, batch, func(s *Step) error {
				check(t, attendOnce(s))
				panic(errBody)
			})
			t.Error("the panic was lost")
		}()
		expectLength(t, cache, batch, 0)
		gone := make(chan bool)
		go func() {
			defer close(gone)
			_ = run(background, batch, func(*Step) error {
				runtime.Goexit() // as t.FailNow does
				return nil
			})
			t.Error("Goexit has returned")
		}()
		<-gone
		expectLength(t, cache, batch, 0)
	})
}

func TestStepThatItsBodyCloses(t *testing.T) {
	withEach(t, func(t *testing.T, cache *Cache, run oneStep, batch Batch) {
		check(t, run(background, batch, (*Step).Abort))
		check(t, run(background, batch, (*Step).Close))
		expectLength(t, cache, batch, 0)
		err := run(background, batch, func(s *Step) error {
			check(t, attendOnce(s))
			check(t, s.End())
			return errBody
		})
		if err != errBody {
			t.Errorf("%v is not the error of the body", err)
		}
		expectLength(t, cache, batch, 3) // it had ended before
	})
}

func TestStepWithinAStep(t *testing.T) {
	withEach(t, func(t *testing.T, cache *Cache, run oneStep, batch Batch) {
		other := Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{3}}
		check(t, run(background, batch, func(s *Step) error {
			refused(t, run(background, batch, attendOnce), ErrBusy) // the sequence, or the graph
			check(t, cache.Step(background, other, attendOnce))     // of another sequence
			return attendOnce(s)
		}))
		if lengths := must(cache.Lengths(batch.Sequences[0], other.Sequences[0]))(t); lengths[0] != 3 || lengths[1] != 3 {
			t.Error(lengths)
		}
	})
}

func TestStepWhoseContextEnds(t *testing.T) {
	withEach(t, func(t *testing.T, cache *Cache, run oneStep, batch Batch) {
		for name, body := range map[string]func(*Step) error{
			"attends later": attendOnce, "sees no error": func(*Step) error { return nil }} {
			ctx, cancel := context.WithCancelCause(background)
			err := run(ctx, batch, func(s *Step) error {
				check(t, attendOnce(s))
				cancel(errBody)
				return body(s)
			})
			if !errors.Is(err, ErrCancelled) || !errors.Is(err, errBody) || !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			expectLength(t, cache, batch, 0)
			err = run(ctx, batch, func(*Step) error {
				t.Error("the body runs although the context has ended")
				return nil
			})
			if !errors.Is(err, ErrCancelled) || !errors.Is(err, errBody) {
				t.Error(err)
			}
		}
	})
}

func TestStepThatDoesNotBegin(t *testing.T) {
	withEach(t, func(t *testing.T, cache *Cache, run oneStep, batch Batch) {
		body := func(*Step) error {
			t.Error("the body runs without a step")
			return nil
		}
		refused(t, run(background, batch, nil), ErrNullArgument, "Step: body is nil")
		refused(t, run(background, Batch{Sequences: []Seq{12345}, AppendLengths: []int32{1}}, body), ErrStaleID)
		expectLength(t, cache, batch, 0)
	})
	cache := newCache(t)
	batch := Batch{Sequences: must(cache.AddMany(1))(t), AppendLengths: []int32{300}}
	var full *OutOfPages
	if err := cache.Step(background, batch, attendOnce); !errors.As(err, &full) || full.Missing() != 11 {
		t.Errorf("%v", err)
	}
	batch.AppendLengths[0] = 3
	refused(t, cache.Step(background, batch, func(*Step) error { return cache.Close() }), ErrNullArgument, "closed")
}

func TestObjectsAreLinesForPeople(t *testing.T) {
	context := must(NewContext(ContextConfig{Threads: 1, SIMD: "scalar"}))(t)
	cache := newCache(t, func(c *Config) { c.Context = context })
	graph := must(cache.NewGraph(GraphConfig{}))(t)
	expect := func(object interface{ String() string }, want string) {
		t.Helper()
		if got := object.String(); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
	expect(context, "kvcache.Context, "+must(context.Describe())(t))
	expect(cache, "kvcache.Cache, 0 sequences, 0 of 64 pages used")
	expect(graph, "kvcache.Graph, no step is open")
	batch := Batch{Sequences: must(cache.AddMany(2))(t), AppendLengths: []int32{5, 2}}
	s := must(graph.Begin(background, batch))(t)
	expect(s, "kvcache.Step, 2 rows, 7 tokens")
	expect(graph, "kvcache.Graph, a step is open")
	expect(cache, "kvcache.Cache, 2 sequences, 3 of 64 pages used")
	check(t, s.Close())
	expect(s, "kvcache.Step, closed")
	check(t, graph.Close())
	check(t, cache.Close())
	check(t, context.Close())
	for _, c := range []*Cache{cache, nil, {}} {
		expect(c, "kvcache.Cache, nil or closed")
	}
	for _, c := range []*Context{context, nil, {}} {
		expect(c, "kvcache.Context, nil or closed")
	}
	expect((*Step)(nil), "kvcache.Step, nil or closed")
	expect(new(Step), "kvcache.Step, nil or closed")
	expect((*Graph)(nil), "kvcache.Graph, nil")
}
