package kvcache

import (
	"errors"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/ebitengine/purego"
)

type parallelFor = func(n int, item func(i int))

// hostCache is a cache in a context of its own, whose items run on three goroutines. The cache alone keeps the context.
func hostCache(t testing.TB, run parallelFor) *Cache {
	t.Helper()
	context := must(NewContext(ContextConfig{Threads: 3, ParallelFor: run}))(t)
	defer context.Close()
	return newCache(t, func(c *Config) { c.Context, c.CapacityTokens, c.MaxBatchTokens = context, 4096, 2048 })
}

// prefillAndDecode is what a prefill and a decode step give, always of the same tokens: large enough for several threads.
func prefillAndDecode(t testing.TB, cache *Cache) []float32 {
	t.Helper()
	r := rand.New(rand.NewSource(1))
	sequence, out := must(cache.Add())(t), []float32(nil)
	for _, n := range []int{600, 1} {
		x := randomTokens(r, n)
		step(t, cache, sequence, x)
		out = append(out, x.out...)
	}
	check(t, cache.Remove(sequence))
	return out
}

// hostile are functions of a program that do not what they should, or as they should not.
var hostile = map[string]parallelFor{
	"reversed": func(n int, item func(i int)) {
		for i := n - 1; i >= 0; i-- {
			item(i)
		}
	},
	"none":    func(int, func(int)) {},
	"half":    func(n int, item func(i int)) { item(n / 2) },
	"no such": func(n int, item func(i int)) { item(-1); item(n); item(1 << 62); item(-1 << 63) },
	"twice": func(n int, item func(i int)) {
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				for i := range n {
					item(i)
				}
			})
		}
		group.Wait()
	},
	"returns early": func(n int, item func(i int)) {
		for i := range n {
			go item(i)
		}
		runtime.Gosched()
	},
	"late": func(n int, item func(i int)) {
		for i := range n {
			time.AfterFunc(time.Duration(i)*time.Millisecond, func() { item(i) })
		}
	},
}

func TestHostPoolGivesTheSameBits(t *testing.T) {
	own := must(NewContext(ContextConfig{Threads: 3}))(t)
	defer own.Close()
	want := prefillAndDecode(t, newCache(t, func(c *Config) { c.Context, c.CapacityTokens, c.MaxBatchTokens = own, 4096, 2048 }))
	expect := func(name string, run parallelFor) {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			cache := hostCache(t, func(n int, item func(i int)) {
				calls.Add(1)
				if n < 2 || n > 3 {
					t.Errorf("%d items for 3 threads", n)
				}
				run(n, item)
			})
			for range 3 {
				if got := prefillAndDecode(t, cache); !slices.Equal(got, want) {
					t.Error("the results differ from those of the library's threads")
				}
			}
			if calls.Load() == 0 {
				t.Error("no job was large enough for the host's pool")
			}
		})
	}
	expect("goroutines", OnGoroutines)
	for name, run := range hostile {
		expect(name, run)
	}
	host := must(NewContext(ContextConfig{Threads: 3, ParallelFor: OnGoroutines}))(t)
	defer host.Close()
	if text := must(host.Describe())(t); !strings.Contains(text, `"host_parallel_for": true`) || !strings.Contains(text, `"threads": 3`) {
		t.Error(text)
	}
}

// The library finds out by itself which items were run. Its header does not promise that, so each item must run once.
func TestItemsRunOnceEach(t *testing.T) {
	var counts [8]atomic.Int64
	count := purego.NewCallback(func(arg uintptr, i int64) {
		if arg != 42 {
			t.Errorf("the argument is %d", arg)
		}
		counts[i].Add(1)
	})
	run := func(name string, run parallelFor) {
		pool := newHostPool(run)
		defer pool.release()
		runOnHost(pool.number, int64(len(counts)), count, 42)
		for i := range counts { // now, and not a moment later
			if n := counts[i].Swap(0); n != 1 {
				t.Errorf("%s: item %d ran %d times", name, i, n)
			}
		}
		if caught := recovered(pool.panicAgain); (caught != nil) != (name == "panics") {
			t.Errorf("%s: %v", name, caught)
		}
	}
	for name, f := range hostile {
		run(name, f)
	}
	run("goroutines", OnGoroutines)
	run("panics", func(n int, item func(i int)) { item(3); panic("half-way") })
	time.Sleep(20 * time.Millisecond)
	for i := range counts {
		if n := counts[i].Load(); n != 0 {
			t.Errorf("item %d ran after its job", i)
		}
	}
	runOnHost(0, int64(len(counts)), count, 42) // a pool that does not exist
	for i := range counts {
		if counts[i].Load() != 1 {
			t.Errorf("item %d did not run", i)
		}
	}
}

// An item that runs on another goroutine when the program's function returns is waited for.
func TestItemsInProgressAreWaitedFor(t *testing.T) {
	begun, done := make(chan bool), false
	slow := purego.NewCallback(func(uintptr, int64) {
		begun <- true
		time.Sleep(50 * time.Millisecond)
		done = true
	})
	pool := newHostPool(func(n int, item func(i int)) {
		go item(0)
		<-begun
	})
	defer pool.release()
	runOnHost(pool.number, 1, slow, 0)
	if !done {
		t.Error("the job ended before its item")
	}
}

func TestItemsThatAreKept(t *testing.T) {
	var kept []func(i int)
	cache := hostCache(t, func(n int, item func(i int)) {
		for _, f := range kept { // also while another job runs
			f(0)
		}
		kept = append(kept, item)
		for i := range n {
			item(i)
		}
	})
	prefillAndDecode(t, cache)
	if len(kept) == 0 {
		t.Fatal("no job was large enough for the host's pool")
	}
	check(t, cache.Close())
	var group sync.WaitGroup
	for _, item := range kept {
		group.Go(func() {
			for i := range 3 {
				item(i)
			}
		})
	}
	group.Wait()
}

// recovered is what f panics with, or nil.
func recovered(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestAPanicContinuesInTheCall(t *testing.T) {
	reason, bad, calls := errors.New("a panic of the test"), true, 0
	cache := hostCache(t, func(n int, item func(i int)) {
		item(1)
		calls++
		if bad {
			panic(reason)
		}
		OnGoroutines(n, item)
	})
	sequence, x := must(cache.Add())(t), randomTokens(rand.New(rand.NewSource(1)), 600)
	batch := Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{600}}
	for i := range 2 {
		clear(x.out)
		caught, _ := recovered(func() {
			t.Error(cache.Step(background, batch, func(s *Step) error { return s.Attend(background, 0, x.attend()) }))
		}).(*ParallelForPanic)
		if caught == nil || caught.Value != reason || !errors.Is(caught, reason) {
			t.Fatal(caught)
		}
		if calls != i+1 {
			t.Errorf("%d calls in %d steps, each of which has several jobs", calls, i+1)
		}
		if text := caught.Error(); !strings.Contains(text, "ParallelFor panicked: a panic of the test") ||
			!strings.Contains(text, "TestAPanicContinuesInTheCall") {
			t.Error(text)
		}
		near(t, "out", x.out, history{}.with(x).attention(x.q)) // all items ran
		if n := must(cache.Length(sequence))(t); n != 0 {
			t.Errorf("a step that panicked has kept %d tokens", n)
		}
	}
	bad = false
	clear(x.out)
	step(t, cache, sequence, x)
	near(t, "out", x.out, history{}.with(x).attention(x.q))
}

// Each goroutine gets its own panics, on a context that many of them use.
func TestPanicsOfManyGoroutines(t *testing.T) {
	var panics atomic.Int64
	context := must(NewContext(ContextConfig{Threads: 3, ParallelFor: func(n int, item func(i int)) {
		if panics.Add(1)%2 == 0 {
			panic(goroutine()) // long before the call ends, because all items run then
		}
		OnGoroutines(n, item)
	}}))(t)
	defer context.Close()
	cache := newCache(t, func(c *Config) { c.Context, c.MaxOpenForwards, c.CapacityTokens = context, 8, 1<<14 })
	var group sync.WaitGroup
	var caught atomic.Int64
	for worker := range 6 {
		group.Go(func() {
			x := randomTokens(rand.New(rand.NewSource(int64(worker))), 200)
			want := history{}.with(x).attention(x.q)
			for range 20 {
				sequence := must(cache.Add())(t)
				clear(x.out)
				value := recovered(func() {
					_ = cache.Step(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{200}}, func(s *Step) error {
						return s.Attend(background, 0, x.attend())
					})
				})
				near(t, "out", x.out, want)
				if value != nil {
					caught.Add(1)
					if of := value.(*ParallelForPanic).Value; of != goroutine() {
						t.Errorf("a panic of goroutine %v is in goroutine %v", of, goroutine())
					}
				}
				check(t, cache.Remove(sequence))
			}
		})
	}
	group.Wait()
	pool := cache.handle.pool
	if caught.Load() == 0 || pool.panicked.Load() != 0 {
		t.Errorf("%d panics of %d calls, %d are left", caught.Load(), panics.Load(), pool.panicked.Load())
	}
}

// Goexit cannot be stopped, and C would never return.
func TestGoexitEndsTheProgram(t *testing.T) {
	if os.Getenv("KVCACHE_TEST_GOEXIT") != "" {
		cache := hostCache(t, func(int, func(int)) { runtime.Goexit() })
		prefillAndDecode(t, cache)
		return
	}
	again := exec.Command(os.Args[0], "-test.run=^TestGoexitEndsTheProgram$")
	again.Env = append(os.Environ(), "KVCACHE_TEST_GOEXIT=1")
	output, err := again.CombinedOutput()
	if err == nil || !strings.Contains(string(output), "panic: kvcache: ContextConfig.ParallelFor ended its goroutine") {
		t.Errorf("%v: %s", err, output)
	}
}

// What a function may do: use other caches, close them, close its own, and use its own step, which is busy.
func TestAParallelForThatCallsTheLibrary(t *testing.T) {
	var inside func()
	context := must(NewContext(ContextConfig{Threads: 3, ParallelFor: func(n int, item func(i int)) {
		if f := inside; f != nil {
			inside = nil
			f()
		}
		OnGoroutines(n, item)
	}}))(t)
	make := func() *Cache {
		return newCache(t, func(c *Config) { c.Context, c.CapacityTokens, c.MaxBatchTokens = context, 4096, 2048 })
	}
	cache, other := make(), make()
	want := prefillAndDecode(t, cache)
	expect := func(what string, f func()) {
		t.Helper()
		inside = f
		if got := prefillAndDecode(t, cache); !slices.Equal(got, want) || inside != nil {
			t.Errorf("%s: the results differ, or nothing ran", what)
		}
	}
	expect("computes", func() {
		if got := prefillAndDecode(t, other); !slices.Equal(got, want) {
			t.Error("the results of the other cache differ")
		}
	})
	expect("closes another", func() {
		victim := make()
		must(victim.Begin(background, Batch{Sequences: []Seq{must(victim.Add())(t)}, AppendLengths: []int32{2}}))(t)
		check(t, victim.Close())
	})
	expect("closes the context", func() { check(t, context.Close()) })

	x := randomTokens(rand.New(rand.NewSource(1)), 600)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{600}}))(t)
	inside = func() {
		refused(t, s.Attend(background, 0, x.attend()), ErrBusy)
		refused(t, s.End(), ErrBusy)
		check(t, cache.Close()) // when Attend returns
	}
	check(t, s.Attend(background, 0, x.attend()))
	near(t, "out", x.out, history{}.with(x).attention(x.q))
	refused(t, s.End(), ErrNullArgument, "closed")
	if cache.handle.users.Load() != 0 {
		t.Error("the cache is not released")
	}
}

// A step that is cancelled while the host computes runs no more of its work.
func TestCancelWhileTheHostComputes(t *testing.T) {
	var s *Step
	cache := hostCache(t, func(n int, item func(i int)) {
		check(t, s.Cancel())
		OnGoroutines(n, item)
	})
	s = must(cache.Begin(background, Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{600}}))(t)
	refused(t, s.Attend(background, 0, randomTokens(rand.New(rand.NewSource(1)), 600).attend()), ErrCancelled)
	check(t, s.Close())
}

func poolsLeft() (n int) {
	hostPools.Range(func(any, any) bool { n++; return true })
	return n
}

// More contexts than purego has callbacks. A function is released with the last of its context and caches.
func TestHostPoolsAreReleased(t *testing.T) {
	before := poolsLeft()
	var references []weak.Pointer[[1 << 10]byte]
	for i := range 2500 {
		block := new([1 << 10]byte)
		references = append(references, weak.Make(block))
		run := func(n int, item func(i int)) { block[0]++; OnGoroutines(n, item) }
		context := must(NewContext(ContextConfig{Threads: 2, ParallelFor: run}))(t)
		if i%100 == 0 {
			cache := must(New(Config{Context: context, Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16}}, CapacityTokens: 1024}))(t)
			check(t, context.Close())
			if poolsLeft() != before+1 {
				t.Fatal("the cache does not keep the function")
			}
			step(t, cache, must(cache.Add())(t), randomTokens(rand.New(rand.NewSource(1)), 600))
			if block[0] == 0 {
				t.Fatal("no job was large enough for the host's pool")
			}
			check(t, cache.Close())
		}
		check(t, context.Close())
		_, err := NewContext(ContextConfig{SIMD: "none such", ParallelFor: run})
		refused(t, err, ErrUnsupported)
	}
	if n := poolsLeft() - before; n != 0 {
		t.Errorf("%d functions are left", n)
	}
	runtime.GC()
	for i, reference := range references {
		if reference.Value() != nil {
			t.Fatalf("function %d is left", i)
		}
	}
	dropped := func() { must(NewContext(ContextConfig{ParallelFor: OnGoroutines}))(t) }
	dropped()
	for wait := 0; poolsLeft() != before; wait++ {
		if wait == 1000 {
			t.Fatal("the function of a context that was dropped is left")
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}
