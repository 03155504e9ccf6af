//go:build !(linux && (amd64 || arm64))

package kvcache

import (
	"errors"
	"os"
)

var inMemory *os.File

func memoryFile([]byte) (*os.File, error) {
	return nil, errors.New("a library cannot be loaded from memory on this system")
}
