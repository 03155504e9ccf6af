module kvcache.dev/examples/gemma

go 1.25.0

require (
	gonum.org/v1/gonum v0.17.0
	kvcache.dev/kvcache v0.0.0
)

require github.com/ebitengine/purego v0.11.0 // indirect

replace kvcache.dev/kvcache => ../../../bindings/go
