package kvcache

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWhereItLooks(t *testing.T) {
	if places := candidates("x/y.so", "/opt/app/bin/app"); !slices.Equal(places, []string{"x/y.so"}) {
		t.Error(places) // the environment decides alone
	}
	folder := t.TempDir()
	in := candidates(folder, "/opt/app/bin/app")
	if len(in) != 2 || filepath.Dir(in[0]) != folder || filepath.Dir(in[1]) != folder {
		t.Error(in) // a directory stands for the library in it
	}
	library := must(filepath.Abs(must(LibraryPath())(t)))(t)
	if l, err := firstOf(candidates(filepath.Dir(library), "")); err != nil || filepath.Dir(l.path) != filepath.Dir(library) {
		t.Error(l, err)
	}
	places := strings.Join(candidates("", "/opt/app/bin/app"), " ")
	if !strings.HasPrefix(places, "/opt/app/bin/libkvcache.") || !strings.Contains(places, " /opt/app/lib/libkvcache.") ||
		!strings.HasSuffix(places, " libkvcache.so") && !strings.HasSuffix(places, " libkvcache.dylib") {
		t.Error(places)
	}
}

func TestALibraryThatIsMissingOrWrong(t *testing.T) {
	text := filepath.Join(t.TempDir(), "libkvcache.so")
	check(t, os.WriteFile(text, []byte("not a library"), 0o600))
	_, err := firstOf([]string{"/nowhere/libkvcache.so.0", text, "libm.so.6"})
	if err == nil {
		t.Fatal("loaded")
	}
	for _, words := range []string{"KVCACHE_LIBRARY", "\n  /nowhere/libkvcache.so.0: ", "\n  " + text + ": ", "\n  libm.so.6: ", "kvc_get_api"} {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%v does not say %q", err, words)
		}
	}
	// A library that is there, among others that are not.
	path := must(LibraryPath())(t)
	if l, err := firstOf([]string{"/nowhere/libkvcache.so.0", path}); err != nil || l.path != path {
		t.Error(l, err)
	}
}

func TestVersion(t *testing.T) {
	if version := must(Version())(t); !strings.HasPrefix(version, "0.1.") {
		t.Error(version)
	}
	if info := must(BuildInfo())(t); !strings.HasPrefix(info, "{") || !strings.Contains(info, `"version"`) {
		t.Error(info)
	}
	check(t, Load())
}
