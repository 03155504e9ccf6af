package kvcache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	_ "kvcache.dev/kvcache/internal/platform" // fails to build where this package cannot work
)

// library is libkvcache as this process has loaded it: never unloaded.
type library struct {
	path string
	api  kvcApi
}

var (
	loaded  atomic.Pointer[library]
	loading sync.Mutex
)

// Load finds and loads libkvcache, once for the process. If the environment variable KVCACHE_LIBRARY is set, only the file
// that it names is tried, or the library in the directory that it names. Otherwise these places are tried in order: the
// folder of the executable, the folder lib beside it, the library in this module (published modules have one for Linux),
// and what the system's loader finds. New and NewContext do this by themselves. The error lists every place and what was
// wrong there; a later call tries again.
func Load() error {
	_, err := load()
	return err
}

func load() (*library, error) {
	if l := loaded.Load(); l != nil {
		return l, nil
	}
	loading.Lock()
	defer loading.Unlock()
	if l := loaded.Load(); l != nil {
		return l, nil
	}
	executable, _ := os.Executable()
	l, err := firstOf(candidates(os.Getenv("KVCACHE_LIBRARY"), executable))
	if err != nil {
		return nil, err
	}
	loaded.Store(l)
	return l, nil
}

// candidates lists where to look, in order.
func candidates(environment, executable string) []string {
	major, plain := fmt.Sprintf("libkvcache.so.%d", kvcVersionMajor), "libkvcache.so"
	if runtime.GOOS == "darwin" {
		major, plain = fmt.Sprintf("libkvcache.%d.dylib", kvcVersionMajor), "libkvcache.dylib"
	}
	if environment != "" {
		if info, err := os.Stat(environment); err == nil && info.IsDir() {
			return []string{filepath.Join(environment, major), filepath.Join(environment, plain)}
		}
		return []string{environment}
	}
	var places []string
	if executable != "" {
		folder := filepath.Dir(executable)
		for _, place := range []string{folder, filepath.Join(filepath.Dir(folder), "lib")} {
			places = append(places, filepath.Join(place, major), filepath.Join(place, plain))
		}
	}
	return append(places, embeddedPlace, major, plain)
}

func firstOf(places []string) (*library, error) {
	var problems strings.Builder
	for _, place := range places {
		l, err := open(place)
		if err == nil {
			return l, nil
		}
		fmt.Fprintf(&problems, "\n  %s: %s", place, strings.TrimPrefix(err.Error(), place+": "))
	}
	return nil, errors.New("kvcache: libkvcache was not found; set KVCACHE_LIBRARY to its file or directory. Looked for:" + problems.String())
}

func open(path string) (*library, error) {
	load := openLibrary
	if path == embeddedPlace {
		load = func(string) (uintptr, error) { return openEmbedded() }
	}
	handle, err := load(path)
	if err != nil {
		return nil, err
	}
	l := &library{path: path}
	if err := l.bind(handle); err != nil {
		closeLibrary(handle)
		return nil, err
	}
	return l, nil
}

// bind reads the table of functions.
func (l *library) bind(handle uintptr) error {
	getAPI, err := findSymbol(handle, "kvc_get_api")
	if err != nil {
		return err
	}
	address := callGetAPI(getAPI)
	if address == 0 {
		return fmt.Errorf("the library is of another version; this package needs %d.%d", kvcVersionMajor, kvcVersionMinor)
	}
	table := *(**kvcApi)(unsafe.Pointer(&address)) // C memory, for ever
	if table.structSize < uint32(unsafe.Sizeof(*table)) {
		return fmt.Errorf("the library is older than this package: its table of functions has %d bytes, %d are needed",
			table.structSize, unsafe.Sizeof(*table))
	}
	l.api = *table
	return nil
}

// Version is the loaded library's, "0.1.0".
func Version() (string, error) {
	return text(func(l *library, a *arena) uintptr { return l.version(a) })
}

// BuildInfo says what the loaded library was built with, as one JSON object.
func BuildInfo() (string, error) {
	return text(func(l *library, a *arena) uintptr { return l.buildInfo(a) })
}

// LibraryPath is the name under which the library was found.
func LibraryPath() (string, error) {
	l, err := load()
	if err != nil {
		return "", err
	}
	return l.path, nil
}

func text(ask func(*library, *arena) uintptr) (string, error) {
	l, err := load()
	if err != nil {
		return "", err
	}
	a := takeArena()
	defer a.giveBack()
	return staticString(ask(l, a)), nil
}

// staticString copies a NUL-terminated string of the library's.
func staticString(address uintptr) string {
	if address == 0 {
		return ""
	}
	start := *(**byte)(unsafe.Pointer(&address))
	length := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(start), length)) != 0 {
		length++
	}
	return string(unsafe.Slice(start, length))
}
