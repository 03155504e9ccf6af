// The headers of ONNX Runtime's C API come with this module, which is its binding for Go. setup.sh downloads it.
module kvcache.dev/onnxruntime/headers

go 1.24

require github.com/yalue/onnxruntime_go v1.27.0
