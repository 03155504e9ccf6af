package kvcache

import (
	"slices"
	"unsafe"
)

// TablesPart selects which keys a table has.
type TablesPart int32

const (
	TablesWhole    TablesPart = kvcTablesWhole    // all keys of each row
	TablesPrefix   TablesPart = kvcTablesPrefix   // steps that branch: keys that all branches share
	TablesBranches TablesPart = kvcTablesBranches // and each branch's own
	TablesEncoder  TablesPart = kvcTablesEncoder  // plans with encoder tokens: the encoder's keys
)

// TablesArrays selects which arrays of Tables are made.
type TablesArrays uint32

const (
	TablesDense  TablesArrays = kvcTablesDense  // BlockTable
	TablesCSR    TablesArrays = kvcTablesCsr    // Indptr, Indices, LastPageLen
	TablesTokens TablesArrays = kvcTablesTokens // SlotMapping, Positions, LastRows
)

// TablesOptions selects what tables of a step contain. The zero value means all keys and all arrays.
type TablesOptions struct {
	Part     TablesPart
	Arrays   TablesArrays // 0 = all
	Slots    bool         // tables of page size 1: slots where pages were
	PadValue *int32       // of BlockTable after a row's pages; nil = -1 (graph: 0)
}

// Tables are the tables of a step for attention kernels of other libraries; docs/reference/tables.md describes each
// array. The slices are memory of the library. Only read them, only as long as the call that returned them allows, and
// keep the Tables, the Plan or the Cache until then. Clone copies them. In a graph they have the size of its capacity.
type Tables struct {
	Causal           bool // a row's queries are the last of its keys, and each sees those up to itself
	Rows             int
	Queries          int // of all rows: T
	PageSize         int // of BlockTable and Indices: the group's, or 1
	MaxSeqlenQ       int
	MaxSeqlenK       int
	MaxPages         int // columns of BlockTable
	Pages            int64
	Keys             int64
	Generation       uint64  // of a plan: number of the build; of a Graph: of the step
	BlockTable       []int32 // Row(r) is its row r
	BlockTableStride int
	CacheSeqlens     []int32 // [Rows]
	CuSeqlensQ       []int32 // [Rows + 1]
	CuSeqlensK       []int32 // [Rows + 1]
	Indptr           []int32 // [Rows + 1]
	Indices          []int32 // [Pages]
	LastPageLen      []int32 // [Rows]
	KeyStarts        []int32 // [Rows]
	Leftpad          []int32 // [Rows]
	BatchRows        []int32 // [Rows]
	SinkTokens       []int32 // [Rows], nil if no row streams
	HoleTokens       []int32
	SlotMapping      []int64 // [T]
	Positions        []int32 // [T]
	LastRows         []int32 // rows of the batch
	GenerationWord   *int64  // of a plan or a Graph: the build or step that the arrays hold, 0 = stale

	owner any // the library's memory lives while this does
}

// Row is row r of BlockTable: page ids, then padding.
func (t *Tables) Row(r int) []int32 {
	return t.BlockTable[r*t.BlockTableStride:][:t.MaxPages:t.MaxPages]
}

// Clone copies the arrays into Go's memory, so they stay valid.
func (t Tables) Clone() Tables {
	for _, array := range [...]*[]int32{&t.BlockTable, &t.CacheSeqlens, &t.CuSeqlensQ, &t.CuSeqlensK, &t.Indptr, &t.Indices,
		&t.LastPageLen, &t.KeyStarts, &t.Leftpad, &t.BatchRows, &t.SinkTokens, &t.HoleTokens, &t.Positions, &t.LastRows} {
		*array = slices.Clone(*array)
	}
	t.SlotMapping = slices.Clone(t.SlotMapping)
	if t.GenerationWord != nil {
		word := *t.GenerationWord
		t.GenerationWord = &word
	}
	t.owner = nil
	return t
}

// tablesOf converts the struct that the library filled.
func tablesOf(c *kvcTables, owner any) Tables {
	t := Tables{Causal: c.causal != 0, Rows: int(c.numRows), Queries: int(c.numQueries), PageSize: int(c.pageSize),
		MaxSeqlenQ: int(c.maxSeqlenQ), MaxSeqlenK: int(c.maxSeqlenK), MaxPages: int(c.maxPages), Pages: c.numPages,
		Keys: c.numKeys, Generation: c.generation, owner: owner}
	t.BlockTable = borrowed[int32](&c.blockTable)
	if c.blockTable.ndim != 0 {
		t.BlockTableStride = int(*c.blockTable.strides)
	}
	t.CacheSeqlens, t.CuSeqlensQ = borrowed[int32](&c.cacheSeqlens), borrowed[int32](&c.cuSeqlensQ)
	t.CuSeqlensK, t.Indptr = borrowed[int32](&c.cuSeqlensK), borrowed[int32](&c.indptr)
	t.Indices, t.LastPageLen = borrowed[int32](&c.indices), borrowed[int32](&c.lastPageLen)
	t.KeyStarts, t.Leftpad = borrowed[int32](&c.keyStarts), borrowed[int32](&c.leftpad)
	t.BatchRows, t.SinkTokens = borrowed[int32](&c.batchRows), borrowed[int32](&c.sinkTokens)
	t.HoleTokens, t.SlotMapping = borrowed[int32](&c.holeTokens), borrowed[int64](&c.slotMapping)
	t.Positions, t.LastRows = borrowed[int32](&c.positions), borrowed[int32](&c.lastRows)
	if word := borrowed[int64](&c.generationWord); len(word) > 0 {
		t.GenerationWord = &word[0]
	}
	return t
}

// borrowed is an array of the library, or nil if it was not requested. Do not append to it, and do not read past its
// end.
func borrowed[T any](t *dlTensor) []T {
	if t.ndim == 0 {
		return nil
	}
	shape := unsafe.Slice(t.shape, t.ndim)
	n := shape[0]
	if t.ndim == 2 && n > 0 {
		n = (n-1)**t.strides + shape[1]
	}
	if n == 0 {
		return []T{}
	}
	return unsafe.Slice((*T)(unsafe.Add(t.data, t.byteOffset)), n)
}

// Tables returns the step's tables in a layer group, with its new tokens. They are valid until the step closes, or
// until Tables is called again for the same step, group, Part and Slots. In a Graph every step has the same slices,
// until Graph.Close. Each step fills them by a call of Tables; before that they are stale.
func (s *Step) Tables(group int, options TablesOptions) (Tables, error) {
	a, h, err := s.enter("Step.Tables")
	if err != nil {
		return Tables{}, err
	}
	defer leave(a, h)
	c := &a.tables
	c.init()
	c.flags, c.part, c.arrays = flag(options.Slots, kvcTablesSlots), int32(options.Part), uint32(options.Arrays)
	if options.PadValue != nil {
		c.flags |= kvcTablesPadValue
		c.padValue = *options.PadValue
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.done(a, h.lib.forwardTables(a, h.address, s.id, narrow(group), c)); err != nil {
		return Tables{}, err
	}
	if s.graph != nil {
		return tablesOf(c, s.graph), nil
	}
	return tablesOf(c, s.cache), nil
}
