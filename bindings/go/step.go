package kvcache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Batch is what a step appends. The T rows of its tensors are the tokens of the first sequence, then those of the
// second, and so on.
type Batch struct {
	Sequences     []Seq   // distinct; 0 = an inert row, whose tokens are padding
	AppendLengths []int32 // new tokens of each
	LayerBegin    int     // the step covers layers [LayerBegin, LayerEnd); both 0 = all
	LayerEnd      int
	TreeParents   []int32       // [T] or none: of each token its parent node, TreeRoot, or TreeNone in all tokens of a plain row
	SpanIDs       []int32       // [T] or none: neighbours with the same id above 0 see each other, later ones too
	EncoderGroup  OptionalIndex // Index(g): the tokens belong to the encoder sequences of cross group g
}

const (
	TreeRoot int32 = kvcTreeRoot // the node follows the sequence's last committed token
	TreeNone int32 = kvcTreeNone // no node: its row appends plain tokens
)

// c writes the batch as the C struct, pinned for the call. The lengths are a copy, because C reads as many parents and
// spans as they say: another goroutine must not change them after they were counted here.
func (b *Batch) c(function string, graph *Graph, a *arena) (*kvcBatch, error) {
	if len(b.AppendLengths) != len(b.Sequences) {
		return nil, misuse(ErrInvalidArgument, "%s: %d Sequences, but %d AppendLengths", function, len(b.Sequences),
			len(b.AppendLengths))
	}
	a.lengths = append(a.lengths[:0], b.AppendLengths...)
	tokens := 0
	for _, n := range a.lengths {
		tokens += max(0, int(n))
	}
	for _, list := range [...][]int32{b.TreeParents, b.SpanIDs} {
		if list != nil && len(list) != tokens {
			return nil, misuse(ErrInvalidArgument, "%s: %d tokens, but TreeParents or SpanIDs for %d", function, tokens, len(list))
		}
	}
	c := &a.batch
	c.init()
	c.numSequences = narrow(len(b.Sequences))
	c.sequences, c.appendLengths = address(a, b.Sequences), address(a, a.lengths)
	c.layerBegin, c.layerEnd = narrow(b.LayerBegin), narrow(b.LayerEnd)
	c.treeParents, c.spanIds = address(a, b.TreeParents), address(a, b.SpanIDs)
	c.graph = graph.number()
	var err *Error
	if c.encoderGroup, err = b.EncoderGroup.c("EncoderGroup"); err != nil {
		return nil, err.within(function, "Batch", -1)
	}
	return c, nil
}

// CanFit returns the error that Begin would return now, or nil.
func (c *Cache) CanFit(batch Batch) error { return c.canFit("Cache.CanFit", batch, nil) }

func (c *Cache) canFit(function string, batch Batch, graph *Graph) error {
	a, h, err := c.enter(function)
	if err != nil {
		return err
	}
	defer leave(a, h)
	b, err := batch.c(function, graph, a)
	if err != nil {
		return err
	}
	err = a.check(h.lib.cacheCanFit(a, h.address, b))
	b.init() // points to the caller's slices no more
	return err
}

// Step is one step of the model over a batch, from Begin to End or Close. One goroutine at a time may use it, but any
// may call Cancel, Close and the methods that only read.
type Step struct {
	cache  *Cache
	graph  *Graph // in which it is open; nil = none
	id     uint64 // the graph's, in a graph
	ctx    context.Context
	stop   func() bool // no longer cancel when ctx ends; nil if it cannot end
	ended  atomic.Pointer[ending]
	closed atomic.Bool
	own    sync.Mutex
	mutex  *sync.Mutex // own, or the graph's. The library's arrays live until the step closes: no End or Abort while they are read
}

// Begin begins a step. It reserves every page for the new tokens, or changes nothing (OutOfPages). When ctx ends, the
// step is cancelled, also while it computes. Its calls then return an error that matches ErrCancelled and the error of
// the context.
func (c *Cache) Begin(ctx context.Context, batch Batch) (*Step, error) {
	return c.begin("Cache.Begin", ctx, batch, nil)
}

func (c *Cache) begin(function string, ctx context.Context, batch Batch, graph *Graph) (*Step, error) {
	a, h, err := c.enter(function)
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Err() != nil {
		err := misuse(ErrCancelled, "%s: the context has ended", function)
		err.ended = endingOf(ctx)
		return nil, err
	}
	b, err := batch.c(function, graph, a)
	if err != nil {
		return nil, err
	}
	err = a.check(h.lib.forwardBegin(a, h.address, b, 0, &a.id))
	b.init()
	if err != nil {
		return nil, err
	}
	step := &Step{cache: c, graph: graph, id: a.id, ctx: ctx}
	step.mutex = &step.own
	if graph != nil {
		step.mutex = &graph.mutex
	}
	if ctx.Done() != nil {
		step.stop = context.AfterFunc(ctx, func() { step.cancelFor(ctx) })
	}
	return step, nil
}

func (s *Step) enter(function string) (*arena, *handle, error) {
	if s == nil || s.cache == nil {
		return nil, nil, misuse(ErrNullArgument, "%s: the Step is nil", function)
	}
	return s.cache.enter(function)
}

// watch cancels the step when ctx ends. If it returns a function, the function must be called after the call.
func (s *Step) watch(ctx context.Context) func() bool {
	if ctx == nil || ctx.Done() == nil {
		ctx = s.ctx // it is watched already
	}
	if ctx.Err() != nil {
		s.cancelFor(ctx) // now: the goroutine that watches may come later
		return nil
	}
	if ctx.Done() == s.ctx.Done() {
		return nil
	}
	return context.AfterFunc(ctx, func() { s.cancelFor(ctx) })
}

func (s *Step) cancelFor(ctx context.Context) {
	s.ended.CompareAndSwap(nil, endingOf(ctx))
	_ = s.Cancel()
}

// done makes an error of a call's status, with the reason of a cancellation.
func (s *Step) done(a *arena, status Status) error {
	if status == kvcOk {
		return nil
	}
	err := a.failure(status)
	if ended := s.ended.Load(); ended != nil && status == ErrCancelled {
		err.(*Error).ended = ended
	}
	return err
}

// Append is a layer's new K and V.
type Append struct {
	K, V           Tensor // [T, Hkv, D] and [T, Hkv, Dv], float32, float16 or bfloat16
	RopeCosSin     Tensor // may be absent; [T, 2, rope dim / 2] float32
	KScale, VScale Tensor // with stored bytes of int8: [T, Hkv] float32
	AsStored       bool   // k is already rotated; of a quantised layer k and v may be stored bytes
}

// Append stores a layer's new K and V without attention.
func (s *Step) Append(ctx context.Context, layer int, args Append) error {
	s = s.current()
	a, h, err := s.enter("Step.Append")
	if err != nil {
		return err
	}
	defer leave(a, h)
	if err := broken("Step.Append", "K V RopeCosSin KScale VScale", &args.K, &args.V, &args.RopeCosSin, &args.KScale, &args.VScale); err != nil {
		return err
	}
	c := &a.append
	c.init()
	c.flags = flag(args.AsStored, kvcAppendAsStored)
	c.k, c.v, c.ropeCosSin = a.tensor(0, &args.K), a.tensor(1, &args.V), a.tensor(2, &args.RopeCosSin)
	c.kScale, c.vScale = a.tensor(3, &args.KScale), a.tensor(4, &args.VScale)
	stop := s.watch(ctx)
	status := h.lib.forwardAppend(a, h.address, s.id, narrow(layer), c)
	if stop != nil {
		stop()
	}
	return s.done(a, status)
}

// AttendFlags change which keys an Attend sees.
type AttendFlags uint32

const (
	NonCausal AttendFlags = kvcAttendNonCausal // every key of its row, the tokens after it too
	Past      AttendFlags = kvcAttendPast      // only keys of earlier steps
	Self      AttendFlags = kvcAttendSelf      // only keys of this step's tokens
	// AlibiSigned: slope * (p_q - p_k) is subtracted from scores, in place of slope * |p_q - p_k|
	AlibiSigned AttendFlags = kvcAttendAlibiSigned
	RelBiasZero AttendFlags = kvcAttendRelBiasZero // RelBias adds 0 at distances that it has no entry for
	NoSpans     AttendFlags = kvcAttendNoSpans     // this layer ignores the step's spans
	// StepWindow: the window, or chunk, of every query begins where that of the row's first new token does
	StepWindow AttendFlags = kvcAttendStepWindow
)

// Attend is the tensors and options of one layer's attention. K and V are absent where they were appended already.
type Attend struct {
	Q            Tensor // [T, Hq, D] float32, float16 or bfloat16
	K, V         Tensor // as Append's
	Out          Tensor // written; [T, Hq, Dv], any of the three types
	LSE          Tensor // may be absent; written; [T, Hq] float32
	AlibiSlopes  Tensor // may be absent; [Hq] float32
	Sinks        Tensor // may be absent; [Hq] float32
	RopeCosSin   Tensor // may be absent; as Append's
	WUK, WUV     Tensor // MLA: up-projections, or absent: q and out are in latent space
	Indices      Tensor // may be absent; [T, 1 or Hkv, k] int32: the only tokens to which each query attends; negative: padding
	IndexBlock   int    // b: an entry i is the tokens [i*b, (i+1)*b); 0 = 1
	RelBias      Tensor // may be absent; [Hq, E] or [T, Hq, E] float32: the entry at p_q - p_k, or the nearest one, is added
	KeyBias      Tensor // may be absent; [sequences, keys, 1 or Hkv] float32: the entry of the row and key is added to scores
	Mask         Tensor // may be absent; [T, keys] or [T, 1 or Hkv, keys] uint8: 0 hides a key that the query would see
	SoftmaxScale float64
	Softcap      float64
	Flags        AttendFlags
}

// Attend stores a layer's new K and V, and computes attention over everything stored. It allocates memory only if ctx
// can end and is not the context of Begin.
func (s *Step) Attend(ctx context.Context, layer int, args Attend) error {
	s = s.current()
	a, h, err := s.enter("Step.Attend")
	if err != nil {
		return err
	}
	defer leave(a, h)
	if err := broken("Step.Attend", "Q K V Out LSE AlibiSlopes Sinks RopeCosSin WUK WUV Indices RelBias KeyBias Mask", &args.Q,
		&args.K, &args.V, &args.Out, &args.LSE, &args.AlibiSlopes, &args.Sinks, &args.RopeCosSin, &args.WUK, &args.WUV,
		&args.Indices, &args.RelBias, &args.KeyBias, &args.Mask); err != nil {
		return err
	}
	c := &a.attend
	c.init()
	c.flags, c.softmaxScale, c.softcap = uint32(args.Flags), args.SoftmaxScale, args.Softcap
	c.q, c.k, c.v, c.out = a.tensor(0, &args.Q), a.tensor(1, &args.K), a.tensor(2, &args.V), a.tensor(3, &args.Out)
	c.lse, c.alibiSlopes, c.sinks = a.tensor(4, &args.LSE), a.tensor(5, &args.AlibiSlopes), a.tensor(6, &args.Sinks)
	c.ropeCosSin, c.wUk, c.wUv = a.tensor(7, &args.RopeCosSin), a.tensor(8, &args.WUK), a.tensor(9, &args.WUV)
	c.indices, c.indexBlock = a.tensor(10, &args.Indices), narrow(args.IndexBlock)
	c.relBias, c.keyBias, c.mask = a.tensor(11, &args.RelBias), a.tensor(12, &args.KeyBias), a.tensor(13, &args.Mask)
	stop := s.watch(ctx)
	status := h.lib.forwardAttend(a, h.address, s.id, narrow(layer), c)
	if stop != nil {
		stop()
	}
	return s.done(a, status)
}

// Select is the tensors and options of one selection of keys.
type Select struct {
	Q              Tensor // [T, Hq, D] float32, float16 or bfloat16
	Weights        Tensor // may be absent: all 1; [T, Hq] float32. Absent with EachHead
	Indices        Tensor // written; [T, 1, or Hq with EachHead, k] int32
	Candidates     Tensor // may be absent; int32, as Attend's Indices: only these tokens are scored
	RopeCosSin     Tensor // may be absent; as Append's
	EachHead       bool   // a list for each head, by q.k; else one by the sum over heads of weight * max(0, q.k)
	IndexBlock     int    // b: an entry i is the tokens [i*b, (i+1)*b); 0 = 1
	CandidateBlock int    // the same for Candidates
	FirstBlocks    int    // the first entries of the sequence, this many, are always chosen
	LastBlocks     int    // the same for the entry of the query's own token and those before it
}

// Select chooses, for each query, the k tokens or blocks with the highest scores among those that it sees. The layer has
// KeysOnly, and was appended in this step. Lists ascend, and -1 fills what is left of them.
func (s *Step) Select(ctx context.Context, layer int, args Select) error {
	s = s.current()
	a, h, err := s.enter("Step.Select")
	if err != nil {
		return err
	}
	defer leave(a, h)
	if err := broken("Step.Select", "Q Weights Indices Candidates RopeCosSin", &args.Q, &args.Weights, &args.Indices,
		&args.Candidates, &args.RopeCosSin); err != nil {
		return err
	}
	c := &a.selects
	c.init()
	if args.EachHead {
		c.rule = kvcSelectEachHead
	}
	c.q, c.weights, c.indices = a.tensor(0, &args.Q), a.tensor(1, &args.Weights), a.tensor(2, &args.Indices)
	c.candidates, c.ropeCosSin = a.tensor(3, &args.Candidates), a.tensor(4, &args.RopeCosSin)
	c.indexBlock, c.candidateBlock = narrow(args.IndexBlock), narrow(args.CandidateBlock)
	c.firstBlocks, c.lastBlocks = narrow(args.FirstBlocks), narrow(args.LastBlocks)
	stop := s.watch(ctx)
	status := h.lib.forwardSelect(a, h.address, s.id, narrow(layer), c)
	if stop != nil {
		stop()
	}
	return s.done(a, status)
}

// LoadState copies a state of a recurrent layer out of the cache. Row i of the tensor becomes the state that sequence i
// of the batch had before this step, or State.Fill if the sequence is empty.
func (s *Step) LoadState(layer, state int, tensor Tensor) error {
	return s.state("Step.LoadState", layer, state, -1, &tensor, (*library).forwardLoadState)
}

// LoadStateBefore copies the states before a token of each row, below Config.MaxDraftStates. Before a node of a tree that
// is the state after its parent, which this step may have stored. Rows without it are not written.
func (s *Step) LoadStateBefore(layer, state, token int, tensor Tensor) error {
	return s.state("Step.LoadStateBefore", layer, state, token, &tensor, (*library).forwardLoadState)
}

// StoreState copies a state into the cache. Row i becomes the state of sequence i of the batch when the step ends.
func (s *Step) StoreState(layer, state int, tensor Tensor) error {
	return s.state("Step.StoreState", layer, state, -1, &tensor, (*library).forwardStoreState)
}

// StoreStateAfter copies in the states after a token of each row, below Config.MaxDraftStates. They are kept after a row's
// last token, and after nodes of trees below MaxDraftStates, which can then be committed. Other rows are not read.
func (s *Step) StoreStateAfter(layer, state, token int, tensor Tensor) error {
	return s.state("Step.StoreStateAfter", layer, state, token, &tensor, (*library).forwardStoreState)
}

func (s *Step) state(function string, layer, state, token int, tensor *Tensor,
	call func(*library, *arena, uintptr, uint64, int32, int32, int32, *dlTensor) Status) error {
	s = s.current()
	a, h, err := s.enter(function)
	if err != nil {
		return err
	}
	defer leave(a, h)
	if err := broken(function, "tensor", tensor); err != nil {
		return err
	}
	return s.done(a, call(h.lib, a, h.address, s.id, narrow(layer), narrow(state), narrow(token), a.tensor(0, tensor)))
}

// Positions are the position of each of the step's T tokens in its sequence.
func (s *Step) Positions() ([]int32, error) {
	return s.info("Step.Positions", func(info *kvcForwardInfo) (*int32, int) {
		return info.positionsHost, int(info.numTokens)
	})
}

// LastRows are the index of the last token of each of the batch's rows; -1 if it has none.
func (s *Step) LastRows() ([]int32, error) {
	return s.info("Step.LastRows", func(info *kvcForwardInfo) (*int32, int) {
		return info.lastRowsHost, int(info.numSequences)
	})
}

func (s *Step) info(function string, pick func(*kvcForwardInfo) (*int32, int)) ([]int32, error) {
	a, h, err := s.enter(function)
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	info := new(kvcForwardInfo)
	info.init()
	if err := s.done(a, h.lib.forwardGetInfo(a, h.address, s.id, info)); err != nil {
		return nil, err
	}
	start, n := pick(info)
	return append([]int32{}, unsafe.Slice(start, n)...), nil
}

// Describe returns the plan of the step as one JSON object.
func (s *Step) Describe() (string, error) {
	a, h, err := s.enter("Step.Describe")
	if err != nil {
		return "", err
	}
	defer leave(a, h)
	return describe(a, func(buffer *byte, capacity int64, length *int64) Status {
		return h.lib.forwardDescribe(a, h.address, s.id, buffer, capacity, length)
	})
}

// End keeps the step's tokens. After an error the step is still open.
func (s *Step) End() error {
	a, h, err := s.enter("Step.End")
	if err != nil {
		return err
	}
	defer leave(a, h)
	if s.ctx.Err() != nil && !s.closed.Load() {
		s.cancelFor(s.ctx)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.superseded("Step.End"); err != nil {
		return err
	}
	return s.finish(a, h.lib.forwardEnd(a, h.address, s.id))
}

// Abort drops the step's tokens. Everything is then as before Begin.
func (s *Step) Abort() error {
	a, h, err := s.enter("Step.Abort")
	if err != nil {
		return err
	}
	defer leave(a, h)
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if err := s.superseded("Step.Abort"); err != nil {
		return err
	}
	return s.finish(a, h.lib.forwardAbort(a, h.address, s.id))
}

func (s *Step) finish(a *arena, status Status) error {
	if err := s.done(a, status); err != nil {
		return err
	}
	if s.graph != nil {
		s.graph.open.Store(nil)
	}
	s.closed.Store(true)
	if s.stop != nil {
		s.stop()
	}
	return nil
}

// Cancel stops the step, also while another goroutine computes in it. Its calls then return ErrCancelled.
func (s *Step) Cancel() error {
	if s == nil || s.cache == nil || !s.cache.handle.join() {
		return misuse(ErrNullArgument, "Step.Cancel: the Step is nil or its Cache is closed")
	}
	a, h := takeArena(), s.cache.handle
	defer leave(a, h)
	if s.graph != nil {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if err := s.superseded("Step.Cancel"); err != nil {
			return err
		}
	}
	return a.check(h.lib.forwardCancel(a, h.address, s.id))
}

// Close aborts the step unless it has ended; use it with defer. A call that computes on another goroutine is cancelled
// first.
func (s *Step) Close() error {
	if s == nil || s.closed.Load() {
		return nil
	}
	for {
		err := s.Abort()
		switch {
		case err == nil || errors.Is(err, ErrStaleID) || errors.Is(err, ErrStale) || s.cache == nil || s.cache.handle.closed.Load():
			s.closed.Store(true) // it is gone, by itself or with its cache
			if s.stop != nil {
				s.stop()
			}
			return nil
		case !errors.Is(err, ErrBusy):
			return err
		}
		_ = s.Cancel()
		time.Sleep(50 * time.Microsecond) // until the work items that run now are done
	}
}
