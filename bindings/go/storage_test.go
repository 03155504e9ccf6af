package kvcache

import (
	"math"
	"math/rand"
	"runtime"
	"slices"
	"testing"
)

const poolPages = 24 // of the caller's pools below

// pooled is a config of two layers with a few pages, for pools of the caller's.
func pooled(config *Config) {
	layer := Layer{QHeads: qHeads, KVHeads: kvHeads, HeadDim: dim}
	config.Layers, config.Groups, config.CapacityTokens = []Layer{layer, layer}, []Group{{Pages: poolPages}}, 0
}

// outputs of steps, a fork and a truncate.
func outputs(t *testing.T, cache *Cache) (found []float32) {
	r := rand.New(rand.NewSource(5))
	step := func(sequences []Seq, lengths ...int32) {
		n := int32(0)
		for _, length := range lengths {
			n += length
		}
		s := must(cache.Begin(background, Batch{Sequences: sequences, AppendLengths: lengths}))(t)
		defer s.Close()
		for layer := range 2 {
			x := randomTokens(r, int(n))
			check(t, s.Attend(background, layer, x.attend()))
			found = append(found, x.out...)
		}
		check(t, s.End())
	}
	ids := must(cache.AddMany(2))(t)
	step(ids, 10, 3)
	child := must(cache.ForkAt(ids[:1], []int64{7}))(t)[0]
	step([]Seq{child, ids[0], ids[1]}, 1, 1, 2)
	check(t, cache.Truncate(ids[:1], []int64{5}))
	step([]Seq{ids[0], child}, 2, 1)
	return found
}

func TestAdoptedPoolsGiveTheSameBits(t *testing.T) {
	const page, all = kvHeads * 4 * dim, poolPages * kvHeads * 4 * dim
	nans := func(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }
	together := func(l *Layer) { l.KVStorage = F32(nans(2*all), poolPages, 2, kvHeads, 4, dim) }
	byToken := func() Tensor { // [pages, page size, kv heads, dim] in memory
		return F32(nans(all), poolPages, kvHeads, 4, dim).WithStrides(page, dim, kvHeads*dim, 1)
	}
	own := newCache(t, pooled)
	want := outputs(t, own)
	for name, adopt := range map[string]func(layers []Layer){
		"heads outside": func(l []Layer) { together(&l[0]); together(&l[1]) },
		"tokens outside": func(l []Layer) {
			l[0].KStorage, l[0].VStorage, l[1].KStorage, l[1].VStorage = byToken(), byToken(), byToken(), byToken()
		},
		"one of two":     func(l []Layer) { together(&l[1]) },
		"one slice":      func(l []Layer) { everyLayer(l, nans(4*all)) },
		"memory outside": func(l []Layer) { l[0].KVStorage = F32(global[:], poolPages, 2, kvHeads, 4, dim) },
		"more pages":     func(l []Layer) { l[0].KVStorage = F32(nans(4*all), 2*poolPages, 2, kvHeads, 4, dim) },
		"the library's":  func([]Layer) {},
		"halves of pools": func(l []Layer) {
			both := nans(2 * all)
			l[0].KStorage, l[0].VStorage = F32(both[:all], poolPages, kvHeads, 4, dim), F32(both[all:], poolPages, kvHeads, 4, dim)
		},
	} {
		cache := newCache(t, pooled, func(c *Config) { adopt(c.Layers) })
		runtime.GC()
		if !slices.Equal(outputs(t, cache), want) {
			t.Errorf("%s: other outputs", name)
		}
		runtime.GC()
		if must(cache.Digest())(t) != must(own.Digest())(t) || must(cache.Stats(0))(t).StorageBytes != must(own.Stats(0))(t).StorageBytes {
			t.Errorf("%s: other bookkeeping", name)
		}
		check(t, cache.Close())
		if n := pinned(); n != 0 {
			t.Fatalf("%s: %d sets of pools are still pinned", name, n)
		}
	}
}

var global [2 * poolPages * kvHeads * 4 * dim]float32 // not on Go's heap

// everyLayer puts the pools of all layers side by side in each page.
func everyLayer(layers []Layer, memory []float32) {
	const page = kvHeads * 4 * dim
	for i := range layers {
		layers[i].KVStorage = F32(memory[i*2*page:], poolPages, 2, kvHeads, 4, dim).WithStrides(len(layers)*2*page, page, 4*dim, dim, 1)
	}
}

func pinned() (n int) {
	pinnedPools.Range(func(any, any) bool { n++; return true })
	return n
}

func TestAdoptedPoolsAreWhatViewsShow(t *testing.T) {
	memory := make([]float32, 2*poolPages*kvHeads*4*dim)
	cache := newCache(t, pooled, func(c *Config) { c.Layers[1].KVStorage = F32(memory, poolPages, 2, kvHeads, 4, dim) })
	outputs(t, cache)
	view := must(cache.ViewPool(1, PoolKV, true))(t)
	seen := view.Tensor.Float32s()
	if &seen[0] != &memory[0] || len(seen) != len(memory) || !slices.ContainsFunc(memory, func(x float32) bool { return x != 0 }) {
		t.Error("the view is another pool, or nothing was stored")
	}
	check(t, cache.Close())
	if pinned() != 1 {
		t.Error("a view is left, and the pool is not pinned")
	}
	memory[7] = 42
	if seen[7] != 42 {
		t.Error("the view shows something else")
	}
	check(t, view.Close())
	if pinned() != 0 {
		t.Error("no view is left, and the pool is pinned")
	}
	var rows [poolPages * 4 * dim]float32 // MLA: rows alone
	mla := newCache(t, func(c *Config) {
		c.Layers = []Layer{{QHeads: 4, KVHeads: 1, HeadDim: dim, LatentDim: 12, SoftmaxScale: 1, KStorage: F32(rows[:], poolPages, 1, 4, dim)}}
		c.Groups, c.CapacityTokens = []Group{{Row: RowLatent, Pages: poolPages}}, 0
	})
	sequence := must(mla.Add())(t)
	s := must(mla.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}}))(t)
	row := randomTokens(rand.New(rand.NewSource(1)), 1).k[:dim]
	check(t, s.Append(background, 0, Append{K: F32(row, 1, 1, dim)}))
	check(t, s.End())
	if at := int(must(mla.Pages(sequence, 0))(t)[0]) * 4 * dim; !slices.Equal(rows[at:at+dim], row) {
		t.Error("the row is elsewhere")
	}
}

// The cache alone keeps the caller's slices: others must not get their memory.
func TestGarbageCollectionLeavesAdoptedPools(t *testing.T) {
	const size = 2 * poolPages * kvHeads * 4 * dim
	cache := newCache(t, pooled, func(c *Config) {
		for i := range c.Layers {
			c.Layers[i].KVStorage = F32(make([]float32, size), poolPages, 2, kvHeads, 4, dim)
		}
	})
	before := outputs(t, cache)
	stored := must(cache.ViewPool(0, PoolKV, false))(t)
	defer stored.Close()
	digest := slices.Clone(stored.Tensor.Float32s())
	var others [][]float32
	for range 3 {
		runtime.GC()
		for range 100 {
			others = append(others, slices.Repeat([]float32{42}, size))
		}
	}
	if !slices.Equal(stored.Tensor.Float32s(), digest) {
		t.Error("somebody else has written to the pool")
	}
	check(t, cache.Clear())
	if !slices.Equal(outputs(t, cache), before) {
		t.Error("other outputs")
	}
	for _, other := range others {
		if slices.ContainsFunc(other, func(x float32) bool { return x != 42 }) {
			t.Fatal("the cache has written to memory that is not its own")
		}
	}
}

func TestPoolsThatAreWrong(t *testing.T) {
	pool := func() Tensor { return F32(make([]float32, 2*poolPages*kvHeads*4*dim), poolPages, 2, kvHeads, 4, dim) }
	one := pool()
	for name, c := range map[string]struct {
		adopt  func(layers []Layer)
		status Status
		index  int
	}{
		"shape":       {func(l []Layer) { l[1].KVStorage = F32(one.Float32s(), poolPages, 2, kvHeads, 2, 2*dim) }, ErrShape, 1},
		"few pages":   {func(l []Layer) { l[1].KVStorage = F32(one.Float32s(), poolPages-1, 2, kvHeads, 4, dim) }, ErrShape, 1},
		"short slice": {func(l []Layer) { l[1].KVStorage = F32(one.Float32s()[1:], poolPages, 2, kvHeads, 4, dim) }, ErrShape, 1},
		"rank":        {func(l []Layer) { l[0].KVStorage = F32(one.Float32s()) }, ErrRank, 0},
		"dtype":       {func(l []Layer) { l[0].KVStorage = BF16(make([]uint16, one.length), one.Shape()...) }, ErrDType, 0},
		"twice":       {func(l []Layer) { l[0].KVStorage, l[1].KVStorage = one, one }, ErrDuplicate, 1},
		"overlap":     {func(l []Layer) { everyLayer(l, make([]float32, 2*one.length)); l[1].KVStorage = l[0].KVStorage }, ErrDuplicate, 1},
		"both":        {func(l []Layer) { l[0].KVStorage, l[0].KStorage = pool(), pool() }, ErrInvalidArgument, 0},
		"half":        {func(l []Layer) { l[0].KStorage = F32(make([]float32, one.length/2), poolPages, kvHeads, 4, dim) }, ErrInvalidArgument, 0},
	} {
		config := Config{PageSize: 4}
		pooled(&config)
		c.adopt(config.Layers)
		_, err := New(config)
		refused(t, err, c.status)
		if e, ok := err.(*Error); !ok || e.Index != c.index {
			t.Errorf("%s: %+v", name, err)
		}
	}
	config := Config{PageSize: 4, Storage: StorageNone}
	pooled(&config)
	config.Layers[0].KVStorage = one
	_, err := New(config)
	refused(t, err, ErrInvalidArgument)
	config.Storage = 9
	config.Layers[0].KVStorage = Tensor{}
	_, err = New(config)
	refused(t, err, ErrInvalidArgument)
	if n := pinned(); n != 0 {
		t.Errorf("%d sets of refused pools are pinned", n)
	}
	config.Storage, config.Layers[0].KVStorage = StorageOwn, one
	must(EstimateOf(config, WholeCache))(t)
	if n := pinned(); n != 0 {
		t.Errorf("%d sets of estimated pools are pinned", n)
	}
}

// engine holds a number for each slot, and follows the tables of a cache without storage.
type engine struct {
	t      *testing.T
	cache  *Cache
	slots  []int
	copies int
}

func (e *engine) makeCopies() {
	for _, c := range must(e.cache.TakeCopies())(e.t) {
		if c.Group != 0 || c.Count < 1 {
			e.t.Errorf("%+v", c)
		}
		copy(e.slots[c.TargetSlot:][:c.Count], e.slots[c.SourceSlot:][:c.Count])
		e.copies++
	}
}

func (e *engine) contents(sequence Seq) (found []int) {
	pages := must(e.cache.Pages(sequence, 0))(e.t)
	for i := range int(must(e.cache.Length(sequence))(e.t)) {
		found = append(found, e.slots[int(pages[i/4])*4+i%4])
	}
	return found
}

func TestTablesOnly(t *testing.T) {
	cache := newCache(t, pooled, func(c *Config) { c.Storage, c.MaxSequences = StorageNone, 6 })
	e := &engine{t: t, cache: cache, slots: make([]int, poolPages*4)}
	r, value := rand.New(rand.NewSource(3)), 0
	var ids []Seq
	model := map[Seq][]int{}
	for range 1000 {
		dice, chosen := r.Intn(5), Seq(0)
		if len(ids) > 0 {
			chosen = ids[r.Intn(len(ids))]
		}
		old := model[chosen]
		switch at := r.Intn(len(old) + 1); {
		case len(ids) == 0 || dice == 0 && len(ids) < 6:
			ids = append(ids, must(cache.Add())(t))
		case dice == 1 && len(ids) < 6:
			child := must(cache.ForkAt([]Seq{chosen}, []int64{int64(at)}))(t)[0]
			ids, model[child] = append(ids, child), slices.Clone(old[:at])
		case dice == 2:
			check(t, cache.Truncate([]Seq{chosen}, []int64{int64(at)}))
			model[chosen] = old[:at:at]
		case dice == 3 && len(ids) > 4:
			check(t, cache.Remove(chosen))
			delete(model, chosen)
			ids = slices.DeleteFunc(ids, func(id Seq) bool { return id == chosen })
		case len(old) < 14:
			n := 1 + r.Intn(5)
			s := must(cache.Begin(background, Batch{Sequences: []Seq{chosen}, AppendLengths: []int32{int32(n)}}))(t)
			e.makeCopies()
			for _, slot := range must(s.Tables(0, TablesOptions{Arrays: TablesTokens}))(t).SlotMapping {
				e.slots[slot], model[chosen], value = value, append(model[chosen], value), value+1
			}
			check(t, s.End())
		}
		e.makeCopies()
		for id, want := range model {
			if got := e.contents(id); !slices.Equal(got, want) {
				t.Fatalf("a sequence holds %v instead of %v", got, want)
			}
		}
		check(t, cache.CheckInvariants())
	}
	if e.copies < 40 {
		t.Errorf("only %d copies", e.copies)
	}
}

func TestTablesOnlyRefusesWhatNeedsKAndV(t *testing.T) {
	cache := newCache(t, pooled, func(c *Config) { c.Storage = StorageNone })
	sequence, x := must(cache.Add())(t), randomTokens(rand.New(rand.NewSource(1)), 6)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{6}}))(t)
	refused(t, s.Attend(background, 0, x.attend()), ErrUnsupported)
	refused(t, s.Append(background, 0, Append{K: x.attend().K, V: x.attend().V}), ErrUnsupported)
	check(t, s.End())
	_, err := cache.Export(sequence, Export{})
	refused(t, err, ErrUnsupported)
	_, err = cache.ViewPool(0, PoolK, false)
	refused(t, err, ErrUnsupported)
	child := must(cache.Fork(sequence))(t)[0]
	batch := Batch{Sequences: []Seq{child}, AppendLengths: []int32{1}}
	refused(t, cache.CanFit(batch), ErrOrder)
	_, err = cache.Begin(background, batch)
	refused(t, err, ErrOrder, "Cache.TakeCopies")
	copies := must(cache.TakeCopies())(t)
	from, to := must(cache.Pages(sequence, 0))(t)[1], must(cache.Pages(child, 0))(t)[1]
	if !slices.Equal(copies, []Copy{{SourceSlot: int64(from) * 4, TargetSlot: int64(to) * 4, Count: 2}}) {
		t.Errorf("%+v", copies)
	}
	if again := must(cache.TakeCopies())(t); again != nil {
		t.Errorf("%+v", again)
	}
	check(t, must(cache.Begin(background, batch))(t).Close())
	if own := must(newCache(t).TakeCopies())(t); own != nil {
		t.Errorf("%+v", own)
	}
}
