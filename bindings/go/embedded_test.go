package kvcache

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
)

func packed(t *testing.T, content []byte) []byte {
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	must(writer.Write(content))(t)
	check(t, writer.Close())
	return out.Bytes()
}

func TestTheEmbeddedLibrary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only on Linux")
	}
	before, file := embedded, inMemory
	defer func() { embedded, inMemory = before, file }()

	// What is wrong is in the error, and no descriptor is left.
	library := must(os.ReadFile(must(LibraryPath())(t)))(t)
	good := packed(t, library)
	descriptors := func() int { return len(must(os.ReadDir("/proc/self/fd"))(t)) }
	open0 := descriptors()
	for words, content := range map[string][]byte{
		fmt.Sprintf("no library for %s/%s", runtime.GOOS, runtime.GOARCH): nil,
		"gzip: invalid header": []byte("not compressed"),
		"unexpected EOF":       good[:len(good)/2],
		"/proc/self/fd/":       packed(t, []byte("not a library")),
	} {
		embedded = content
		_, err := firstOf([]string{embeddedPlace})
		if err == nil || !strings.Contains(err.Error(), "\n  "+embeddedPlace+": ") || !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
	}
	if now := descriptors(); now != open0 {
		t.Errorf("%d descriptors are open, not %d", now, open0)
	}

	// It is tried after the files beside the executable, and before the names for the system's loader.
	embedded = good
	l, err := firstOf(candidates("", "/nowhere/bin/app"))
	if err != nil || l.path != embeddedPlace || l.api.structSize == 0 {
		t.Fatal(l, err)
	}
	if places := candidates("/some/file", "/nowhere/bin/app"); len(places) != 1 { // KVCACHE_LIBRARY decides alone
		t.Error(places)
	}
}
