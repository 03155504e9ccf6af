// Gemma 3 270M over libkvcache: the demo's eight users share a forked system prompt and are decoded greedily, as one batch.
//
//	python examples/gemma/generate.py --export gemma.safetensors
//	cd examples/gemma/go && KVCACHE_LIBRARY=... go run . gemma.safetensors [most new tokens a user, default 24] [--tier DIRECTORY]
//
// The model is in the package model, and a server around it in the folder server. ../README.md has the format of the file
// and of the lines printed here.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvcache.dev/examples/gemma/model"
	"kvcache.dev/kvcache"
)

const (
	pageSize   = 16
	stepTokens = 256 // most tokens of one step: longer prompts take several
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gemma:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	newTokens, tier := 24, ""
	if n := len(arguments); n > 2 && arguments[n-2] == "--tier" {
		arguments, tier = arguments[:n-2], arguments[n-1]
	}
	if len(arguments) == 2 {
		newTokens, _ = strconv.Atoi(arguments[1]) // 0 if it is no number
	}
	if len(arguments) < 1 || len(arguments) > 2 || newTokens < 1 {
		return errors.New("usage: gemma FILE.safetensors [NEW_TOKENS] [--tier DIRECTORY]")
	}
	m, err := model.Open(arguments[0])
	if err != nil {
		return err
	}
	return decoder{m}.demo(newTokens, tier)
}

// ---- The engine

type decoder struct{ *model.Model }

// cache is as engine.py makes it. With a tier, it keeps what is published in that folder, under the model's fingerprint.
func (m decoder) cache(capacity, sequences int, tier string) (*kvcache.Cache, error) {
	config := m.Config()
	config.PageSize, config.CapacityTokens = pageSize, int64(capacity)
	config.MaxSequences, config.MaxBatchTokens = sequences, stepTokens
	if tier != "" {
		config.PrefixIndex, config.Fingerprint = true, m.File.Fingerprint()
	}
	if m.File.Err() != nil {
		return nil, m.File.Err()
	}
	cache, err := kvcache.New(config)
	if err == nil && tier != "" {
		err = cache.AddDiskTier(tier, kvcache.DiskTierOptions{})
	}
	return cache, err
}

// read reads the system prompt, and says how many of its tokens an earlier run had left in the tier, if there is one. When
// it returns, the tier has the prompt.
func (m decoder) read(ctx context.Context, cache *kvcache.Cache, system *request, tier string) (found int, err error) {
	query := kvcache.PrefixQuery{Tokens: system.tokens, AllowAll: true}
	if tier == "" {
		system.sequence, err = cache.Add()
	} else {
		found, err = load(ctx, cache, query, system)
	}
	for err == nil && system.cached < len(system.tokens) {
		if err = m.step(ctx, cache, []*request{system}); err == nil && tier != "" {
			query.Tokens = system.tokens[:system.cached] // now: the sliding layers still have its pages
			_, err = cache.PublishPrefix(system.sequence, query, kvcache.PrefixOptions{})
		}
	}
	for waiting := tier != ""; err == nil && waiting; time.Sleep(time.Millisecond) {
		var traffic kvcache.TierTraffic
		traffic, err = cache.TierTraffic()
		waiting = traffic.PagesWaiting > 0
	}
	return found, err
}

func load(ctx context.Context, cache *kvcache.Cache, query kvcache.PrefixQuery, system *request) (int, error) {
	job, _, err := cache.LoadPrefix(query, kvcache.LoadOptions{})
	if err != nil {
		return 0, err
	}
	if _, err := job.Wait(ctx); err != nil {
		return 0, err
	}
	sequence, hit, err := cache.AttachPrefix(query)
	system.sequence, system.cached = sequence, int(hit.Tokens)
	return system.cached, err
}

// request is one user: its tokens, of which the cache holds the first `cached`.
type request struct {
	sequence kvcache.Seq
	tokens   []int32 // the prompt's, then those that were generated
	cached   int
	prompt   int // 0: it wants no next token
}

// step computes the tokens of the requests that the cache does not hold yet, at most stepTokens of them, decoding requests
// first, and adds the most likely next token to those that are complete.
func (m decoder) step(ctx context.Context, cache *kvcache.Cache, active []*request) error {
	rows := slices.Clone(active)
	slices.SortStableFunc(rows, func(a, b *request) int { return len(a.tokens) - a.cached - (len(b.tokens) - b.cached) })
	var batch kvcache.Batch
	var tokens []int32
	for i, r := range rows {
		part := r.tokens[r.cached:]
		part = part[:min(len(part), stepTokens-len(tokens))]
		if len(part) == 0 {
			rows = rows[:i]
			break
		}
		batch.Sequences, batch.AppendLengths = append(batch.Sequences, r.sequence), append(batch.AppendLengths, int32(len(part)))
		tokens = append(tokens, part...)
	}
	step, err := cache.Begin(ctx, batch)
	if err != nil {
		return err
	}
	defer step.Close() // aborts unless ended
	hidden, err := m.Forward(ctx, step, tokens)
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
	var complete []*request
	var ends []int32
	for i, r := range rows {
		r.cached += int(batch.AppendLengths[i])
		if r.cached == len(r.tokens) && r.prompt > 0 {
			complete = append(complete, r)
			ends = append(ends, last[i])
		}
	}
	for i, token := range m.Predict(m.Rows(hidden, ends...)) {
		complete[i].tokens = append(complete[i].tokens, token)
	}
	return nil
}

// demo reads the system prompt, forks it for every user, decodes them to their ends and prints what came of it.
func (m decoder) demo(newTokens int, tier string) error {
	system, users, capacity := m.requests(newTokens)
	if m.File.Err() != nil {
		return m.File.Err()
	}
	cache, err := m.cache(capacity, 1+len(users), tier)
	defer cache.Close()
	if err != nil {
		return err
	}
	ctx := context.Background()
	found, err := m.read(ctx, cache, system, tier)
	if err != nil {
		return err
	}
	if tier != "" {
		n := len(system.tokens)
		fmt.Printf("tier: %d of %d tokens of the system prompt loaded, %d computed\n", found, n, n-found)
	}
	times := []time.Time{time.Now()}
	sequences, err := cache.Fork(slices.Repeat([]kvcache.Seq{system.sequence}, len(users))...)
	if err != nil {
		return err
	}
	for i, r := range users {
		r.sequence = sequences[i]
	}
	stop, active := m.File.IDs("stop_ids"), slices.Clone(users)
	for len(active) > 0 {
		if err := m.step(ctx, cache, active); err != nil {
			return err
		}
		active = slices.DeleteFunc(active, func(r *request) bool {
			output := r.tokens[r.prompt:]
			return len(output) == newTokens || len(output) > 0 && slices.Contains(stop, output[len(output)-1])
		})
		times = append(times, time.Now())
	}
	return m.report(cache, system, users, times)
}

// requests are the system prompt and its users, and the capacity that suffices for them.
func (m decoder) requests(newTokens int) (system *request, users []*request, capacity int) {
	roundUp := func(n int) int { return (n + pageSize - 1) / pageSize * pageSize }
	system = &request{tokens: m.File.IDs("prompts.system")}
	capacity = roundUp(len(system.tokens)) + pageSize
	for i := range m.File.Integer("users") {
		prompt := slices.Concat(system.tokens, m.File.IDs(fmt.Sprintf("prompts.user.%d", i)))
		for _, id := range prompt {
			if id < 0 || int(id) >= m.Vocabulary {
				m.File.Fail("token %d of prompt %d is not in the vocabulary", id, i)
			}
		}
		users = append(users, &request{tokens: prompt, cached: len(system.tokens), prompt: len(prompt)})
		capacity += roundUp(len(prompt) + newTokens)
	}
	return system, users, capacity
}

// report prints the lines of ../README.md. times: when the users were forked, and after each step.
func (m decoder) report(cache *kvcache.Cache, system *request, users []*request, times []time.Time) error {
	sequences, tokens := []kvcache.Seq{system.sequence}, 0
	for i, r := range users {
		prompt, output := r.tokens[len(system.tokens):r.prompt], r.tokens[r.prompt:]
		sequences, tokens = append(sequences, r.sequence), tokens+len(output)
		fmt.Printf("prompt %d: %s\nids %d: %s\ntext %d: %s\n", i+1, m.text(prompt), i+1,
			strings.Trim(fmt.Sprint(output), "[]"), i+1, m.text(output))
	}
	saved, err := savedBytes(cache, sequences)
	if err != nil {
		return err
	}
	fmt.Printf("sharing: %d bytes saved (%d forks of a system prompt of %d tokens)\n", saved, len(users), len(system.tokens))
	steps := len(times) - 1
	seconds := times[steps].Sub(times[0]).Seconds()
	fmt.Printf("speed: %.1f tokens/s (%d tokens of %d users in %.2f s)\n", float64(tokens)/seconds, tokens, len(users), seconds)
	if steps > 1 { // the first one read the prompts
		calls, err := secondsOfCalls(m.Layers(), len(users))
		if err != nil {
			return err
		}
		step := times[steps].Sub(times[1]).Seconds() / float64(steps-1)
		fmt.Printf("binding: at most %.3f %% of a decode step (its calls over tiny heads take %.3f ms, the step %.1f ms)\n",
			100*calls/step, 1e3*calls, 1e3*step)
	}
	return nil
}

// text is the tokens' pieces as one line.
func (m decoder) text(tokens []int32) string {
	var text []byte
	for _, token := range tokens {
		text = append(text, m.Piece(token)...)
	}
	return strings.Trim(strings.ReplaceAll(string(text), "\n", " "), " ")
}

// savedBytes is what the sequences would hold in addition if each had its own copy of every page.
func savedBytes(cache *kvcache.Cache, sequences []kvcache.Seq) (saved int64, err error) {
	for _, group := range []int{model.Sliding, model.Full} {
		stats, err := cache.Stats(group)
		if err != nil {
			return 0, err
		}
		var entries []int32
		for _, sequence := range sequences {
			pages, err := cache.Pages(sequence, group)
			if err != nil {
				return 0, err
			}
			entries = append(entries, pages...)
		}
		slices.Sort(entries)
		entries = slices.DeleteFunc(entries, func(page int32) bool { return page < 0 }) // freed: it left the window
		all := len(entries)
		saved += int64(all-len(slices.Compact(entries))) * (stats.StorageBytes / stats.PagesTotal)
	}
	return saved, nil
}

// secondsOfCalls is what a decode step's calls take over heads so small that attention costs next to nothing: an upper bound
// of what the binding takes, since the library's own time is in it.
func secondsOfCalls(layers, rows int) (float64, error) {
	const dim, steps = 16, 200
	ctx := context.Background()
	config := kvcache.Config{MaxSequences: rows, CapacityTokens: int64(rows * 2 * steps)}
	config.Layers = slices.Repeat([]kvcache.Layer{{QHeads: 1, KVHeads: 1, HeadDim: dim}}, layers)
	cache, err := kvcache.New(config)
	if err != nil {
		return 0, err
	}
	defer cache.Close()
	sequences, err := cache.AddMany(rows)
	if err != nil {
		return 0, err
	}
	batch := kvcache.Batch{Sequences: sequences, AppendLengths: slices.Repeat([]int32{1}, rows)}
	q := kvcache.F32(make([]float32, rows*dim), rows, 1, dim)
	args := kvcache.Attend{Q: q, K: q, V: q, Out: kvcache.F32(make([]float32, rows*dim), rows, 1, dim)}
	var started time.Time
	for i := range steps + 1 {
		if i == 1 { // the first one warms up
			started = time.Now()
		}
		step, err := cache.Begin(ctx, batch)
		for layer := 0; err == nil && layer < layers; layer++ {
			err = step.Attend(ctx, layer, args)
		}
		if err == nil {
			_, err = step.LastRows()
		}
		if err == nil {
			err = step.End()
		}
		if err != nil {
			return 0, err // Cache.Close aborts the step
		}
	}
	return time.Since(started).Seconds() / steps, nil
}
