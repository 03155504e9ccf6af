package kvcache

import (
	"errors"
	"fmt"
)

// String is a line for people: how many sequences there are, and how many pages are used. It walks the page tables.
func (c *Cache) String() string {
	stats, err := c.Stats(WholeCache)
	if err != nil {
		return "kvcache.Cache, " + unusable(err)
	}
	return fmt.Sprintf("kvcache.Cache, %d sequences, %d of %d pages used", stats.Sequences, stats.PagesUsed, stats.PagesTotal)
}

// String is a line for people: how many rows and tokens the step has, or that it is closed.
func (s *Step) String() string {
	if s != nil && s.closed.Load() {
		return "kvcache.Step, closed"
	}
	rows, tokens := 0, 0
	_, err := s.info("Step.String", func(info *kvcForwardInfo) (*int32, int) {
		rows, tokens = int(info.numSequences), int(info.numTokens)
		return nil, 0
	})
	if err != nil {
		return "kvcache.Step, " + unusable(err)
	}
	return fmt.Sprintf("kvcache.Step, %d rows, %d tokens", rows, tokens)
}

// String is a line for people: whether a step is open in the graph.
func (g *Graph) String() string {
	switch {
	case g == nil || g.cache == nil:
		return "kvcache.Graph, nil"
	case g.open.Load() != nil:
		return "kvcache.Graph, a step is open"
	}
	return "kvcache.Graph, no step is open"
}

// String is a line for people: what Describe returns.
func (c *Context) String() string {
	text, err := c.Describe()
	if err != nil {
		return "kvcache.Context, " + unusable(err)
	}
	return "kvcache.Context, " + text
}

// unusable says why an object cannot be described. A handle that is nil or closed gives ErrNullArgument.
func unusable(err error) string {
	if errors.Is(err, ErrNullArgument) {
		return "nil or closed"
	}
	return err.Error()
}
