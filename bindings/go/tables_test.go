package kvcache

import (
	"errors"
	"math/rand"
	"slices"
	"sync"
	"testing"
)

// seen is the slots that each query sees, read from a table as FlashAttention does: causal is bottom right.
func seen(t Tables) [][]int {
	found := make([][]int, t.Queries)
	for r := range t.Rows {
		n := int(t.CacheSeqlens[r])
		begin, end := int(t.CuSeqlensQ[r]), int(t.CuSeqlensQ[r+1])
		for i := begin; i < end; i++ {
			last := n
			if t.Causal {
				last -= end - 1 - i
			}
			for key := int(t.Leftpad[r]); key < last; key++ {
				found[i] = append(found[i], int(t.Row(r)[key/t.PageSize])*t.PageSize+key%t.PageSize)
			}
		}
	}
	return found
}

// serversTable is a server's own block table, [3, 20], pages of 4.
func serversTable() (table []int32, slot func(row, position int) int) {
	for _, page := range rand.New(rand.NewSource(3)).Perm(60) {
		table = append(table, int32(page))
	}
	return table, func(row, position int) int { return int(table[row*20+position/4])*4 + position%4 }
}

func wantSeen(t *testing.T, what string, tables Tables, want [][]int) {
	t.Helper()
	if got := seen(tables); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%s: queries see %v instead of %v", what, got, want)
	}
}

func newPlan(t testing.TB, config PlanConfig) *Plan {
	if config.PageSize == 0 {
		config.PageSize = 4
	}
	plan := must(NewPlan(config))(t)
	t.Cleanup(func() { plan.Close() })
	return plan
}

// positions [begin, end) of a row of the server's table, as slots.
func run(slot func(row, position int) int, row, begin, end int) (found []int) {
	for p := begin; p < end; p++ {
		found = append(found, slot(row, p))
	}
	return found
}

// A step's tables over views of the cache's own pools, read by the stateless call, give what Attend gives.
func TestStepTablesFeedAnotherKernel(t *testing.T) {
	r, context := rand.New(rand.NewSource(1)), newContext(t)
	cache := newCache(t, func(c *Config) { c.Context = context })
	ids := must(cache.AddMany(2))(t)
	keys, values := must(cache.ViewPool(0, PoolK, false))(t), must(cache.ViewPool(0, PoolV, false))(t)
	defer keys.Close()
	defer values.Close()
	byToken := func(view *PoolView) Tensor { // [pages, kv heads, page size, dim] seen as [pages, page size, kv heads, dim]
		const page = 4 * dim
		return F32(view.Tensor.Float32s(), 64, 4, kvHeads, dim).WithStrides(2*kvHeads*page, dim, page, 1)
	}
	for _, lengths := range [][]int32{{6, 3}, {1, 4}, {1, 1}} {
		x := randomTokens(r, int(lengths[0]+lengths[1]))
		s := must(cache.Begin(background, Batch{Sequences: ids, AppendLengths: lengths}))(t)
		check(t, s.Attend(background, 0, x.attend()))
		tables := must(s.Tables(0, TablesOptions{}))(t)
		other := make([]float32, len(x.out))
		check(t, context.FlashAttnWithKVCache(FlashAttn{Q: x.attend().Q, Out: F32(other, tables.Queries, qHeads, dim),
			KCache: byToken(keys), VCache: byToken(values), CacheSeqlens: I32(tables.CacheSeqlens), CuSeqlensQ: I32(tables.CuSeqlensQ),
			BlockTable: I32(tables.BlockTable, tables.Rows, tables.MaxPages).WithStrides(tables.BlockTableStride, 1), Causal: tables.Causal}))
		near(t, "by tables", other, float64s(x.out))
		check(t, s.End())
	}
}

func TestStepTables(t *testing.T) {
	cache := newCache(t)
	ids := must(cache.AddMany(2))(t)
	append_ := func(lengths []int32, look func(*Step)) {
		x := randomTokens(rand.New(rand.NewSource(1)), int(lengths[0]+lengths[1])).attend()
		s := must(cache.Begin(background, Batch{Sequences: ids, AppendLengths: lengths}))(t)
		defer s.Close()
		check(t, s.Append(background, 0, Append{K: x.K, V: x.V}))
		look(s)
		check(t, s.End())
	}
	append_([]int32{6, 3}, func(*Step) {})
	var kept Tables
	append_([]int32{1, 4}, func(s *Step) {
		padding := int32(-7)
		borrowed := must(s.Tables(0, TablesOptions{PadValue: &padding}))(t)
		kept = borrowed.Clone()
		if &kept.Indices[0] == &borrowed.Indices[0] || &kept.SlotMapping[0] == &borrowed.SlotMapping[0] {
			t.Error("a clone is no copy")
		}
		only := must(s.Tables(0, TablesOptions{Arrays: TablesCSR, Slots: true}))(t)
		if only.BlockTable != nil || only.SlotMapping != nil || only.PageSize != 1 || len(only.Indices) != 14 || only.GenerationWord != nil {
			t.Errorf("%+v", only)
		}
		_, err := s.Tables(0, TablesOptions{Part: TablesPrefix})
		refused(t, err, ErrInvalidArgument, "Step.Tables", "no trees")
		_, err = s.Tables(2, TablesOptions{})
		refused(t, err, ErrOutOfRange)
		_, err = s.Tables(0, TablesOptions{Part: 9})
		refused(t, err, ErrInvalidArgument)
		_, err = s.Tables(0, TablesOptions{Arrays: 64})
		refused(t, err, ErrUnsupported)
	})
	a, b := must(cache.Pages(ids[0], 0))(t), must(cache.Pages(ids[1], 0))(t)
	at := func(pages []int32, p int) int64 { return int64(pages[p/4])*4 + int64(p%4) }
	if !slices.Equal(kept.Row(0), a) || !slices.Equal(kept.Row(1), b) || !slices.Equal(kept.Indices, append(slices.Clone(a), b...)) {
		t.Errorf("%v %v instead of %v %v", kept.Row(0), kept.Row(1), a, b)
	}
	if !slices.Equal(kept.CacheSeqlens, []int32{7, 7}) || kept.MaxSeqlenQ != 4 || kept.MaxSeqlenK != 7 || !kept.Causal || kept.Keys != 14 ||
		kept.Pages != 4 || !slices.Equal(kept.LastPageLen, []int32{3, 3}) || !slices.Equal(kept.Indptr, []int32{0, 2, 4}) {
		t.Errorf("%+v", kept)
	}
	if !slices.Equal(kept.SlotMapping, []int64{at(a, 6), at(b, 3), at(b, 4), at(b, 5), at(b, 6)}) ||
		!slices.Equal(kept.Positions, []int32{6, 3, 4, 5, 6}) || !slices.Equal(kept.LastRows, []int32{0, 4}) {
		t.Errorf("%v %v %v", kept.SlotMapping, kept.Positions, kept.LastRows)
	}
	if kept.SinkTokens != nil || kept.HoleTokens != nil || !slices.Equal(kept.BatchRows, []int32{0, 1}) ||
		!slices.Equal(kept.KeyStarts, []int32{0, 0}) || !slices.Equal(kept.CuSeqlensK, []int32{0, 7, 14}) {
		t.Errorf("%+v", kept)
	}
}

func TestPaddingBehindARowsPages(t *testing.T) {
	table, _ := serversTable()
	padding := int32(-7)
	plan := newPlan(t, PlanConfig{Mode: PlanDecode, PadValue: &padding})
	must(plan.Build(PlanStep{SeqLens: I32([]int32{8, 0}), BlockTable: I32(table, 3, 20)}))(t)
	if tables := must(plan.Tables(0, TablesWhole))(t); !slices.Equal(tables.Row(1), []int32{table[20], -7, -7}) {
		t.Error(tables.Row(1))
	}
}

func TestPlanExtendByBothKindsOfTable(t *testing.T) {
	table, slot := serversTable()
	slots := make([]int32, 3*80)
	for i := range slots {
		slots[i] = int32(slot(i/80, i%80))
	}
	for name, step := range map[string]PlanStep{"pages": {BlockTable: I32(table, 3, 20)}, "slots": {ReqToToken: I32(slots, 3, 80)}} {
		plan := newPlan(t, PlanConfig{Mode: PlanExtend, PoolPages: 60})
		step.SeqLens, step.AppendLengths, step.Rows = I64([]int64{7, 0}), I32([]int32{2, 5}), I64([]int64{2, 0})
		if generation := must(plan.Build(step))(t); generation != 1 {
			t.Error(generation)
		}
		tables := must(plan.Tables(0, TablesWhole))(t)
		want := [][]int{run(slot, 2, 0, 8), run(slot, 2, 0, 9)}
		for i := range 5 {
			want = append(want, run(slot, 0, 0, 1+i))
		}
		wantSeen(t, name, tables, want)
	}
}

func TestPlanVerifiesATreeInTwoParts(t *testing.T) {
	table, slot := serversTable()
	plan := newPlan(t, PlanConfig{Mode: PlanVerify, DraftTokens: 3})
	must(plan.Build(PlanStep{SeqLens: I32([]int32{6}), BlockTable: I32(table, 3, 20), TreeParents: I32([]int32{-1, 0, 0})}))(t)
	prefix, branches := must(plan.Tables(0, TablesPrefix))(t), must(plan.Tables(0, TablesBranches))(t)
	wantSeen(t, "prefix", prefix, [][]int{run(slot, 0, 0, 6), run(slot, 0, 0, 6), run(slot, 0, 0, 6)})
	wantSeen(t, "branches", branches, [][]int{{slot(0, 6)}, {slot(0, 6), slot(0, 7)}, {slot(0, 6), slot(0, 8)}})
	if !slices.Equal(branches.Positions, []int32{6, 7, 7}) || branches.PageSize != 1 || prefix.Causal {
		t.Errorf("%+v", branches)
	}
	_, err := plan.Tables(0, TablesWhole)
	refused(t, err, ErrInvalidArgument)
}

func TestPlanDraftsAndEncoders(t *testing.T) {
	table, slot := serversTable()
	plan := newPlan(t, PlanConfig{Mode: PlanDraftDecode, Steps: 3, TopK: 1})
	must(plan.Build(PlanStep{SeqLens: I32([]int32{5, 7}), BlockTable: I32(table, 3, 20)}))(t)
	for i := range 3 {
		tables := must(plan.Tables(i, TablesWhole))(t)
		if !slices.Equal(tables.SlotMapping, []int64{int64(slot(0, 5+i)), int64(slot(1, 7+i))}) {
			t.Error(i, tables.SlotMapping)
		}
	}
	for _, step := range []int{3, -1, 1 << 40} {
		_, err := plan.Tables(step, TablesWhole)
		refused(t, err, ErrOutOfRange, "step")
	}
	plan = newPlan(t, PlanConfig{Mode: PlanDecode, Slots: true})
	must(plan.Build(PlanStep{SeqLens: I32([]int32{2, 4}), BlockTable: I32(table, 3, 20), EncoderLens: I32([]int32{5, 0})}))(t)
	wantSeen(t, "decoder", must(plan.Tables(0, TablesWhole))(t), [][]int{run(slot, 0, 5, 8), run(slot, 1, 0, 5)})
	wantSeen(t, "encoder", must(plan.Tables(0, TablesEncoder))(t), [][]int{run(slot, 0, 0, 5), nil})
}

func TestGraphArraysStayWhereTheyAre(t *testing.T) {
	table, _ := serversTable()
	plan := newPlan(t, PlanConfig{Mode: PlanDecode, Graph: true, MaxRows: 4, MaxPagesPerRow: 20})
	_, err := plan.Tables(0, TablesWhole)
	refused(t, err, ErrStale)
	first := must(plan.Build(PlanStep{SeqLens: I32([]int32{7, 3}), BlockTable: I32(table, 3, 20)}))(t)
	tables := must(plan.Tables(0, TablesWhole))(t)
	if tables.Rows != 2 || len(tables.BatchRows) != 4 || tables.MaxPages != 20 || !slices.Equal(tables.CacheSeqlens, []int32{8, 4, 0, 0}) || *tables.GenerationWord != int64(first) {
		t.Errorf("%+v", tables)
	}
	second := must(plan.Build(PlanStep{SeqLens: I32([]int32{8}), BlockTable: I32(table, 3, 20)}))(t)
	if !slices.Equal(tables.CacheSeqlens, []int32{9, 0, 0, 0}) || tables.Row(0)[2] != table[2] {
		t.Error("the old slices do not show the new build: ", tables.CacheSeqlens)
	}
	check(t, plan.Check(second))
	refused(t, plan.Check(first), ErrStale)
	_, err = plan.Build(PlanStep{SeqLens: I32([]int32{-1}), BlockTable: I32(table, 3, 20)})
	refused(t, err, ErrOutOfRange, "SeqLens[0] is -1")
	var e *Error
	if errors.As(err, &e); e.Index != 0 || *tables.GenerationWord != 0 {
		t.Errorf("%+v, generation %d", e, *tables.GenerationWord)
	}
	refused(t, plan.Check(second), ErrStale)
	_, err = plan.Build(PlanStep{SeqLens: I32([]int32{1, 1, 1, 1, 1}), BlockTable: I32(make([]int32, 100), 5, 20)})
	refused(t, err, ErrBatchTooLarge)
	if errors.As(err, &e); e.Required != 5 || e.Available != 4 {
		t.Errorf("%+v", e)
	}
}

func TestRowsThatGrew(t *testing.T) {
	table, _ := serversTable()
	plan := newPlan(t, PlanConfig{Mode: PlanDecode, Arrays: TablesDense})
	step := PlanStep{SeqLens: I32([]int32{7, 3}), BlockTable: I32(table, 3, 20)}
	must(plan.Build(step))(t)
	step.SeqLens, step.RowsGrew = I32([]int32{8, 4}), true
	must(plan.Build(step))(t)
	tables := must(plan.Tables(0, TablesWhole))(t)
	if !slices.Equal(tables.Row(0), table[:3]) || !slices.Equal(tables.Row(1), []int32{table[20], table[21], -1}) || tables.Indices != nil {
		t.Error(tables.Row(0), tables.Row(1))
	}
	step.SeqLens = I32([]int32{9, 2})
	_, err := plan.Build(step)
	refused(t, err, ErrInvalidArgument, "row 1")
}

func TestPlansThatAreWrong(t *testing.T) {
	table, _ := serversTable()
	for name, c := range map[string]struct {
		config PlanConfig
		status Status
	}{
		"mode":           {PlanConfig{Mode: 7}, ErrInvalidArgument},
		"page size":      {PlanConfig{PageSize: -1}, ErrInvalidArgument},
		"huge page size": {PlanConfig{PageSize: 1 << 40}, ErrInvalidArgument},
		"drafts":         {PlanConfig{Mode: PlanVerify}, ErrInvalidArgument},
		"steps":          {PlanConfig{Mode: PlanDecode, Steps: 2}, ErrInvalidArgument},
		"graph":          {PlanConfig{Graph: true}, ErrInvalidArgument},
		"rows":           {PlanConfig{MaxRows: 3}, ErrInvalidArgument},
		"both":           {PlanConfig{Window: 3, Chunk: 3}, ErrInvalidArgument},
		"arrays":         {PlanConfig{Arrays: 64}, ErrUnsupported},
	} {
		if _, err := NewPlan(c.config); !errors.Is(err, c.status) && !errors.Is(err, ErrOutOfRange) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plan := newPlan(t, PlanConfig{Mode: PlanDecode, PoolPages: 60})
	for name, c := range map[string]struct {
		step   PlanStep
		status Status
	}{
		"nothing":      {PlanStep{}, ErrNullArgument},
		"no table":     {PlanStep{SeqLens: I32([]int32{1})}, ErrNullArgument},
		"both tables":  {PlanStep{SeqLens: I32([]int32{1}), BlockTable: I32(table, 3, 20), ReqToToken: I32(table, 3, 20)}, ErrInvalidArgument},
		"short":        {PlanStep{SeqLens: I32([]int32{1}), BlockTable: I32(table, 3, 21)}, ErrShape},
		"short list":   {PlanStep{SeqLens: I32([]int32{1}, 2), BlockTable: I32(table, 3, 20)}, ErrShape},
		"dtype":        {PlanStep{SeqLens: F32([]float32{1}), BlockTable: I32(table, 3, 20)}, ErrDType},
		"wide table":   {PlanStep{SeqLens: I32([]int32{1}), BlockTable: I64(make([]int64, 60), 3, 20)}, ErrDType},
		"page":         {PlanStep{SeqLens: I32([]int32{1}), BlockTable: I32([]int32{60}, 1, 1)}, ErrOutOfRange},
		"columns":      {PlanStep{SeqLens: I32([]int32{4}), BlockTable: I32([]int32{6}, 1, 1)}, ErrOutOfRange},
		"rows":         {PlanStep{SeqLens: I32([]int32{1}), BlockTable: I32(table, 3, 20), Rows: I32([]int32{3})}, ErrOutOfRange},
		"new lengths":  {PlanStep{SeqLens: I32([]int32{1}), BlockTable: I32(table, 3, 20), AppendLengths: I32([]int32{1})}, ErrInvalidArgument},
		"tree parents": {PlanStep{SeqLens: I32([]int32{1}), BlockTable: I32(table, 3, 20), TreeParents: I32([]int32{-1})}, ErrInvalidArgument},
	} {
		if _, err := plan.Build(c.step); !errors.Is(err, c.status) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := PlanStep{SeqLens: I32([]int32{1}), BlockTable: I32(table, 3, 20)}
	must(plan.Build(good))(t) // after all that
	_, err := plan.Tables(0, TablesPrefix)
	refused(t, err, ErrInvalidArgument)
}

// Calls of one plan wait for each other, and its Close for them.
func TestAPlanFromManyGoroutines(t *testing.T) {
	table, _ := serversTable()
	context := must(NewContext(ContextConfig{Threads: 1}))(t)
	plan := newPlan(t, PlanConfig{Mode: PlanDecode, Context: context})
	check(t, context.Close()) // the plan keeps it
	var group sync.WaitGroup
	for worker := range 4 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range 200 {
				generation, err := plan.Build(PlanStep{SeqLens: I32([]int32{int32(i % 70)}), BlockTable: I32(table, 3, 20)})
				if err == nil {
					err = plan.Check(generation)
				}
				if err != nil && !errors.Is(err, ErrStale) && !errors.Is(err, ErrNullArgument) { // built anew, or closed
					t.Error(err)
				}
				if i == 150 && worker == 0 {
					plan.Close()
				}
			}
		}()
	}
	group.Wait()
	if plan.handle.users.Load() != 0 {
		t.Error("the plan is not released")
	}
}
