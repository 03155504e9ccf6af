package model

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// File is a safetensors file, mapped. The first thing that it lacks is noted, and Err returns it.
type File struct {
	entries  map[string]entry
	metadata map[string]string
	data     []byte
	err      error
}

type entry struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets [2]int `json:"data_offsets"`
}

func openFile(path string) (*File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	bytes, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be mapped: %w", path, err)
	}
	length := uint64(0)
	if len(bytes) >= 8 {
		length = binary.LittleEndian.Uint64(bytes)
	}
	if length == 0 || length > uint64(len(bytes)-8) || length%8 != 0 { // aligned data follow
		return nil, fmt.Errorf("%s is no safetensors file", path)
	}
	f := &File{data: bytes[8+length:]}
	header, metadata := bytes[8:8+length], struct {
		Texts map[string]string `json:"__metadata__"`
	}{}
	if err = json.Unmarshal(header, &metadata); err == nil {
		err = json.Unmarshal(header, &f.entries)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is no safetensors file: %w", path, err)
	}
	f.metadata = metadata.Texts
	if format := f.metadata["format"]; format != "kvcache-gemma-1" {
		return nil, fmt.Errorf("%s is of format %q, not kvcache-gemma-1", path, format)
	}
	return f, nil
}

// array is the tensor of that name, in the file's memory; dims of 0 may be anything.
func array[T any](f *File, dtype, name string, dims ...int) []T {
	e, found := f.entries[name]
	count := 1
	for i, n := range e.Shape {
		count *= n
		found = found && i < len(dims) && (dims[i] == 0 || dims[i] == n)
	}
	size, begin, end := int(unsafe.Sizeof(*new(T))), e.Offsets[0], e.Offsets[1]
	if !found || len(e.Shape) != len(dims) || e.DType != dtype || count < 1 || begin < 0 || begin%size != 0 ||
		end > len(f.data) || end-begin != count*size {
		f.Fail("no tensor %s of %s %v", name, dtype, dims)
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&f.data[begin])), count)
}

// Err is the first thing that the file lacks of what was read from it.
func (f *File) Err() error { return f.err }

// Fail notes what is wrong with the file, if nothing was before.
func (f *File) Fail(format string, values ...any) {
	if f.err == nil {
		f.err = fmt.Errorf(format, values...)
	}
}

func (f *File) floats(name string, dims ...int) []float32 {
	return array[float32](f, "F32", name, dims...)
}

// IDs is a list of token ids.
func (f *File) IDs(name string) []int32 { return array[int32](f, "I32", name, 0) }

func (f *File) number(name string) float64 {
	value, err := strconv.ParseFloat(f.metadata[name], 64)
	if err != nil {
		f.Fail("metadata %s is %q", name, f.metadata[name])
	}
	return value
}

// Integer is a number of the file's metadata.
func (f *File) Integer(name string) int { return int(f.number(name)) }

// Fingerprint names the weights. A tier keeps pages under this name.
func (f *File) Fingerprint() *[32]byte {
	name, _ := hex.DecodeString(f.metadata["fingerprint"])
	if len(name) != 32 {
		f.Fail("metadata fingerprint is %q", f.metadata["fingerprint"])
		name = make([]byte, 32)
	}
	return (*[32]byte)(name)
}
