package kvcache

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const goldenMessages = "../messages/go.txt"

var ids = regexp.MustCompile(`\d{13,}`) // differ from run to run

// mistakes collects the message of each mistake.
type mistakes struct {
	t    *testing.T
	text strings.Builder
}

func (m *mistakes) add(mistake string, err error) {
	m.t.Helper()
	if err == nil {
		m.t.Fatalf("%s: no error", mistake)
	}
	fmt.Fprintf(&m.text, "%s\n    %s\n", mistake, ids.ReplaceAllString(err.Error(), "ID"))
}

func ignored[T any](_ T, err error) error { return err }

// The messages of the mistakes that newcomers make. tests/api/messages_test.cc makes the same ones in C.
func TestMessagesOfCommonMistakes(t *testing.T) {
	m := &mistakes{t: t}
	cache := newCache(t, func(c *Config) {
		layer := Layer{QHeads: 4, KVHeads: 1, HeadDim: 16}
		*c = Config{Layers: []Layer{layer, layer}, PageSize: 4, MaxSequences: 4, MaxBatchTokens: 64, CapacityTokens: 32}
	})
	sequences := [2]Seq{must(cache.Add())(t), must(cache.Add())(t)}
	begin := func(sequence Seq, tokens int32) (*Step, error) {
		return cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{tokens}})
	}
	attend := Attend{Q: F32(make([]float32, 3*4*16), 3, 4, 16), K: F32(make([]float32, 3*16), 3, 1, 16),
		V: F32(make([]float32, 3*16), 3, 1, 16), Out: F32(make([]float32, 3*4*16), 3, 4, 16)}
	step := must(begin(sequences[0], 3))(t)
	m.tensors(step, attend)
	m.steps(cache, sequences, step, attend, begin)

	m.add("tokens beyond the end are exported", ignored(cache.Export(sequences[0], Export{End: 9})))
	m.add("a sequence is truncated beyond its end", cache.Truncate([]Seq{sequences[0]}, []int64{9}))
	m.add("a group does not exist", ignored(cache.Stats(3)))
	m.add("a tier is added without a prefix index", cache.AddDiskTier("tier", DiskTierOptions{}))
	_, _, err := cache.LoadPrefix(PrefixQuery{Tokens: []int32{1}}, LoadOptions{})
	m.add("a prefix is loaded without a tier", err)
	m.configs()
	check(t, cache.Close())
	m.add("a closed cache is used", ignored(cache.Add()))

	if os.Getenv("KVC_UPDATE_MESSAGES") != "" {
		check(t, os.WriteFile(goldenMessages, []byte(m.text.String()), 0o644))
	}
	if golden, _ := os.ReadFile(goldenMessages); string(golden) != m.text.String() {
		t.Errorf("%s differs (KVC_UPDATE_MESSAGES=1 writes it). The messages are now:\n%s", goldenMessages, m.text.String())
	}
}

func (m *mistakes) tensors(step *Step, attend Attend) {
	with := func(mistake string, change func(*Attend)) {
		args := attend
		change(&args)
		m.add(mistake, step.Attend(nil, 1, args))
	}
	with("k has the wrong number of heads", func(a *Attend) { a.K = F32(make([]float32, 3*2*16), 3, 2, 16) })
	with("q has no dimension of heads", func(a *Attend) { a.Q = F32(make([]float32, 3*64), 3, 64) })
	with("q has too few tokens", func(a *Attend) { a.Q = F32(make([]float32, 2*64), 2, 4, 16) })
	with("q has elements of a wrong type", func(a *Attend) { a.Q = I32(make([]int32, 3*64), 3, 4, 16) })
	with("out has the wrong head dim", func(a *Attend) { a.Out = F32(make([]float32, 3*4*8), 3, 4, 8) })
	with("v is left out", func(a *Attend) { a.V = Tensor{} })
	with("a layer attends before its k and v are stored", func(a *Attend) { a.K, a.V = Tensor{}, Tensor{} })
	m.add("a layer does not exist", step.Attend(nil, 7, attend))
	with("a slice is shorter than its tensor", func(a *Attend) { a.Q = F32(make([]float32, 100), 3, 4, 16) })
}

func (m *mistakes) steps(cache *Cache, sequences [2]Seq, step *Step, attend Attend, begin func(Seq, int32) (*Step, error)) {
	check(m.t, step.Attend(nil, 0, attend))
	m.add("a layer attends twice", step.Attend(nil, 0, attend))
	m.add("a step ends before every layer has its tokens", step.End())
	check(m.t, step.Attend(nil, 1, attend))
	check(m.t, step.End())
	m.add("a step is used after its end", step.Attend(nil, 0, attend))
	step = must(begin(sequences[0], 3))(m.t)
	m.add("a sequence of an open step is truncated", cache.Truncate([]Seq{sequences[0]}, []int64{0}))
	second := must(begin(sequences[1], 1))(m.t)
	third := must(cache.Add())(m.t)
	m.add("a third step begins", ignored(begin(third, 1)))
	check(m.t, second.Close())
	check(m.t, step.Cancel())
	m.add("a cancelled step ends", step.End())
	check(m.t, step.Close())
	check(m.t, cache.Remove(third))
	m.add("a removed sequence is used", ignored(begin(third, 1)))
	twice := Batch{Sequences: []Seq{sequences[0], sequences[0]}, AppendLengths: []int32{1, 1}}
	m.add("a sequence occurs twice", ignored(cache.Begin(background, twice)))
	twice.AppendLengths = twice.AppendLengths[:1]
	m.add("a row has no length", ignored(cache.Begin(background, twice)))
	m.add("a step has no new tokens", ignored(begin(sequences[0], 0)))
	m.add("a step needs more pages than there are", ignored(begin(sequences[0], 40)))
	m.add("a step is larger than max_batch_tokens", ignored(begin(sequences[0], 65)))
}

func (m *mistakes) configs() {
	with := func(mistake string, change func(*Config)) {
		layer := Layer{QHeads: 4, KVHeads: 1, HeadDim: 16}
		config := Config{Layers: []Layer{layer, layer}, CapacityTokens: 32}
		change(&config)
		m.add(mistake, ignored(New(config)))
	}
	with("q heads are no multiple of kv heads", func(c *Config) { c.Layers[1].KVHeads = 3 })
	with("a layer's group does not exist", func(c *Config) { c.Layers[1].Group = 2 })
	with("a cache has no capacity", func(c *Config) { c.CapacityTokens = 0 })
	with("the head dim is forgotten", func(c *Config) { c.Layers[1].HeadDim = 0 })
	with("kv_layer names a later layer", func(c *Config) { c.Layers[0].KVLayer = Index(1) })
}
