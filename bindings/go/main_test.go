package kvcache

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"strings"
	"testing"
)

var background = context.Background()

// newCache makes a small cache and closes it at the end of the test.
func newCache(t testing.TB, change ...func(*Config)) *Cache {
	t.Helper()
	config := Config{Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16}}, PageSize: 4, CapacityTokens: 256}
	for _, edit := range change {
		edit(&config)
	}
	cache, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cache.CheckInvariants(); err != nil && !cache.handle.closed.Load() {
			t.Error(err)
		}
		cache.Close()
	})
	return cache
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks that err is one of the library's kind: its status, and words in its message.
func refused(t testing.TB, err error, status Status, words ...string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, status) {
		t.Errorf("%v instead of %v", err, status)
		return
	}
	for _, word := range words {
		if !strings.Contains(e.Message, word) {
			t.Errorf("%q does not say %q", e.Message, word)
		}
	}
	if e.Message == "" || e.Message == status.Error() {
		t.Errorf("%v has no message of its own", err)
	}
}

type tokens struct{ q, k, v, out []float32 }

const (
	qHeads, kvHeads, dim = 4, 2, 16 // of newCache's layers
)

func randomTokens(r *rand.Rand, n int) tokens {
	make := func(length int) []float32 {
		s := make([]float32, length)
		for i := range s {
			s[i] = float32(r.NormFloat64())
		}
		return s
	}
	return tokens{make(n * qHeads * dim), make(n * kvHeads * dim), make(n * kvHeads * dim), make(n * qHeads * dim)}
}

func (x tokens) attend() Attend {
	n := len(x.k) / (kvHeads * dim)
	return Attend{Q: F32(x.q, n, qHeads, dim), K: F32(x.k, n, kvHeads, dim), V: F32(x.v, n, kvHeads, dim),
		Out: F32(x.out, n, qHeads, dim)}
}

// step appends tokens to one sequence in one step of a cache with one layer.
func step(t testing.TB, cache *Cache, sequence Seq, x tokens) {
	t.Helper()
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{x.count()}}))(t)
	defer s.Close()
	check(t, s.Attend(background, 0, x.attend()))
	check(t, s.End())
}

func (x tokens) count() int32 { return int32(len(x.k) / (kvHeads * dim)) }

// history is what a sequence should hold: written from the definition, in float64.
type history struct{ k, v []float32 }

func (h history) with(x tokens) history {
	return history{append(append([]float32{}, h.k...), x.k...), append(append([]float32{}, h.v...), x.v...)}
}

func (h history) cut(n int) history { return history{h.k[:n*kvHeads*dim], h.v[:n*kvHeads*dim]} }

func (h history) length() int { return len(h.k) / (kvHeads * dim) }

// attention of the last tokens of h, causal.
func (h history) attention(q []float32) []float64 {
	out, _ := h.attentionWhere(q, func(p, j int) bool { return j <= p })
	return out
}

// attentionWhere is attention of the last tokens of h, each at position p, over the keys j that it sees. lse is [heads, rows].
func (h history) attentionWhere(q []float32, sees func(p, j int) bool) (out, lse []float64) {
	rows := len(q) / (qHeads * dim)
	out, lse = make([]float64, len(q)), make([]float64, qHeads*rows)
	for row := range rows {
		for head := range qHeads {
			query := q[(row*qHeads+head)*dim:][:dim]
			at := func(i int) int { return (i*kvHeads + head/(qHeads/kvHeads)) * dim }
			scores, largest := make([]float64, h.length()), math.Inf(-1)
			for i := range scores {
				for d := range dim {
					scores[i] += float64(query[d]) * float64(h.k[at(i)+d]) / math.Sqrt(dim)
				}
				if !sees(h.length()-rows+row, i) {
					scores[i] = math.Inf(-1)
				}
				largest = max(largest, scores[i])
			}
			sum := 0.0
			for i := range scores {
				scores[i] = math.Exp(scores[i] - largest)
				sum += scores[i]
			}
			lse[head*rows+row] = largest + math.Log(sum)
			for i := range scores {
				for d := range dim {
					out[(row*qHeads+head)*dim+d] += scores[i] / sum * float64(h.v[at(i)+d])
				}
			}
		}
	}
	return out, lse
}

func near(t testing.TB, what string, got []float32, want []float64) {
	t.Helper()
	within(t, what, got, want, 1e-4)
}

func within(t testing.TB, what string, got []float32, want []float64, most float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements instead of %d", what, len(got), len(want))
	}
	for i := range got {
		if math.Abs(float64(got[i])-want[i]) > most {
			t.Fatalf("%s: element %d is %v instead of %v", what, i, got[i], want[i])
		}
	}
}
