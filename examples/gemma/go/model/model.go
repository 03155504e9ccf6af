// Package model is Gemma 3 over libkvcache: its file, its forward pass and its tokens. Keys, values and attention are the
// library's. ../../README.md has the format of the file.
//
// The inner loop of matrix products is gonum's (BSD-3-Clause): the most used of Go's numeric libraries, pure Go with
// assembly for such loops, so that this builds without a C compiler. A row's result has the same bits in every batch.
package model

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"gonum.org/v1/gonum/blas/blas32"
	"kvcache.dev/kvcache"
)

// Layer groups of the cache.
const (
	Sliding = 0
	Full    = 1
)

// matrix is rows of outputs, as the file has them.
type matrix struct {
	rows, columns int
	data          []float32
}

type layer struct {
	qkv, attentionOutput, gateUp, down                                 matrix
	beforeAttention, afterAttention, beforeFFN, afterFFN, qNorm, kNorm []float32
}

// Model is the weights and the vocabulary. It never changes, and any goroutine may use it.
type Model struct {
	File                                      *File
	Vocabulary                                int // token ids are below it
	embedding, qHeads, kvHeads, headDim, wide int
	epsilon, embeddingScale                   float32
	layers                                    []layer
	table                                     matrix // embeddings, and the output matrix
	outputNorm                                []float32
	pieces                                    []byte // UTF-8 of all tokens
	pieceOffsets                              []int32
}

// Open maps the file and checks that it has all of the model.
func Open(path string) (*Model, error) {
	file, err := openFile(path)
	if err != nil {
		return nil, err
	}
	m := &Model{File: file, embedding: file.Integer("embedding"), qHeads: file.Integer("q_heads"),
		kvHeads: file.Integer("kv_heads"), headDim: file.Integer("head_dim"), epsilon: float32(file.number("norm_epsilon")),
		embeddingScale: float32(file.number("embedding_scale"))}
	weights := func(name string, rows, columns int) matrix {
		data := file.floats(name+".weight", rows, columns)
		return matrix{len(data) / max(columns, 1), columns, data}
	}
	q, kv := m.qHeads*m.headDim, m.kvHeads*m.headDim
	m.table = weights("token_embd", 0, m.embedding)
	m.Vocabulary, m.outputNorm = m.table.rows, file.floats("output_norm.weight", m.embedding)
	for i := range file.Integer("layers") {
		block := func(name string) string { return fmt.Sprintf("blk.%d.%s", i, name) }
		norm := func(name string, width int) []float32 { return file.floats(block(name)+".weight", width) }
		gateUp := weights(block("ffn_gate_up"), 0, m.embedding)
		m.wide = gateUp.rows / 2
		m.layers = append(m.layers, layer{
			qkv: weights(block("attn_qkv"), q+2*kv, m.embedding), attentionOutput: weights(block("attn_output"), m.embedding, q),
			gateUp: gateUp, down: weights(block("ffn_down"), m.embedding, m.wide),
			beforeAttention: norm("attn_norm", m.embedding), afterAttention: norm("post_attention_norm", m.embedding),
			beforeFFN: norm("ffn_norm", m.embedding), afterFFN: norm("post_ffw_norm", m.embedding),
			qNorm: norm("attn_q_norm", m.headDim), kNorm: norm("attn_k_norm", m.headDim)})
	}
	m.pieceOffsets = array[int32](file, "I32", "vocabulary.offsets", m.Vocabulary+1)
	m.pieces = array[byte](file, "U8", "vocabulary.bytes", 0)
	if file.Err() != nil {
		return nil, fmt.Errorf("%s: %w", path, file.Err())
	}
	return m, nil
}

// Config has the model's layers: the full ones in one group, the sliding ones in another, keys rotated by the library. The
// caller adds capacities, and looks at File.Err.
func (m *Model) Config() kvcache.Config {
	f, every := m.File, max(1, m.File.Integer("full_attention_every"))
	layers := make([]kvcache.Layer, len(m.layers))
	for i := range layers {
		group, theta := Sliding, f.number("sliding_rope_theta")
		if i%every == every-1 {
			group, theta = Full, f.number("full_rope_theta")
		}
		layers[i] = kvcache.Layer{Group: group, QHeads: m.qHeads, KVHeads: m.kvHeads, HeadDim: m.headDim,
			Rope: kvcache.RopeOnAppend, RopeTheta: theta, SoftmaxScale: f.number("attention_scale")}
	}
	return kvcache.Config{Layers: layers,
		Groups: []kvcache.Group{Sliding: kvcache.Sliding(int64(f.Integer("window_tokens"))), Full: kvcache.Full()}}
}

// times is x [rows, columns] times the transposed matrix: [rows, outputs]. Each element is one dot product, whose bits do
// not depend on the other rows. Goroutines take tiles of outputs: a tile's weights stay in the core's own cache for all
// rows.
func (w matrix) times(x []float32) []float32 {
	const tile, small = 16, 1 << 18
	rows := len(x) / w.columns
	out := make([]float32, rows*w.rows)
	vector := func(data []float32, row int) blas32.Vector {
		return blas32.Vector{N: w.columns, Inc: 1, Data: data[row*w.columns:][:w.columns]}
	}
	var next atomic.Int64
	work := func() {
		for {
			begin := int(next.Add(tile)) - tile
			if begin >= w.rows {
				return
			}
			for row := range rows {
				for output := begin; output < min(begin+tile, w.rows); output++ {
					out[row*w.rows+output] = blas32.Dot(vector(x, row), vector(w.data, output))
				}
			}
		}
	}
	var others sync.WaitGroup
	if rows*len(w.data) >= small {
		for range runtime.GOMAXPROCS(0) - 1 {
			others.Go(work)
		}
	}
	work()
	others.Wait()
	return out
}

// normed is RMSNorm of each `width` elements from every `stride`th on, times the weights.
func (m *Model) normed(x []float32, stride, heads int, weight []float32) []float32 {
	width := len(weight)
	out := make([]float32, 0, len(x)/stride*heads*width)
	for row := 0; row < len(x); row += stride {
		for head := range heads {
			vector := x[row+head*width:][:width]
			sum := float32(0)
			for _, value := range vector {
				sum += value * value
			}
			scale := 1 / float32(math.Sqrt(float64(sum/float32(width)+m.epsilon)))
			for i, value := range vector {
				out = append(out, value*scale*weight[i])
			}
		}
	}
	return out
}

// gated is gelu(gate) * up, in its tanh form, of rows [gate | up].
func gated(gateUp []float32, wide int) []float32 {
	out := make([]float32, 0, len(gateUp)/2)
	for row := 0; row < len(gateUp); row += 2 * wide {
		for i, x := range gateUp[row:][:wide] {
			inner := math.Sqrt(2/math.Pi) * float64(x+0.044715*x*x*x)
			out = append(out, 0.5*x*(1+float32(math.Tanh(inner)))*gateUp[row+wide+i])
		}
	}
	return out
}

func sum(x, y []float32) { // into x
	for i := range x {
		x[i] += y[i]
	}
}

// Forward runs all layers over the step's tokens: [T, embedding].
func (m *Model) Forward(ctx context.Context, step *kvcache.Step, tokens []int32) ([]float32, error) {
	rows, q, kv := len(tokens), m.qHeads*m.headDim, m.kvHeads*m.headDim
	width := q + 2*kv // of a row of qkv
	x := make([]float32, 0, rows*m.embedding)
	for _, token := range tokens {
		for _, value := range m.table.data[int(token)*m.embedding:][:m.embedding] {
			x = append(x, value*m.embeddingScale)
		}
	}
	for i := range m.layers {
		l := &m.layers[i]
		qkv := l.qkv.times(m.normed(x, m.embedding, 1, l.beforeAttention))
		seen := make([]float32, rows*q)
		err := step.Attend(ctx, i, kvcache.Attend{
			Q:   kvcache.F32(m.normed(qkv, width, m.qHeads, l.qNorm), rows, m.qHeads, m.headDim),
			K:   kvcache.F32(m.normed(qkv[q:], width, m.kvHeads, l.kNorm), rows, m.kvHeads, m.headDim),
			V:   kvcache.F32(qkv[q+kv:], rows, m.kvHeads, m.headDim).WithStrides(width, m.headDim, 1), // in place
			Out: kvcache.F32(seen, rows, m.qHeads, m.headDim)})
		if err != nil {
			return nil, err
		}
		sum(x, m.normed(l.attentionOutput.times(seen), m.embedding, 1, l.afterAttention))
		inner := gated(l.gateUp.times(m.normed(x, m.embedding, 1, l.beforeFFN)), m.wide)
		sum(x, m.normed(l.down.times(inner), m.embedding, 1, l.afterFFN))
	}
	return x, nil
}

// Predict is the most likely next token after each row of what Forward returns.
func (m *Model) Predict(hidden []float32) []int32 {
	if len(hidden) == 0 {
		return nil
	}
	logits := m.table.times(m.normed(hidden, m.embedding, 1, m.outputNorm))
	var tokens []int32
	for row := range slices.Chunk(logits, m.Vocabulary) {
		tokens = append(tokens, int32(slices.Index(row, slices.Max(row))))
	}
	return tokens
}

// Rows are the given rows of what Forward returns, for Predict.
func (m *Model) Rows(hidden []float32, rows ...int32) (picked []float32) {
	for _, row := range rows {
		picked = append(picked, hidden[int(row)*m.embedding:][:m.embedding]...)
	}
	return picked
}

// Layers is how many layers the model has.
func (m *Model) Layers() int { return len(m.layers) }

// Piece is what a token adds to a text: bytes of UTF-8, perhaps a part of a character.
func (m *Model) Piece(token int32) []byte {
	return m.pieces[m.pieceOffsets[token]:m.pieceOffsets[token+1]]
}
