package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The shape of the tiny model: two layer groups as Gemma has them, and weights that are drawn.
const (
	layers, embedding, qHeads, dim, wide, window, vocabulary = 7, 32, 4, 16, 48, 20, 61
	endToken                                                 = 59
)

// tinyModel writes a small random model in the format of ../../README.md. Token i is the letter number i after "A".
func tinyModel(t *testing.T) string {
	t.Helper()
	random := rand.New(rand.NewPCG(5, 7))
	var data []byte
	header := map[string]any{"__metadata__": map[string]string{"format": "kvcache-gemma-1", "layers": fmt.Sprint(layers),
		"embedding": fmt.Sprint(embedding), "q_heads": fmt.Sprint(qHeads), "kv_heads": "1", "head_dim": fmt.Sprint(dim),
		"window_tokens": fmt.Sprint(window), "full_attention_every": "6", "full_rope_theta": "1e6", "sliding_rope_theta": "1e4",
		"norm_epsilon": "1e-6", "attention_scale": "0.25", "embedding_scale": "5.5", "users": "0", "bos_id": "0",
		"fingerprint": strings.Repeat("5e", 32)}}
	add := func(name, dtype string, shape []int, bytes []byte) {
		header[name] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": []int{len(data), len(data) + len(bytes)}}
		data = append(data, bytes...)
	}
	weights := func(name string, scale float64, shape ...int) {
		var bytes []byte
		count := shape[0]
		if len(shape) == 2 {
			count, scale = shape[0]*shape[1], scale/math.Sqrt(float64(shape[1]))
		}
		for range count {
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(float32(random.NormFloat64()*scale)))
		}
		add(name+".weight", "F32", shape, bytes)
	}
	weights("token_embd", 1, vocabulary, embedding)
	weights("output_norm", 1, embedding)
	for i := range layers {
		block := fmt.Sprintf("blk.%d.", i)
		weights(block+"attn_qkv", 1, (qHeads+2)*dim, embedding)
		weights(block+"attn_output", 1, embedding, qHeads*dim)
		weights(block+"ffn_gate_up", 1, 2*wide, embedding)
		weights(block+"ffn_down", 1, embedding, wide)
		for name, scale := range map[string]float64{"attn_norm": 1, "post_attention_norm": 3, "ffn_norm": 1, "post_ffw_norm": 1} {
			weights(block+name, scale, embedding)
		}
		weights(block+"attn_q_norm", 3, dim)
		weights(block+"attn_k_norm", 3, dim)
	}
	var offsets, end []byte
	var pieces string
	for i := range vocabulary {
		offsets = binary.LittleEndian.AppendUint32(offsets, uint32(len(pieces)))
		pieces += string(rune('A' + i))
	}
	offsets = binary.LittleEndian.AppendUint32(offsets, uint32(len(pieces)))
	end = binary.LittleEndian.AppendUint32(end, endToken)
	add("vocabulary.offsets", "I32", []int{vocabulary + 1}, offsets)
	add("stop_ids", "I32", []int{1}, end)
	add("vocabulary.bytes", "U8", []int{len(pieces)}, []byte(pieces))
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	for len(text)%64 != 56 {
		text = append(text, ' ')
	}
	path := filepath.Join(t.TempDir(), "tiny.safetensors")
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	if err := os.WriteFile(path, append(file, data...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
