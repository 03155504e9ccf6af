//go:build !((linux || darwin) && (amd64 || arm64 || loong64 || ppc64le || riscv64))

package platform

// The compiler prints this sentence.
var _ int = "kvcache needs Linux or macOS, and a 64-bit little-endian CPU"
