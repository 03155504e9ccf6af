package kvcache

import (
	"context"
	"errors"
)

// Step begins a step, runs body over it, and ends it. If body returns an error or panics, or if the step cannot end, the
// step is aborted: everything is then as before the call. A step that body itself has ended or aborted stays so. The errors
// are those of Begin, body and End; ctx is that of Begin.
func (c *Cache) Step(ctx context.Context, batch Batch, body func(*Step) error) error {
	if body == nil {
		return noBody("Cache.Step")
	}
	step, err := c.Begin(ctx, batch)
	if err != nil {
		return err
	}
	return step.run(body)
}

// Step is Cache.Step for a step in the graph.
func (g *Graph) Step(ctx context.Context, batch Batch, body func(*Step) error) error {
	if body == nil {
		return noBody("Graph.Step")
	}
	step, err := g.Begin(ctx, batch)
	if err != nil {
		return err
	}
	return step.run(body)
}

func noBody(function string) error { return misuse(ErrNullArgument, "%s: body is nil", function) }

// run ends the step after body, or aborts it. A panic and runtime.Goexit go on after that.
func (s *Step) run(body func(*Step) error) (err error) {
	defer func() {
		if failure := s.Close(); failure != nil {
			err = errors.Join(err, failure)
		}
	}()
	if err := body(s); err != nil || s.closed.Load() {
		return err
	}
	return s.End()
}
