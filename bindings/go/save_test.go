package kvcache

import (
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestALoadedSequenceHoldsWhatWasSaved(t *testing.T) {
	cache, other := newCache(t), newCache(t)
	sequence, x := must(cache.Add())(t), randomTokens(rand.New(rand.NewSource(5)), 10)
	step(t, cache, sequence, x)
	folder, tokens := t.TempDir(), tokensFrom(-3, 10)
	path := filepath.Join(folder, "chat.kvc")
	check(t, cache.Save(sequence, path, SaveOptions{Tokens: tokens, SectionBytes: 4096}))
	loaded, found, err := other.Load(path)
	check(t, err)
	if !slices.Equal(found, tokens) {
		t.Errorf("tokens %v", found)
	}
	again := filepath.Join(folder, "again.kvc")
	check(t, other.Save(loaded, again, SaveOptions{Tokens: found, SectionBytes: 4096}))
	if one, two := must(os.ReadFile(path))(t), must(os.ReadFile(again))(t); !slices.Equal(one, two) {
		t.Error("another file")
	}
	check(t, cache.Save(sequence, path, SaveOptions{}))
	if _, found, err = other.Load(path); err != nil || len(found) != 0 {
		t.Error(found, err)
	}
	check(t, other.CheckInvariants())
}

func TestFilesThatAreRefused(t *testing.T) {
	cache := newCache(t)
	sequence := must(cache.Add())(t)
	step(t, cache, sequence, randomTokens(rand.New(rand.NewSource(6)), 10))
	path := filepath.Join(t.TempDir(), "chat.kvc")
	check(t, cache.Save(sequence, path, SaveOptions{}))
	whole := must(os.ReadFile(path))(t)
	load := func(path string) error { _, _, err := cache.Load(path); return err }
	refuse := func(err error, status Status, words string) {
		t.Helper()
		if !errors.Is(err, status) || !strings.Contains(err.Error(), words) {
			t.Error(err)
		}
	}
	refuse(load(path+".none"), ErrIo, "Cache.Load: cannot open")
	check(t, os.WriteFile(path, whole[:len(whole)-1], 0o600))
	refuse(load(path), ErrCorrupt, "ends")
	check(t, os.WriteFile(path, whole, 0o600))
	wider := newCache(t, func(c *Config) { c.Layers[0].HeadDim *= 2 })
	_, _, err := wider.Load(path)
	refuse(err, ErrLayout, "File:")
	refuse(load("a\x00b"), ErrInvalidArgument, "NUL")
	refuse(cache.Save(sequence, path, SaveOptions{Tokens: []int32{1}}), ErrInvalidArgument, "len(Tokens) 1")
	if now := must(os.ReadFile(path))(t); !slices.Equal(now, whole) {
		t.Error("a refused call has changed the file")
	}
}
