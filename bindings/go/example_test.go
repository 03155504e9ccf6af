package kvcache_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"kvcache.dev/kvcache"
)

// A prompt that eight users share, and a step of all of them.
func Example() {
	ctx := context.Background()
	layers := []kvcache.Layer{{QHeads: 4, KVHeads: 1, HeadDim: 64, Rope: kvcache.RopeOnAppend}}
	cache, err := kvcache.New(kvcache.Config{Layers: layers, PageSize: 16, CapacityTokens: 4096})
	if err != nil {
		log.Fatal(err) // where it looked for libkvcache
	}
	defer cache.Close()

	step := func(sequences []kvcache.Seq, lengths []int32, tokens int) error {
		step, err := cache.Begin(ctx, kvcache.Batch{Sequences: sequences, AppendLengths: lengths})
		if err != nil {
			return err
		}
		defer step.Close() // aborts unless ended
		for layer := range layers {
			q, k, v, out := make([]float32, tokens*4*64), make([]float32, tokens*64), make([]float32, tokens*64), make([]float32, tokens*4*64)
			err := step.Attend(ctx, layer, kvcache.Attend{Q: kvcache.F32(q, tokens, 4, 64), K: kvcache.F32(k, tokens, 1, 64),
				V: kvcache.F32(v, tokens, 1, 64), Out: kvcache.F32(out, tokens, 4, 64)})
			if err != nil {
				return err
			}
		}
		return step.End()
	}
	system, err := cache.Add()
	if err != nil {
		log.Fatal(err)
	}
	if err := step([]kvcache.Seq{system}, []int32{100}, 100); err != nil {
		log.Fatal(err)
	}
	users, err := cache.Fork(system, system, system, system, system, system, system, system)
	if err != nil {
		log.Fatal(err)
	}
	if err := step(users, []int32{1, 1, 1, 1, 1, 1, 1, 1}, 8); err != nil {
		log.Fatal(err)
	}
	lengths, _ := cache.Lengths(system, users[0])
	stats, _ := cache.Stats(kvcache.WholeCache)
	fmt.Println(lengths, stats.PagesUsed, stats.PagesShared)
	// Output: [100 101] 15 6
}

// A step that does not fit changes nothing, and says what is missing.
func ExampleOutOfPages() {
	cache, err := kvcache.New(kvcache.Config{Layers: []kvcache.Layer{{QHeads: 1, KVHeads: 1, HeadDim: 8}}, CapacityTokens: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	sequences, err := cache.AddMany(2)
	if err != nil {
		log.Fatal(err)
	}
	_, err = cache.Begin(context.Background(), kvcache.Batch{Sequences: sequences, AppendLengths: []int32{40, 40}})
	var full *kvcache.OutOfPages
	if errors.As(err, &full) {
		fmt.Println("row", full.Row, "misses", full.Missing(), "of", full.Required, "pages")
	}
	// Output: row 1 misses 2 of 6 pages
}

// Drafts of a model are verified in one step; the accepted path is kept.
func ExampleCache_Commit() {
	ctx := context.Background()
	cache, err := kvcache.New(kvcache.Config{Layers: []kvcache.Layer{{QHeads: 1, KVHeads: 1, HeadDim: 8}}, CapacityTokens: 64})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	sequence, _ := cache.Add()
	step, err := cache.Begin(ctx, kvcache.Batch{Sequences: []kvcache.Seq{sequence}, AppendLengths: []int32{4},
		TreeParents: []int32{kvcache.TreeRoot, 0, 0, 2}})
	if err != nil {
		log.Fatal(err)
	}
	defer step.Close()
	rows := func() kvcache.Tensor { return kvcache.F32(make([]float32, 4*8), 4, 1, 8) }
	if err := step.Attend(ctx, 0, kvcache.Attend{Q: rows(), K: rows(), V: rows(), Out: rows()}); err != nil {
		log.Fatal(err)
	}
	if err := step.End(); err != nil {
		log.Fatal(err)
	}
	if err := cache.Commit([]kvcache.Seq{sequence}, []int32{3}); err != nil { // the path 0, 2, 3
		log.Fatal(err)
	}
	length, _ := cache.Length(sequence)
	fmt.Println(length)
	// Output: 3
}
