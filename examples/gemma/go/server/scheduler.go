package main

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"kvcache.dev/examples/gemma/model"
	"kvcache.dev/kvcache"
)

// request is one client's: its tokens, of which the cache holds the first `cached`. The engine alone touches what is below
// `err`.
type request struct {
	ctx       context.Context // ends when the client goes away
	most      int             // tokens of the answer, at least 1
	ignoreEnd bool            // a token that ends an answer does not end this one
	answer    chan int32      // has room for the whole answer, so that the engine waits for no client; closed at the end
	found     int             // tokens of the prompt that the cache had; -1 before the start; set before the first token
	err       error           // why the answer has ended early; set before answer is closed

	tokens   []int32 // the prompt, then also the answer
	prompt   int     // how many of the tokens are the prompt
	sequence kvcache.Seq
	cached   int
	searched bool             // a load from the tier was tried
	load     *kvcache.LoadJob // brings pages back from the tier
}

// engine computes requests in steps of up to stepTokens tokens: one for each answer, and parts of prompts. It decides the
// order alone. Which pages there are, who shares them and what is forgotten first is the cache's.
type engine struct {
	model      *model.Model
	cache      *kvcache.Cache
	stepTokens int // at least the sequences of the cache
	tier       bool
	ends       []int32 // tokens that end an answer
	arrivals   chan *request

	running, waiting []*request // both in the order of arrival: those who run arrived first
	full             bool       // pages are short: no request starts until one has ended
	counts           struct{ running, waiting, steps, tokens, preempted, cancelled atomic.Int64 }
}

// run computes until stop is done and no request is left. An error of the library or the model ends all requests.
func (e *engine) run(stop context.Context) (err error) {
	for err == nil && e.receive(stop) {
		if err = e.dropCancelled(); err == nil {
			err = e.admit()
		}
		if err == nil {
			err = e.step()
		}
	}
	for _, r := range slices.Concat(e.running, e.waiting) { // none, if there was no error
		err = errors.Join(err, e.end(r, err))
	}
	return err
}

// receive takes the requests that have arrived, and waits for one if there is nothing else to do. False: there will be none.
func (e *engine) receive(stop context.Context) bool {
	for {
		e.counts.running.Store(int64(len(e.running)))
		e.counts.waiting.Store(int64(len(e.waiting)))
		if len(e.running)+len(e.waiting) > 0 {
			select {
			case r := <-e.arrivals:
				e.waiting = append(e.waiting, r)
			default:
				return true
			}
			continue
		}
		select {
		case r := <-e.arrivals:
			e.waiting = append(e.waiting, r)
		case <-stop.Done():
			return false
		}
	}
}

// dropCancelled frees the pages of clients who went away.
func (e *engine) dropCancelled() (err error) {
	gone := func(r *request) bool {
		if r.ctx.Err() == nil {
			return false
		}
		e.counts.cancelled.Add(1)
		err = errors.Join(err, e.end(r, r.ctx.Err()))
		return true
	}
	e.running, e.waiting = slices.DeleteFunc(e.running, gone), slices.DeleteFunc(e.waiting, gone)
	return err
}

// admit starts requests in the order of their arrival, as long as the next step has room for them, in tokens and in pages.
func (e *engine) admit() error {
	for len(e.waiting) > 0 && (!e.full || len(e.running) == 0) {
		r := e.waiting[0]
		if _, _, room := e.parts(e.running); room == 0 {
			return nil
		}
		if loading, err := e.bringBack(r); loading || err != nil {
			return err
		}
		sequence, hit, err := e.cache.AttachPrefix(kvcache.PrefixQuery{Tokens: r.tokens})
		if err == nil {
			r.sequence, r.cached = sequence, int(hit.Tokens)
			if r.found < 0 {
				r.found = r.cached
			}
			_, batch, _ := e.parts(append(slices.Clip(e.running), r))
			err = e.cache.CanFit(batch)
		}
		switch {
		case err == nil:
			e.running, e.waiting = append(e.running, r), e.waiting[1:]
		case !kvcache.IsCapacity(err):
			return err
		case len(e.running) > 0: // it waits for the end of another one
			e.full = true
			return e.release(r)
		default: // it does not even fit alone
			e.waiting = e.waiting[1:]
			if err := e.end(r, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// bringBack loads what the tier has of a request and the pages lack. While it loads, the requests that run go on.
func (e *engine) bringBack(r *request) (loading bool, err error) {
	if e.tier && !r.searched {
		r.searched = true
		r.load, _, err = e.cache.LoadPrefix(kvcache.PrefixQuery{Tokens: r.tokens}, kvcache.LoadOptions{})
		if kvcache.IsCapacity(err) {
			err = nil // what cannot be loaded is computed
		}
	}
	if err != nil || r.load == nil {
		return false, err
	}
	if len(e.running) > 0 {
		_, ended, err := r.load.Poll()
		if !ended || err != nil {
			return true, err
		}
	} else if _, err := r.load.Wait(r.ctx); err != nil {
		return true, ignoring(err, kvcache.ErrCancelled)
	}
	r.load = nil
	return false, nil
}

// part is a row of a step: the next tokens of a request.
type part struct {
	request *request
	tokens  []int32
}

// parts is the next step of the given requests: answers first, then prompts as far as the step has room. It returns the room
// that is left too.
func (e *engine) parts(requests []*request) (parts []part, batch kvcache.Batch, room int) {
	room = e.stepTokens
	for _, prompts := range []bool{false, true} {
		for _, r := range requests {
			tokens := r.tokens[r.cached:]
			if prompts != (len(tokens) > 1) || room == 0 {
				continue
			}
			tokens = tokens[:min(len(tokens), room)]
			room -= len(tokens)
			parts = append(parts, part{r, tokens})
			batch.Sequences = append(batch.Sequences, r.sequence)
			batch.AppendLengths = append(batch.AppendLengths, int32(len(tokens)))
		}
	}
	return parts, batch, room
}

// begin begins the next step. While pages are missing, first a load is given up, then the request that arrived last waits
// again.
func (e *engine) begin() (*kvcache.Step, []part, error) {
	for len(e.running) > 0 {
		parts, batch, _ := e.parts(e.running)
		step, err := e.cache.Begin(context.Background(), batch)
		if !errors.Is(err, kvcache.ErrOutOfPages) {
			return step, parts, err
		}
		last := len(e.running) - 1
		r := e.running[last]
		switch {
		case len(e.waiting) > 0 && e.waiting[0].load != nil:
			e.full, err = true, e.release(e.waiting[0])
		case last > 0:
			e.counts.preempted.Add(1)
			e.running, e.waiting, e.full = e.running[:last], slices.Insert(e.waiting, 0, r), true
			err = errors.Join(e.publish(r), e.release(r))
		default: // it does not fit alone
			e.running = nil
			err = e.end(r, err)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, nil
}

// step computes one step, if anything runs.
func (e *engine) step() error {
	step, parts, err := e.begin()
	if step == nil || err != nil {
		return err
	}
	defer step.Close() // aborts unless ended
	var tokens []int32
	for _, part := range parts {
		tokens = append(tokens, part.tokens...)
	}
	hidden, err := e.model.Forward(context.Background(), step, tokens)
	if err != nil {
		return err
	}
	last, err := step.LastRows()
	if err != nil {
		return err
	}
	if err := step.End(); err != nil {
		return err
	}
	e.counts.steps.Add(1)
	e.counts.tokens.Add(int64(len(tokens)))
	var complete []*request
	var rows []int32
	for i, part := range parts {
		r := part.request
		r.cached += len(part.tokens)
		if len(part.tokens) > 1 { // now, because pages that leave the sliding window are freed in later steps
			if err := e.publish(r); err != nil {
				return err
			}
		}
		if r.cached == len(r.tokens) {
			complete, rows = append(complete, r), append(rows, last[i])
		}
	}
	for i, token := range e.model.Predict(e.model.Rows(hidden, rows...)) {
		if err := e.take(complete[i], token); err != nil {
			return err
		}
	}
	return nil
}

// take gives the client its next token, which may be the last one.
func (e *engine) take(r *request, token int32) error {
	r.tokens = append(r.tokens, token)
	r.answer <- token
	if len(r.tokens)-r.prompt < r.most && (r.ignoreEnd || !e.isEnd(token)) {
		return nil
	}
	e.running = slices.DeleteFunc(e.running, func(other *request) bool { return other == r })
	return errors.Join(e.publish(r), e.end(r, nil))
}

// publish makes the tokens findable: for other requests, for a later one that continues this one, and when it starts again.
// Pages that no sequence has are forgotten when others need them.
func (e *engine) publish(r *request) error {
	_, err := e.cache.PublishPrefix(r.sequence, kvcache.PrefixQuery{Tokens: r.tokens[:r.cached]}, kvcache.PrefixOptions{})
	return err
}

// release gives up the pages of a request. It can start again.
func (e *engine) release(r *request) (err error) {
	_ = r.load.Close()
	if r.sequence != 0 {
		err = e.cache.Remove(r.sequence)
	}
	r.load, r.searched, r.sequence, r.cached = nil, false, 0, 0
	return err
}

// end ends the answer of a request. A waiting one may start now.
func (e *engine) end(r *request, why error) error {
	err := e.release(r)
	e.full, r.err = false, why
	close(r.answer)
	return err
}

func ignoring(err error, status kvcache.Status) error {
	if errors.Is(err, status) {
		return nil
	}
	return err
}
