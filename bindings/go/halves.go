package kvcache

import "math"

// ToBF16 rounds values to bfloat16, to the nearest and ties to even. The result is what BF16 takes.
func ToBF16(values []float32) []uint16 { return converted(values, bf16Of) }

// FromBF16 is the values of bfloat16 elements, exactly.
func FromBF16(bits []uint16) []float32 {
	return converted(bits, func(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) })
}

// ToF16 rounds values to float16, to the nearest and ties to even; beyond 65504 they become infinite. The result is what F16
// takes.
func ToF16(values []float32) []uint16 { return converted(values, f16Of) }

// FromF16 is the values of float16 elements, exactly.
func FromF16(bits []uint16) []float32 { return converted(bits, ofF16) }

func converted[From, To any](from []From, convert func(From) To) []To {
	to := make([]To, len(from))
	for i, value := range from {
		to[i] = convert(value)
	}
	return to
}

func bf16Of(value float32) uint16 {
	bits := math.Float32bits(value)
	if value != value {
		return uint16(bits>>16) | 0x40 // a NaN must not become an infinity
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

func f16Of(value float32) uint16 {
	bits := math.Float32bits(value)
	sign, magnitude := uint16(bits>>16&0x8000), bits&0x7fffffff
	switch {
	case magnitude > 0x7f800000: // NaN
		return sign | 0x7e00
	case magnitude >= 0x47800000: // 2^16 and above
		return sign | 0x7c00
	case magnitude < 0x38800000: // below 2^-14: float16's distance is 2^-24 there, and so is float32's from 0.5 on
		return sign | uint16(math.Float32bits(math.Float32frombits(magnitude)+0.5)-0x3f000000)
	}
	rounded := magnitude + 0xfff + magnitude>>13&1
	return sign | uint16(rounded>>13-0x1c000) // the exponent's bias is 15 in place of 127
}

func ofF16(b uint16) float32 {
	sign, exponent, fraction := uint32(b&0x8000)<<16, uint32(b>>10&0x1f), uint32(b&0x3ff)
	switch exponent {
	case 0: // a multiple of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
