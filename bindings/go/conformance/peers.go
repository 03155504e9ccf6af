package main

import (
	"context"
	"os"
	"time"

	"kvcache.dev/kvcache"
)

// Transfers: sequences to caches of this process, or of others over a transport.
var peers = map[string]func(*script) ([]string, error){
	"set_transport": quiet(func(s *script) error {
		return s.cache().SetTransport(os.Getenv("KVCACHE_CONFORMANCE_TRANSPORT"), os.Getenv("KVCACHE_CONFORMANCE_OPTIONS"))
	}),
	"receive": quiet(func(s *script) (err error) {
		options := kvcache.ReceiveOptions{Timeout: time.Duration(s.integer("timeout_ms")) * time.Millisecond}
		if s.has("prefix") {
			options.Prefix = s.sequences("prefix")[0]
		}
		s.transfers[s.integer("transfer")], err = s.cache().Receive(int64(s.integer("tokens")), options)
		return err
	}),
	"describe_transfer": quiet(func(s *script) error {
		description, err := s.transfer().Describe()
		if err != nil {
			return err
		}
		s.descriptions[s.integer("transfer")] = description
		if !s.has("file") {
			return nil
		}
		path := s.pathIn("KVCACHE_CONFORMANCE_SAVE", "file")
		if err := os.WriteFile(path+".part", description, 0o600); err != nil {
			return err
		}
		return os.Rename(path+".part", path) // the sender finds all of it
	}),
	"send": quiet(func(s *script) (err error) {
		description := s.descriptions[s.integer("of")]
		if s.has("file") {
			path := s.pathIn("KVCACHE_CONFORMANCE_LOAD", "file")
			for description, err = os.ReadFile(path); os.IsNotExist(err); description, err = os.ReadFile(path) {
				time.Sleep(time.Millisecond)
			}
			if err != nil {
				return err
			}
		}
		description = description[:len(description)-s.integer("cut")]
		s.transfers[s.integer("transfer")], err = s.cache().Send(s.sequence(), description)
		return err
	}),
	"poll_transfer": func(s *script) ([]string, error) {
		progress, err := s.transfer().Poll()
		if err == nil && s.has("until_done") {
			progress, err = s.transfer().Wait(context.Background())
		}
		if progress.Done && s.has("seqs") {
			s.bind([]kvcache.Seq{progress.Sequence})
		}
		done := 0
		if progress.Done {
			done = 1
		}
		return []string{result("done", done), result("tokens", progress.Tokens), result("bytes", progress.Bytes)}, err
	},
	"cancel_transfer": quiet(func(s *script) error { return s.transfer().Cancel() }),
}
