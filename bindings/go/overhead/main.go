// What Go adds to a call: nanoseconds, the fastest of several rounds, beside those of C if they are given.
//
//	bash scripts/benchmark.sh overhead
//	go run ./overhead [NAME [C's length, C's attend]]
//
// The calls and their sizes are those of benchmarks/call_overhead.c.
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	"kvcache.dev/kvcache"
)

const layers, heads, dim, calls, rounds, steps = 512, 4, 64, 10_000, 50, 200

func main() {
	name, c := "go", []float64{0, 0}
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	for i := range min(len(c), max(0, len(os.Args)-2)) {
		c[i], _ = strconv.ParseFloat(os.Args[2+i], 64)
	}
	compute, err := kvcache.NewContext(kvcache.ContextConfig{Threads: 1})
	check(err)
	defer compute.Close()
	cache, err := kvcache.New(kvcache.Config{Context: compute, CapacityTokens: 256,
		Layers: slices.Repeat([]kvcache.Layer{{QHeads: heads, KVHeads: 1, HeadDim: dim}}, layers)})
	check(err)
	defer cache.Close()
	sequence, err := cache.Add()
	check(err)
	for i, measured := range []struct {
		what string
		ns   float64
	}{{"length of one sequence", length(cache, sequence)}, {"attend of one decode row", attend(cache, sequence)}} {
		fmt.Printf("%-8s %-26s %8.1f", name, measured.what, measured.ns)
		if c[i] > 0 {
			fmt.Printf(" %8.1f %8.1f", c[i], measured.ns-c[i])
		}
		fmt.Println()
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func length(cache *kvcache.Cache, sequence kvcache.Seq) float64 {
	fastest := math.Inf(1)
	for range rounds {
		begin := time.Now()
		for range calls {
			_, err := cache.Length(sequence)
			check(err)
		}
		fastest = min(fastest, float64(time.Since(begin).Nanoseconds())/calls)
	}
	return fastest
}

// attend makes its tensors anew for each layer.
func attend(cache *kvcache.Cache, sequence kvcache.Seq) float64 {
	ctx := context.Background()
	q, k, v, out := make([]float32, heads*dim), make([]float32, dim), make([]float32, dim), make([]float32, heads*dim)
	batch := kvcache.Batch{Sequences: []kvcache.Seq{sequence}, AppendLengths: []int32{1}}
	fastest := math.Inf(1)
	for range steps {
		step, err := cache.Begin(ctx, batch)
		check(err)
		begin := time.Now()
		for layer := range layers {
			check(step.Attend(ctx, layer, kvcache.Attend{Q: kvcache.F32(q, 1, heads, dim), K: kvcache.F32(k, 1, 1, dim),
				V: kvcache.F32(v, 1, 1, dim), Out: kvcache.F32(out, 1, heads, dim)}))
		}
		fastest = min(fastest, float64(time.Since(begin).Nanoseconds())/layers)
		check(step.Abort())
	}
	return fastest
}
