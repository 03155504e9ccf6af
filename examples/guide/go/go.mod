module kvcache.dev/examples/guide

go 1.25.0

require kvcache.dev/kvcache v0.0.0

require github.com/ebitengine/purego v0.11.0 // indirect

replace kvcache.dev/kvcache => ../../../bindings/go
