package kvcache

import (
	"errors"
	"math/rand"
	"slices"
	"testing"
)

func TestPrefillAndDecode(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	cache := newCache(t)
	sequence := must(cache.Add())(t)
	var past history
	for _, n := range []int{9, 1, 1, 5, 1, 1, 1} { // prompts and single tokens, across pages of 4
		x := randomTokens(r, n)
		past = past.with(x)
		step(t, cache, sequence, x)
		near(t, "out", x.out, past.attention(x.q))
	}
	if length := must(cache.Length(sequence))(t); length != 19 {
		t.Error("length", length)
	}
	if pages := must(cache.Pages(sequence, 0))(t); len(pages) != 5 {
		t.Error("pages", pages)
	}
	if lengths := must(cache.Lengths(sequence, sequence))(t); !slices.Equal(lengths, []int64{19, 19}) {
		t.Error("lengths", lengths)
	}
}

func TestRaggedBatch(t *testing.T) {
	r := rand.New(rand.NewSource(2))
	cache := newCache(t)
	ids := must(cache.AddMany(3))(t)
	past := make([]history, 3)
	for _, lengths := range [][]int32{{7, 1, 3}, {1, 2, 1}, {1, 1, 1}} {
		total := int(lengths[0] + lengths[1] + lengths[2])
		x := randomTokens(r, total)
		s := must(cache.Begin(background, Batch{Sequences: ids, AppendLengths: lengths}))(t)
		positions, rows := must(s.Positions())(t), must(s.LastRows())(t)
		check(t, s.Attend(background, 0, x.attend()))
		check(t, s.End())
		begin := 0
		for i, n := range lengths {
			end := begin + int(n)
			if positions[begin] != int32(past[i].length()) || rows[i] != int32(end-1) {
				t.Errorf("row %d: position %d, last row %d", i, positions[begin], rows[i])
			}
			past[i] = past[i].with(tokens{k: x.k[begin*kvHeads*dim : end*kvHeads*dim], v: x.v[begin*kvHeads*dim : end*kvHeads*dim]})
			near(t, "row", x.out[begin*qHeads*dim:end*qHeads*dim], past[i].attention(x.q[begin*qHeads*dim:end*qHeads*dim]))
			begin = end
		}
	}
}

func TestForkAndTruncate(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	cache := newCache(t)
	parent := must(cache.Add())(t)
	prompt := randomTokens(r, 10)
	step(t, cache, parent, prompt)
	past := history{}.with(prompt)

	children := must(cache.Fork(parent, parent))(t)
	early := must(cache.ForkAt([]Seq{parent}, []int64{6}))(t)[0]
	if stats := must(cache.Stats(WholeCache))(t); stats.Sequences != 4 || stats.PagesShared == 0 || stats.TokensLogical != 36 {
		t.Errorf("%+v", stats)
	}
	for i, child := range append(children, early) { // each goes on alone
		own := past
		if i == 2 {
			own = past.cut(6)
		}
		x := randomTokens(r, 2)
		step(t, cache, child, x)
		near(t, "child", x.out, own.with(x).attention(x.q))
	}
	check(t, cache.Truncate([]Seq{parent}, []int64{3}))
	x := randomTokens(r, 1)
	step(t, cache, parent, x)
	near(t, "truncated", x.out, past.cut(3).with(x).attention(x.q))

	ids := []Seq{parent, early, children[0], children[1]}
	used := must(cache.Stats(0))(t).PagesUsed
	for i, pages := range must(cache.ExclusivePages(0, ids...))(t) {
		if pages < 1 || pages > used {
			t.Errorf("sequence %d of %d pages in use has %d of its own", i, used, pages)
		}
	}
	alone := must(cache.ExclusivePages(0, early))(t)[0]
	check(t, cache.Remove(early))
	if now := must(cache.Stats(0))(t).PagesUsed; now != used-alone {
		t.Errorf("%d pages in use, expected %d - %d", now, used, alone)
	}
	check(t, cache.Remove(parent))
	if before, after, err := cache.NearestPosition(children[0], 5); before != 5 || after != 5 || err != nil {
		t.Error(before, after, err)
	}
	check(t, cache.Clear())
	if stats := must(cache.Stats(0))(t); stats.PagesUsed != 0 || stats.Sequences != 0 {
		t.Errorf("%+v", stats)
	}
}

func TestOutOfPages(t *testing.T) {
	cache := newCache(t, func(c *Config) { c.CapacityTokens = 16 })
	ids := must(cache.AddMany(3))(t)
	before := must(cache.Digest())(t)
	batch := Batch{Sequences: ids, AppendLengths: []int32{8, 5, 4}}
	_, err := cache.Begin(background, batch)
	var full *OutOfPages
	if !errors.As(err, &full) || full.Row != 2 || full.Required != 5 || full.Available != 4 || full.Missing() != 1 {
		t.Fatalf("%+v", err)
	}
	refused(t, err, ErrOutOfPages)
	if !IsCapacity(err) || IsCapacity(nil) || IsCapacity(cache.Remove(Seq(1))) {
		t.Error("IsCapacity")
	}
	refused(t, cache.CanFit(batch), ErrOutOfPages)
	if after := must(cache.Digest())(t); before != after {
		t.Error("a refused step has changed something")
	}
	batch.AppendLengths[2] = 0
	batch = Batch{Sequences: ids[:2], AppendLengths: []int32{8, 5}}
	check(t, cache.CanFit(batch))
	if most := must(cache.MaxAppend(ids...))(t); !slices.Equal(most, []int64{16, 16, 16}) {
		t.Error(most)
	}
	check(t, must(cache.Begin(background, batch))(t).Close())
	if after := must(cache.Digest())(t); before != after {
		t.Error("a closed step has left something")
	}
}

func TestTreesAndCommit(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	cache := newCache(t)
	sequence := must(cache.Add())(t)
	prompt, nodes := randomTokens(r, 3), randomTokens(r, 3)
	step(t, cache, sequence, prompt)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{3},
		TreeParents: []int32{TreeRoot, 0, 0}}))(t)
	check(t, s.Attend(background, 0, nodes.attend()))
	check(t, s.End())
	if count := must(cache.TreeNodes(sequence))(t); count[0] != 3 {
		t.Error(count)
	}
	_, err := cache.Fork(sequence)
	refused(t, err, ErrUncommitted)
	check(t, cache.Commit([]Seq{sequence}, []int32{2})) // the path 0, 2
	path := history{}.with(prompt)
	for _, node := range []int{0, 2} {
		path = path.with(tokens{k: nodes.k[node*kvHeads*dim : (node+1)*kvHeads*dim], v: nodes.v[node*kvHeads*dim : (node+1)*kvHeads*dim]})
	}
	near(t, "leaf", nodes.out[2*qHeads*dim:], path.attention(nodes.q[2*qHeads*dim:]))
	x := randomTokens(r, 1)
	step(t, cache, sequence, x)
	near(t, "after commit", x.out, path.with(x).attention(x.q))
}

func TestStreamingWindow(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	cache := newCache(t, func(c *Config) { c.Streaming, c.MaxTreeNodes = true, 1 })
	ids := must(cache.AddMany(2))(t)
	check(t, cache.SetStreaming(Window{Sinks: 4, Window: 12}, false, ids[0]))
	if windows := must(cache.Streaming(ids...))(t); windows[0] != (Window{4, 12}) || windows[1] != (Window{}) {
		t.Error(windows)
	}
	var past history
	for i := range 60 {
		x := randomTokens(r, 1)
		past = past.with(x)
		step(t, cache, ids[0], x)
		seen := past // without rope: keys of the sinks and of the window
		if n := past.length(); n > 12 {
			sinks, row := past.cut(4), kvHeads*dim
			seen = sinks.with(tokens{k: past.k[(n-8)*row:], v: past.v[(n-8)*row:]})
		}
		near(t, "streaming", x.out, seen.attention(x.q))
		if pages := must(cache.Stats(0))(t).PagesUsed; pages > 6 {
			t.Fatalf("%d pages after %d tokens", pages, i)
		}
	}
	refused(t, cache.SetStreaming(Window{Sinks: 4, Window: 4}, false, ids[1]), ErrInvalidArgument)
}

func TestSlidingGroup(t *testing.T) {
	r := rand.New(rand.NewSource(6))
	cache := newCache(t, func(c *Config) {
		c.Layers = append(c.Layers, c.Layers[0])
		c.Layers[1].Group = 1
		c.Groups = []Group{Full(), Sliding(4)}
		c.NoRollback = true
	})
	sequence := must(cache.Add())(t)
	var past history
	for range 20 {
		x := randomTokens(r, 1)
		past = past.with(x)
		s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}}))(t)
		check(t, s.Attend(background, 0, x.attend()))
		near(t, "full", x.out, past.attention(x.q))
		check(t, s.Attend(background, 1, x.attend()))
		n, row := past.length(), kvHeads*dim
		begin := max(0, n-4) * row
		near(t, "sliding", x.out, history{past.k[begin:], past.v[begin:]}.attention(x.q))
		check(t, s.End())
	}
	if pages := must(cache.Pages(sequence, 1))(t); len(pages) != 5 || pages[0] != -1 || pages[4] < 0 {
		t.Error(pages)
	}
	refused(t, cache.Truncate([]Seq{sequence}, []int64{2}), ErrEvicted)
	before, after, err := cache.NearestPosition(sequence, 2)
	if err != nil || before != 0 || after <= 2 {
		t.Error(before, after, err)
	}
}

func TestRecurrentStates(t *testing.T) {
	cache := newCache(t, func(c *Config) {
		c.Layers = append(c.Layers, Layer{Group: 1, States: []State{{Shape: []int{2, 3}}, {DType: BFloat16, Shape: []int{4}}}})
		c.Groups = []Group{Full(), Recurrent()}
		c.MaxCheckpoints = 2
	})
	sequence := must(cache.Add())(t)
	r := rand.New(rand.NewSource(7))
	advance := func(sequence Seq, want float32) {
		t.Helper()
		s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}}))(t)
		defer s.Close()
		check(t, s.Attend(background, 0, randomTokens(r, 1).attend()))
		state, other := make([]float32, 6), make([]uint16, 4)
		check(t, s.LoadState(1, 0, F32(state, 1, 2, 3)))
		check(t, s.LoadState(1, 1, BF16(other, 1, 4)))
		if state[5] != want {
			t.Errorf("state %v instead of %v", state[5], want)
		}
		state[5]++
		check(t, s.StoreState(1, 0, F32(state, 1, 2, 3)))
		refused(t, s.End(), ErrOrder) // the other state is missing
		check(t, s.StoreState(1, 1, BF16(other, 1, 4)))
		refused(t, s.StoreState(1, 2, BF16(other, 1, 4)), ErrOutOfRange)
		refused(t, s.LoadState(1, 0, BF16(other, 1, 4)), ErrDType)
		check(t, s.End())
	}
	advance(sequence, 0)
	check(t, cache.Checkpoint(sequence))
	advance(sequence, 1)
	advance(sequence, 2)
	check(t, cache.Truncate([]Seq{sequence}, []int64{1}))
	advance(sequence, 1)
	advance(must(cache.Fork(sequence))(t)[0], 2)
	advance(sequence, 2)
	refused(t, cache.Truncate([]Seq{sequence}, []int64{2}), ErrEvicted)
}

func TestEncoderSequences(t *testing.T) {
	r := rand.New(rand.NewSource(8))
	cache := newCache(t, func(c *Config) {
		c.Layers = append(c.Layers, c.Layers[0])
		c.Layers[1].Group = 1
		c.Groups = []Group{Full(), Cross()}
	})
	sequence := must(cache.Add())(t)
	frames := randomTokens(r, 7)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{7}, EncoderGroup: Index(1)}))(t)
	check(t, s.Append(background, 1, Append{K: frames.attend().K, V: frames.attend().V}))
	check(t, s.End())
	if lengths := must(cache.EncoderLengths(1, sequence))(t); lengths[0] != 7 {
		t.Error(lengths)
	}
	_, err := cache.EncoderLengths(0, sequence)
	refused(t, err, ErrInvalidArgument)
	x := randomTokens(r, 1)
	s = must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}}))(t)
	check(t, s.Attend(background, 0, x.attend()))
	check(t, s.Attend(background, 1, Attend{Q: x.attend().Q, Out: x.attend().Out}))
	check(t, s.End())
	near(t, "cross", x.out, history{frames.k, frames.v}.attention(x.q))
}

func TestRopeSets(t *testing.T) {
	factors := make([]float64, dim/2)
	for i := range factors {
		factors[i] = float64(i + 1)
	}
	cache := newCache(t, func(c *Config) {
		c.Layers[0].Rope = RopeOnAppend
		c.Layers[0].RopeScaling = &RopeScaling{Kind: RopeLongrope, OriginalMaxPosition: 32, ShortFactors: factors, LongFactors: factors}
	})
	sequence := must(cache.Add())(t)
	check(t, cache.SetRope(RopeSetLong, sequence))
	refused(t, cache.SetRope(RopeSet(7), sequence), ErrInvalidArgument)
	step(t, cache, sequence, randomTokens(rand.New(rand.NewSource(9)), 1))
	refused(t, cache.SetRope(RopeSetShort, sequence), ErrOrder)
	plain := newCache(t)
	refused(t, plain.SetRope(RopeSetLong, must(plain.Add())(t)), ErrUnsupported)
}
