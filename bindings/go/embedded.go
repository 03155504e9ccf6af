package kvcache

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
)

// embedded is libkvcache for this system, compressed by gzip. A published module has files that set it (scripts/package_go.py
// writes them). In a checkout it is nil. With the build tag kvcache_external it is nil too.
var embedded []byte

// embeddedPlace stands for the embedded library in the list of places.
const embeddedPlace = "the Go module itself"

// openEmbedded loads the embedded library from memory, without a file on a disk.
func openEmbedded() (uintptr, error) {
	if embedded == nil {
		return 0, fmt.Errorf("no library for %s/%s is in this build of it", runtime.GOOS, runtime.GOARCH)
	}
	packed, err := gzip.NewReader(bytes.NewReader(embedded))
	if err != nil {
		return 0, err
	}
	library, err := io.ReadAll(packed)
	if err != nil {
		return 0, err
	}
	file, err := memoryFile(library)
	if err != nil {
		return 0, err
	}
	// The file stays open after success: glibc knows the library by this name, so the name must not become another file's.
	handle, err := openLibrary(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		_ = file.Close()
		return 0, err
	}
	inMemory = file
	return handle, nil
}
