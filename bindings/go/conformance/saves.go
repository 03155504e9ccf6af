package main

import (
	"os"
	"path/filepath"

	"kvcache.dev/kvcache"
)

// Saved sequences, in files of the folders that the driver names.
var saves = map[string]func(*script) ([]string, error){
	"save": quiet(func(s *script) error {
		return s.cache().Save(s.sequence(), s.pathIn("KVCACHE_CONFORMANCE_SAVE", "file"),
			kvcache.SaveOptions{Tokens: list(s, "tokens", int32Of), SectionBytes: int64(s.integer("section_bytes"))})
	}),
	"load": func(s *script) ([]string, error) {
		sequence, tokens, err := s.cache().Load(s.pathIn("KVCACHE_CONFORMANCE_LOAD", "file"))
		if err == nil {
			s.bind([]kvcache.Seq{sequence})
		}
		return []string{integers("tokens", tokens)}, err
	},
}

func (s *script) pathIn(variable, key string) string {
	return filepath.Join(os.Getenv(variable), s.words[key])
}
