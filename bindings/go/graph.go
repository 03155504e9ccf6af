package kvcache

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// GraphConfig is the capacity of a Graph. A zero field means the cache's own limit.
type GraphConfig struct {
	MaxSequences   int // rows of a step
	MaxTokens      int // tokens of a step
	MaxPagesPerRow int // columns of its block tables; 0 = the pages of the group
}

// Graph is the memory of one step, for programs that are recorded once and replayed in each step. Its arrays keep their
// addresses and have the shapes of the graph's capacity; a step may use less. Tensors have MaxTokens rows. Rows after
// the step's tokens are neither read nor written.
//
// Every Step of a graph can be used in place of the others. Calls that compute or read (Append, Attend, LoadState,
// StoreState, Positions, LastRows, Tables, Describe) use the step that is open in the graph at that time. While none is
// open, they return ErrStale and touch nothing. So a program that was recorded with the first step is replayed in later
// ones. End, Abort, Cancel, Close and the context of Begin belong to one step alone.
//
// Any goroutine may call its methods. Its step does not count towards Config.MaxOpenForwards.
type Graph struct {
	cache   *Cache
	id      uint64
	mutex   sync.Mutex           // no step opens, closes or is cancelled, and none of its arrays change, while it is held
	open    atomic.Pointer[Step] // changes under mutex; nil = none
	cleanup runtime.Cleanup
}

// NewGraph makes a graph; a cache has at most 64.
func (c *Cache) NewGraph(config GraphConfig) (*Graph, error) {
	a, h, err := c.enter("Cache.NewGraph")
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	args := new(kvcGraphConfig)
	args.init()
	args.maxSequences, args.maxTokens = narrow(config.MaxSequences), narrow(config.MaxTokens)
	args.maxPagesPerRow = narrow(config.MaxPagesPerRow)
	if err := a.check(h.lib.graphCreate(a, h.address, args, &a.id)); err != nil {
		return nil, err
	}
	graph := &Graph{cache: c, id: a.id}
	graph.cleanup = runtime.AddCleanup(graph, func(id uint64) { _ = h.destroyGraph(id) }, a.id)
	return graph, nil
}

// destroyGraph does nothing if the cache is closed, because that closed the graph too.
func (h *handle) destroyGraph(id uint64) error {
	if !h.enter() {
		return nil
	}
	a := takeArena()
	defer leave(a, h)
	return a.check(h.lib.graphDestroy(a, h.address, id))
}

// Close frees the graph and the Tables of its steps. It returns ErrBusy while a step is open in the graph, and
// ErrStaleID if the graph was closed before.
func (g *Graph) Close() error {
	if g == nil || g.cache == nil {
		return nil
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	err := g.cache.handle.destroyGraph(g.id)
	if err == nil {
		g.cleanup.Stop()
	}
	return err
}

// number is the id of a graph, 0 of none.
func (g *Graph) number() uint64 {
	if g == nil {
		return 0
	}
	return g.id
}

func (g *Graph) check(function string) error {
	if g == nil || g.cache == nil {
		return misuse(ErrNullArgument, "%s: the Graph is nil", function)
	}
	return nil
}

// CanFit is Cache.CanFit for a step in the graph.
func (g *Graph) CanFit(batch Batch) error {
	if err := g.check("Graph.CanFit"); err != nil {
		return err
	}
	return g.cache.canFit("Graph.CanFit", batch, g)
}

// Begin is Cache.Begin for a step in the graph. It also returns ErrBusy while another step is open in the graph,
// ErrBatchTooLarge if the step exceeds the capacity, and ErrStaleID if the graph is closed.
func (g *Graph) Begin(ctx context.Context, batch Batch) (*Step, error) {
	if err := g.check("Graph.Begin"); err != nil {
		return nil, err
	}
	g.mutex.Lock()
	defer g.mutex.Unlock()
	step, err := g.cache.begin("Graph.Begin", ctx, batch, g)
	if err != nil {
		return nil, err
	}
	g.open.Store(step)
	return step, nil
}

// current is the step that calls on s use. In a graph it is the open one, with its context. If none is open it is s,
// and the library reports that.
func (s *Step) current() *Step {
	if s != nil && s.graph != nil {
		if open := s.graph.open.Load(); open != nil {
			return open
		}
	}
	return s
}

// superseded refuses a call that belongs to one step if another step is open in its graph, because both have the same
// id. The graph's mutex is held.
func (s *Step) superseded(function string) error {
	if s.current() != s {
		return misuse(ErrStale, "%s: the step is closed, and another one is open in its graph", function)
	}
	return nil
}
