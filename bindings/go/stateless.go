package kvcache

// FlashAttn is one call of attention over a cache of the caller's own: the arguments of flash_attn_with_kvcache of
// FlashAttention 2 and 3. B rows, Sq queries and Sn new tokens of a row, Tq and Tn those of all rows; index tensors are Int32 or Int64.
type FlashAttn struct {
	Q            Tensor // [B, Sq, Hq, D], or with CuSeqlensQ [Tq, Hq, D]; float32, float16, bfloat16, or without rotary float8
	KCache       Tensor // [pages, page size, Hkv, D] with BlockTable, else [cache rows, capacity, Hkv, D]; written if K is given
	VCache       Tensor // [likewise, Dv]
	K, V         Tensor // new tokens, stored first, or absent: [B, Sn, Hkv, D], or with CuSeqlensKNew [Tn, Hkv, D]
	QV           Tensor // may be absent; as Q with Dv for D: scores are q.k + qv.v
	Out          Tensor // written; [B, Sq, Hq, Dv] or [Tq, Hq, Dv]
	SoftmaxLSE   Tensor // may be absent; written; float32 [B, Hq, Sq], or with CuSeqlensQ [Hq, Tq]
	CacheSeqlens Tensor // [B]: tokens in each row's cache, without the new ones; absent, without K: all of it

	// All of these may be absent.
	SequsedK                  Tensor // the other name of CacheSeqlens: only one of them
	CacheBatchIdx             Tensor // [B]: each row's row of the cache, or of BlockTable
	CacheLeftpad              Tensor // [B]: first valid key of each row
	BlockTable                Tensor // [rows, pages]: page ids in order
	CuSeqlensQ, CuSeqlensKNew Tensor // [B + 1]: row b's queries (new tokens) are [cu[b], cu[b+1])
	RotaryCos, RotarySin      Tensor // with K: [positions, rotary dim / 2]; the first dims of q and k are rotated
	RotarySeqlens             Tensor // [B]: positions count from here, not from CacheSeqlens; ignored without RotaryCos
	QDescale, KDescale        Tensor // float8: [B, Hkv] float32, factors of q and of the cache
	VDescale                  Tensor
	AlibiSlopes               Tensor // [Hq] or [B, Hq] float32: slope * |p_q - p_k| is subtracted from scores
	Sinks                     Tensor // [Hq] float32, float16 or bfloat16
	Indices                   Tensor // [B, Sq, 1 or Hkv, k], or with CuSeqlensQ [Tq, 1 or Hkv, k] int32: the only slots to attend to
	Causal                    bool
	AlibiSigned               bool         // slope * (p_q - p_k) is subtracted from scores
	RotaryInterleaved         bool         // rotated pairs are dims 2i, 2i+1; else i, i + rotary dim / 2
	Window                    *FlashWindow // nil = none
	AttentionChunk, NumSplits int          // 0 = none; 0 = as it pays
	SoftmaxScale, Softcap     float64      // 0 = D^-0.5; 0 = none
}

// FlashWindow bounds the keys that a query at p sees: p - Left to p + Right. -1 is no bound.
type FlashWindow struct{ Left, Right int }

// FlashAttnWithKVCache stores the given K and V after each row's cached tokens, and computes attention over the
// caller's own cache. In a row with L valid keys, the new ones included, query i of n is at position L - n + i. The
// call changes nothing if it fails, and does not change the lengths. Only the first call of a size allocates memory.
func (c *Context) FlashAttnWithKVCache(args FlashAttn) error {
	const function = "Context.FlashAttnWithKVCache"
	a, h, err := c.enter(function)
	if err != nil {
		return err
	}
	defer leave(a, h)
	if err := broken(function, "Q KCache VCache K V QV Out SoftmaxLSE CacheSeqlens CacheBatchIdx CacheLeftpad BlockTable "+
		"CuSeqlensQ CuSeqlensKNew RotaryCos RotarySin RotarySeqlens QDescale KDescale VDescale AlibiSlopes Sinks SequsedK Indices",
		&args.Q, &args.KCache, &args.VCache, &args.K, &args.V, &args.QV, &args.Out, &args.SoftmaxLSE, &args.CacheSeqlens,
		&args.CacheBatchIdx, &args.CacheLeftpad, &args.BlockTable, &args.CuSeqlensQ, &args.CuSeqlensKNew, &args.RotaryCos,
		&args.RotarySin, &args.RotarySeqlens, &args.QDescale, &args.KDescale, &args.VDescale, &args.AlibiSlopes,
		&args.Sinks, &args.SequsedK, &args.Indices); err != nil {
		return err
	}
	f := &a.flash
	f.init()
	f.q, f.kCache, f.vCache = a.tensor(0, &args.Q), a.tensor(1, &args.KCache), a.tensor(2, &args.VCache)
	f.k, f.v, f.qv = a.tensor(3, &args.K), a.tensor(4, &args.V), a.tensor(5, &args.QV)
	f.out, f.softmaxLse, f.cacheSeqlens = a.tensor(6, &args.Out), a.tensor(7, &args.SoftmaxLSE), a.tensor(8, &args.CacheSeqlens)
	f.cacheBatchIdx, f.cacheLeftpad = a.tensor(9, &args.CacheBatchIdx), a.tensor(10, &args.CacheLeftpad)
	f.blockTable = a.tensor(11, &args.BlockTable)
	f.cuSeqlensQ, f.cuSeqlensKNew = a.tensor(12, &args.CuSeqlensQ), a.tensor(13, &args.CuSeqlensKNew)
	f.rotaryCos, f.rotarySin = a.tensor(14, &args.RotaryCos), a.tensor(15, &args.RotarySin)
	f.rotarySeqlens = a.tensor(16, &args.RotarySeqlens)
	f.qDescale, f.kDescale, f.vDescale = a.tensor(17, &args.QDescale), a.tensor(18, &args.KDescale), a.tensor(19, &args.VDescale)
	f.alibiSlopes, f.sinks, f.sequsedK = a.tensor(20, &args.AlibiSlopes), a.tensor(21, &args.Sinks), a.tensor(22, &args.SequsedK)
	f.indices = a.tensor(23, &args.Indices)
	f.flags = flag(args.Causal, kvcFlashAttnCausal) | flag(args.RotaryInterleaved, kvcFlashAttnRotaryInterleaved) |
		flag(args.AlibiSigned, kvcFlashAttnAlibiSigned)
	if w := args.Window; w != nil {
		f.flags |= bound(w.Left, kvcFlashAttnWindowLeft, &f.windowLeft) | bound(w.Right, kvcFlashAttnWindowRight, &f.windowRight)
	}
	f.attentionChunk, f.numSplits = narrow(args.AttentionChunk), narrow(args.NumSplits)
	f.softmaxScale, f.softcap = args.SoftmaxScale, args.Softcap
	return a.check(h.lib.flashAttnWithKvcache(a, h.address, f, 0))
}

// bound sets a bound, and is its flag; -1 is none.
func bound(n int, bit uint32, field *int32) uint32 {
	if n == -1 {
		return 0
	}
	*field = narrow(n)
	return bit
}

// AppendSlots is rows of K and V for the caller's own cache, and the slot of each row.
type AppendSlots struct {
	K, V           Tensor // [T, Hkv, D] and [T, Hkv, Dv]. Latent form: rotary parts [T, 1, D - L], latent parts [T, 1, L]
	KCache, VCache Tensor // written; [pages, page size, Hkv, D or Dv]. VCache absent: the latent form, rows [latent | rotary]
	SlotMapping    Tensor // Int32 or Int64 [T]: page * page size + offset; negative: nowhere
	KScale, VScale Tensor // may be absent; [1] or [Hkv] float32: a float8 cache stores k / KScale
	RotaryCos      Tensor // may be absent, the three together; as FlashAttn's
	RotarySin      Tensor
	Positions      Tensor // Int32 or Int64 [T]: the row of cos and sin of each token

	RotaryInterleaved bool
}

// AppendSlots stores rows of K and V in the caller's own paged cache. It changes nothing if it fails.
func (c *Context) AppendSlots(args AppendSlots) error {
	const function = "Context.AppendSlots"
	a, h, err := c.enter(function)
	if err != nil {
		return err
	}
	defer leave(a, h)
	if err := broken(function, "K V KCache VCache SlotMapping KScale VScale RotaryCos RotarySin Positions", &args.K, &args.V,
		&args.KCache, &args.VCache, &args.SlotMapping, &args.KScale, &args.VScale, &args.RotaryCos, &args.RotarySin,
		&args.Positions); err != nil {
		return err
	}
	s := &a.slots
	s.init()
	s.flags = flag(args.RotaryInterleaved, kvcAppendSlotsRotaryInterleaved)
	s.k, s.v, s.kCache, s.vCache = a.tensor(0, &args.K), a.tensor(1, &args.V), a.tensor(2, &args.KCache), a.tensor(3, &args.VCache)
	s.slotMapping, s.kScale, s.vScale = a.tensor(4, &args.SlotMapping), a.tensor(5, &args.KScale), a.tensor(6, &args.VScale)
	s.rotaryCos, s.rotarySin = a.tensor(7, &args.RotaryCos), a.tensor(8, &args.RotarySin)
	s.positions = a.tensor(9, &args.Positions)
	return a.check(h.lib.appendSlots(a, h.address, s, 0))
}
