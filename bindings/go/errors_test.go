package kvcache

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// calls of every method of a cache, for handles that must not be used.
func callsOfCache(c *Cache) map[string]error {
	found := map[string]error{
		"Clear": c.Clear(), "CheckInvariants": c.CheckInvariants(), "Remove": c.Remove(1), "Checkpoint": c.Checkpoint(1),
		"Truncate": c.Truncate([]Seq{1}, []int64{0}), "Commit": c.Commit([]Seq{1}, []int32{-1}),
		"SetRope": c.SetRope(RopeSetLong, 1), "SetStreaming": c.SetStreaming(Window{}, false, 1),
		"CanFit": c.CanFit(Batch{}), "Step": c.Step(background, Batch{}, (*Step).End), "Import": c.Import(1, Import{}), "SetTime": c.SetTime(1),
	}
	for name, err := range callsOnPrefixes(c, 1) {
		found[name] = err
	}
	_, found["Add"] = c.Add()
	_, found["AddMany"] = c.AddMany(2)
	_, found["Fork"] = c.Fork(1)
	_, found["Length"] = c.Length(1)
	_, found["Lengths"] = c.Lengths(1)
	_, found["MaxAppend"] = c.MaxAppend(1)
	_, found["ExclusivePages"] = c.ExclusivePages(0, 1)
	_, found["TreeNodes"] = c.TreeNodes(1)
	_, found["EncoderLengths"] = c.EncoderLengths(0, 1)
	_, found["Pages"] = c.Pages(1, 0)
	_, _, found["NearestPosition"] = c.NearestPosition(1, 0)
	_, found["Streaming"] = c.Streaming(1)
	_, found["Begin"] = c.Begin(background, Batch{})
	_, found["Stats"] = c.Stats(0)
	_, found["Digest"] = c.Digest()
	_, found["Describe"] = c.Describe()
	_, found["Export"] = c.Export(1, Export{})
	_, found["ViewPool"] = c.ViewPool(0, PoolK, false)
	_, found["TakeCopies"] = c.TakeCopies()
	found["Save"] = c.Save(1, "chat.kvc", SaveOptions{})
	_, _, found["Load"] = c.Load("chat.kvc")
	_, found["ReadEvents"] = c.ReadEvents(0, 1)
	_, found["EventSnapshot"] = c.EventSnapshot()
	_, found["EventMessage"] = c.EventMessage(0, MessageFormat{})
	_, found["EventSnapshotMessage"] = c.EventSnapshotMessage(MessageFormat{})
	_, found["NewGraph"] = c.NewGraph(GraphConfig{})
	found["AddDiskTier"] = c.AddDiskTier("tier", DiskTierOptions{})
	found["AddHostTier"] = c.AddHostTier(HostTierOptions{CapacityBytes: 4096})
	_, found["Suspend"] = c.Suspend(1)
	_, _, found["Pending"] = c.Pending(1)
	_, found["Resume"] = c.Resume(1)
	_, found["TierTraffic"] = c.TierTraffic()
	_, found["Receive"] = c.Receive(1, ReceiveOptions{})
	_, found["Send"] = c.Send(1, []byte{1})
	found["UseUCX"] = c.UseUCX("tcp", "lo")
	found["UseNIXL"] = c.UseNIXL(nil)
	found["SetTransport"] = c.SetTransport("no-such-library", "")
	return found
}

// callsOnPrefixes are calls of every method that needs the prefix index.
func callsOnPrefixes(c *Cache, sequence Seq) map[string]error {
	query := PrefixQuery{Tokens: []int32{1, 2}}
	found := map[string]error{"SetPrefixPriority": c.SetPrefixPriority(query, 1, 0),
		"SetSessionPriority": c.SetSessionPriority(1, 1, 0), "UnpinPrefix": c.UnpinPrefix(1)}
	_, found["MatchPrefix"] = c.MatchPrefix(query)
	_, _, found["AttachPrefix"] = c.AttachPrefix(query)
	_, found["PublishPrefix"] = c.PublishPrefix(sequence, query, PrefixOptions{})
	_, found["DropPrefix"] = c.DropPrefix(query)
	_, found["DropSession"] = c.DropSession(1)
	_, _, found["PinPrefix"] = c.PinPrefix(query)
	_, _, found["LoadPrefix"] = c.LoadPrefix(query, LoadOptions{})
	return found
}

func callsOfStep(s *Step) map[string]error {
	x := randomTokens(rand.New(rand.NewSource(1)), 1)
	found := map[string]error{
		"Append":    s.Append(background, 0, Append{K: x.attend().K, V: x.attend().V}),
		"Attend":    s.Attend(background, 0, x.attend()),
		"Select":    s.Select(background, 0, Select{Q: x.attend().Q, Indices: I32([]int32{0}, 1, 1, 1)}),
		"LoadState": s.LoadState(0, 0, x.attend().K), "StoreState": s.StoreState(0, 0, x.attend().K),
		"LoadStateBefore": s.LoadStateBefore(0, 0, 0, x.attend().K),
		"StoreStateAfter": s.StoreStateAfter(0, 0, 0, x.attend().K),
		"End":             s.End(), "Abort": s.Abort(), "Cancel": s.Cancel(),
	}
	_, found["Positions"] = s.Positions()
	_, found["LastRows"] = s.LastRows()
	_, found["Describe"] = s.Describe()
	_, found["Tables"] = s.Tables(0, TablesOptions{})
	return found
}

func callsOfGraph(g *Graph) map[string]error {
	found := map[string]error{"CanFit": g.CanFit(Batch{}), "Step": g.Step(background, Batch{}, (*Step).End)}
	_, found["Begin"] = g.Begin(background, Batch{})
	return found
}

func callsOfLoadJob(j *LoadJob) map[string]error {
	found := map[string]error{"Cancel": j.Cancel()}
	_, _, found["Poll"] = j.Poll()
	_, found["Wait"] = j.Wait(background)
	_, found["Descriptor"] = j.Descriptor()
	_, _, found["Attach"] = j.Attach(PendingOptions{})
	return found
}

func callsOfTransfer(x *Transfer) map[string]error {
	found := map[string]error{"Cancel": x.Cancel()}
	_, found["Describe"] = x.Describe()
	_, found["Poll"] = x.Poll()
	_, found["Wait"] = x.Wait(background)
	return found
}

func callsOfContext(c *Context) map[string]error {
	found := map[string]error{"Merge": c.Merge(Merge{}), "FlashAttnWithKVCache": c.FlashAttnWithKVCache(FlashAttn{}),
		"AppendSlots": c.AppendSlots(AppendSlots{}), "Check": c.Check()}
	_, found["Describe"] = c.Describe()
	return found
}

func callsOfPlan(p *Plan) map[string]error {
	found := map[string]error{"Check": p.Check(1)}
	_, found["Build"] = p.Build(PlanStep{})
	_, found["Tables"] = p.Tables(0, TablesWhole)
	return found
}

func TestTheseAreAllMethods(t *testing.T) {
	for _, c := range []struct {
		of    any
		calls map[string]error
		other []string
	}{
		{new(Cache), callsOfCache(nil), []string{"Close", "ForkAt"}}, // Fork calls it
		{new(Step), callsOfStep(nil), []string{"Close"}},
		{new(Graph), callsOfGraph(nil), []string{"Close"}},
		{new(Context), callsOfContext(nil), []string{"Close"}},
		{new(Plan), callsOfPlan(nil), []string{"Close"}},
		{new(LoadJob), callsOfLoadJob(new(LoadJob)), []string{"Close"}},
		{new(Transfer), callsOfTransfer(new(Transfer)), []string{"Close"}},
	} {
		for i := range reflect.TypeOf(c.of).NumMethod() {
			name := reflect.TypeOf(c.of).Method(i).Name
			if _, called := c.calls[name]; !called && name != "String" && !slices.Contains(c.other, name) {
				t.Errorf("%T.%s is not called", c.of, name)
			}
		}
	}
}

func allRefused(t *testing.T, what string, status Status, calls map[string]error) {
	for name, err := range calls {
		if !errors.Is(err, status) {
			t.Errorf("%s: %s gives %v", what, name, err)
		}
	}
}

func TestClosedAndNilHandles(t *testing.T) {
	context := must(NewContext(ContextConfig{Threads: 1}))(t)
	cache := newCache(t, func(c *Config) { c.Context = context })
	sequence := must(cache.Add())(t)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{1}}))(t)
	graph := must(cache.NewGraph(GraphConfig{}))(t)
	inGraph := must(graph.Begin(background, Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{1}}))(t)
	check(t, context.Close())
	check(t, context.Close())
	step2 := must(cache.Add())(t) // the cache keeps its context
	check(t, cache.Remove(step2))
	check(t, cache.Close())
	check(t, cache.Close())
	check(t, s.Close())
	check(t, inGraph.Close())
	check(t, graph.Close()) // it went with its cache

	allRefused(t, "closed cache", ErrNullArgument, callsOfCache(cache))
	allRefused(t, "nil cache", ErrNullArgument, callsOfCache(nil))
	allRefused(t, "zero cache", ErrNullArgument, callsOfCache(new(Cache)))
	allRefused(t, "step of a closed cache", ErrNullArgument, callsOfStep(s))
	allRefused(t, "step in a graph of a closed cache", ErrNullArgument, callsOfStep(inGraph))
	for _, g := range []*Graph{graph, nil, {}} {
		allRefused(t, "graph", ErrNullArgument, callsOfGraph(g))
		check(t, g.Close())
	}
	allRefused(t, "nil step", ErrNullArgument, callsOfStep(nil))
	allRefused(t, "zero step", ErrNullArgument, callsOfStep(new(Step)))
	for _, c := range []*Context{context, nil, {}} {
		allRefused(t, "context", ErrNullArgument, callsOfContext(c))
		if c != nil {
			_, err := New(Config{Context: c})
			refused(t, err, ErrNullArgument, "Context")
			_, err = NewPlan(PlanConfig{Context: c})
			refused(t, err, ErrNullArgument, "Context")
		}
	}
	plan := must(NewPlan(PlanConfig{}))(t)
	check(t, plan.Close())
	for _, p := range []*Plan{plan, nil, {}} {
		allRefused(t, "plan", ErrNullArgument, callsOfPlan(p))
		check(t, p.Close())
	}
	check(t, (*Cache)(nil).Close())
	check(t, (*Step)(nil).Close())
	check(t, new(Step).Close())
	check(t, (*Context)(nil).Close())
	check(t, (*PoolView)(nil).Close())
	check(t, new(PoolView).Close())
}

func TestIDsOfAnotherCacheAndStaleOnes(t *testing.T) {
	mine, other := newCache(t), newCache(t)
	foreign, removed := must(other.Add())(t), must(mine.Add())(t)
	check(t, mine.Remove(removed))
	for _, sequence := range []Seq{foreign, removed, 0, 1, math.MaxUint64} {
		calls := callsOfSequence(mine, sequence)
		if sequence == 0 {
			delete(calls, "Begin") // 0 is an inert row there
		}
		allRefused(t, "sequence", ErrStaleID, calls)
	}
	s := must(mine.Begin(background, Batch{Sequences: []Seq{must(mine.Add())(t)}, AppendLengths: []int32{1}}))(t)
	check(t, s.Abort())
	allRefused(t, "closed step", ErrStaleID, callsOfStep(s))
	check(t, s.Close())
	before := must(mine.AddMany(2))(t)
	err := mine.Remove(before[0], foreign)
	refused(t, err, ErrStaleID, "Cache.Remove")
	var e *Error
	if errors.As(err, &e); e.Index != 1 {
		t.Errorf("index %d", e.Index)
	}
	refused(t, mine.Remove(before[0], before[0]), ErrDuplicate)
	must(mine.Length(before[0]))(t) // nothing was removed
}

func callsOfSequence(c *Cache, s Seq) map[string]error {
	found := map[string]error{
		"Remove": c.Remove(s), "Truncate": c.Truncate([]Seq{s}, []int64{0}), "Commit": c.Commit([]Seq{s}, []int32{-1}),
	}
	_, found["Fork"] = c.Fork(s)
	_, found["Length"] = c.Length(s)
	_, found["Lengths"] = c.Lengths(s)
	_, found["MaxAppend"] = c.MaxAppend(s)
	_, found["ExclusivePages"] = c.ExclusivePages(0, s)
	_, found["TreeNodes"] = c.TreeNodes(s)
	_, found["Pages"] = c.Pages(s, 0)
	_, _, found["NearestPosition"] = c.NearestPosition(s, 0)
	_, found["Streaming"] = c.Streaming(s)
	_, found["Begin"] = c.Begin(background, Batch{Sequences: []Seq{s}, AppendLengths: []int32{1}})
	_, found["Export"] = c.Export(s, Export{})
	return found
}

func TestTensorsThatDoNotFit(t *testing.T) {
	cache := newCache(t)
	sequence := must(cache.Add())(t)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{2}}))(t)
	defer s.Close()
	good := func() Attend { return randomTokens(rand.New(rand.NewSource(1)), 2).attend() }
	f := func(n int) []float32 { return make([]float32, n) }
	for name, c := range map[string]struct {
		change func(*Attend)
		status Status
		words  string
	}{
		"no q":            {func(a *Attend) { a.Q = Tensor{} }, ErrNullArgument, "Step.Attend"},
		"no k":            {func(a *Attend) { a.K = Tensor{} }, ErrNullArgument, "Step.Attend"},
		"no out":          {func(a *Attend) { a.Out = Tensor{} }, ErrNullArgument, "Step.Attend"},
		"nil slice":       {func(a *Attend) { a.Q = F32(nil, 2, 4, 16) }, ErrShape, "[2, 4, 16]"},
		"empty":           {func(a *Attend) { a.Q = F32(nil) }, ErrRank, "Q"},
		"short q":         {func(a *Attend) { a.Q = F32(f(127), 2, 4, 16) }, ErrShape, "127"},
		"short out":       {func(a *Attend) { a.Out = F32(f(1), 2, 4, 16) }, ErrShape, "Out: a tensor of shape [2, 4, 16]"},
		"too few rows":    {func(a *Attend) { a.K = F32(f(32), 1, 2, 16) }, ErrShape, "K"},
		"heads":           {func(a *Attend) { a.V = F32(f(96), 2, 3, 16) }, ErrShape, "V"},
		"dim":             {func(a *Attend) { a.Q = F32(f(64), 2, 4, 8) }, ErrShape, "Q"},
		"rank":            {func(a *Attend) { a.Q = F32(f(128), 2, 64) }, ErrRank, "Q"},
		"rank 9":          {func(a *Attend) { a.Q = F32(f(128), 2, 1, 1, 1, 1, 1, 1, 4, 16) }, ErrRank, "9"},
		"negative dim":    {func(a *Attend) { a.Q = F32(f(128), -2, 4, 16) }, ErrShape, "-2"},
		"overflow":        {func(a *Attend) { a.Q = F32(f(128), math.MaxInt, math.MaxInt, 16) }, ErrShape, "128"},
		"overflow to 0":   {func(a *Attend) { a.Q = F32(f(128), 1<<32, 1<<32, 1) }, ErrShape, "128"},
		"dtype":           {func(a *Attend) { a.Q = U8(make([]uint8, 128), 2, 4, 16) }, ErrDType, "Q"},
		"lse":             {func(a *Attend) { a.LSE = F32(f(4), 1, 4) }, ErrShape, "LSE"},
		"slopes":          {func(a *Attend) { a.AlibiSlopes = F32(f(3)) }, ErrShape, "AlibiSlopes"},
		"stride":          {func(a *Attend) { a.Q = F32(f(256), 2, 4, 16).WithStrides(128, 32, 2) }, ErrStride, "Q"},
		"strided short":   {func(a *Attend) { a.Q = F32(f(239), 2, 4, 16).WithStrides(128, 32, 1) }, ErrShape, "239"},
		"negative stride": {func(a *Attend) { a.Q = F32(f(256), 2, 4, 16).WithStrides(-64, 16, 1) }, ErrStride, "-64"},
		"two strides":     {func(a *Attend) { a.Q = F32(f(256), 2, 4, 16).WithStrides(64, 16) }, ErrStride, "2 strides"},
		"flags":           {func(a *Attend) { a.Flags = Past | Self }, ErrInvalidArgument, ""},
		"unknown flags":   {func(a *Attend) { a.Flags = 1 << 30 }, ErrUnsupported, ""},
		"scale":           {func(a *Attend) { a.SoftmaxScale = math.NaN() }, ErrOutOfRange, "SoftmaxScale"},
	} {
		args := good()
		c.change(&args)
		err := s.Attend(background, 0, args)
		if !errors.Is(err, c.status) || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, layer := range []int{-1, 1, math.MaxInt, math.MinInt} {
		refused(t, s.Attend(background, layer, good()), ErrOutOfRange, "layer")
	}
	refused(t, s.Append(background, 0, Append{}), ErrNullArgument, "Step.Append")
	refused(t, s.Append(background, 0, Append{K: F32(f(1), 2, 2, 16)}), ErrShape, "Step.Append")
	refused(t, s.LoadState(0, 0, F32(f(4))), ErrInvalidArgument)
	check(t, s.Attend(background, 0, good())) // after all that
	check(t, s.End())
}

func TestBatchesThatAreWrong(t *testing.T) {
	cache := newCache(t, func(c *Config) { c.MaxBatchTokens = 8 })
	ids := must(cache.AddMany(2))(t)
	for name, c := range map[string]struct {
		batch  Batch
		status Status
	}{
		"lengths missing": {Batch{Sequences: ids, AppendLengths: []int32{1}}, ErrInvalidArgument},
		"lengths nil":     {Batch{Sequences: ids}, ErrInvalidArgument},
		"zero":            {Batch{Sequences: ids, AppendLengths: []int32{1, 0}}, ErrInvalidArgument},
		"negative":        {Batch{Sequences: ids, AppendLengths: []int32{1, -1}}, ErrInvalidArgument},
		"twice":           {Batch{Sequences: []Seq{ids[0], ids[0]}, AppendLengths: []int32{1, 1}}, ErrDuplicate},
		"large":           {Batch{Sequences: ids, AppendLengths: []int32{8, 1}}, ErrBatchTooLarge},
		"huge":            {Batch{Sequences: ids, AppendLengths: []int32{math.MaxInt32, math.MaxInt32}}, ErrBatchTooLarge},
		"layers":          {Batch{Sequences: ids, AppendLengths: []int32{1, 1}, LayerEnd: 2}, ErrOutOfRange},
		"layers overflow": {Batch{Sequences: ids, AppendLengths: []int32{1, 1}, LayerEnd: 1<<32 + 1}, ErrOutOfRange},
		"short parents":   {Batch{Sequences: ids, AppendLengths: []int32{2, 1}, TreeParents: []int32{-1, 0}}, ErrInvalidArgument},
		"parents":         {Batch{Sequences: ids, AppendLengths: []int32{1, 1}, TreeParents: []int32{5, -1}}, ErrInvalidArgument},
		"short spans":     {Batch{Sequences: ids, AppendLengths: []int32{2, 1}, SpanIDs: []int32{1}}, ErrInvalidArgument},
		"spans":           {Batch{Sequences: ids, AppendLengths: []int32{1, 1}, SpanIDs: []int32{-1, 0}}, ErrInvalidArgument},
		"a group below 0": {Batch{Sequences: ids, AppendLengths: []int32{1, 1}, EncoderGroup: Index(-1)}, ErrOutOfRange},
		"encoder":         {Batch{Sequences: ids, AppendLengths: []int32{1, 1}, EncoderGroup: Index(0)}, ErrInvalidArgument},
	} {
		_, err := cache.Begin(background, c.batch)
		if !errors.Is(err, c.status) {
			t.Errorf("%s: %v", name, err)
		}
		if err := cache.CanFit(c.batch); !errors.Is(err, c.status) {
			t.Errorf("CanFit, %s: %v", name, err)
		}
	}
	refused(t, cache.Truncate(ids, []int64{0}), ErrInvalidArgument, "2 sequences")
	refused(t, cache.Truncate(ids, []int64{0, 1}), ErrOutOfRange)
	refused(t, cache.Commit(ids, nil), ErrInvalidArgument, "0 leaves")
	_, err := cache.ForkAt(ids, []int64{0})
	refused(t, err, ErrInvalidArgument, "1 positions")
	_, err = cache.AddMany(-1)
	refused(t, err, ErrInvalidArgument)
	_, err = cache.AddMany(63)
	refused(t, err, ErrTooManySequences)
	_, err = cache.Pages(ids[0], 1)
	refused(t, err, ErrOutOfRange)
	_, err = cache.Stats(7)
	refused(t, err, ErrOutOfRange)
	_, err = cache.ViewPool(3, PoolK, false)
	refused(t, err, ErrOutOfRange)
	_, err = cache.Export(ids[0], Export{End: 4})
	refused(t, err, ErrOutOfRange)
	refused(t, cache.Import(ids[0], Import{}), ErrInvalidArgument)
	refused(t, cache.Import(ids[0], Import{K: make([]Tensor, 1), V: make([]Tensor, 1)}), ErrNullArgument)
	refused(t, cache.Import(ids[0], Import{K: make([]Tensor, 1), V: make([]Tensor, 2)}), ErrInvalidArgument)
	refused(t, cache.Import(ids[0], Import{K: []Tensor{F32(nil, 1)}, V: make([]Tensor, 1)}), ErrShape, "Import: K")
	check(t, cache.Remove())
	if forks := must(cache.Fork())(t); len(forks) != 0 {
		t.Error(forks)
	}
}

func TestConfigsThatAreWrong(t *testing.T) {
	good := Layer{QHeads: 4, KVHeads: 2, HeadDim: 16}
	for name, c := range map[string]struct {
		config Config
		status Status
		index  int
	}{
		"nothing":      {Config{}, ErrInvalidArgument, -2},
		"no capacity":  {Config{Layers: []Layer{good}}, ErrInvalidArgument, -2},
		"two of them":  {Config{Layers: []Layer{good}, CapacityTokens: 1, CapacityPages: 1}, ErrInvalidArgument, -2},
		"heads":        {Config{Layers: []Layer{good, {QHeads: 3, KVHeads: 2, HeadDim: 16}}, CapacityPages: 1}, ErrInvalidArgument, 1},
		"huge heads":   {Config{Layers: []Layer{{QHeads: 1 << 40, KVHeads: 2, HeadDim: 16}}, CapacityPages: 1}, ErrInvalidArgument, 0},
		"dtype":        {Config{Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16, DType: Int32}}, CapacityPages: 1}, ErrDType, 0},
		"group":        {Config{Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16, Group: 1}}, CapacityPages: 1}, ErrOutOfRange, 0},
		"scales":       {Config{Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16, VScales: []float32{1}}}, CapacityPages: 1}, ErrInvalidArgument, 0},
		"half factors": {Config{Layers: []Layer{{QHeads: 4, KVHeads: 2, HeadDim: 16, Rope: RopeOnAppend, RopeScaling: &RopeScaling{Kind: RopeLongrope, OriginalMaxPosition: 32, ShortFactors: []float64{1}, LongFactors: []float64{1}}}}, CapacityPages: 1}, ErrInvalidArgument, 0},
		"state rank":   {Config{Layers: []Layer{{States: []State{{Shape: make([]int, 9)}}}}, Groups: []Group{Recurrent()}}, ErrRank, 0},
		"group row":    {Config{Layers: []Layer{good}, Groups: []Group{{Row: 99}}, CapacityPages: 1}, ErrInvalidArgument, 0},
	} {
		_, err := New(c.config)
		var e *Error
		if !errors.Is(err, c.status) || errors.As(err, &e) && c.index != -2 && e.Index != c.index {
			t.Errorf("%s: %v, index %+v", name, err, e)
		}
		if _, err := EstimateOf(c.config, WholeCache); !errors.Is(err, c.status) {
			t.Errorf("EstimateOf, %s: %v", name, err)
		}
	}
	estimate := must(EstimateOf(Config{Layers: []Layer{good}, CapacityTokens: 64}, WholeCache))(t)
	if estimate.Pages != 4 || estimate.StorageBytes != 64*2*2*16*4 || estimate.TokenBytes != 2*2*16*4 {
		t.Errorf("%+v", estimate)
	}
	_, err := NewContext(ContextConfig{SIMD: "abacus"})
	refused(t, err, ErrUnsupported, "abacus")
	_, err = NewContext(ContextConfig{Threads: 1 << 40})
	refused(t, err, ErrInvalidArgument)
}

func TestStatusIsAnError(t *testing.T) {
	if ErrStaleID.Error() != "KVC_ERROR_STALE_ID" {
		t.Error(ErrStaleID)
	}
	must(NewContext(ContextConfig{}))(t)
	if text := Status(199).Error(); !strings.Contains(text, "KVC_") {
		t.Error("an unknown status has no name of its band:", text)
	}
	l, a := must(load())(t), takeArena()
	defer a.giveBack()
	for status, name := range statusNames { // the library's names are ours
		if staticString(l.statusName(a, status)) != name {
			t.Error(name)
		}
	}
	refused(t, (&Cache{}).Clear(), ErrNullArgument)
	if errors.Is(misuse(ErrOrder, ""), ErrStaleID) || errors.Is(misuse(ErrOrder, ""), context.Canceled) {
		t.Error("everything is everything")
	}
}

// What was dropped without Close is released; sequences and steps of a cache that lives are left alone.
func TestGarbageCollectionTouchesNoSequence(t *testing.T) {
	cache := newCache(t)
	dropped := must(cache.AddMany(3))(t)
	func() {
		s := must(cache.Begin(background, Batch{Sequences: dropped[:1], AppendLengths: []int32{9}}))(t)
		_ = s // never closed
	}()
	digest := must(cache.Digest())(t)
	count := len(dropped)
	dropped = nil
	forgotten := must(New(Config{Layers: []Layer{{QHeads: 1, KVHeads: 1, HeadDim: 8}}, CapacityTokens: 64}))(t).handle
	for range 100 {
		runtime.GC()
		if forgotten.users.Load() == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if forgotten.users.Load() != 0 {
		t.Error("a forgotten cache is not released")
	}
	if stats := must(cache.Stats(0))(t); stats.Sequences != count || stats.PagesUsed != 3 {
		t.Errorf("%+v", stats)
	}
	if must(cache.Digest())(t) != digest {
		t.Error("the bookkeeping has changed")
	}
	runtime.KeepAlive(cache)
}

func TestMessagesHaveTheNamesOfThisPackage(t *testing.T) {
	for given, wanted := range map[string]string{
		"kvc_cache_create: num_q_heads 3":                                "New: QHeads 3",
		"kvc_forward_attend: k is NULL (my_num_q_heads)":                 "Step.Attend: K is absent (my_num_q_heads)",
		"kvc_seq_set_streaming: window_tokens[1] of KVC_CACHE_STREAMING": "Cache.SetStreaming: Window[1] of Streaming",
		"": "",
	} {
		if got := inGo(given); got != wanted {
			t.Errorf("%q became %q", given, got)
		}
	}
	_, err := New(Config{CapacityTokens: 64, Layers: []Layer{{QHeads: 3, KVHeads: 2, HeadDim: 16}}})
	refused(t, err, ErrInvalidArgument, "New: layer 0: QHeads 3 is no multiple of KVHeads 2")
	cache := newCache(t)
	sequence := must(cache.Add())(t)
	refused(t, cache.SetStreaming(Window{Sinks: 4, Window: 64}, false, sequence), ErrUnsupported, "Cache.SetStreaming", "without Streaming")
	_, err = cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{2}, TreeParents: []int32{TreeRoot, 7}})
	refused(t, err, ErrInvalidArgument, "Cache.Begin", "TreeParents[1] is 7")
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{2}}))(t)
	defer s.Close()
	refused(t, cache.Truncate([]Seq{sequence}, []int64{0}), ErrBusy, "is in an open step")
}
