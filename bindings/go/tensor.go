package kvcache

import (
	"fmt"
	"math/bits"
	"strings"
	"unsafe"
)

// DType is the type of a tensor's elements.
type DType uint32

// A DType is DLPack's code, bits and lanes.
const (
	Float32   DType = 2 | 32<<8 | 1<<16
	Float16   DType = 2 | 16<<8 | 1<<16
	BFloat16  DType = 4 | 16<<8 | 1<<16
	Float8E4  DType = 10 | 8<<8 | 1<<16 // e4m3fn
	Float8E5  DType = 12 | 8<<8 | 1<<16 // e5m2
	Int8      DType = 0 | 8<<8 | 1<<16
	Uint4     DType = 1 | 4<<8 | 1<<16  // of a layer; its tensors are of Uint8, two elements in each
	Float4    DType = 17 | 4<<8 | 1<<16 // e2m1fn, of a layer; its tensors are of Uint8: a row's elements and scales
	Uint8     DType = 1 | 8<<8 | 1<<16
	Int32     DType = 0 | 32<<8 | 1<<16
	Int64     DType = 0 | 64<<8 | 1<<16
	noDType   DType = 0
	maxRank         = 5
	bitsShift       = 8
)

func (d DType) dl() dlDataType {
	return dlDataType{code: uint8(d), bits: uint8(d >> bitsShift), lanes: uint16(d >> 16)}
}

func dtypeOf(d dlDataType) DType {
	return DType(d.code) | DType(d.bits)<<bitsShift | DType(d.lanes)<<16
}

func (d DType) bytes() int { return (int(d>>bitsShift&0xff) + 7) / 8 }

// Tensor is a slice with a type and dimensions. It does not copy the slice. The zero Tensor means that there is none.
// If the dimensions are wrong, the call that takes the tensor reports it.
type Tensor struct {
	data    unsafe.Pointer
	length  int // elements of the slice
	dims    [maxRank]int64
	strides *[maxRank]int64
	dtype   DType
	rank    uint8
	err     *Error
}

// F32 is a tensor of float32. Without dims it has one dimension, the slice's length.
func F32(data []float32, dims ...int) Tensor { return tensor(Float32, data, dims) }

// F16 is a tensor of float16, each element's bits in a uint16.
func F16(data []uint16, dims ...int) Tensor { return tensor(Float16, data, dims) }

// BF16 is a tensor of bfloat16, each element's bits in a uint16.
func BF16(data []uint16, dims ...int) Tensor { return tensor(BFloat16, data, dims) }

// F8E4 is a tensor of float8 e4m3fn, each element's bits in a uint8.
func F8E4(data []uint8, dims ...int) Tensor { return tensor(Float8E4, data, dims) }

// F8E5 is a tensor of float8 e5m2, each element's bits in a uint8.
func F8E5(data []uint8, dims ...int) Tensor { return tensor(Float8E5, data, dims) }

// I32 is a tensor of int32: lengths, page ids and other indices.
func I32(data []int32, dims ...int) Tensor { return tensor(Int32, data, dims) }

// Scalar is a tensor without dimensions: one index for all rows.
func Scalar(n int32) Tensor {
	return Tensor{data: unsafe.Pointer(&n), length: 1, dtype: Int32}
}

// Scalar64 is Scalar with an int64, for lengths that may be int64.
func Scalar64(n int64) Tensor {
	return Tensor{data: unsafe.Pointer(&n), length: 1, dtype: Int64}
}

// I64 is a tensor of int64: slots, and lengths where the call says so.
func I64(data []int64, dims ...int) Tensor { return tensor(Int64, data, dims) }

// U8 is a tensor of bytes: float8 elements as a quantised layer stores them.
func U8(data []uint8, dims ...int) Tensor { return tensor(Uint8, data, dims) }

// I8 is a tensor of int8: elements as a quantised layer stores them.
func I8(data []int8, dims ...int) Tensor { return tensor(Int8, data, dims) }

func tensor[T any](dtype DType, data []T, dims []int) Tensor {
	t := Tensor{data: unsafe.Pointer(unsafe.SliceData(data)), length: len(data), dtype: dtype}
	if len(dims) == 0 {
		t.rank, t.dims[0] = 1, int64(len(data))
		return t
	}
	if len(dims) > maxRank {
		t.err = misuse(ErrRank, "a tensor has %d dimensions, at most %d are known", len(dims), maxRank)
		return t
	}
	t.rank = uint8(len(dims))
	for i, n := range dims {
		t.dims[i] = int64(n)
	}
	t.check()
	return t
}

// WithStrides gives the tensor strides in elements, one for each dimension, for example for rows within longer rows.
// The innermost stride is 1, except for index arrays.
func (t Tensor) WithStrides(strides ...int) Tensor {
	if t.err != nil && t.rank == 0 { // too many dimensions; what else is wrong may be right with strides
		return t
	}
	if len(strides) != int(t.rank) {
		t.err = misuse(ErrStride, "a tensor of %d dimensions has %d strides", t.rank, len(strides))
		return t
	}
	t.strides = new([maxRank]int64)
	for i, n := range strides {
		t.strides[i] = int64(n)
	}
	t.err = nil
	t.check()
	return t
}

// check sets t.err if the elements do not lie within the slice, which C could not see.
func (t *Tensor) check() {
	last, compact := uint64(0), uint64(1) // the last element's index
	overflow := false
	for i := int(t.rank) - 1; i >= 0; i-- {
		n, stride := t.dims[i], compact
		if t.strides != nil {
			if t.strides[i] < 0 {
				t.err = misuse(ErrStride, "a tensor's stride %d of dimension %d is negative", t.strides[i], i)
				return
			}
			stride = uint64(t.strides[i])
		}
		if n < 0 {
			t.err = misuse(ErrShape, "a tensor's dimension %d is %d", i, n)
			return
		}
		if n == 0 {
			return // no elements
		}
		high, low := bits.Mul64(uint64(n-1), stride)
		sum, carry := bits.Add64(last, low, 0)
		overflow = overflow || high|carry != 0
		last = sum
		high, compact = bits.Mul64(uint64(n), compact)
		overflow = overflow || high != 0
	}
	if overflow || last >= uint64(t.length) {
		t.err = misuse(ErrShape, "a tensor of shape %s needs more elements than its slice has: %d", list(t.Shape()), t.length)
	}
}

// list is numbers as messages show them: [3, 4].
func list(numbers []int) string { return strings.ReplaceAll(fmt.Sprint(numbers), " ", ", ") }

// String is the type and the shape, and the strides where they are given: "float32[3, 4, 16]". An absent tensor is "none".
func (t Tensor) String() string {
	switch {
	case !t.present():
		return "none"
	case t.err != nil:
		return t.err.Message
	case t.strides != nil:
		return t.dtype.String() + list(t.Shape()) + " with strides " + list(t.Strides())
	}
	return t.dtype.String() + list(t.Shape())
}

// String is the name that messages have for the type: "float32".
func (d DType) String() string {
	names := map[DType]string{Float32: "float32", Float16: "float16", BFloat16: "bfloat16", Float8E4: "float8_e4m3fn",
		Float8E5: "float8_e5m2", Int8: "int8", Uint4: "uint4", Float4: "float4_e2m1fn", Uint8: "uint8", Int32: "int32", Int64: "int64", noDType: "none"}
	if name, known := names[d]; known {
		return name
	}
	return fmt.Sprintf("dtype %#x", uint32(d))
}

func (t *Tensor) present() bool { return t.dtype != noDType }

// Shape is the tensor's dimensions.
func (t Tensor) Shape() []int {
	shape := make([]int, t.rank)
	for i := range shape {
		shape[i] = int(t.dims[i])
	}
	return shape
}

// Strides are the distances between the tensor's elements along each dimension, in elements.
func (t Tensor) Strides() []int {
	strides, compact := make([]int, t.rank), 1
	for i := int(t.rank) - 1; i >= 0; i-- {
		strides[i] = compact
		if t.strides != nil {
			strides[i] = int(t.strides[i])
		}
		compact *= int(t.dims[i])
	}
	return strides
}

// DType is the type of the tensor's elements.
func (t Tensor) DType() DType { return t.dtype }

// Float32s is the slice of a Float32 tensor, else nil.
func (t Tensor) Float32s() []float32 { return sliceOf[float32](&t, t.dtype == Float32) }

// Uint16s is the slice of a Float16 or BFloat16 tensor, else nil.
func (t Tensor) Uint16s() []uint16 {
	return sliceOf[uint16](&t, t.dtype == Float16 || t.dtype == BFloat16)
}

// Uint8s is the slice of a Uint8 or float8 tensor, else nil.
func (t Tensor) Uint8s() []uint8 {
	return sliceOf[uint8](&t, t.dtype == Uint8 || t.dtype == Float8E4 || t.dtype == Float8E5)
}

// Int8s is the slice of an Int8 tensor, else nil.
func (t Tensor) Int8s() []int8 { return sliceOf[int8](&t, t.dtype == Int8) }

// Int32s is the slice of an Int32 tensor, else nil.
func (t Tensor) Int32s() []int32 { return sliceOf[int32](&t, t.dtype == Int32) }

// Int64s is the slice of an Int64 tensor, else nil.
func (t Tensor) Int64s() []int64 { return sliceOf[int64](&t, t.dtype == Int64) }

func sliceOf[T any](t *Tensor, matches bool) []T {
	if !matches {
		return nil
	}
	return unsafe.Slice((*T)(t.data), t.length)
}

// broken is the first error among the tensors. names has a word for each tensor.
func broken(function, names string, tensors ...*Tensor) error {
	for i, t := range tensors {
		if t.err != nil {
			return t.err.within(function, strings.Fields(names)[i], -1)
		}
	}
	return nil
}

// brokenList is broken for tensors with one name and an index.
func brokenList(function, name string, list []Tensor) error {
	for i := range list {
		if list[i].err != nil {
			return list[i].err.within(function, name, i)
		}
	}
	return nil
}

func (e *Error) within(function, name string, index int) error {
	err := *e
	err.Message, err.Index = fmt.Sprintf("%s: %s: %s", function, name, e.Message), index
	return &err
}
