//go:build linux && (amd64 || arm64)

package kvcache

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// inMemory keeps the file of the loaded library open, because os closes a file that nothing refers to.
var inMemory *os.File

// memoryFile makes a file in memory. No other file can take its place.
func memoryFile(content []byte) (*os.File, error) {
	number := map[string]uintptr{"amd64": 319, "arm64": 279}[runtime.GOARCH] // of memfd_create
	name := append([]byte("libkvcache"), 0)
	const closeOnExec = 1
	fd, _, code := syscall.Syscall(number, uintptr(unsafe.Pointer(&name[0])), closeOnExec, 0)
	if code != 0 {
		return nil, os.NewSyscallError("memfd_create", code)
	}
	file := os.NewFile(fd, "libkvcache")
	if _, err := file.Write(content); err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}
