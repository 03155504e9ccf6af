package kvcache

import (
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

func TestExportAndImport(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for _, dtype := range []DType{Float32, Float16, BFloat16, Float8E4, Float8E5, Int8} {
		cache := newCache(t, func(c *Config) { c.Layers[0].DType = dtype })
		source, copied := must(cache.Add())(t), must(cache.Add())(t)
		x := randomTokens(r, 6)
		step(t, cache, source, x)
		all := must(cache.Export(source, Export{}))(t)
		if !slices.Equal(all.K.Shape(), []int{6, kvHeads, dim}) || all.V.present() == false {
			t.Fatalf("%x: %v", dtype, all.K.Shape())
		}
		if quantised := dtype == Int8 || dtype == Float8E4 || dtype == Float8E5; quantised != all.KScale.present() {
			t.Errorf("%x: scales %v", dtype, all.KScale.present())
		}
		if dtype == Float32 && !slices.Equal(all.K.Float32s(), x.k) {
			t.Error("k is not what was stored")
		}
		part := must(cache.Export(source, Export{Begin: 2, End: 4, Parts: ExportV}))(t)
		if part.K.present() || !slices.Equal(part.V.Shape(), []int{2, kvHeads, dim}) {
			t.Errorf("%x: a part is %+v", dtype, part)
		}
		tokens := Import{K: []Tensor{all.K}, V: []Tensor{all.V}, AsStored: true}
		if dtype == Int8 {
			tokens.KScale, tokens.VScale = []Tensor{all.KScale}, []Tensor{all.VScale}
		}
		check(t, cache.Import(copied, tokens))
		again := must(cache.Export(copied, Export{}))(t)
		if !slices.Equal(bytesOf(again.K), bytesOf(all.K)) || !slices.Equal(bytesOf(again.V), bytesOf(all.V)) {
			t.Errorf("%x: the copy is another", dtype)
		}
		next := randomTokens(r, 1)
		step(t, cache, source, next)
		first := slices.Clone(next.out)
		step(t, cache, copied, next)
		if !slices.Equal(first, next.out) {
			t.Errorf("%x: attention over the copy is another", dtype)
		}
	}
}

func bytesOf(t Tensor) (found []uint64) {
	for _, x := range t.Float32s() {
		found = append(found, uint64(math.Float32bits(x)))
	}
	for _, x := range t.Uint16s() {
		found = append(found, uint64(x))
	}
	for _, x := range t.Uint8s() {
		found = append(found, uint64(x))
	}
	for _, x := range t.Int8s() {
		found = append(found, uint64(x))
	}
	return found
}

func TestViewPool(t *testing.T) {
	cache := newCache(t)
	sequence := must(cache.Add())(t)
	x := randomTokens(rand.New(rand.NewSource(2)), 5)
	step(t, cache, sequence, x)
	view := must(cache.ViewPool(0, PoolK, true))(t)
	page := int(must(cache.Pages(sequence, 0))(t)[1])
	k, _ := view.Tensor.Float32s(), view.Tensor.Shape()
	if shape := view.Tensor.Shape(); !slices.Equal(shape, []int{64, kvHeads, 4, dim}) {
		t.Fatal(shape)
	}
	if strides := view.Tensor.Strides(); strides[3] != 1 || strides[2] != dim || view.ReadOnly {
		t.Error(strides, view.ReadOnly)
	}
	if only := must(cache.ViewPool(0, PoolV, false))(t); !only.ReadOnly || only.Close() != nil {
		t.Error("a view that was not asked to be writable")
	}
	if strides := F32(nil, 2, 3, 0).Strides(); !slices.Equal(strides, []int{0, 0, 1}) {
		t.Error(strides)
	}
	place := page * view.Tensor.Strides()[0] // token 4 is the first of the second page
	if k[place] != x.k[4*kvHeads*dim] {
		t.Errorf("the pool has %v instead of %v", k[place], x.k[4*kvHeads*dim])
	}
	check(t, cache.Close())
	k[place] = 1 // the view keeps the memory
	check(t, view.Close())
	check(t, view.Close())
	if view.Tensor.present() {
		t.Error("a closed view has a tensor")
	}
}

func TestMerge(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	context := must(NewContext(ContextConfig{}))(t)
	defer context.Close()
	cache := newCache(t, func(c *Config) { c.Context = context })
	sequence := must(cache.Add())(t)
	before, x := randomTokens(r, 6), randomTokens(r, 3)
	step(t, cache, sequence, before)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{3}}))(t)
	defer s.Close()
	outs, lses := [2][]float32{}, [2][]float32{}
	for i, part := range []AttendFlags{Past, Self} {
		outs[i], lses[i] = make([]float32, 3*qHeads*dim), make([]float32, 3*qHeads)
		args := x.attend()
		if part == Past {
			args.K, args.V = Tensor{}, Tensor{}
		}
		args.Out, args.LSE, args.Flags = F32(outs[i], 3, qHeads, dim), F32(lses[i], 3, qHeads), part
		check(t, s.Attend(background, 0, args))
	}
	merged, lse := make([]float32, 3*qHeads*dim), make([]float32, 3*qHeads)
	parts := Merge{Outputs: []Tensor{F32(outs[0], 3, qHeads, dim), F32(outs[1], 3, qHeads, dim)},
		LSEs: []Tensor{F32(lses[0], 3, qHeads), F32(lses[1], 3, qHeads)}, Out: F32(merged, 3, qHeads, dim), LSE: F32(lse, 3, qHeads)}
	check(t, context.Merge(parts))
	near(t, "merged", merged, history{}.with(before).with(x).attention(x.q))

	parts.LSEs = parts.LSEs[:1]
	refused(t, context.Merge(parts), ErrInvalidArgument, "2 Outputs")
	refused(t, context.Merge(Merge{}), ErrInvalidArgument)
	refused(t, context.Merge(Merge{Outputs: []Tensor{{}}, LSEs: []Tensor{{}}}), ErrNullArgument)
}

func TestDescriptions(t *testing.T) {
	context := must(NewContext(ContextConfig{Threads: 1, SIMD: "reference"}))(t)
	defer context.Close()
	if err := context.Check(); err != nil {
		t.Errorf("the CPU has met a bad index of an earlier call: %v", err)
	}
	if text := must(context.Describe())(t); !strings.Contains(text, `"reference"`) || text[len(text)-1] != '}' {
		t.Error(text)
	}
	cache := newCache(t)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{3}}))(t)
	defer s.Close()
	if text := must(s.Describe())(t); !strings.Contains(text, `"tokens"`) {
		t.Error(text)
	}
}

func TestTypesOfTensors(t *testing.T) {
	r := rand.New(rand.NewSource(4))
	cache := newCache(t, func(c *Config) { c.Layers[0].DType = BFloat16 })
	sequence := must(cache.Add())(t)
	x := randomTokens(r, 4)
	bf16 := func(s []float32) []uint16 { // the values become exact
		bits := make([]uint16, len(s))
		for i := range s {
			bits[i] = uint16(math.Float32bits(s[i]) >> 16)
			s[i] = math.Float32frombits(uint32(bits[i]) << 16)
		}
		return bits
	}
	q, k, v := bf16(x.q), bf16(x.k), bf16(x.v)
	wide := make([]uint16, 4*2*len(q)/4) // rows of q within wider rows
	for row := range 4 {
		copy(wide[row*2*qHeads*dim:], q[row*qHeads*dim:][:qHeads*dim])
	}
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{4}}))(t)
	defer s.Close()
	check(t, s.Attend(background, 0, Attend{Q: BF16(wide, 4, qHeads, dim).WithStrides(2*qHeads*dim, dim, 1),
		K: BF16(k, 4, kvHeads, dim), V: BF16(v, 4, kvHeads, dim), Out: F32(x.out, 4, qHeads, dim)}))
	check(t, s.End())
	within(t, "bf16", x.out, history{}.with(x).attention(x.q), 4e-3) // CPUs with bf16 dots round weights to bf16
}
