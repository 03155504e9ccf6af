// Gemma 3 270M over libkvcache: the demo's eight users share a forked system prompt and are decoded greedily, as one batch.
//
//	python examples/gemma/generate.py --export gemma.safetensors
//	cd examples/gemma/go && KVCACHE_LIBRARY=... go run . gemma.safetensors [most new tokens a user, default 24] [--tier DIRECTORY]
//
// Keys, values and attention are the library's. Matrix products are gonum's (BSD-3-Clause): the most used of Go's numeric
// libraries, pure Go with assembly for the inner loops, so that this builds without a C compiler and runs on all cores.
// Everything else is in this file. ../README.md has the format of the file and of the lines printed here.
package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"kvcache.dev/kvcache"
)

const (
	pageSize   = 16
	stepTokens = 256 // most tokens of one step: longer prompts take several
	sliding    = 0   // layer groups
	full       = 1
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gemma:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	newTokens, tier := 24, ""
	if n := len(arguments); n > 2 && arguments[n-2] == "--tier" {
		arguments, tier = arguments[:n-2], arguments[n-1]
	}
	if len(arguments) == 2 {
		newTokens, _ = strconv.Atoi(arguments[1]) // 0 if it is no number
	}
	if len(arguments) < 1 || len(arguments) > 2 || newTokens < 1 {
		return errors.New("usage: gemma FILE.safetensors [NEW_TOKENS] [--tier DIRECTORY]")
	}
	file, err := open(arguments[0])
	if err != nil {
		return err
	}
	m, err := newModel(file)
	if err != nil {
		return fmt.Errorf("%s: %w", arguments[0], err)
	}
	return m.demo(newTokens, tier)
}

// ---- The file

// A safetensors file, mapped. The first thing that it lacks is noted in err.
type tensors struct {
	entries  map[string]entry
	metadata map[string]string
	data     []byte
	err      error
}

type entry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

func open(path string) (*tensors, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	bytes, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be mapped: %w", path, err)
	}
	length := uint64(0)
	if len(bytes) >= 8 {
		length = binary.LittleEndian.Uint64(bytes)
	}
	if length == 0 || length > uint64(len(bytes)-8) || length%8 != 0 { // aligned data follow
		return nil, fmt.Errorf("%s is no safetensors file", path)
	}
	t := &tensors{data: bytes[8+length:]}
	header, metadata := bytes[8:8+length], struct {
		Texts map[string]string `json:"__metadata__"`
	}{}
	if err = json.Unmarshal(header, &metadata); err == nil {
		err = json.Unmarshal(header, &t.entries)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no safetensors file: %w", path, err)
	}
	t.metadata = metadata.Texts
	if format := t.metadata["format"]; format != "kvcache-gemma-1" {
		return nil, fmt.Errorf("%s is of format %q, not kvcache-gemma-1", path, format)
	}
	return t, nil
}

// array is the tensor of that name, in the file's memory; dims of 0 may be anything.
func array[T any](t *tensors, dtype, name string, dims ...int) []T {
	e, found := t.entries[name]
	count := 1
	for i, n := range e.Shape {
		count *= n
		found = found && i < len(dims) && (dims[i] == 0 || dims[i] == n)
	}
	size, begin, end := int(unsafe.Sizeof(*new(T))), e.Offsets[0], e.Offsets[1]
	if !found || len(e.Shape) != len(dims) || e.DType != dtype || count < 1 || begin < 0 || begin%size != 0 ||
		end > len(t.data) || end-begin != count*size {
		t.fail("no tensor %s of %s %v", name, dtype, dims)
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&t.data[begin])), count)
}

func (t *tensors) fail(format string, values ...any) {
	if t.err == nil {
		t.err = fmt.Errorf(format, values...)
	}
}

func (t *tensors) floats(name string, dims ...int) []float32 {
	return array[float32](t, "F32", name, dims...)
}
func (t *tensors) ids(name string) []int32 { return array[int32](t, "I32", name, 0) }

func (t *tensors) number(name string) float64 {
	value, err := strconv.ParseFloat(t.metadata[name], 64)
	if err != nil {
		t.fail("metadata %s is %q", name, t.metadata[name])
	}
	return value
}

func (t *tensors) integer(name string) int { return int(t.number(name)) }

// ---- The model

// matrix is rows of outputs, as the file has them.
type matrix struct {
	rows, columns int
	data          []float32
}

type layer struct {
	qkv, attentionOutput, gateUp, down                                 matrix
	beforeAttention, afterAttention, beforeFFN, afterFFN, qNorm, kNorm []float32
}

type model struct {
	file                                                  *tensors
	embedding, qHeads, kvHeads, headDim, vocabulary, wide int
	epsilon, embeddingScale                               float32
	layers                                                []layer
	table                                                 matrix // embeddings, and the output matrix
	outputNorm                                            []float32
	pieces                                                []byte // UTF-8 of all tokens
	pieceOffsets                                          []int32
}

func newModel(file *tensors) (*model, error) {
	m := &model{file: file, embedding: file.integer("embedding"), qHeads: file.integer("q_heads"),
		kvHeads: file.integer("kv_heads"), headDim: file.integer("head_dim"), epsilon: float32(file.number("norm_epsilon")),
		embeddingScale: float32(file.number("embedding_scale"))}
	weights := func(name string, rows, columns int) matrix {
		data := file.floats(name+".weight", rows, columns)
		return matrix{len(data) / max(columns, 1), columns, data}
	}
	q, kv := m.qHeads*m.headDim, m.kvHeads*m.headDim
	m.table = weights("token_embd", 0, m.embedding)
	m.vocabulary, m.outputNorm = m.table.rows, file.floats("output_norm.weight", m.embedding)
	for i := range file.integer("layers") {
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
	m.pieceOffsets = array[int32](file, "I32", "vocabulary.offsets", m.vocabulary+1)
	m.pieces = array[byte](file, "U8", "vocabulary.bytes", 0)
	return m, file.err
}

// times is x [rows, columns] times the transposed matrix: [rows, outputs].
func (w matrix) times(x []float32) []float32 {
	rows := len(x) / w.columns
	out := make([]float32, rows*w.rows)
	general := func(rows, columns int, data []float32) blas32.General {
		return blas32.General{Rows: rows, Cols: columns, Stride: columns, Data: data}
	}
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, general(rows, w.columns, x), general(w.rows, w.columns, w.data), 0,
		general(rows, w.rows, out))
	return out
}

// normed is RMSNorm of each `width` elements from every `stride`th on, times the weights.
func (m *model) normed(x []float32, stride, heads int, weight []float32) []float32 {
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

// forward runs all layers over the step's tokens: [T, embedding].
func (m *model) forward(ctx context.Context, step *kvcache.Step, tokens []int32) ([]float32, error) {
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

// ---- The engine

// cache is as engine.py makes it: full layers in one group, sliding ones in another, keys rotated by the library. With a tier, it
// keeps what is published in that folder, under the model's fingerprint.
func (m *model) cache(capacity, sequences int, tier string) (*kvcache.Cache, error) {
	f, every := m.file, max(1, m.file.integer("full_attention_every"))
	layers := make([]kvcache.Layer, len(m.layers))
	for i := range layers {
		group, theta := sliding, f.number("sliding_rope_theta")
		if i%every == every-1 {
			group, theta = full, f.number("full_rope_theta")
		}
		layers[i] = kvcache.Layer{Group: group, QHeads: m.qHeads, KVHeads: m.kvHeads, HeadDim: m.headDim,
			Rope: kvcache.RopeOnAppend, RopeTheta: theta, SoftmaxScale: f.number("attention_scale")}
	}
	groups := []kvcache.Group{sliding: kvcache.Sliding(int64(f.integer("window_tokens"))), full: kvcache.Full()}
	config := kvcache.Config{Layers: layers, Groups: groups, PageSize: pageSize, CapacityTokens: int64(capacity),
		MaxSequences: sequences, MaxBatchTokens: stepTokens}
	if tier != "" {
		name, _ := hex.DecodeString(f.metadata["fingerprint"])
		if len(name) != 32 {
			f.fail("metadata fingerprint is %q", f.metadata["fingerprint"])
			name = make([]byte, 32)
		}
		config.PrefixIndex, config.Fingerprint = true, (*[32]byte)(name)
	}
	if f.err != nil {
		return nil, f.err
	}
	cache, err := kvcache.New(config)
	if err == nil && tier != "" {
		err = cache.AddDiskTier(tier, kvcache.DiskTierOptions{})
	}
	return cache, err
}

// read reads the system prompt, and says how many of its tokens an earlier run had left in the tier, if there is one. When it
// returns, the tier has the prompt.
func (m *model) read(ctx context.Context, cache *kvcache.Cache, system *request, tier string) (found int, err error) {
	query := kvcache.PrefixQuery{Tokens: system.tokens, AllowAll: true}
	if tier == "" {
		system.sequence, err = cache.Add()
	} else {
		found, err = load(ctx, cache, query, system)
	}
	for err == nil && system.cached < len(system.tokens) {
		if err = m.step(ctx, cache, []*request{system}); err == nil && tier != "" {
			query.Tokens = system.tokens[:system.cached] // now: the sliding layers still have its pages
			_, err = cache.PublishPrefix(system.sequence, query, kvcache.PrefixOptions{})
		}
	}
	for waiting := tier != ""; err == nil && waiting; time.Sleep(time.Millisecond) {
		var traffic kvcache.TierTraffic
		traffic, err = cache.TierTraffic()
		waiting = traffic.PagesWaiting > 0
	}
	return found, err
}

func load(ctx context.Context, cache *kvcache.Cache, query kvcache.PrefixQuery, system *request) (int, error) {
	job, _, err := cache.LoadPrefix(query, kvcache.LoadOptions{})
	if err != nil {
		return 0, err
	}
	if _, err := job.Wait(ctx); err != nil {
		return 0, err
	}
	sequence, hit, err := cache.AttachPrefix(query)
	system.sequence, system.cached = sequence, int(hit.Tokens)
	return system.cached, err
}

// request is one user: its tokens, of which the cache holds the first `cached`.
type request struct {
	sequence kvcache.Seq
	tokens   []int32 // the prompt's, then those that were generated
	cached   int
	prompt   int // 0: it wants no next token
}

// step computes the tokens of the requests that the cache does not hold yet, at most stepTokens of them, decoding requests
// first, and adds the most likely next token to those that are complete.
func (m *model) step(ctx context.Context, cache *kvcache.Cache, active []*request) error {
	rows := slices.Clone(active)
	slices.SortStableFunc(rows, func(a, b *request) int { return len(a.tokens) - a.cached - (len(b.tokens) - b.cached) })
	var batch kvcache.Batch
	var tokens []int32
	for i, r := range rows {
		part := r.tokens[r.cached:]
		part = part[:min(len(part), stepTokens-len(tokens))]
		if len(part) == 0 {
			rows = rows[:i]
			break
		}
		batch.Sequences, batch.AppendLengths = append(batch.Sequences, r.sequence), append(batch.AppendLengths, int32(len(part)))
		tokens = append(tokens, part...)
	}
	step, err := cache.Begin(ctx, batch)
	if err != nil {
		return err
	}
	defer step.Close() // aborts unless ended
	hidden, err := m.forward(ctx, step, tokens)
	if err != nil {
		return err
	}
	last, err := step.LastRows()
	if err != nil {
		return err
	}
	if err := step.End(); err != nil {
		return err
	}
	var complete []*request
	var picked []float32
	for i, r := range rows {
		r.cached += int(batch.AppendLengths[i])
		if r.cached == len(r.tokens) && r.prompt > 0 {
			complete = append(complete, r)
			picked = append(picked, hidden[int(last[i])*m.embedding:][:m.embedding]...)
		}
	}
	if len(complete) == 0 {
		return nil
	}
	logits := m.table.times(m.normed(picked, m.embedding, 1, m.outputNorm))
	for i, r := range complete {
		row := logits[i*m.vocabulary:][:m.vocabulary]
		r.tokens = append(r.tokens, int32(slices.Index(row, slices.Max(row))))
	}
	return nil
}

// demo reads the system prompt, forks it for every user, decodes them to their ends and prints what came of it.
func (m *model) demo(newTokens int, tier string) error {
	system, users, capacity := m.requests(newTokens)
	if m.file.err != nil {
		return m.file.err
	}
	cache, err := m.cache(capacity, 1+len(users), tier)
	defer cache.Close()
	if err != nil {
		return err
	}
	ctx := context.Background()
	found, err := m.read(ctx, cache, system, tier)
	if err != nil {
		return err
	}
	if tier != "" {
		n := len(system.tokens)
		fmt.Printf("tier: %d of %d tokens of the system prompt loaded, %d computed\n", found, n, n-found)
	}
	times := []time.Time{time.Now()}
	sequences, err := cache.Fork(slices.Repeat([]kvcache.Seq{system.sequence}, len(users))...)
	if err != nil {
		return err
	}
	for i, r := range users {
		r.sequence = sequences[i]
	}
	stop, active := m.file.ids("stop_ids"), slices.Clone(users)
	for len(active) > 0 {
		if err := m.step(ctx, cache, active); err != nil {
			return err
		}
		active = slices.DeleteFunc(active, func(r *request) bool {
			output := r.tokens[r.prompt:]
			return len(output) == newTokens || len(output) > 0 && slices.Contains(stop, output[len(output)-1])
		})
		times = append(times, time.Now())
	}
	return m.report(cache, system, users, times)
}

// requests are the system prompt and its users, and the capacity that suffices for them.
func (m *model) requests(newTokens int) (system *request, users []*request, capacity int) {
	roundUp := func(n int) int { return (n + pageSize - 1) / pageSize * pageSize }
	system = &request{tokens: m.file.ids("prompts.system")}
	capacity = roundUp(len(system.tokens)) + pageSize
	for i := range m.file.integer("users") {
		prompt := slices.Concat(system.tokens, m.file.ids(fmt.Sprintf("prompts.user.%d", i)))
		for _, id := range prompt {
			if id < 0 || int(id) >= m.vocabulary {
				m.file.fail("token %d of prompt %d is not in the vocabulary", id, i)
			}
		}
		users = append(users, &request{tokens: prompt, cached: len(system.tokens), prompt: len(prompt)})
		capacity += roundUp(len(prompt) + newTokens)
	}
	return system, users, capacity
}

// report prints the lines of ../README.md. times: when the users were forked, and after each step.
func (m *model) report(cache *kvcache.Cache, system *request, users []*request, times []time.Time) error {
	sequences, tokens := []kvcache.Seq{system.sequence}, 0
	for i, r := range users {
		prompt, output := r.tokens[len(system.tokens):r.prompt], r.tokens[r.prompt:]
		sequences, tokens = append(sequences, r.sequence), tokens+len(output)
		fmt.Printf("prompt %d: %s\nids %d: %s\ntext %d: %s\n", i+1, m.text(prompt), i+1,
			strings.Trim(fmt.Sprint(output), "[]"), i+1, m.text(output))
	}
	saved, err := savedBytes(cache, sequences)
	if err != nil {
		return err
	}
	fmt.Printf("sharing: %d bytes saved (%d forks of a system prompt of %d tokens)\n", saved, len(users), len(system.tokens))
	steps := len(times) - 1
	seconds := times[steps].Sub(times[0]).Seconds()
	fmt.Printf("speed: %.1f tokens/s (%d tokens of %d users in %.2f s)\n", float64(tokens)/seconds, tokens, len(users), seconds)
	if steps > 1 { // the first one read the prompts
		calls, err := secondsOfCalls(len(m.layers), len(users))
		if err != nil {
			return err
		}
		step := times[steps].Sub(times[1]).Seconds() / float64(steps-1)
		fmt.Printf("binding: at most %.3f %% of a decode step (its calls over tiny heads take %.3f ms, the step %.1f ms)\n",
			100*calls/step, 1e3*calls, 1e3*step)
	}
	return nil
}

// text is the tokens' pieces as one line.
func (m *model) text(tokens []int32) string {
	var text []byte
	for _, token := range tokens {
		text = append(text, m.pieces[m.pieceOffsets[token]:m.pieceOffsets[token+1]]...)
	}
	return strings.Trim(strings.ReplaceAll(string(text), "\n", " "), " ")
}

// savedBytes is what the sequences would hold in addition if each had its own copy of every page.
func savedBytes(cache *kvcache.Cache, sequences []kvcache.Seq) (saved int64, err error) {
	for _, group := range []int{sliding, full} {
		stats, err := cache.Stats(group)
		if err != nil {
			return 0, err
		}
		var entries []int32
		for _, sequence := range sequences {
			pages, err := cache.Pages(sequence, group)
			if err != nil {
				return 0, err
			}
			entries = append(entries, pages...)
		}
		slices.Sort(entries)
		entries = slices.DeleteFunc(entries, func(page int32) bool { return page < 0 }) // freed: it left the window
		all := len(entries)
		saved += int64(all-len(slices.Compact(entries))) * (stats.StorageBytes / stats.PagesTotal)
	}
	return saved, nil
}

// secondsOfCalls is what a decode step's calls take over heads so small that attention costs next to nothing: an upper bound
// of what the binding takes, since the library's own time is in it.
func secondsOfCalls(layers, rows int) (float64, error) {
	const dim, steps = 16, 200
	ctx := context.Background()
	config := kvcache.Config{MaxSequences: rows, CapacityTokens: int64(rows * 2 * steps)}
	config.Layers = slices.Repeat([]kvcache.Layer{{QHeads: 1, KVHeads: 1, HeadDim: dim}}, layers)
	cache, err := kvcache.New(config)
	if err != nil {
		return 0, err
	}
	defer cache.Close()
	sequences, err := cache.AddMany(rows)
	if err != nil {
		return 0, err
	}
	batch := kvcache.Batch{Sequences: sequences, AppendLengths: slices.Repeat([]int32{1}, rows)}
	q := kvcache.F32(make([]float32, rows*dim), rows, 1, dim)
	args := kvcache.Attend{Q: q, K: q, V: q, Out: kvcache.F32(make([]float32, rows*dim), rows, 1, dim)}
	var started time.Time
	for i := range steps + 1 {
		if i == 1 { // the first one warms up
			started = time.Now()
		}
		step, err := cache.Begin(ctx, batch)
		for layer := 0; err == nil && layer < layers; layer++ {
			err = step.Attend(ctx, layer, args)
		}
		if err == nil {
			_, err = step.LastRows()
		}
		if err == nil {
			err = step.End()
		}
		if err != nil {
			return 0, err // Cache.Close aborts the step
		}
	}
	return time.Since(started).Seconds() / steps, nil
}
