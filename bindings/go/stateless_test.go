package kvcache

import (
	"errors"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// ownCache is a paged cache of the caller's own, [pages, page size, kv heads, dim]: shuffled pages, NaN where nothing is stored.
type ownCache struct {
	k, v    []float32
	table   []int32 // [rows, columns]
	columns int
	past    []history // of each row
}

const ownPage = 4

func newOwnCache(r *rand.Rand, columns int, lengths ...int) *ownCache {
	o := &ownCache{columns: columns}
	for _, page := range r.Perm(len(lengths) * columns) {
		o.table = append(o.table, int32(page))
	}
	o.k = make([]float32, len(o.table)*ownPage*kvHeads*dim)
	for i := range o.k {
		o.k[i] = float32(math.NaN())
	}
	o.v = slices.Clone(o.k)
	for row, n := range lengths {
		x := randomTokens(r, n)
		o.past = append(o.past, history{}.with(x))
		for i := range n {
			copy(o.at(o.k, row, i), x.k[i*kvHeads*dim:][:kvHeads*dim])
			copy(o.at(o.v, row, i), x.v[i*kvHeads*dim:][:kvHeads*dim])
		}
	}
	return o
}

func (o *ownCache) slot(row, position int) int {
	return int(o.table[row*o.columns+position/ownPage])*ownPage + position%ownPage
}

func (o *ownCache) at(pool []float32, row, position int) []float32 {
	return pool[o.slot(row, position)*kvHeads*dim:][:kvHeads*dim]
}

func (o *ownCache) pool(p []float32) Tensor { return F32(p, len(o.table), ownPage, kvHeads, dim) }

func (o *ownCache) lengths() (lengths []int32) {
	for _, h := range o.past {
		lengths = append(lengths, int32(h.length()))
	}
	return lengths
}

func (o *ownCache) args(lengths []int32) FlashAttn {
	return FlashAttn{KCache: o.pool(o.k), VCache: o.pool(o.v), CacheSeqlens: I32(lengths),
		BlockTable: I32(o.table, len(o.past), o.columns)}
}

func newContext(t testing.TB) *Context {
	c := must(NewContext(ContextConfig{Threads: 1}))(t)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestFlashAttnAppendsAndAttends(t *testing.T) {
	all := func(p, j int) bool { return true }
	for name, c := range map[string]struct {
		change func(*FlashAttn)
		sees   func(p, j int) bool
	}{
		"all":      {func(*FlashAttn) {}, all},
		"causal":   {func(f *FlashAttn) { f.Causal = true }, func(p, j int) bool { return j <= p }},
		"left":     {func(f *FlashAttn) { f.Causal, f.Window = true, &FlashWindow{2, -1} }, func(p, j int) bool { return p-2 <= j && j <= p }},
		"right":    {func(f *FlashAttn) { f.Window = &FlashWindow{-1, 1} }, func(p, j int) bool { return j <= p+1 }},
		"both":     {func(f *FlashAttn) { f.Window = &FlashWindow{0, 0} }, func(p, j int) bool { return j == p }},
		"none":     {func(f *FlashAttn) { f.Window = &FlashWindow{-1, -1} }, all},
		"chunks":   {func(f *FlashAttn) { f.Causal, f.AttentionChunk = true, 3 }, func(p, j int) bool { return j <= p && j/3 == p/3 }},
		"splits":   {func(f *FlashAttn) { f.NumSplits = 3 }, all},
		"no table": {func(f *FlashAttn) { f.SoftmaxScale = 1 / math.Sqrt(dim) }, all},
	} {
		r := rand.New(rand.NewSource(1))
		own := newOwnCache(r, 5, 13, 1, 6)
		lengths, cu, newTokens := own.lengths(), []int32{0, 2, 3, 7}, []int{2, 1, 4}
		x := randomTokens(r, 7)
		lse := make([]float32, qHeads*7)
		args := own.args(lengths)
		args.Q, args.K, args.V, args.Out = x.attend().Q, x.attend().K, x.attend().V, x.attend().Out
		args.CuSeqlensQ, args.CuSeqlensKNew, args.SoftmaxLSE = I32(cu), I32(cu), F32(lse, qHeads, 7)
		c.change(&args)
		check(t, newContext(t).FlashAttnWithKVCache(args))
		for row, n := range newTokens {
			begin := int(cu[row])
			part := tokens{k: x.k[begin*kvHeads*dim:][:n*kvHeads*dim], v: x.v[begin*kvHeads*dim:][:n*kvHeads*dim]}
			out, wantLSE := own.past[row].with(part).attentionWhere(x.q[begin*qHeads*dim:][:n*qHeads*dim], c.sees)
			near(t, name, x.out[begin*qHeads*dim:][:n*qHeads*dim], out)
			for head := range qHeads {
				near(t, name+": lse", lse[head*7+begin:][:n], wantLSE[head*n:][:n])
			}
			for i := range n { // stored after what was there
				if at := own.at(own.k, row, own.past[row].length()+i); !slices.Equal(at, part.k[i*kvHeads*dim:][:kvHeads*dim]) {
					t.Errorf("%s: row %d: token %d is not stored", name, row, i)
				}
			}
		}
		if !slices.Equal(lengths, []int32{13, 1, 6}) {
			t.Error("lengths have changed:", lengths)
		}
	}
}

func TestFlashAttnOverDenseRows(t *testing.T) {
	r, c := rand.New(rand.NewSource(2)), newContext(t)
	k, q := randomTokens(r, 24), randomTokens(r, 2) // two rows of capacity 12, one query each
	dense := func(length int32) FlashAttn {
		return FlashAttn{Q: F32(q.q, 2, 1, qHeads, dim), KCache: F32(k.k, 2, 12, kvHeads, dim), VCache: F32(k.v, 2, 12, kvHeads, dim),
			CacheSeqlens: Scalar(length), Out: F32(q.out, 2, 1, qHeads, dim)}
	}
	row := func(i, length int) history {
		return history{k.k[i*12*kvHeads*dim:][:length*kvHeads*dim], k.v[i*12*kvHeads*dim:][:length*kvHeads*dim]}
	}
	check(t, c.FlashAttnWithKVCache(dense(9))) // one length for both
	near(t, "row 0", q.out[:qHeads*dim], row(0, 9).attention(q.q[:qHeads*dim]))
	near(t, "row 1", q.out[qHeads*dim:], row(1, 9).attention(q.q[qHeads*dim:]))
	once := slices.Clone(q.out)
	args := dense(9)
	args.SequsedK, args.CacheSeqlens = I32([]int32{9}, 2).WithStrides(0), Tensor{} // the same in other words
	check(t, c.FlashAttnWithKVCache(args))
	if !slices.Equal(q.out, once) {
		t.Error("one length by stride 0 is another than a scalar")
	}
	args = dense(9)
	args.CacheSeqlens = Scalar64(9)
	check(t, c.FlashAttnWithKVCache(args))
	if !slices.Equal(q.out, once) {
		t.Error("a length of 64 bits is another than one of 32")
	}
	args = dense(9)
	args.CacheSeqlens, args.CacheBatchIdx = Tensor{}, I32([]int32{1, 0})
	check(t, c.FlashAttnWithKVCache(args)) // the whole capacity, rows exchanged
	near(t, "row 0", q.out[:qHeads*dim], row(1, 12).attention(q.q[:qHeads*dim]))
	near(t, "row 1", q.out[qHeads*dim:], row(0, 12).attention(q.q[qHeads*dim:]))
	args = dense(9)
	args.CacheLeftpad = I32([]int32{4, 0})
	check(t, c.FlashAttnWithKVCache(args))
	padded := history{row(0, 9).k[4*kvHeads*dim:], row(0, 9).v[4*kvHeads*dim:]}
	near(t, "leftpad", q.out[:qHeads*dim], padded.attention(q.q[:qHeads*dim]))
}

func TestFloat8CachesOfMyOwn(t *testing.T) {
	c := newContext(t)
	for name, make8 := range map[string]func([]uint8, ...int) Tensor{"e4m3": F8E4, "e5m2": F8E5} {
		one, two := byte(0x38), byte(0x40) // 1 and 2
		if name == "e5m2" {
			one, two = 0x3c, 0x40
		}
		k, v := slices.Repeat([]uint8{one}, 6*dim), slices.Repeat([]uint8{two}, 6*dim)
		out := make([]float32, 2*dim)
		args := FlashAttn{Q: F32(make([]float32, 2*dim), 1, 1, 2, dim), KCache: make8(k, 1, 6, 1, dim), VCache: make8(v, 1, 6, 1, dim),
			Out: F32(out, 1, 1, 2, dim), KDescale: F32([]float32{3}, 1, 1), VDescale: F32([]float32{0.75}, 1, 1)}
		check(t, c.FlashAttnWithKVCache(args))
		if out[0] != 1.5 || out[2*dim-1] != 1.5 {
			t.Errorf("%s: %v", name, out)
		}
		if bytes := args.KCache.Uint8s(); len(bytes) != len(k) {
			t.Error(len(bytes))
		}
		check(t, c.AppendSlots(AppendSlots{K: F32(slices.Repeat([]float32{4}, dim), 1, 1, dim), V: F32(slices.Repeat([]float32{6}, dim), 1, 1, dim),
			KCache: make8(k, 2, 3, 1, dim), VCache: make8(v, 2, 3, 1, dim), SlotMapping: I32([]int32{4}),
			KScale: F32([]float32{2}), VScale: F32([]float32{6})}))
		if k[4*dim] != two || v[4*dim] != one || k[3*dim] != one || v[5*dim] != two {
			t.Errorf("%s: stored %x %x", name, k[4*dim], v[4*dim])
		}
	}
}

func TestRotaryOfMyOwnCache(t *testing.T) {
	c := newContext(t)
	x := []float32{1, 2, 3, 4}
	for interleaved, pairs := range map[bool][2][2]int{false: {{0, 2}, {1, 3}}, true: {{0, 1}, {2, 3}}} {
		cos, sin := []float32{9, 9, 0.5, 0.25}, []float32{9, 9, 2, 3} // [2 positions, 2 pairs]
		cache, v := make([]float32, 4), make([]float32, 4)
		check(t, c.AppendSlots(AppendSlots{K: F32(x, 1, 1, 4), V: F32(x, 1, 1, 4), KCache: F32(cache, 1, 1, 1, 4),
			VCache: F32(v, 1, 1, 1, 4), SlotMapping: I64([]int64{0}), RotaryCos: F32(cos, 2, 2), RotarySin: F32(sin, 2, 2),
			Positions: I64([]int64{1}), RotaryInterleaved: interleaved}))
		for i, pair := range pairs {
			a, b := x[pair[0]], x[pair[1]]
			if cache[pair[0]] != a*cos[2+i]-b*sin[2+i] || cache[pair[1]] != b*cos[2+i]+a*sin[2+i] {
				t.Errorf("interleaved %v: %v", interleaved, cache)
			}
		}
		appended := make([]float32, 8) // the same by the other call: position 1 is after one cached token
		out := make([]float32, 4)
		check(t, c.FlashAttnWithKVCache(FlashAttn{Q: F32(x, 1, 1, 1, 4), K: F32(x, 1, 1, 1, 4), V: F32(x, 1, 1, 1, 4),
			KCache: F32(appended, 1, 2, 1, 4), VCache: F32(make([]float32, 8), 1, 2, 1, 4), Out: F32(out, 1, 1, 1, 4),
			CacheSeqlens: I32([]int32{1}), RotaryCos: F32(cos, 2, 2), RotarySin: F32(sin, 2, 2), RotaryInterleaved: interleaved}))
		if !slices.Equal(appended[4:], cache) {
			t.Errorf("interleaved %v: %v and %v", interleaved, appended[4:], cache)
		}
	}
}

func TestAppendSlots(t *testing.T) {
	r, c := rand.New(rand.NewSource(3)), newContext(t)
	for name, mapping := range map[string]Tensor{"int32": I32([]int32{11, -1, 0}), "int64": I64([]int64{11, -5, 0})} {
		own, x := newOwnCache(r, 3, 0), randomTokens(r, 3)
		args := AppendSlots{K: x.attend().K, V: x.attend().V, KCache: own.pool(own.k), VCache: own.pool(own.v), SlotMapping: mapping}
		check(t, c.AppendSlots(args))
		row := kvHeads * dim
		for slot := range len(own.k) / row {
			got := own.v[slot*row:][:row]
			switch slot {
			case 11:
				near(t, name, got, float64s(x.v[:row]))
			case 0:
				near(t, name, got, float64s(x.v[2*row:]))
			default:
				if got[0] == got[0] {
					t.Errorf("%s: slot %d was written", name, slot)
				}
			}
		}
	}
}

func float64s(s []float32) (found []float64) {
	for _, x := range s {
		found = append(found, float64(x))
	}
	return found
}

func TestStatelessCallsThatAreWrong(t *testing.T) {
	r, c := rand.New(rand.NewSource(4)), newContext(t)
	own := newOwnCache(r, 3, 5, 7)
	before := slices.Clone(own.k)
	x := randomTokens(r, 2)
	for name, wrong := range map[string]struct {
		change func(*FlashAttn)
		status Status
		words  string
		index  int
	}{
		"no q":         {func(f *FlashAttn) { f.Q = Tensor{} }, ErrNullArgument, "Q", -1},
		"no out":       {func(f *FlashAttn) { f.Out = Tensor{} }, ErrNullArgument, "out", -1},
		"k alone":      {func(f *FlashAttn) { f.V = Tensor{} }, ErrNullArgument, "v", -1},
		"short cache":  {func(f *FlashAttn) { f.KCache = F32(own.k[1:], 6, ownPage, kvHeads, dim) }, ErrShape, "KCache: a tensor of shape", -1},
		"heads":        {func(f *FlashAttn) { f.Q = F32(x.q, 2, 1, 8, 8) }, ErrShape, "", -1},
		"dtype":        {func(f *FlashAttn) { f.CacheSeqlens = F32([]float32{5, 7}, 2) }, ErrDType, "CacheSeqlens", -1},
		"two lengths":  {func(f *FlashAttn) { f.SequsedK = f.CacheSeqlens }, ErrInvalidArgument, "", -1},
		"page id":      {func(f *FlashAttn) { f.BlockTable = I32([]int32{0, 1, 2, 0, 6, 1}, 2, 3) }, ErrOutOfRange, "6", 1},
		"length":       {func(f *FlashAttn) { f.CacheSeqlens = I32([]int32{5, -1}) }, ErrOutOfRange, "-1", 1},
		"no room":      {func(f *FlashAttn) { f.CacheSeqlens = I32([]int32{12, 7}) }, ErrBufferTooSmall, "", 0},
		"out is q":     {func(f *FlashAttn) { f.Out = f.Q }, ErrInvalidArgument, "out", -1},
		"window":       {func(f *FlashAttn) { f.Window = &FlashWindow{-2, 0} }, ErrOutOfRange, "Window.Left", -1},
		"large window": {func(f *FlashAttn) { f.Window = &FlashWindow{0, math.MinInt} }, ErrOutOfRange, "Window.Right", -1},
		"softcap":      {func(f *FlashAttn) { f.Softcap = math.NaN() }, ErrOutOfRange, "softcap", -1},
		"splits":       {func(f *FlashAttn) { f.NumSplits = -1 }, ErrOutOfRange, "NumSplits", -1},
		"rotary cos":   {func(f *FlashAttn) { f.RotaryCos = F32(make([]float32, 80), 10, 8) }, ErrNullArgument, "RotarySin", -1},
		"cu":           {func(f *FlashAttn) { f.CuSeqlensQ = I32([]int32{0, 2}) }, ErrRank, "", -1},
	} {
		args := own.args(own.lengths())
		args.Q, args.K, args.V = F32(x.q, 2, 1, qHeads, dim), F32(x.k, 2, 1, kvHeads, dim), F32(x.v, 2, 1, kvHeads, dim)
		args.Out = F32(x.out, 2, 1, qHeads, dim)
		wrong.change(&args)
		err := c.FlashAttnWithKVCache(args)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, wrong.status) || !strings.Contains(e.Message, wrong.words) || e.Index != wrong.index {
			t.Errorf("%s: %v: %+v", name, err, e)
		}
	}
	for name, wrong := range map[string]struct {
		change func(*AppendSlots)
		status Status
		index  int
	}{
		"no mapping":   {func(s *AppendSlots) { s.SlotMapping = Tensor{} }, ErrNullArgument, -1},
		"no k":         {func(s *AppendSlots) { s.K = Tensor{} }, ErrNullArgument, -1},
		"slot":         {func(s *AppendSlots) { s.SlotMapping = I32([]int32{0, 24}) }, ErrOutOfRange, 1},
		"mapping":      {func(s *AppendSlots) { s.SlotMapping = F32([]float32{0, 1}) }, ErrDType, -1},
		"few rows":     {func(s *AppendSlots) { s.SlotMapping = I32([]int32{0, 1, 2}) }, ErrShape, -1},
		"short cache":  {func(s *AppendSlots) { s.VCache = F32(own.v[1:], 6, ownPage, kvHeads, dim) }, ErrShape, -1},
		"no positions": {func(s *AppendSlots) { s.RotaryCos, s.RotarySin = F32(own.v, 96, 8), F32(own.v, 96, 8) }, ErrInvalidArgument, -1},
		"scale":        {func(s *AppendSlots) { s.KScale = F32([]float32{1}) }, ErrInvalidArgument, -1},
	} {
		args := AppendSlots{K: x.attend().K, V: x.attend().V, KCache: own.pool(own.k), VCache: own.pool(own.v), SlotMapping: I32([]int32{0, 1})}
		wrong.change(&args)
		err := c.AppendSlots(args)
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, wrong.status) || e.Index != wrong.index {
			t.Errorf("%s: %v: %+v", name, err, e)
		}
	}
	for i := range before {
		if math.Float32bits(before[i]) != math.Float32bits(own.k[i]) {
			t.Fatal("a refused call has written to the cache")
		}
	}
	check(t, c.FlashAttnWithKVCache(FlashAttn{Q: F32(x.q, 2, 1, qHeads, dim), KCache: own.pool(own.k), VCache: own.pool(own.v),
		CacheSeqlens: I32(own.lengths()), BlockTable: I32(own.table, 2, 3), Out: F32(x.out, 2, 1, qHeads, dim)})) // after all that
}
