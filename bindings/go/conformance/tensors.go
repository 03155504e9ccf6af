package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"

	"kvcache.dev/kvcache"
)

var dtypes = map[string]kvcache.DType{"f32": kvcache.Float32, "f16": kvcache.Float16, "bf16": kvcache.BFloat16,
	"e4m3": kvcache.Float8E4, "e5m2": kvcache.Float8E5, "i8": kvcache.Int8, "u8": kvcache.Uint8, "i32": kvcache.Int32,
	"i64": kvcache.Int64, "u4": kvcache.Uint4, "e2m1": kvcache.Float4}

// generated is element i of a seed.
func generated(seed, i uint64) byte {
	z := (seed<<32 + i + 1) * 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return byte((z ^ z>>31) >> 56)
}

// halfOf is the float16 of a value that has one exactly.
func halfOf(value float32) uint16 {
	bits := math.Float32bits(value)
	sign, exponent, fraction := uint16(bits>>16&0x8000), int(bits>>23&0xff)-127, bits&0x7fffff
	switch {
	case value == 0:
		return sign
	case exponent == 128: // infinity, NaN
		return sign | 0x7c00 | uint16(fraction>>13)
	case exponent < -14: // subnormal
		return sign | uint16((fraction|0x800000)>>(-exponent-1))
	}
	return sign | uint16(exponent+15)<<10 | uint16(fraction>>13)
}

func bfloatOf(value float32) uint16 { return uint16(math.Float32bits(value) >> 16) }

// tensor of a key; the absent one if there is none.
func (s *script) tensor(key string) kvcache.Tensor {
	if !s.has(key) {
		return kvcache.Tensor{}
	}
	return s.tensorOf(s.words[key])
}

func (s *script) tensors_(key string) (found []kvcache.Tensor) {
	for _, form := range strings.Split(s.words[key], ";") {
		if form != "" {
			found = append(found, s.tensorOf(form))
		}
	}
	return found
}

// tensorOf makes the tensor of a form.
func (s *script) tensorOf(form string) kvcache.Tensor {
	if form == "-" {
		return kvcache.Tensor{}
	}
	if name, kept := strings.CutPrefix(form, "$"); kept {
		tensor, known := s.tensors[name]
		if !known {
			panic("no tensor " + name)
		}
		return tensor
	}
	name, rest, _ := strings.Cut(form, "[")
	dims, contents, closed := strings.Cut(rest, "]")
	if _, known := dtypes[name]; !known || !closed {
		panic("no tensor is " + form)
	}
	var shape []int
	count := 1
	for _, text := range strings.Split(dims, ",") {
		if text != "" {
			n := parse(text, strconv.Atoi)
			shape, count = append(shape, n), count*n
		}
	}
	if shape == nil {
		switch literal := strings.TrimPrefix(contents, ":"); name {
		case "i32":
			return kvcache.Scalar(parse(literal, int32Of))
		case "i64":
			return kvcache.Scalar64(parse(literal, int64Of))
		}
		panic("only i32 and i64 may have no dimensions: " + form)
	}
	switch name {
	case "f32":
		return kvcache.F32(elements(contents, count, fraction, float32Of), shape...)
	case "f16":
		return kvcache.F16(elements(contents, count, of(halfOf, fraction), parsed(halfOf)), shape...)
	case "bf16":
		return kvcache.BF16(elements(contents, count, of(bfloatOf, fraction), parsed(bfloatOf)), shape...)
	case "e4m3":
		return kvcache.F8E4(elements(contents, count, stored, integer[byte]), shape...)
	case "e5m2":
		return kvcache.F8E5(elements(contents, count, stored, integer[byte]), shape...)
	case "u8":
		return kvcache.U8(elements(contents, count, stored, integer[byte]), shape...)
	case "i8":
		return kvcache.I8(elements(contents, count, func(b byte) int8 { return int8(stored(b)) }, integer[int8]), shape...)
	case "i32":
		return kvcache.I32(elements(contents, count, nil, int32Of), shape...)
	}
	return kvcache.I64(elements(contents, count, nil, int64Of), shape...)
}

func fraction(b byte) float32 { return (float32(b) - 128) / 128 }
func stored(b byte) byte      { return b & 0xBF } // no float8 NaN or infinity

func of(convert func(float32) uint16, make func(byte) float32) func(byte) uint16 {
	return func(b byte) uint16 { return convert(make(b)) }
}

func parsed(convert func(float32) uint16) func(string) (uint16, error) {
	return func(text string) (uint16, error) {
		value, err := float32Of(text)
		return convert(value), err
	}
}

func integer[T byte | int8](text string) (T, error) {
	n, err := strconv.Atoi(text)
	return T(n), err
}

// elements are zeros, generated ("@17") or literal (":1,2").
func elements[T any](contents string, count int, generate func(byte) T, literal func(string) (T, error)) []T {
	found := make([]T, count)
	if seed, is := strings.CutPrefix(contents, "@"); is {
		number := parse(seed, strconv.Atoi)
		for i := range found {
			found[i] = generate(generated(uint64(number), uint64(i)))
		}
	}
	if texts, is := strings.CutPrefix(contents, ":"); is {
		for i, text := range strings.Split(texts, ",") {
			if text != "" {
				found[i] = parse(text, literal)
			}
		}
	}
	return found
}

type printing bool

const (
	asHex  printing = false
	asHash printing = true
)

func printed(key string, t kvcache.Tensor, how printing) string {
	name := ""
	for word, dtype := range dtypes {
		if dtype == t.DType() {
			name = word
		}
	}
	shape := strings.Trim(strings.ReplaceAll(fmt.Sprint(t.Shape()), " ", ","), "[]")
	bytes := bytesOf(t)
	if how == asHash {
		hash := fnv.New64a()
		hash.Write(bytes)
		return fmt.Sprintf("%s=%s[%s]#%016x", key, name, shape, hash.Sum64())
	}
	return fmt.Sprintf("%s=%s[%s]:%s", key, name, shape, hex.EncodeToString(bytes))
}

// bytesOf is the elements in row-major order, little-endian.
func bytesOf(t kvcache.Tensor) (bytes []byte) {
	write := func(i int) {
		switch t.DType() {
		case kvcache.Float32:
			bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(t.Float32s()[i]))
		case kvcache.Float16, kvcache.BFloat16:
			bytes = binary.LittleEndian.AppendUint16(bytes, t.Uint16s()[i])
		case kvcache.Int8:
			bytes = append(bytes, byte(t.Int8s()[i]))
		case kvcache.Int32:
			bytes = binary.LittleEndian.AppendUint32(bytes, uint32(t.Int32s()[i]))
		case kvcache.Int64:
			bytes = binary.LittleEndian.AppendUint64(bytes, uint64(t.Int64s()[i]))
		default:
			bytes = append(bytes, t.Uint8s()[i])
		}
	}
	shape, strides := t.Shape(), t.Strides()
	var walk func(dim, place int)
	walk = func(dim, place int) {
		if dim == len(shape) {
			write(place)
			return
		}
		for i := range shape[dim] {
			walk(dim+1, place+i*strides[dim])
		}
	}
	walk(0, 0)
	return bytes
}
