package kvcache

import (
	"slices"
	"unsafe"
)

// Export selects what to copy out of a sequence.
type Export struct {
	Layer int
	Begin int64       // tokens [Begin, End) of the sequence
	End   int64       // 0 = the sequence's length
	Parts ExportParts // 0 = all that the layer has
}

// ExportParts selects which parts of a layer to copy.
type ExportParts uint32

const (
	ExportK      ExportParts = kvcExportK
	ExportV      ExportParts = kvcExportV
	ExportKScale ExportParts = kvcExportKScale
	ExportVScale ExportParts = kvcExportVScale
)

// Exported is K and V as stored, [tokens, Hkv, D] of the layer's type (float8: Uint8). Parts that were not requested
// are absent.
type Exported struct{ K, V, KScale, VScale Tensor }

// Export copies K and V of one layer of one sequence into new slices, as stored: rotated, rounded or quantised.
func (c *Cache) Export(sequence Seq, what Export) (Exported, error) {
	a, h, err := c.enter("Cache.Export")
	if err != nil {
		return Exported{}, err
	}
	defer leave(a, h)
	args, exported := new(kvcExportArgs), new(kvcExported)
	args.init()
	exported.init()
	args.layer, args.parts = narrow(what.Layer), uint32(what.Parts)
	args.positionBegin, args.positionEnd = what.Begin, what.End
	if err := a.check(h.lib.seqExport(a, h.address, sequence, args, exported, 0)); err != nil {
		return Exported{}, err
	}
	return Exported{K: taken(exported.k), V: taken(exported.v), KScale: taken(exported.kScale),
		VScale: taken(exported.vScale)}, nil
}

// taken copies a dense tensor of the library into Go's memory, and releases it.
func taken(managed *dlManagedTensor) Tensor {
	if managed == nil {
		return Tensor{}
	}
	defer callDeleter(managed.deleter, managed)
	view := viewOf(managed)
	switch view.dtype {
	case Float32:
		return view.with(unsafe.Pointer(unsafe.SliceData(append([]float32{}, view.Float32s()...))))
	case Float16, BFloat16:
		return view.with(unsafe.Pointer(unsafe.SliceData(append([]uint16{}, view.Uint16s()...))))
	}
	bytes := unsafe.Slice((*byte)(view.data), view.length*view.dtype.bytes())
	return view.with(unsafe.Pointer(unsafe.SliceData(append([]byte{}, bytes...))))
}

func (t Tensor) with(data unsafe.Pointer) Tensor {
	t.data = data
	return t
}

// viewOf is a tensor in the library's memory.
func viewOf(managed *dlManagedTensor) Tensor {
	source := &managed.tensor
	t := Tensor{data: unsafe.Add(source.data, source.byteOffset), dtype: dtypeOf(source.dtype), rank: uint8(source.ndim)}
	copy(t.dims[:], unsafe.Slice(source.shape, source.ndim))
	last, compact, strided := int64(0), int64(1), false
	strides := new([maxRank]int64)
	for i := int(t.rank) - 1; i >= 0; i-- {
		strides[i] = compact
		if source.strides != nil {
			strides[i] = unsafe.Slice(source.strides, source.ndim)[i]
			strided = strided || strides[i] != compact
		}
		last += (t.dims[i] - 1) * strides[i]
		compact *= t.dims[i]
	}
	if compact > 0 {
		t.length = int(last + 1)
	}
	if strided {
		t.strides = strides
	}
	return t
}

// Import is K and V of T tokens: a tensor for each layer of the cache, absent for a layer that stores none.
type Import struct {
	K, V           []Tensor // [T, Hkv, D] and [T, Hkv, Dv]
	KScale, VScale []Tensor // none, or as Append's
	AsStored       bool     // K is as exported; K and V may be stored bytes
}

// Import appends T tokens of dense K and V to a sequence in every layer: the inverse of Export.
func (c *Cache) Import(sequence Seq, tokens Import) error {
	a, h, err := c.enter("Cache.Import")
	if err != nil {
		return err
	}
	defer leave(a, h)
	for _, list := range [...]*[]Tensor{&tokens.K, &tokens.V, &tokens.KScale, &tokens.VScale} {
		*list = slices.Clone(*list) // what is checked is what C reads
	}
	layers := max(len(tokens.K), len(tokens.V))
	names := [...]string{"K", "V", "KScale", "VScale"}
	for i, list := range [...][]Tensor{tokens.K, tokens.V, tokens.KScale, tokens.VScale} {
		if len(list) != 0 && len(list) != layers {
			return misuse(ErrInvalidArgument, "Cache.Import: %s is for %d layers, others for %d", names[i], len(list), layers)
		}
		if err := brokenList("Cache.Import", names[i], list); err != nil {
			return err
		}
	}
	args := new(kvcImportArgs)
	args.init()
	args.flags, args.numLayers = flag(tokens.AsStored, kvcImportAsStored), narrow(layers)
	args.k, args.v = a.list(tokens.K), a.list(tokens.V)
	args.kScale, args.vScale = a.list(tokens.KScale), a.list(tokens.VScale)
	return a.check(h.lib.seqImport(a, h.address, sequence, args, 0))
}

// Pool selects one of a layer's page pools.
type Pool int32

const (
	PoolKV     Pool = kvcPoolKv // K and V together: [pages, 2, Hkv, page size, D]
	PoolK      Pool = kvcPoolK  // [pages, Hkv, page size, D]
	PoolV      Pool = kvcPoolV  // [pages, Hkv, page size, Dv]
	PoolKScale Pool = kvcPoolKScale
	PoolVScale Pool = kvcPoolVScale
)

// PoolView is a view of a layer's page pool, without a copy. It keeps the memory alive until Close, also after
// Cache.Close.
type PoolView struct {
	Tensor   Tensor // its slices are the pool: do not use them after Close
	ReadOnly bool   // they must not be written to
	managed  *dlManagedTensor
	adopted  *adopted
}

// ViewPool returns a view of a layer's page pool. The contents of the pages change with every step.
func (c *Cache) ViewPool(layer int, pool Pool, writable bool) (*PoolView, error) {
	a, h, err := c.enter("Cache.ViewPool")
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	out := new(*dlManagedTensor)
	flags := flag(writable, kvcPoolWritable)
	if err := a.check(h.lib.cacheExportPool(a, h.address, narrow(layer), int32(pool), flags, out, 0)); err != nil {
		return nil, err
	}
	view := &PoolView{Tensor: viewOf(*out), ReadOnly: (*out).flags&dlFlagReadOnly != 0, managed: *out}
	view.adopted = h.adopted.share()
	return view, nil
}

// Close releases the view. Closing it again does nothing. Only one goroutine at a time may use a view.
func (p *PoolView) Close() error {
	if p != nil && p.managed != nil {
		managed := p.managed
		p.managed, p.Tensor = nil, Tensor{}
		callDeleter(managed.deleter, managed)
		p.adopted.release()
	}
	return nil
}
