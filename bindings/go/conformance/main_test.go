package main

import (
	"slices"
	"strings"
	"testing"

	"kvcache.dev/kvcache"
)

// The numbers are those of bindings/conformance/README.md.
func TestGeneratorAndHash(t *testing.T) {
	s := newScript()
	if got := s.tensorOf("f32[4]@17").Float32s(); !slices.Equal(got, []float32{0.125, -0.6171875, 0.984375, -0.3046875}) {
		t.Error(got)
	}
	name := []uint8("kvcache")
	if got := printed("x", kvcache.U8(name), asHash); got != "x=u8[7]#6f4adfa53ec3894e" {
		t.Error(got)
	}
}

func TestTensorForms(t *testing.T) {
	s := newScript()
	s.tensors["kept"] = kvcache.F32([]float32{1, 2, 3, 4, 5, 6}, 2, 2).WithStrides(3, 1)
	for form, want := range map[string]string{
		"f32[2]:1,-2":             "x=f32[2]:0000803f000000c0",
		"f16[5]:1,-2,0.5,65504,0": "x=f16[5]:003c00c00038ff7b0000",
		"f16[2]:0.00006103515625,0.000000059604644775390625": "x=f16[2]:00040100",
		"bf16[2]:1,-3": "x=bf16[2]:803f40c0",
		"i32[]:-7":     "x=i32[]:f9ffffff",
		"i64[]:-7":     "x=i64[]:f9ffffffffffffff",
		"i64[1]:-2":    "x=i64[1]:feffffffffffffff",
		"e4m3[3]@17":   "x=e4m3[3]:9031be",
		"i8[1]@17":     "x=i8[1]:90",
		"f32[0,3]":     "x=f32[0,3]:",
		"$kept":        "x=f32[2,2]:0000803f0000004000008040" + "0000a040",
	} {
		if got := printed("x", s.tensorOf(form), asHex); got != want {
			t.Errorf("%s: %s instead of %s", form, got, want)
		}
	}
	if half := halfOf(1.0 / 128); half != 0x2000 {
		t.Errorf("%x", half)
	}
}

func TestWhatTheRunnerCannotDoIsSaid(t *testing.T) {
	register(settings, sequences, prefixes, events, steps, transfers, stateless)
	s := newScript()
	defer s.close()
	for line, want := range map[string]string{
		"sing":                        "FAILED unknown operation sing",
		"add seqs=0":                  "FAILED no cache 0",
		"show name=nothing":           "FAILED no tensor nothing",
		"tensor name=x value=x9[2]":   "FAILED no tensor is x9[2]",
		"group row=round":             "FAILED unknown row round",
		"context_create threads=many": "FAILED strconv.Atoi",
	} {
		if got := s.run(line); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s instead of %s", line, got, want)
		}
	}
}
