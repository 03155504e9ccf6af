package kvcache

import (
	"runtime"
	"slices"
	"unsafe"
)

// ContextConfig says where to compute. The zero value is the CPU with every default.
type ContextConfig struct {
	Threads int    // threads that compute, the caller's included; 0 = what the process may use
	SIMD    string // "" = the best that this CPU has; else a name of Describe, or "reference" (float64, for tests)

	// ParallelFor computes on goroutines of the program: it calls item(i) once for each i in [0, n), in any order and on
	// any goroutines. n is at most Threads. OnGoroutines is such a function. nil: the library starts threads of its own.
	//
	// Several goroutines may call it at once. Each item runs once, whatever it does. When it returns, the goroutine that
	// called the library runs the items that nothing has begun, and waits for those that still run. item does nothing for
	// an item that has begun before, for other numbers, and at any later time.
	//
	// If it panics, the call of this package that needed it does the rest of its work alone, and has taken effect. Then it
	// panics with a *ParallelForPanic. ParallelFor must not end its goroutine (runtime.Goexit, and so testing's FailNow): that ends the
	// program with a message. It may call this package, but must not wait for the call that it works for. A Close of the
	// Step that computes waits for that.
	//
	// The function is released when the Context and all caches in it are closed. If it refers to them, the garbage
	// collector closes none of them.
	ParallelFor func(n int, item func(i int))
}

// Context is a device, its threads and its scratch memory. Caches in one Context share them. Its methods may be called by
// any goroutine.
type Context struct{ handle *handle }

// NewContext opens the CPU. Its threads start with the first call that is large enough.
func NewContext(config ContextConfig) (*Context, error) {
	lib, err := load()
	if err != nil {
		return nil, err
	}
	a := takeArena()
	defer a.giveBack()
	c := new(kvcContextConfig)
	c.init()
	c.numThreads = narrow(config.Threads)
	if config.SIMD != "" {
		name := append([]byte(config.SIMD), 0)
		c.simd = address(a, name)
	}
	pool := newHostPool(config.ParallelFor)
	if pool != nil {
		c.parallelFor, c.parallelForUser = parallelForOfC(), pool.number
	}
	if err := a.check(lib.contextCreate(a, c, &a.handle)); err != nil {
		pool.release()
		return nil, err
	}
	context := &Context{newHandle(lib, a.handle, (*library).contextDestroy)}
	context.handle.pool = pool
	runtime.AddCleanup(context, (*handle).close, context.handle)
	return context, nil
}

// Close releases the Context. Caches in it continue to work. Closing it again does nothing.
func (c *Context) Close() error {
	if c != nil {
		c.handle.close()
	}
	return nil
}

func (c *Context) enter(function string) (*arena, *handle, error) {
	if c == nil || !c.handle.enter() {
		return nil, nil, misuse(ErrNullArgument, "%s: the Context is nil or closed", function)
	}
	return takeArena(), c.handle, nil
}

func leave(a *arena, h *handle) {
	a.giveBack()
	h.leave()
	h.pool.panicAgain()
}

// Describe says what the Context is, as one JSON object: device, threads, simd (in use), simd_available.
func (c *Context) Describe() (string, error) {
	a, h, err := c.enter("Context.Describe")
	if err != nil {
		return "", err
	}
	defer leave(a, h)
	return describe(a, func(buffer *byte, capacity int64, length *int64) Status {
		return h.lib.contextDescribe(a, h.address, buffer, capacity, length)
	})
}

// Check returns an error if a device found a bad value in index tensors of earlier calls. On the CPU it returns nil,
// because each call reports its own.
func (c *Context) Check() error {
	a, h, err := c.enter("Context.Check")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.contextCheck(a, h.address))
}

// describe reads the length of a text, then the text, and tries again if the text grew between.
func describe(a *arena, ask func(buffer *byte, capacity int64, length *int64) Status) (string, error) {
	length := &a.numbers[0]
	if err := a.check(ask(nil, 0, length)); err != nil {
		return "", err
	}
	for {
		buffer := make([]byte, *length+1)
		status := ask(&buffer[0], int64(len(buffer)), length)
		if status == ErrBufferTooSmall {
			a.err.init()
			continue
		}
		if err := a.check(status); err != nil {
			return "", err
		}
		return string(buffer[:*length]), nil
	}
}

// Merge is the results of attention over several disjoint sets of keys.
type Merge struct {
	Outputs []Tensor // each [T, H, Dv] float32
	LSEs    []Tensor // each [T, H] float32
	Out     Tensor   // written; [T, H, Dv] float32
	LSE     Tensor   // may be absent; written; [T, H] float32
}

// Merge computes in Out the attention over all these keys.
func (c *Context) Merge(parts Merge) error {
	a, h, err := c.enter("Context.Merge")
	if err != nil {
		return err
	}
	defer leave(a, h)
	parts.Outputs, parts.LSEs = slices.Clone(parts.Outputs), slices.Clone(parts.LSEs) // what is checked is what C reads
	if len(parts.Outputs) != len(parts.LSEs) {
		return misuse(ErrInvalidArgument, "Context.Merge: %d Outputs, but %d LSEs", len(parts.Outputs), len(parts.LSEs))
	}
	for _, err := range [...]error{
		brokenList("Context.Merge", "Outputs", parts.Outputs), brokenList("Context.Merge", "LSEs", parts.LSEs),
		broken("Context.Merge", "Out LSE", &parts.Out, &parts.LSE),
	} {
		if err != nil {
			return err
		}
	}
	args := new(kvcMergeArgs)
	args.init()
	args.numParts = narrow(len(parts.Outputs))
	args.outputs, args.lses = a.list(parts.Outputs), a.list(parts.LSEs)
	args.out, args.lse = a.tensor(0, &parts.Out), a.tensor(1, &parts.LSE)
	a.pin(unsafe.Pointer(args))
	return a.check(h.lib.mergeStates(a, h.address, args, 0))
}
