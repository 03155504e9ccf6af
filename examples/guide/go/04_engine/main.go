// A small scheduler: admission, preemption when pages run out, rejected drafts, and prompts that reuse a conversation.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"

	"kvcache.dev/examples/guide/model"
	"kvcache.dev/kvcache"
)

const (
	systemPrompt = "You are a terse assistant. Answer in one short word. "
	answerTokens = 24
	capacity     = 11 // pages of the full layer: too few for three users
)

var questions = []struct{ name, text string }{
	{"Ada", "What is a page?"}, {"Bob", "What does a fork share, and what does it copy?"}, {"Cy", "Why?"}}

type request struct {
	name     string
	tokens   []int32     // the prompt, then also the answer
	prompt   int         // how many of the tokens are the prompt
	drafts   []int32     // a guess at what follows the first token of the answer
	sequence kvcache.Seq // 0: none, because the request waits
	cached   int         // how many of the tokens are in the cache
}

func newRequest(name string, before []int32, text, drafts string) *request {
	tokens := slices.Concat(before, model.Encode(text))
	return &request{name: name, tokens: tokens, prompt: len(tokens), drafts: model.Encode(drafts)}
}

func (r *request) answer() []int32 { return r.tokens[r.prompt:] }

// next gives what its row appends in the next step: all that is not in the cache, and the drafts when the prompt is read.
func (r *request) next() []int32 {
	if len(r.answer()) == 0 {
		return r.tokens[r.cached:]
	}
	return slices.Concat(r.tokens[r.cached:], r.drafts)
}

func batchOf(requests ...*request) (batch kvcache.Batch) {
	for _, r := range requests {
		batch.Sequences = append(batch.Sequences, r.sequence)
		batch.AppendLengths = append(batch.AppendLengths, int32(len(r.next())))
	}
	return batch
}

type engine struct {
	cache            *kvcache.Cache
	waiting, running []*request
	number           int // of the step
}

// serve answers all requests that wait.
func (e *engine) serve(ctx context.Context) error {
	for len(e.waiting)+len(e.running) > 0 {
		e.number++
		if err := e.admit(); err != nil {
			return err
		}
		if err := e.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *engine) step(ctx context.Context) error {
	step, err := e.begin(ctx)
	if err != nil {
		return err
	}
	defer step.Close()
	var tokens []int32
	batch := batchOf(e.running...)
	for _, r := range e.running {
		tokens = append(tokens, r.next()...)
	}
	predicted, err := model.Run(ctx, step, tokens)
	if err != nil {
		return err
	}
	if err := step.End(); err != nil {
		return err
	}

	var staying []*request
	for i, r := range e.running {
		count := batch.AppendLengths[i]
		if err := e.take(r, predicted[:count]); err != nil {
			return err
		}
		predicted = predicted[count:]
		if len(r.answer()) < answerTokens {
			staying = append(staying, r)
			continue
		}
		fmt.Printf("step %d: %s has %s\n", e.number, r.name, model.Decode(r.answer()[:answerTokens]))
		if err := e.release(r); err != nil {
			return err
		}
	}
	e.running = staying
	return nil
}

// admit starts requests, the one that waits longest first, as long as the next step has room for them.
func (e *engine) admit() error {
	for len(e.waiting) > 0 {
		r := e.waiting[0]
		if err := e.tryToStart(r); err != nil {
			if err := e.release(r); err != nil {
				return err
			}
			var failure *kvcache.Error
			full := errors.As(err, &failure) && failure.Status >= 100 && failure.Status < 200 // the band that means "not now"
			if full && len(e.running) > 0 {
				return nil
			}
			return err // also: it does not even fit alone
		}
		fmt.Printf("step %d: %s starts, %d of %d tokens are cached\n", e.number, r.name, r.cached, len(r.tokens))
		e.running, e.waiting = append(e.running, r), e.waiting[1:]
	}
	return nil
}

// tryToStart attaches what the prefix index has of a request, and checks that the next step has room for it.
func (e *engine) tryToStart(r *request) error {
	sequence, hit, err := e.cache.AttachPrefix(kvcache.PrefixQuery{Tokens: r.tokens})
	if err != nil {
		return err
	}
	r.sequence, r.cached = sequence, int(hit.Tokens)
	return e.cache.CanFit(batchOf(slices.Concat(e.running, []*request{r})...))
}

// begin begins a step for all who run. While pages are missing, the one who started last has to wait again.
func (e *engine) begin(ctx context.Context) (*kvcache.Step, error) {
	for {
		step, err := e.cache.Begin(ctx, batchOf(e.running...))
		var full *kvcache.OutOfPages
		last := len(e.running) - 1
		if !errors.As(err, &full) || last == 0 {
			return step, err
		}
		r := e.running[last]
		fmt.Printf("step %d: pages needed %d, free %d: %s waits\n", e.number, full.Required, full.Available, r.name)
		if err := e.release(r); err != nil {
			return nil, err
		}
		e.running, e.waiting = e.running[:last], slices.Insert(e.waiting, 0, r)
	}
}

// take takes what the model predicted after each token of a row. Drafts stay as far as they agree with it.
func (e *engine) take(r *request, predicted []int32) error {
	plain, accepted := len(r.tokens)-r.cached, 0
	drafts := r.next()[plain:]
	for accepted < len(drafts) && drafts[accepted] == predicted[plain-1+accepted] {
		accepted++
	}
	r.cached += plain + accepted
	if len(drafts) > 0 {
		err := e.cache.Truncate([]kvcache.Seq{r.sequence}, []int64{int64(r.cached)}) // the rejected drafts go
		if err != nil {
			return err
		}
		fmt.Printf("step %d: %d of the drafts %s are right\n", e.number, accepted, model.Decode(drafts))
		r.drafts = nil
	}
	r.tokens = append(r.tokens, predicted[plain-1:plain+accepted]...)
	return nil
}

// release gives up the sequence. Its tokens stay findable, until their pages are needed.
func (e *engine) release(r *request) error {
	if r.sequence != 0 {
		query := kvcache.PrefixQuery{Tokens: r.tokens[:r.cached]}
		if _, err := e.cache.PublishPrefix(r.sequence, query, kvcache.PrefixOptions{}); err != nil {
			return err
		}
		if err := e.cache.Remove(r.sequence); err != nil {
			return err
		}
	}
	r.sequence, r.cached = 0, 0
	return nil
}

// readSystemPrompt runs before the first request comes. The pin keeps the prompt from being evicted.
func (e *engine) readSystemPrompt(ctx context.Context) (*request, kvcache.PrefixPin, error) {
	system := newRequest("system", nil, systemPrompt, "")
	var err error
	if system.sequence, err = e.cache.Add(); err != nil {
		return nil, 0, err
	}
	err = e.cache.Step(ctx, batchOf(system), func(step *kvcache.Step) error {
		_, err := model.Run(ctx, step, system.tokens)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	system.cached = len(system.tokens)
	if err := e.release(system); err != nil {
		return nil, 0, err
	}
	pin, _, err := e.cache.PinPrefix(kvcache.PrefixQuery{Tokens: system.tokens})
	return system, pin, err
}

func run(ctx context.Context) error {
	config := model.Config()
	config.CapacityPages, config.RollbackTokens, config.Deterministic, config.PrefixIndex = capacity, 8, true, true
	cache, err := kvcache.New(config)
	if err != nil {
		return err
	}
	defer cache.Close()
	e := &engine{cache: cache}
	system, pin, err := e.readSystemPrompt(ctx)
	if err != nil {
		return err
	}

	var first []*request
	for _, question := range questions {
		first = append(first, newRequest(question.name, system.tokens, question.text, ""))
	}
	e.waiting = slices.Clone(first)
	if err := e.serve(ctx); err != nil {
		return err
	}

	// Cy goes on: the second prompt begins with the first conversation.
	e.waiting = []*request{newRequest("Cy", first[2].tokens, " And then?", "mhnqq")}
	if err := e.serve(ctx); err != nil {
		return err
	}

	if err := cache.UnpinPrefix(pin); err != nil {
		return err
	}
	stats, err := cache.Stats(kvcache.WholeCache)
	if err == nil {
		fmt.Printf("pages used %d, of them only remembered %d, evicted %d\n", stats.PagesUsed, stats.PagesIdle,
			stats.PagesEvicted)
	}
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
