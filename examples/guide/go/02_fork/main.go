// A system prompt that is computed once, for three users.
package main

import (
	"context"
	"fmt"
	"log"

	"kvcache.dev/examples/guide/model"
	"kvcache.dev/kvcache"
)

const (
	system = "You are a terse assistant. Answer in one short word. "
	answer = 8 // tokens of an answer
)

var users = []struct{ name, question string }{
	{"Ada", "What is a page?"}, {"Bob", "What does a fork share, and what does it copy?"}, {"Cy", "Why?"}}

// forward appends tokens to a sequence, and gives the token that comes next.
func forward(ctx context.Context, cache *kvcache.Cache, sequence kvcache.Seq, tokens []int32) (int32, error) {
	n := len(tokens)
	batch := kvcache.Batch{Sequences: []kvcache.Seq{sequence}, AppendLengths: []int32{int32(n)}}
	var predicted []int32
	err := cache.Step(ctx, batch, func(step *kvcache.Step) (err error) {
		predicted, err = model.Run(ctx, step, tokens)
		return err
	})
	if err != nil {
		return 0, err
	}
	return predicted[n-1], nil
}

func show(cache *kvcache.Cache, what string) error {
	stats, err := cache.Stats(kvcache.WholeCache)
	if err == nil {
		fmt.Printf("%s: %d pages in use, %d of them shared, %d tokens in %d sequences\n", what, stats.PagesUsed,
			stats.PagesShared, stats.TokensLogical, stats.Sequences)
	}
	return err
}

func reply(ctx context.Context, cache *kvcache.Cache, sequence kvcache.Seq, name, question string) error {
	token, err := forward(ctx, cache, sequence, model.Encode(question))
	tokens := []int32{token}
	for err == nil && len(tokens) < answer {
		token, err = forward(ctx, cache, sequence, []int32{token})
		tokens = append(tokens, token)
	}
	if err == nil {
		fmt.Printf("%s: %s\n", name, model.Decode(tokens))
	}
	return err
}

func run(ctx context.Context) error {
	config := model.Config()
	config.CapacityTokens, config.RollbackTokens, config.Deterministic = 1024, 8, true
	cache, err := kvcache.New(config)
	if err != nil {
		return err
	}
	defer cache.Close()

	parent, err := cache.Add()
	if err != nil {
		return err
	}
	if _, err := forward(ctx, cache, parent, model.Encode(system)); err != nil {
		return err
	}
	if err := show(cache, "system prompt"); err != nil {
		return err
	}

	sequences, err := cache.Fork(parent, parent, parent) // whole pages are shared, and the last one is copied
	if err != nil {
		return err
	}
	if err := cache.Remove(parent); err != nil { // the users keep what they share
		return err
	}
	if err := show(cache, "three forks"); err != nil {
		return err
	}

	for i, user := range users {
		if err := reply(ctx, cache, sequences[i], user.name, user.question); err != nil {
			return err
		}
	}
	if err := show(cache, "three answers"); err != nil {
		return err
	}

	if err := cache.Remove(sequences...); err != nil {
		return err
	}
	return show(cache, "the end")
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
