package main

import "kvcache.dev/kvcache"

var prefixes = map[string]func(*script) ([]string, error){
	"match_prefix": func(s *script) ([]string, error) {
		hit, err := s.cache().MatchPrefix(s.query())
		return resultsOf(hit), err
	},
	"attach_prefix": func(s *script) ([]string, error) {
		sequence, hit, err := s.cache().AttachPrefix(s.query())
		if err == nil {
			s.bind([]kvcache.Seq{sequence})
		}
		return resultsOf(hit), err
	},
	"publish_prefix": func(s *script) ([]string, error) {
		done, err := s.cache().PublishPrefix(s.sequence(), s.query(), kvcache.PrefixOptions{Priority: s.integer("priority"),
			Session: uint64(s.integer("session")), TimeToLive: int64(s.integer("time_to_live")),
			KeepPrivate: s.has("keep_private")})
		return []string{result("known", done.KnownTokens), result("added", done.PagesAdded), result("freed", done.PagesFreed)}, err
	},
	"drop_prefix": func(s *script) ([]string, error) {
		pages, err := s.cache().DropPrefix(s.query())
		return []string{result("pages", pages)}, err
	},
	"drop_session": func(s *script) ([]string, error) {
		pages, err := s.cache().DropSession(uint64(s.integer("session")))
		return []string{result("pages", pages)}, err
	},
	"set_prefix_priority": quiet(func(s *script) error {
		priority, timeToLive := s.integer("priority"), int64(s.integer("time_to_live"))
		if s.has("session") {
			return s.cache().SetSessionPriority(uint64(s.integer("session")), priority, timeToLive)
		}
		return s.cache().SetPrefixPriority(s.query(), priority, timeToLive)
	}),
	"pin_prefix": func(s *script) ([]string, error) {
		pin, hit, err := s.cache().PinPrefix(s.query())
		return []string{result("tokens", hit.Tokens), result("pin", pin)}, err
	},
	"unpin_prefix": quiet(func(s *script) error {
		return s.cache().UnpinPrefix(kvcache.PrefixPin(s.integer("pin")))
	}),
	"prefix_stats": func(s *script) ([]string, error) {
		c, err := s.cache().Stats(s.integerOr("group", kvcache.WholeCache))
		return []string{result("pages_published", c.PagesPublished), result("pages_idle", c.PagesIdle),
			result("pages_evicted", c.PagesEvicted), result("prefix_attaches", c.PrefixAttaches), result("prefix_tokens", c.PrefixTokens)}, err
	},
	"set_time": quiet(func(s *script) error {
		return s.cache().SetTime(int64(s.integer("now")))
	}),
}

func (s *script) query() kvcache.PrefixQuery {
	return kvcache.PrefixQuery{Tokens: list(s, "prompt", int32Of), Salt: uint64(s.integer("salt")),
		SaltBegin: int64(s.integer("salt_begin")), Adapter: hexOf(s, "adapter"), Media: s.media(), AllowAll: s.has("allow_all")}
}

func (s *script) media() (spans []kvcache.MediaSpan) {
	lengths, hashes := list(s, "media_tokens", int64Of), hexOf(s, "media_hashes")
	for i, begin := range list(s, "media_begins", int64Of) {
		spans = append(spans, kvcache.MediaSpan{Begin: begin, Tokens: lengths[i], Hash: [32]byte(hashes[32*i:])})
	}
	return spans
}

func resultsOf(hit kvcache.PrefixHit) []string {
	return []string{result("tokens", hit.Tokens), result("copied", hit.CopiedTokens), result("known", hit.KnownTokens),
		result("limited_by", hit.LimitedBy)}
}
