// Package model is a stand-in for a model, without weights: two layers, and tokens that are the bytes of a text.
//
// Every number is a hash of a token, so the programs in all five languages compute the same.
package model

import (
	"context"

	"kvcache.dev/kvcache"
)

const (
	Layers  = 2
	QHeads  = 2
	KVHeads = 1
	HeadDim = 16
	Width   = QHeads * HeadDim // numbers of a token between two layers
	Window  = 32               // keys that a query of the first layer sees

	// The groups: layers that see the same keys share page tables.
	Sliding = 0
	Full    = 1
)

// Config starts the config of a cache for this model: layers and groups. The program adds the capacity.
func Config() kvcache.Config {
	layer := func(group int) kvcache.Layer {
		return kvcache.Layer{Group: group, QHeads: QHeads, KVHeads: KVHeads, HeadDim: HeadDim, Rope: kvcache.RopeOnAppend}
	}
	return kvcache.Config{
		Layers: []kvcache.Layer{layer(Sliding), layer(Full)},
		Groups: []kvcache.Group{kvcache.Sliding(Window), kvcache.Full()},
	}
}

// Encode gives the tokens of a text.
func Encode(text string) []int32 {
	tokens := make([]int32, len(text))
	for i := range text {
		tokens[i] = int32(text[i])
	}
	return tokens
}

// Decode gives the text of tokens.
func Decode(tokens []int32) string {
	text := make([]byte, len(tokens))
	for i, token := range tokens {
		text[i] = byte(token)
	}
	return string(text)
}

func number(token int32, i int) float32 {
	x := (uint32(token)*Width + uint32(i) + 1) * 2654435761
	x ^= x >> 15
	x *= 2246822519
	return (float32(x>>24) - 128) / 64
}

// Embed gives each token a vector of Width numbers from -2 to 2.
func Embed(tokens []int32) []float32 {
	hidden := make([]float32, 0, len(tokens)*Width)
	for _, token := range tokens {
		for i := range Width {
			hidden = append(hidden, number(token, i))
		}
	}
	return hidden
}

// Project gives q, k and v of a layer. A real model multiplies by weights here.
func Project(hidden []float32) (q, k, v []float32) {
	for row := 0; row < len(hidden); row += Width {
		k = append(k, hidden[row:row+HeadDim]...)
		v = append(v, hidden[row+HeadDim:row+Width]...)
	}
	return append(q, hidden...), k, v
}

// Add adds the output of attention to hidden.
func Add(hidden, out []float32) {
	for i := range hidden {
		hidden[i] += out[i]
	}
}

// Predict gives, for each row, the letter that comes next.
func Predict(hidden []float32) []int32 {
	next := make([]int32, len(hidden)/Width)
	for row := range next {
		best := -1e30
		for letter := int32('a'); letter <= 'z'; letter++ {
			score := 0.0
			for i, x := range hidden[row*Width : (row+1)*Width] {
				score += float64(x) * float64(number(256+letter, i))
			}
			if score > best {
				best, next[row] = score, letter
			}
		}
	}
	return next
}

// Run runs the layers in an open step. It gives, for each of the step's tokens, the one that comes next.
func Run(ctx context.Context, step *kvcache.Step, tokens []int32) ([]int32, error) {
	n := len(tokens)
	hidden, out := Embed(tokens), make([]float32, n*Width)
	for layer := range Layers {
		q, k, v := Project(hidden)
		err := step.Attend(ctx, layer, kvcache.Attend{Q: kvcache.F32(q, n, QHeads, HeadDim),
			K: kvcache.F32(k, n, KVHeads, HeadDim), V: kvcache.F32(v, n, KVHeads, HeadDim),
			Out: kvcache.F32(out, n, QHeads, HeadDim)})
		if err != nil {
			return nil, err
		}
		Add(hidden, out)
	}
	return Predict(hidden), nil
}
