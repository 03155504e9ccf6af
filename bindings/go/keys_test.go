package kvcache

import (
	"encoding/hex"
	"errors"
	"testing"
)

// The first vector of docs/reference/keys.md; bindings/conformance/scripts/keys.kvs has the others.
const firstKey = "feb3e26bc3708c148194e9b90dd7257a9096d766d9d75724014af2f8dfeeddcb"

func firstArgs() PageKeysArgs {
	args := PageKeysArgs{PageSize: 16, Fingerprint: new([32]byte)}
	for i := range args.Fingerprint {
		args.Fingerprint[i] = byte(i)
	}
	for i := range int32(16) {
		args.Tokens = append(args.Tokens, i)
	}
	return args
}

func TestPageKeys(t *testing.T) {
	for range 100 { // arenas are used again
		keys, err := PageKeys(firstArgs())
		if err != nil || len(keys) != 1 || hex.EncodeToString(keys[0][:]) != firstKey {
			t.Fatal(keys, err)
		}
	}
	none := firstArgs()
	none.Tokens = none.Tokens[:15]
	if keys, err := PageKeys(none); err != nil || len(keys) != 0 {
		t.Fatal(keys, err)
	}
}

func TestPageKeysRefused(t *testing.T) {
	for name, c := range map[string]struct {
		status Status
		spoil  func(*PageKeysArgs)
	}{
		"page size 0":        {ErrOutOfRange, func(a *PageKeysArgs) { a.PageSize = 0 }},
		"negative page size": {ErrOutOfRange, func(a *PageKeysArgs) { a.PageSize = -1 }},
		"no fingerprint":     {ErrNullArgument, func(a *PageKeysArgs) { a.Fingerprint = nil }},
		"begin alone":        {ErrInvalidArgument, func(a *PageKeysArgs) { a.Begin = 16 }},
		"negative salt":      {ErrOutOfRange, func(a *PageKeysArgs) { a.SaltBegin = -1 }},
		"empty span":         {ErrOutOfRange, func(a *PageKeysArgs) { a.Media = []MediaSpan{{}} }},
	} {
		args := firstArgs()
		c.spoil(&args)
		if keys, err := PageKeys(args); !errors.Is(err, c.status) || keys != nil {
			t.Errorf("%s: %v, %v", name, keys, err)
		}
	}
}
