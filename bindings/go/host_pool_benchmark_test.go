package kvcache

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"
)

// One attend of a decode step on two threads: the library's, goroutines, and one thread for comparison. The steps alternate, so
// that all of them meet the same load of the machine. Medians, in microseconds.
func BenchmarkHostPool(b *testing.B) {
	const tokens, layers = 1024, 8
	pools := []struct {
		name   string
		config ContextConfig
	}{
		{"library", ContextConfig{Threads: 2}},
		{"goroutines", ContextConfig{Threads: 2, ParallelFor: OnGoroutines}},
		{"one-thread", ContextConfig{Threads: 1}},
	}
	for _, rows := range []int{1, 8} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			r, steps := rand.New(rand.NewSource(1)), []func() time.Duration(nil)
			for _, pool := range pools {
				context := must(NewContext(pool.config))(b)
				defer context.Close()
				cache := newCache(b, func(c *Config) {
					c.Context, c.PageSize, c.CapacityTokens, c.MaxBatchTokens = context, 16, int64(2*rows*tokens), tokens
					c.Layers = slices.Repeat([]Layer{{QHeads: 8, KVHeads: 2, HeadDim: 64}}, layers)
				})
				steps = append(steps, decodeSteps(b, r, cache, rows, tokens, layers))
			}
			times := make([][]float64, len(steps))
			for b.Loop() {
				for i, step := range steps {
					times[i] = append(times[i], float64(step().Nanoseconds())/1e3/layers)
				}
			}
			for i, pool := range pools {
				slices.Sort(times[i])
				b.ReportMetric(times[i][len(times[i])/2], pool.name+"-us")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// decodeSteps fills a cache with sequences, and returns a decode step of all of them that gives the time of its attends.
func decodeSteps(b *testing.B, r *rand.Rand, cache *Cache, rows, tokens, layers int) func() time.Duration {
	random := func(n, heads int) Tensor {
		values := make([]float32, n*heads*64)
		for i := range values {
			values[i] = float32(r.NormFloat64())
		}
		return F32(values, n, heads, 64)
	}
	sequences := must(cache.AddMany(rows))(b)
	attend := func(n int) Attend {
		return Attend{Q: random(n, 8), K: random(n, 2), V: random(n, 2), Out: random(n, 8)}
	}
	prompt := attend(tokens)
	for _, sequence := range sequences {
		check(b, cache.Step(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{int32(tokens)}}, func(s *Step) error {
			for layer := range layers {
				check(b, s.Append(background, layer, Append{K: prompt.K, V: prompt.V}))
			}
			return nil
		}))
	}
	args := attend(rows)
	batch := Batch{Sequences: sequences, AppendLengths: slices.Repeat([]int32{1}, rows)}
	return func() time.Duration {
		s := must(cache.Begin(background, batch))(b)
		defer s.Close()
		begin := time.Now()
		for layer := range layers {
			check(b, s.Attend(background, layer, args))
		}
		return time.Since(begin)
	}
}
