package kvcache

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// OnGoroutines is a ContextConfig.ParallelFor: each item gets a goroutine, and the first one runs on the caller's. It does
// not wait for goroutines that have not started when the first item is done: the caller then runs their items.
func OnGoroutines(n int, item func(i int)) {
	for i := 1; i < n; i++ {
		go item(i)
	}
	item(0)
}

// ParallelForPanic is what a call panics with if the ContextConfig.ParallelFor that it needed has panicked.
type ParallelForPanic struct {
	Value any    // of the panic
	Stack []byte // where it was, as debug.Stack has it
}

func (p *ParallelForPanic) Error() string {
	return fmt.Sprintf("kvcache: ParallelFor panicked: %v\n\n%s", p.Value, p.Stack)
}

// Unwrap returns the value of the panic if it is an error.
func (p *ParallelForPanic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// hostPool is a ContextConfig.ParallelFor. C has its number, under which it is found as long as a context or a cache of C
// may call it. nil means that there is none.
type hostPool struct {
	parallelFor func(n int, item func(i int))
	number      uintptr
	users       atomic.Int64 // handles of these contexts and caches
	panicked    atomic.Int64 // panics that no call has reported yet
	panics      sync.Map     // by goroutine
}

var (
	hostPools    sync.Map // by number
	lastHostPool atomic.Uintptr
)

const endedByHost = "kvcache: ContextConfig.ParallelFor ended its goroutine (runtime.Goexit, or FailNow of a test), inside a call of C"

func newHostPool(parallelFor func(n int, item func(i int))) *hostPool {
	if parallelFor == nil {
		return nil
	}
	p := &hostPool{parallelFor: parallelFor, number: lastHostPool.Add(1)}
	p.users.Store(1)
	hostPools.Store(p.number, p)
	return p
}

func (p *hostPool) share() *hostPool {
	if p != nil {
		p.users.Add(1)
	}
	return p
}

func (p *hostPool) release() {
	if p != nil && p.users.Add(-1) == 0 {
		hostPools.Delete(p.number)
		p.parallelFor = nil // closed handles are reachable as long as their contexts
	}
}

// runOnHost is the kvc_parallel_for_fn of every context. C calls it on the goroutine that has called C.
func runOnHost(user uintptr, n int64, item, arg uintptr) {
	job := &hostJob{item: item, arg: arg, begun: make([]atomic.Bool, n)}
	job.left.Add(int(n))
	if pool, found := hostPools.Load(user); found && !pool.(*hostPool).hasPanicked() {
		pool.(*hostPool).run(job)
	}
	job.finish()
}

// run calls the program's function. Its panic must not unwind the frames of C.
func (p *hostPool) run(job *hostJob) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value := recover()
		if value == nil { // no panic: the goroutine ends, and these are its last deferred calls
			go panic(endedByHost)
			select {}
		}
		p.panics.Store(goroutine(), &ParallelForPanic{value, debug.Stack()})
		p.panicked.Add(1)
	}()
	p.parallelFor(len(job.begun), job.run)
	returned = true
}

// hasPanicked is whether the program's function has panicked in the same call of C, which then goes on alone.
func (p *hostPool) hasPanicked() bool {
	if p.panicked.Load() == 0 {
		return false
	}
	_, found := p.panics.Load(goroutine())
	return found
}

// panicAgain continues a panic of the program's function in the call that needed it, outside of C.
func (p *hostPool) panicAgain() {
	if p == nil || p.panicked.Load() == 0 {
		return
	}
	if value, found := p.panics.LoadAndDelete(goroutine()); found {
		p.panicked.Add(-1)
		panic(value)
	}
}

// goroutine is the number of the calling goroutine. Only a stack trace has it, so this takes microseconds.
func goroutine() string {
	var buffer [64]byte
	trace := bytes.TrimPrefix(buffer[:runtime.Stack(buffer[:], false)], []byte("goroutine "))
	number, _, _ := bytes.Cut(trace, []byte(" "))
	return string(number)
}

// hostJob is the items of one call of runOnHost. The memory of C that they use lives until that returns. By then every
// item has begun, so the function that the program has does nothing later.
type hostJob struct {
	item, arg uintptr
	begun     []atomic.Bool
	left      sync.WaitGroup // items that are not done
}

func (j *hostJob) run(i int) {
	if i < 0 || i >= len(j.begun) || j.begun[i].Swap(true) {
		return
	}
	callItem(j.item, j.arg, i)
	j.left.Done()
}

func (j *hostJob) finish() {
	for i := range j.begun {
		j.run(i)
	}
	j.left.Wait()
}
