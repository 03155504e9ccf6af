package kvcache

import "unsafe"

// Config says what a cache is made of. Zero is the default everywhere; include/kvcache.h has the ranges.
type Config struct {
	Context         *Context // where to compute; nil = a Context of its own
	Layers          []Layer
	Groups          []Group // none = one full group
	PageSize        int     // tokens a page; 0 = 16
	MaxSequences    int     // 0 = 64
	MaxBatchTokens  int     // tokens of one step; 0 = 2048
	MaxOpenForwards int     // steps that are open at once; 0 = 2
	MaxTreeNodes    int     // uncommitted tree nodes of a sequence; 0 = 64
	MaxCheckpoints  int     // of a sequence with recurrent layers; 0 = 1
	// MaxDraftStates is how many of the first nodes of an uncommitted tree have their recurrent states kept, so that each
	// of them can be committed; at most 63.
	MaxDraftStates int
	RollbackTokens int64 // kept before windows, so that as many can be dropped; 0 = MaxTreeNodes
	NoRollback     bool  // keep no tokens before windows
	// Capacity: one of the three, or none if every group sets Pages.
	CapacityTokens int64
	CapacityPages  int64
	CapacityBytes  int64
	Streaming      bool          // sequences may get streaming windows
	SharePrefixes  SharePrefixes // whether forks that decode side by side read their prompt once
	Deterministic  bool          // same bits for any batch, thread count and cut into steps
	Storage        Storage       // whether the cache has pools for K and V; a layer's may be the caller's
	// PrefixIndex: tokens that were published stay findable after their sequence is removed (PublishPrefix).
	PrefixIndex       bool
	PrefixPages       int64 // most pages of tokens that the index holds in each group; 0 = the pages of the largest group
	PrefixCheckpoints int64 // most positions whose recurrent states the index holds; 0 = MaxSequences
	PrefixPolicy      PrefixPolicy
	ZeroOnFree        bool      // pages are cleared before they are given to a sequence, so that none sees bytes of another one
	Fingerprint       *[32]byte // names the model: weights, quantisation, tokenizer. May be nil, but then there are no events
	EventsCapacity    int64     // events of the prefix index that the cache keeps for readers; 0 = none
	EventsTierPages   int64     // pages in tiers of which events tell; 0 = events tell only of the pools
	// TPSize is the number of ranks of tensor parallelism, each with a cache of its own for its share of the kv heads; 0 = 1.
	// Ranks store objects of their own in tiers, even with one Fingerprint. A transfer may go to caches of another TPSize.
	TPSize int
	TPRank int // the rank of this cache, below TPSize
}

// PrefixPolicy decides what the prefix index evicts first, among tokens of equal priority.
type PrefixPolicy int32

const (
	// PrefixReuse is the default: the least recently used. Each of the last three uses lets a prefix live longer, so that
	// prefixes which were used once go first.
	PrefixReuse PrefixPolicy = kvcPrefixPolicyReuse
	PrefixLRU   PrefixPolicy = kvcPrefixPolicyLru // the least recently used
)

// SharePrefixes decides whether rows that begin with the same pages are attended together.
type SharePrefixes uint32

const (
	ShareAuto   SharePrefixes = 0 // where a cost model says that it pays
	ShareNever  SharePrefixes = kvcCacheNoPrefixSharing
	ShareAlways SharePrefixes = kvcCacheShareAllPrefixes
)

// Layer is the shape of one layer, and how its K and V are stored.
type Layer struct {
	Group           int // index into Config.Groups
	QHeads          int
	KVHeads         int
	HeadDim         int
	VHeadDim        int   // 0 = HeadDim
	DType           DType // of stored K and V; 0 = Float32
	Rope            RopeMode
	RopeDim         int // rotated dims; 0 = all
	RopeOffset      int
	RopeInterleaved bool
	RopeTheta       float64 // 0 = 10000
	RopeScaling     *RopeScaling
	SoftmaxScale    float64       // 0 = HeadDim^-0.5
	KVLayer         OptionalIndex // Index(i): the layer reads the K and V of the earlier layer i, and stores none
	KScales         []float32     // float8: one for all kv heads, or one each
	VScales         []float32
	LatentDim       int     // MLA: leading dims of the row that are V too
	States          []State // recurrent
	KeysOnly        bool    // K and no V, in a group of any row: index keys, which Step.Select scores
	// TotalKVHeads is the number of kv heads of the layer in all ranks together (Config.TPSize); 0 = KVHeads * TPSize, and 1 for
	// MLA. Give it if it is less than TPSize: then KVHeads is 1, and TPSize / TotalKVHeads consecutive ranks have the same head.
	TotalKVHeads int
	RowFormat    RowFormat // packed rows, with scales of blocks of dims

	// The layer's page pool in the caller's slices, by any strides with innermost 1 (docs/reference/storage.md has layouts), of DType;
	// float8's may be U8. Absent: the cache allocates it. The slices stay where they are until the cache is closed, and every
	// PoolView of it; what is in slots of open steps must be left alone.
	KVStorage          Tensor // [pages, 2, Hkv, page size, D], K and V together; or apart:
	KStorage, VStorage Tensor // [pages, Hkv, page size, D] and Dv (MLA: KStorage alone)
}

// RowFormat is how a layer stores its rows. docs/reference/formats.md has the bytes of each format.
type RowFormat int32

const (
	RowFormatDType RowFormat = kvcRowFormatDtype // all dims have Layer.DType
	// RowFormatFP8DSMLA is the packed row of DeepSeek-V3.2, 656 bytes, as vLLM and FlashMLA store it. HeadDim is 576, LatentDim is
	// 512, and DType is 0. Views, exports and KStorage are U8.
	RowFormatFP8DSMLA RowFormat = kvcRowFormatFp8DsMla
	// RowFormatFP8DSV4 is the row of DeepSeek-V4, 576 bytes, with 8 bytes of scales after the rows of the page: an MLA
	// row of 512 dims, all of which are V.
	RowFormatFP8DSV4 RowFormat = kvcRowFormatFp8DsV4
	// RowFormatMXFP4 is float4_e2m1fn, with a power of two for each 32 dims after the rows of the page.
	RowFormatMXFP4 RowFormat = kvcRowFormatMxfp4
	// RowFormatMXFP8 is float8_e4m3fn, with a power of two for each 32 dims after the rows of the page.
	RowFormatMXFP8 RowFormat = kvcRowFormatMxfp8
	// RowFormatFP8Blocks is float8_e4m3fn, with a float32 scale for each 128 dims after the rows of the page.
	RowFormatFP8Blocks RowFormat = kvcRowFormatFp8Blocks
	// RowFormatNVFP4 is float4_e2m1fn, with a float8_e4m3fn scale for each 16 dims after the rows of the page.
	RowFormatNVFP4 RowFormat = kvcRowFormatNvfp4
	// RowFormatNVFP4DSMLA is the row of DeepSeek-V3.2 with 352 bytes: an MLA row of 576 dims, the first 512 of which
	// are V.
	RowFormatNVFP4DSMLA RowFormat = kvcRowFormatNvfp4DsMla
)

// RopeMode decides who rotates q and k, and when.
type RopeMode int32

const (
	RopeNone     RopeMode = kvcRopeNone     // no rotation, or by the caller
	RopeOnAppend RopeMode = kvcRopeOnAppend // the library, before it stores k
	RopeOnRead   RopeMode = kvcRopeOnRead   // the library, each time that it reads k
)

// RopeScaling says how a model was stretched beyond the length it was trained for: "rope_scaling" of its config.json.
type RopeScaling struct {
	Kind                RopeScalingKind
	NoTruncate          bool
	OriginalMaxPosition int64
	Factor              float64
	LowFreqFactor       float64
	HighFreqFactor      float64
	BetaFast            float64
	BetaSlow            float64
	AttentionFactor     float64
	MScale              float64
	MScaleAllDim        float64
	ShortFactors        []float64
	LongFactors         []float64
}

// RopeScalingKind is "rope_type" of a model's config.json.
type RopeScalingKind int32

const (
	RopeLinear   RopeScalingKind = kvcRopeScalingLinear
	RopeLlama3   RopeScalingKind = kvcRopeScalingLlama3
	RopeYarn     RopeScalingKind = kvcRopeScalingYarn
	RopeLongrope RopeScalingKind = kvcRopeScalingLongrope
)

// State is one state tensor of a recurrent layer.
type State struct {
	DType DType // 0 = Float32; Float16, BFloat16, Int32, Int64
	Shape []int
	Fill  float64 // every element of the state of an empty sequence, a value of DType
}

// Group is layers that share page tables.
type Group struct {
	Row        Row
	Visibility Visibility
	Window     int64 // VisibleWindow
	Chunk      int64 // VisibleChunk
	Pages      int64 // 0 = from the cache's capacity
	// r > 1: the group stores a row for each r tokens, which the caller computes (docs/reference/rows.md). A step takes the rows that
	// it closes, (length+new)/r - length/r of each sequence. 0 = 1.
	TokensPerRow int
}

// Row says what a group stores for a token.
type Row int32

const (
	RowKV     Row = kvcRowKv     // K and V
	RowLatent Row = kvcRowLatent // one row for all heads, of which V is a part (MLA)
	RowState  Row = kvcRowState  // no keys: state tensors of fixed size
)

// Visibility says which keys a query sees.
type Visibility int32

const (
	VisibleAll     Visibility = kvcVisibleAll
	VisibleWindow  Visibility = kvcVisibleWindow
	VisibleChunk   Visibility = kvcVisibleChunk
	VisibleEncoder Visibility = kvcVisibleEncoder // all of an encoder sequence
)

// Full is a group in which a query sees all keys up to its own.
func Full() Group { return Group{} }

// Sliding is a group in which a query sees the last window keys, its own included.
func Sliding(window int64) Group { return Group{Visibility: VisibleWindow, Window: window} }

// Chunked is a group in which a query sees the keys of its own chunk.
func Chunked(chunk int64) Group { return Group{Visibility: VisibleChunk, Chunk: chunk} }

// Cross is a group in which a query sees all keys of the sequence's encoder sequence.
func Cross() Group { return Group{Visibility: VisibleEncoder} }

// Recurrent is a group whose layers keep states of fixed size instead of keys.
func Recurrent() Group { return Group{Row: RowState} }

// Latent is the same group with one row a token for all heads (multi-head latent attention).
func (g Group) Latent() Group {
	g.Row = RowLatent
	return g
}

// c writes the config as the C struct, pinned for the call. The caller's pools are pinned until kept is released.
func (config *Config) c(a *arena, kept *adopted) (*kvcCacheConfig, error) {
	layers := make([]kvcLayerConfig, len(config.Layers))
	for i := range layers {
		if err := config.Layers[i].c(a, kept, &layers[i]); err != nil {
			err.Index = i
			return nil, err
		}
	}
	groups := make([]kvcGroupConfig, len(config.Groups))
	for i, group := range config.Groups {
		groups[i].init()
		groups[i].row, groups[i].visibility = int32(group.Row), int32(group.Visibility)
		groups[i].windowTokens, groups[i].chunkTokens = group.Window, group.Chunk
		groups[i].numPages, groups[i].tokensPerRow = group.Pages, narrow(group.TokensPerRow)
	}
	c := new(kvcCacheConfig)
	c.init()
	c.flags = uint32(config.SharePrefixes) | flag(config.NoRollback, kvcCacheNoRollback) |
		flag(config.Streaming, kvcCacheStreaming) | flag(config.Deterministic, kvcCacheDeterministic) |
		flag(config.PrefixIndex, kvcCachePrefixIndex) | flag(config.ZeroOnFree, kvcCacheZeroOnFree)
	c.layers, c.numLayers = address(a, layers), narrow(len(layers))
	c.groups, c.numGroups = address(a, groups), narrow(len(groups))
	c.pageSize, c.maxSequences = narrow(config.PageSize), narrow(config.MaxSequences)
	c.maxBatchTokens, c.maxOpenForwards = narrow(config.MaxBatchTokens), narrow(config.MaxOpenForwards)
	c.maxTreeNodes, c.maxCheckpoints = narrow(config.MaxTreeNodes), narrow(config.MaxCheckpoints)
	c.maxDraftStates = narrow(config.MaxDraftStates)
	c.tpSize, c.tpRank = narrow(config.TPSize), narrow(config.TPRank)
	c.rollbackTokens, c.storage = config.RollbackTokens, int32(config.Storage)
	c.capacityTokens, c.capacityPages, c.capacityBytes = config.CapacityTokens, config.CapacityPages, config.CapacityBytes
	c.prefixPages, c.prefixCheckpoints = config.PrefixPages, config.PrefixCheckpoints
	c.prefixPolicy, c.eventsCapacity = int32(config.PrefixPolicy), config.EventsCapacity
	c.eventsTierPages = config.EventsTierPages
	if config.Fingerprint != nil {
		c.fingerprint = address(a, config.Fingerprint[:])
	}
	return c, nil
}

// OptionalIndex is the index of a layer or group, or none. The zero value is none.
type OptionalIndex struct{ inC int }

// Index is the index i, counted from 0. The call that gets a negative one refuses it.
func Index(i int) OptionalIndex {
	if i < 0 {
		return OptionalIndex{inC: i}
	}
	return OptionalIndex{inC: i + 1}
}

// c is the number that C has: 1 + the index, or 0 for none.
func (i OptionalIndex) c(field string) (int32, *Error) {
	if i.inC < 0 {
		return 0, misuse(ErrOutOfRange, "%s: Index(%d) is no index; leave the field out for none", field, i.inC)
	}
	return narrow(i.inC), nil
}

// c writes the layer as C has it. It works on a copy, so that what is checked is what C reads.
func (layer Layer) c(a *arena, kept *adopted, c *kvcLayerConfig) *Error {
	if len(layer.VScales) != len(layer.KScales) && len(layer.VScales) != 0 {
		return misuse(ErrInvalidArgument, "a layer has %d KScales, but %d VScales", len(layer.KScales), len(layer.VScales))
	}
	if err := broken("Layer", "KVStorage KStorage VStorage", &layer.KVStorage, &layer.KStorage, &layer.VStorage); err != nil {
		return err.(*Error)
	}
	c.init()
	c.kvStorage, c.kStorage, c.vStorage = kept.pool(&layer.KVStorage), kept.pool(&layer.KStorage), kept.pool(&layer.VStorage)
	c.group = narrow(layer.Group)
	var err *Error
	if c.kvLayer, err = layer.KVLayer.c("KVLayer"); err != nil {
		return err
	}
	c.numQHeads, c.numKvHeads = narrow(layer.QHeads), narrow(layer.KVHeads)
	c.headDim, c.vHeadDim, c.latentDim = narrow(layer.HeadDim), narrow(layer.VHeadDim), narrow(layer.LatentDim)
	c.totalKvHeads, c.rowFormat = narrow(layer.TotalKVHeads), int32(layer.RowFormat)
	c.dtype = layer.DType.dl()
	c.ropeMode, c.ropeDim, c.ropeOffset = int32(layer.Rope), narrow(layer.RopeDim), narrow(layer.RopeOffset)
	c.ropeTheta, c.softmaxScale = layer.RopeTheta, layer.SoftmaxScale
	c.flags = flag(layer.RopeInterleaved, kvcLayerRopeInterleaved) | flag(layer.KeysOnly, kvcLayerKeysOnly)
	c.kScales, c.vScales, c.numScales = address(a, layer.KScales), address(a, layer.VScales), narrow(len(layer.KScales))
	if layer.RopeScaling != nil {
		c.ropeScaling = layer.RopeScaling.c(a)
	}
	states := make([]kvcStateConfig, len(layer.States))
	for i, state := range layer.States {
		states[i].init()
		states[i].dtype, states[i].rank = state.DType.dl(), narrow(len(state.Shape))
		states[i].fill = state.Fill
		if len(state.Shape) > len(states[i].shape) {
			return misuse(ErrRank, "a state has %d dimensions, at most %d are known", len(state.Shape), len(states[i].shape))
		}
		for dim, n := range state.Shape {
			states[i].shape[dim] = int64(n)
		}
	}
	c.states, c.numStates = address(a, states), narrow(len(states))
	return nil
}

func (scaling RopeScaling) c(a *arena) *kvcRopeScaling {
	c := new(kvcRopeScaling)
	c.init()
	c.kind, c.flags = int32(scaling.Kind), flag(scaling.NoTruncate, kvcRopeScalingNoTruncate)
	c.originalMaxPosition, c.factor = scaling.OriginalMaxPosition, scaling.Factor
	c.lowFreqFactor, c.highFreqFactor = scaling.LowFreqFactor, scaling.HighFreqFactor
	c.betaFast, c.betaSlow = scaling.BetaFast, scaling.BetaSlow
	c.attentionFactor, c.mscale, c.mscaleAllDim = scaling.AttentionFactor, scaling.MScale, scaling.MScaleAllDim
	c.shortFactors, c.numShortFactors = address(a, scaling.ShortFactors), narrow(len(scaling.ShortFactors))
	c.longFactors, c.numLongFactors = address(a, scaling.LongFactors), narrow(len(scaling.LongFactors))
	a.pin(unsafe.Pointer(c))
	return c
}

func flag(set bool, bit uint32) uint32 {
	if set {
		return bit
	}
	return 0
}
