package kvcache

import (
	"math"
	"math/rand"
	"testing"
)

// valueOf is the definition: sign, exponent with its bias, fraction. An exponent of all ones is infinity or NaN.
func valueOf(bits uint16, exponentBits, fractionBits int) float64 {
	bias := 1<<(exponentBits-1) - 1
	exponent := int(bits>>fractionBits) & (1<<exponentBits - 1)
	fraction := float64(bits&(1<<fractionBits-1)) / float64(int(1)<<fractionBits)
	value := math.Ldexp(1+fraction, exponent-bias)
	switch {
	case exponent == 0:
		value = math.Ldexp(fraction, 1-bias)
	case exponent == 1<<exponentBits-1 && fraction == 0:
		value = math.Inf(1)
	case exponent == 1<<exponentBits-1:
		return math.NaN()
	}
	if bits>>15 == 1 {
		value = -value
	}
	return value
}

func TestHalves(t *testing.T) {
	for _, half := range []struct {
		name                       string
		exponentBits, fractionBits int
		to                         func([]float32) []uint16
		from                       func([]uint16) []float32
	}{{"bfloat16", 8, 7, ToBF16, FromBF16}, {"float16", 5, 10, ToF16, FromF16}} {
		value := func(bits uint16) float64 { return valueOf(bits, half.exponentBits, half.fractionBits) }
		to := func(x float32) uint16 { return half.to([]float32{x})[0] }
		infinity := uint16(1<<half.exponentBits-1) << half.fractionBits
		for i := range 1 << 16 {
			bits := uint16(i)
			want, got := value(bits), half.from([]uint16{bits})[0]
			if float64(got) != want && !(math.IsNaN(want) && got != got) || math.Signbit(float64(got)) != (bits>>15 == 1) {
				t.Fatalf("%s %04x is %v, not %v", half.name, bits, got, want)
			}
			if back := to(got); back != bits && got == got || got != got && !math.IsNaN(value(back)) {
				t.Fatalf("%s %04x comes back as %04x", half.name, bits, back)
			}
			if bits >= infinity {
				continue // the neighbours below are those of positive numbers
			}
			next := value(bits + 1)
			if bits+1 == infinity {
				next = math.Ldexp(1, 1<<(half.exponentBits-1)) // what overflow rounds to
			}
			middle := float32((value(bits) + next) / 2)
			even := bits + bits&1
			up := math.Nextafter32(middle, float32(math.Inf(1)))
			down := math.Nextafter32(middle, 0)
			if to(middle) != even || to(-middle) != even|0x8000 || to(up) != bits+1 || to(down) != bits {
				t.Fatalf("%s: %v between %04x and the next rounds to %04x, %04x, %04x", half.name, middle, bits, to(down),
					to(middle), to(up))
			}
		}
		r := rand.New(rand.NewSource(1))
		for range 1000 { // sizes of typical weights
			x := float32(r.NormFloat64())
			if got := value(to(x)); math.Abs(got-float64(x)) > math.Abs(float64(x))*math.Ldexp(1, -half.fractionBits-1)+1e-7 {
				t.Fatalf("%s of %v is %v", half.name, x, got)
			}
		}
	}
}

func TestTensorsCanBeRead(t *testing.T) {
	rows := F32(make([]float32, 24), 2, 3)
	for _, c := range []struct{ got, want string }{
		{rows.String(), "float32[2, 3]"},
		{rows.WithStrides(8, 1).String(), "float32[2, 3] with strides [8, 1]"},
		{Tensor{}.String(), "none"},
		{F32(nil, 2).String(), "a tensor of shape [2] needs more elements than its slice has: 0"},
		{DType(7).String(), "dtype 0x7"},
	} {
		if c.got != c.want {
			t.Errorf("%q, not %q", c.got, c.want)
		}
	}
}
