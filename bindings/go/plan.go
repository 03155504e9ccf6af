package kvcache

import (
	"runtime"
	"sync"
)

// PlanMode is the kind of step that a Plan makes tables of.
type PlanMode int32

const (
	PlanDecode      PlanMode = kvcPlanDecode      // one new token a row
	PlanExtend      PlanMode = kvcPlanExtend      // AppendLengths new tokens: prefill, mixed with decoding rows, draft extend
	PlanVerify      PlanMode = kvcPlanVerify      // DraftTokens new tokens, a chain or by TreeParents a tree
	PlanDraftDecode PlanMode = kvcPlanDraftDecode // Steps steps of TopK branches, all in one build
)

// PlanConfig says what steps a Plan is for. Zero is the default everywhere; include/kvcache.h has the ranges.
type PlanConfig struct {
	Context        *Context // nil = one of its own
	Mode           PlanMode
	PageSize       int // 0 = 16
	DraftTokens    int // PlanVerify
	Steps          int // PlanDraftDecode
	TopK           int // PlanDraftDecode; 0 = 1
	Arrays         TablesArrays
	PadValue       *int32 // of BlockTable after a row's pages; nil = -1 (Graph: 0)
	Slots          bool   // tables of page size 1
	LengthsWithNew bool   // SeqLens count this step's new tokens; a row of 0 is inert
	Window         int64  // queries see this many keys, themselves included; 0 = all
	Chunk          int64  // queries see their chunk up to themselves; 0 = all
	PoolPages      int64  // pages of the server's pool, against which tables are checked; 0 = unknown
	// Graph: arrays of the capacity, whose addresses never change.
	Graph          bool
	MaxRows        int
	MaxTokens      int // PlanExtend
	MaxPagesPerRow int
}

// Plan makes the tables of one kind of step for a server with its own allocator. Any goroutine may call its methods;
// they wait for each other.
type Plan struct {
	handle *handle
	mutex  sync.Mutex
}

// NewPlan makes a Plan.
func NewPlan(config PlanConfig) (*Plan, error) {
	own := Config{Context: config.Context}
	a, context, err := own.enter("NewPlan")
	if err != nil {
		return nil, err
	}
	defer leave(a, context)
	c := new(kvcPlanConfig)
	c.init()
	c.mode, c.arrays = int32(config.Mode), uint32(config.Arrays)
	c.flags = flag(config.Graph, kvcPlanGraph) | flag(config.Slots, kvcPlanSlots) |
		flag(config.LengthsWithNew, kvcPlanLengthsWithNew)
	if config.PadValue != nil {
		c.flags |= kvcPlanPadValue
		c.padValue = *config.PadValue
	}
	c.pageSize, c.numDraftTokens = narrow(config.PageSize), narrow(config.DraftTokens)
	c.numSteps, c.topK = narrow(config.Steps), narrow(config.TopK)
	c.maxRows, c.maxTokens, c.maxPagesPerRow = narrow(config.MaxRows), narrow(config.MaxTokens), narrow(config.MaxPagesPerRow)
	c.windowTokens, c.chunkTokens, c.numPoolPages = config.Window, config.Chunk, config.PoolPages
	if err := a.check(context.lib.planCreate(a, context.address, c, &a.handle)); err != nil {
		return nil, err
	}
	plan := &Plan{handle: newHandle(context.lib, a.handle, (*library).planDestroy)}
	runtime.AddCleanup(plan, (*handle).close, plan.handle)
	return plan, nil
}

// Close releases the plan and its tables. Closing it again does nothing.
func (p *Plan) Close() error {
	if p != nil {
		p.handle.close()
	}
	return nil
}

// enter also keeps other calls on the plan waiting until leave.
func (p *Plan) enter(function string) (*arena, error) {
	if p == nil || !p.handle.enter() {
		return nil, misuse(ErrNullArgument, "%s: the Plan is nil or closed", function)
	}
	p.mutex.Lock()
	return takeArena(), nil
}

func (p *Plan) leave(a *arena) {
	p.mutex.Unlock()
	leave(a, p.handle)
}

// PlanStep is a step's arrays: Int32, or Int64 where they have one dimension; tables by rows of any stride.
type PlanStep struct {
	SeqLens       Tensor // [B]: tokens of each row before the step
	AppendLengths Tensor // PlanExtend: [B], new tokens of each row
	Rows          Tensor // may be absent: row i is row i. [B]: rows of the table; -1 = inert
	BlockTable    Tensor // [rows, columns]: page ids. Either this
	ReqToToken    Tensor // [rows, columns]: or the slot of each token
	EncoderLens   Tensor // may be absent; [B]: encoder tokens before the row's own
	TreeParents   Tensor // may be absent; PlanVerify: [B * DraftTokens], each node's parent in its row, -1 = root
	RowsGrew      bool   // a promise: the rows of the last build, each with what it had. Only what is new is read
}

// Build makes the tables of a step, and returns the number of this build. If the library refuses the step, the tables
// are stale until the next Build.
func (p *Plan) Build(step PlanStep) (generation uint64, err error) {
	a, err := p.enter("Plan.Build")
	if err != nil {
		return 0, err
	}
	defer p.leave(a)
	if err := broken("Plan.Build", "SeqLens AppendLengths Rows BlockTable ReqToToken EncoderLens TreeParents", &step.SeqLens,
		&step.AppendLengths, &step.Rows, &step.BlockTable, &step.ReqToToken, &step.EncoderLens, &step.TreeParents); err != nil {
		return 0, err
	}
	c := &a.plan
	c.init()
	c.flags = flag(step.RowsGrew, kvcPlanRowsGrew)
	c.seqLens, c.appendLengths, c.rows = a.tensor(0, &step.SeqLens), a.tensor(1, &step.AppendLengths), a.tensor(2, &step.Rows)
	c.blockTable, c.reqToToken = a.tensor(3, &step.BlockTable), a.tensor(4, &step.ReqToToken)
	c.encoderLens, c.treeParents = a.tensor(5, &step.EncoderLens), a.tensor(6, &step.TreeParents)
	a.id = 0
	err = a.check(p.handle.lib.planBuild(a, p.handle.address, c, 0, &a.id))
	return a.id, err
}

// Tables returns the tables of the last Build: those of draft step `step`, in other modes of step 0. They are valid
// until the next Build or, in graph mode, until Close.
func (p *Plan) Tables(step int, part TablesPart) (Tables, error) {
	a, err := p.enter("Plan.Tables")
	if err != nil {
		return Tables{}, err
	}
	defer p.leave(a)
	c := &a.tables
	c.init()
	c.part = int32(part)
	if err := a.check(p.handle.lib.planTables(a, p.handle.address, narrow(step), c)); err != nil {
		return Tables{}, err
	}
	return tablesOf(c, p), nil
}

// Check returns nil if the arrays hold build `generation`, else ErrStale. Call it before recorded calls are replayed.
func (p *Plan) Check(generation uint64) error {
	a, err := p.enter("Plan.Check")
	if err != nil {
		return err
	}
	defer p.leave(a)
	return a.check(p.handle.lib.planCheck(a, p.handle.address, generation))
}
