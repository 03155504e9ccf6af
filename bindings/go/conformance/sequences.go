package main

import (
	"fmt"

	"kvcache.dev/kvcache"
)

var sequences = map[string]func(*script) ([]string, error){
	"cache_close": quiet(func(s *script) error { return s.cache().Close() }),
	"stats": func(s *script) ([]string, error) {
		c, err := s.cache().Stats(s.integerOr("group", kvcache.WholeCache))
		return []string{result("num_sequences", c.Sequences), result("pages_total", c.PagesTotal), result("pages_used", c.PagesUsed),
			result("pages_free", c.PagesFree), result("pages_shared", c.PagesShared), result("pages_peak", c.PagesPeak),
			result("tokens_held", c.TokensHeld), result("tokens_shared", c.TokensShared), result("tokens_logical", c.TokensLogical),
			result("fragmentation_bytes", c.FragmentationBytes), result("storage_bytes", c.StorageBytes)}, err
	},
	"cache_describe": quiet(func(s *script) error {
		_, err := s.cache().Describe()
		return err
	}),
	"digest": func(s *script) ([]string, error) {
		digest, err := s.cache().Digest()
		return []string{fmt.Sprintf("digest=%016x", digest)}, err
	},
	"add": quiet(func(s *script) error {
		ids, err := s.cache().AddMany(len(s.sequences("seqs")))
		if err == nil {
			s.bind(ids)
		}
		return err
	}),
	"fork": quiet(func(s *script) error {
		ids, err := s.cache().ForkAt(s.sequences("parents"), list(s, "positions", int64Of))
		if err == nil {
			s.bind(ids)
		}
		return err
	}),
	"pages": func(s *script) ([]string, error) {
		pages, err := s.cache().Pages(s.sequence(), s.integer("group"))
		return []string{integers("pages", pages)}, err
	},
	"nearest": func(s *script) ([]string, error) {
		before, after, err := s.cache().NearestPosition(s.sequence(), int64(s.integer("position")))
		return []string{result("before", before), result("after", after)}, err
	},
	"set_streaming": quiet(func(s *script) error {
		window := kvcache.Window{Sinks: int64(s.integer("sinks")), Window: int64(s.integer("window"))}
		return s.cache().SetStreaming(window, s.has("prefix_is_sink"), s.sequences("seqs")...)
	}),
	"streaming": func(s *script) ([]string, error) {
		windows, err := s.cache().Streaming(s.sequence())
		if err != nil {
			return nil, err
		}
		return []string{result("sinks", windows[0].Sinks), result("window", windows[0].Window)}, nil
	},
	"set_rope": quiet(func(s *script) error {
		set := choice(s, "set", map[string]kvcache.RopeSet{"short": kvcache.RopeSetShort, "long": kvcache.RopeSetLong})
		return s.cache().SetRope(set, s.sequences("seqs")...)
	}),
	"commit": quiet(func(s *script) error {
		return s.cache().Commit(s.sequences("seqs"), list(s, "leaves", int32Of))
	}),
}
