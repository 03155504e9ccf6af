package kvcache_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

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

// Calls that are recorded once, with the first step, and replayed in every later one.
func ExampleGraph() {
	ctx := context.Background()
	cache, err := kvcache.New(kvcache.Config{Layers: []kvcache.Layer{{QHeads: 1, KVHeads: 1, HeadDim: 8}}, CapacityTokens: 256})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	const rows = 4 // decodes that many sequences or fewer
	graph, err := cache.NewGraph(kvcache.GraphConfig{MaxSequences: rows, MaxTokens: rows})
	if err != nil {
		log.Fatal(err)
	}
	defer graph.Close()
	tensor := func() kvcache.Tensor { return kvcache.F32(make([]float32, rows*8), rows, 1, 8) }
	args := kvcache.Attend{Q: tensor(), K: tensor(), V: tensor(), Out: tensor()}
	var replay func() error
	sequences, err := cache.AddMany(rows)
	if err != nil {
		log.Fatal(err)
	}
	for running := rows; running > 0; running-- { // one sequence after the other is done
		step, err := graph.Begin(ctx, kvcache.Batch{Sequences: sequences[:running], AppendLengths: []int32{1, 1, 1, 1}[:running]})
		if err != nil {
			log.Fatal(err)
		}
		defer step.Close()
		if replay == nil {
			replay = func() error { return step.Attend(nil, 0, args) } // from now on in whichever step is open
		}
		if err := replay(); err != nil {
			log.Fatal(err)
		}
		if err := step.End(); err != nil {
			log.Fatal(err)
		}
	}
	lengths, _ := cache.Lengths(sequences...)
	fmt.Println(lengths, errors.Is(replay(), kvcache.ErrStale))
	// Output: [4 3 2 1] true
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

// An engine with an allocator and a cache of its own: a plan makes the tables of each step, a stateless call attends.
func ExampleContext_FlashAttnWithKVCache() {
	const heads, dim, page = 2, 16, 4
	compute, err := kvcache.NewContext(kvcache.ContextConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer compute.Close()
	plan, err := kvcache.NewPlan(kvcache.PlanConfig{Context: compute, Mode: kvcache.PlanDecode, PageSize: page})
	if err != nil {
		log.Fatal(err)
	}
	defer plan.Close()

	kCache, vCache := make([]float32, 8*page*heads*dim), make([]float32, 8*page*heads*dim) // 8 pages
	pages := []int32{5, 2, 7, 0}                                                           // of two sequences
	lengths := []int32{6, 3}
	if _, err := plan.Build(kvcache.PlanStep{SeqLens: kvcache.I32(lengths), BlockTable: kvcache.I32(pages, 2, 2)}); err != nil {
		log.Fatal(err)
	}
	tables, err := plan.Tables(0, kvcache.TablesWhole) // valid until the next Build
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tables.SlotMapping, tables.Positions, tables.CacheSeqlens)

	q, k, v, out := make([]float32, 2*heads*dim), make([]float32, 2*heads*dim), make([]float32, 2*heads*dim), make([]float32, 2*heads*dim)
	rows := func(s []float32) kvcache.Tensor { return kvcache.F32(s, 2, heads, dim) }
	pool := func(s []float32) kvcache.Tensor { return kvcache.F32(s, 8, page, heads, dim) }
	err = compute.AppendSlots(kvcache.AppendSlots{K: rows(k), V: rows(v), KCache: pool(kCache), VCache: pool(vCache),
		SlotMapping: kvcache.I64(tables.SlotMapping)})
	if err != nil {
		log.Fatal(err)
	}
	err = compute.FlashAttnWithKVCache(kvcache.FlashAttn{Q: rows(q), Out: rows(out), KCache: pool(kCache), VCache: pool(vCache),
		CacheSeqlens: kvcache.I32(tables.CacheSeqlens), CuSeqlensQ: kvcache.I32(tables.CuSeqlensQ),
		BlockTable: kvcache.I32(tables.BlockTable, tables.Rows, tables.MaxPages).WithStrides(tables.BlockTableStride, 1),
		Causal:     tables.Causal})
	if err != nil {
		log.Fatal(err)
	}
	// Output: [10 31] [6 3] [7 4]
}

// Page ids and tables for an engine with pools and kernels of its own: it makes the copies that a fork needs.
func ExampleCache_TakeCopies() {
	cache, err := kvcache.New(kvcache.Config{Layers: []kvcache.Layer{{QHeads: 1, KVHeads: 1, HeadDim: 8}}, PageSize: 4,
		CapacityTokens: 64, Storage: kvcache.StorageNone})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	parent, _ := cache.Add()
	step, err := cache.Begin(context.Background(), kvcache.Batch{Sequences: []kvcache.Seq{parent}, AppendLengths: []int32{6}})
	if err != nil {
		log.Fatal(err)
	}
	defer step.Close()
	tables, err := step.Tables(0, kvcache.TablesOptions{Arrays: kvcache.TablesDense | kvcache.TablesTokens})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(tables.Row(0), tables.SlotMapping) // what the engine's kernels store by, and attend over
	if err := step.End(); err != nil {
		log.Fatal(err)
	}
	if _, err := cache.Fork(parent); err != nil {
		log.Fatal(err)
	}
	copies, err := cache.TakeCopies()
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range copies {
		fmt.Println("copy", c.Count, "tokens from slot", c.SourceSlot, "to", c.TargetSlot)
	}
	// Output:
	// [0 1] [0 1 2 3 4 5]
	// copy 2 tokens from slot 4 to 8
}

// Pages in the program's own slice, which its kernels may read too.
func ExampleConfig_adoptedPools() {
	const pages, heads, page, dim = 8, 1, 4, 8
	pool := make([]float32, pages*2*heads*page*dim)
	layer := kvcache.Layer{QHeads: 1, KVHeads: heads, HeadDim: dim, KVStorage: kvcache.F32(pool, pages, 2, heads, page, dim)}
	cache, err := kvcache.New(kvcache.Config{Layers: []kvcache.Layer{layer}, PageSize: page, CapacityPages: pages})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	sequence, _ := cache.Add()
	ones := kvcache.F32([]float32{1, 1, 1, 1, 1, 1, 1, 1}, 1, 1, dim)
	if err := cache.Import(sequence, kvcache.Import{K: []kvcache.Tensor{ones}, V: []kvcache.Tensor{ones}}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool[:dim]) // K of token 0 in page 0
	// Output: [1 1 1 1 1 1 1 1]
}

// The loop of an engine that remembers what it computed: a prompt that begins like an earlier one computes the rest alone.
func ExampleCache_AttachPrefix() {
	ctx := context.Background()
	cache, err := kvcache.New(kvcache.Config{Layers: []kvcache.Layer{{QHeads: 1, KVHeads: 1, HeadDim: 8}}, PageSize: 4,
		CapacityTokens: 64, PrefixIndex: true})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()
	compute := func(sequence kvcache.Seq, tokens []int32) error { // a step of the model
		n := len(tokens)
		step, err := cache.Begin(ctx, kvcache.Batch{Sequences: []kvcache.Seq{sequence}, AppendLengths: []int32{int32(n)}})
		if err != nil {
			return err
		}
		defer step.Close()
		rows := func() kvcache.Tensor { return kvcache.F32(make([]float32, n*8), n, 1, 8) }
		if err := step.Attend(ctx, 0, kvcache.Attend{Q: rows(), K: rows(), V: rows(), Out: rows()}); err != nil {
			return err
		}
		return step.End()
	}
	serve := func(tokens []int32) error {
		query := kvcache.PrefixQuery{Tokens: tokens}
		sequence, hit, err := cache.AttachPrefix(query)
		if err != nil {
			return err
		}
		defer cache.Remove(sequence) // the pages stay, until they are needed
		fmt.Println("found", hit.Tokens, "of", len(tokens))
		if err := compute(sequence, tokens[hit.Tokens:]); err != nil { // at least one token: its logits are needed
			return err
		}
		if _, err := cache.PublishPrefix(sequence, query, kvcache.PrefixOptions{}); err != nil { // others find the prompt now
			return err
		}
		query.Tokens = append(query.Tokens, 9) // the answer
		if err := compute(sequence, []int32{9}); err != nil {
			return err
		}
		_, err = cache.PublishPrefix(sequence, query, kvcache.PrefixOptions{}) // the next request begins with it
		return err
	}
	for _, prompt := range [][]int32{{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 7, 8}, {1, 2, 3, 4, 5, 6, 9, 1}} {
		if err := serve(prompt); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// found 0 of 6
	// found 4 of 6
	// found 7 of 8
}

// A prompt is computed by one cache, and found by the next one, as after a restart of the process.
func ExampleCache_LoadPrefix() {
	ctx := context.Background()
	folder, err := os.MkdirTemp("", "tier")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	prompt := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	serve := func() error {
		cache, err := kvcache.New(kvcache.Config{Layers: []kvcache.Layer{{QHeads: 1, KVHeads: 1, HeadDim: 8}}, PageSize: 4,
			CapacityTokens: 64, PrefixIndex: true, Fingerprint: &[32]byte{7}}) // the fingerprint names the weights
		if err != nil {
			return err
		}
		defer cache.Close()
		if err := cache.AddDiskTier(folder, kvcache.DiskTierOptions{}); err != nil {
			return err
		}
		query := kvcache.PrefixQuery{Tokens: prompt}
		job, _, err := cache.LoadPrefix(query, kvcache.LoadOptions{})
		if err != nil {
			return err
		}
		if _, err := job.Wait(ctx); err != nil { // or Poll between the steps of other sequences
			return err
		}
		sequence, hit, err := cache.AttachPrefix(query)
		if err != nil {
			return err
		}
		fmt.Println("found", hit.Tokens, "of", len(prompt))
		n := len(prompt) - int(hit.Tokens)
		step, err := cache.Begin(ctx, kvcache.Batch{Sequences: []kvcache.Seq{sequence}, AppendLengths: []int32{int32(n)}})
		if err != nil {
			return err
		}
		defer step.Close()
		rows := func() kvcache.Tensor { return kvcache.F32(make([]float32, n*8), n, 1, 8) }
		if err := step.Attend(ctx, 0, kvcache.Attend{Q: rows(), K: rows(), V: rows(), Out: rows()}); err != nil {
			return err
		}
		if err := step.End(); err != nil {
			return err
		}
		if _, err := cache.PublishPrefix(sequence, query, kvcache.PrefixOptions{}); err != nil { // which stores it
			return err
		}
		for { // before the end of the process, so that nothing is lost
			traffic, err := cache.TierTraffic()
			if err != nil || traffic.PagesWaiting == 0 {
				return err
			}
			time.Sleep(time.Millisecond)
		}
	}
	for range 2 {
		if err := serve(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// found 0 of 10
	// found 8 of 10
}
