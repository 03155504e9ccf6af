// One sequence: read a prompt, then decode one token after another.
package main

import (
	"context"
	"fmt"
	"log"

	"kvcache.dev/examples/guide/model"
	"kvcache.dev/kvcache"
)

// forward appends tokens to a sequence, and gives the token that comes next.
func forward(ctx context.Context, cache *kvcache.Cache, sequence kvcache.Seq, tokens []int32) (int32, error) {
	n := len(tokens)
	hidden, out := model.Embed(tokens), make([]float32, n*model.Width)
	batch := kvcache.Batch{Sequences: []kvcache.Seq{sequence}, AppendLengths: []int32{int32(n)}}
	// It reserves the pages, or changes nothing. The new tokens stay when the function returns nil, and go after an error.
	err := cache.Step(ctx, batch, func(step *kvcache.Step) error {
		for layer := range model.Layers {
			q, k, v := model.Project(hidden)
			// Stores k and v, then attends to everything stored.
			err := step.Attend(ctx, layer, kvcache.Attend{
				Q:   kvcache.F32(q, n, model.QHeads, model.HeadDim),
				K:   kvcache.F32(k, n, model.KVHeads, model.HeadDim),
				V:   kvcache.F32(v, n, model.KVHeads, model.HeadDim),
				Out: kvcache.F32(out, n, model.QHeads, model.HeadDim),
			})
			if err != nil {
				return err
			}
			model.Add(hidden, out)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return model.Predict(hidden)[n-1], nil
}

func show(cache *kvcache.Cache, sequence kvcache.Seq) error {
	length, err := cache.Length(sequence)
	if err != nil {
		return err
	}
	var live [2]int
	for group := range live {
		pages, err := cache.Pages(sequence, group)
		if err != nil {
			return err
		}
		for _, page := range pages {
			if page >= 0 { // -1: the page has left the window
				live[group]++
			}
		}
	}
	fmt.Printf("%d tokens in %d pages of the sliding layer and %d of the full layer\n", length, live[model.Sliding],
		live[model.Full])
	return nil
}

func run(ctx context.Context) error {
	config := model.Config()
	config.CapacityTokens, config.Deterministic = 1024, true
	config.RollbackTokens = 8         // the window keeps 8 tokens more, so that 8 tokens can be taken back
	cache, err := kvcache.New(config) // all memory is reserved here
	if err != nil {
		return err
	}
	defer cache.Close()

	sequence, err := cache.Add()
	if err != nil {
		return err
	}
	prompt := model.Encode("Once upon a time there was a cache that kept what it had read.")
	token, err := forward(ctx, cache, sequence, prompt)
	if err != nil {
		return err
	}
	if err := show(cache, sequence); err != nil {
		return err
	}
	answer := []int32{token}
	for len(answer) < 40 {
		if token, err = forward(ctx, cache, sequence, []int32{token}); err != nil {
			return err
		}
		answer = append(answer, token)
	}
	if err := show(cache, sequence); err != nil {
		return err
	}
	fmt.Println("answer:", model.Decode(answer))
	if err := cache.Remove(sequence); err != nil {
		return err
	}
	stats, err := cache.Stats(kvcache.WholeCache)
	if err == nil {
		fmt.Println(stats.PagesUsed, "pages in use")
	}
	return err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}
