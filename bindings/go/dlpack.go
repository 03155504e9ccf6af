package kvcache

import (
	"structs"
	"unsafe"
)

// The structs of dlpack/dlpack.h; their sizes are checked through the structs of kvcache.h that hold them.

type dlDataType struct {
	_     structs.HostLayout
	code  uint8
	bits  uint8
	lanes uint16
}

type dlDevice struct {
	_          structs.HostLayout
	deviceType int32
	deviceID   int32
}

const dlCPU = 1

type dlTensor struct {
	_          structs.HostLayout
	data       unsafe.Pointer
	device     dlDevice
	ndim       int32
	dtype      dlDataType
	shape      *int64
	strides    *int64 // nil: compact, row by row
	byteOffset uint64
}

// DLManagedTensorVersioned: always in the library's memory, and released by its deleter.
type dlManagedTensor struct {
	_          structs.HostLayout
	major      uint32
	minor      uint32
	managerCtx unsafe.Pointer
	deleter    uintptr
	flags      uint64
	tensor     dlTensor
}

const dlFlagReadOnly = 1
