package main

import (
	"context"
	"math"
	"time"

	"kvcache.dev/kvcache"
)

var (
	syncs  = map[string]kvcache.TierSync{"": 0, "data": kvcache.TierSyncData, "none": kvcache.TierSyncNone, "full": kvcache.TierSyncFull}
	stores = map[string]kvcache.TierStore{"": 0, "published": kvcache.TierStorePublished, "reused": kvcache.TierStoreReused,
		"nothing": kvcache.TierStoreNothing, "evicted": kvcache.TierStoreEvicted}
	reads = map[string]kvcache.TierReads{"": 0, "any": 0, "blocking": kvcache.TierReadsBlocking, "io_uring": kvcache.TierReadsIoUring}
)

// Waits for a suspend or resume.
func moved(start func(*kvcache.Cache, kvcache.Seq) (*kvcache.LoadJob, error)) func(*script) ([]string, error) {
	return func(s *script) ([]string, error) {
		job, err := start(s.cache(), s.sequence())
		if err != nil {
			return nil, err
		}
		tokens, err := job.Wait(context.Background())
		return []string{result("tokens", tokens)}, err
	}
}

// Tiers: memory, and folders in those that the driver names.
var tiers = map[string]func(*script) ([]string, error){
	"add_tier": quiet(func(s *script) error {
		if s.has("host") {
			return s.cache().AddHostTier(kvcache.HostTierOptions{CapacityBytes: int64(s.integer("capacity_bytes")),
				Store: stores[s.words["store"]], MinTokens: int64(s.integer("min_tokens")), Medium: s.words["medium"],
				Pinned: s.has("pinned")})
		}
		folder := "KVCACHE_CONFORMANCE_SAVE"
		if s.has("of_first") {
			folder = "KVCACHE_CONFORMANCE_LOAD"
		}
		return s.cache().AddDiskTier(s.pathIn(folder, "directory"), kvcache.DiskTierOptions{
			CapacityBytes: int64(s.integer("capacity_bytes")), Sync: syncs[s.words["sync"]], Store: stores[s.words["store"]],
			MinTokens: int64(s.integer("min_tokens")), Medium: s.words["medium"],
			Reads: reads[s.words["reads"]]})
	}),
	"load_prefix": func(s *script) ([]string, error) {
		job, hit, err := s.cache().LoadPrefix(s.query(), kvcache.LoadOptions{Priority: s.integer("priority"),
			Session: uint64(s.integer("session")), TimeToLive: int64(s.integer("time_to_live")), TokenNs: int64(s.integerOr("token_ns", math.MaxInt64))})
		if err == nil && s.has("cancel") {
			err = job.Cancel()
		}
		if err != nil {
			return nil, err
		}
		loaded, err := job.Wait(context.Background())
		if s.has("cancel") {
			return nil, err
		}
		tiers := hit.TierTokens[:]
		for len(tiers) > 0 && tiers[len(tiers)-1] == 0 {
			tiers = tiers[:len(tiers)-1]
		}
		return append(resultsOf(hit), result("load_tokens", hit.LoadTokens), integers("tier_tokens", tiers),
			result("loaded", loaded)), err
	},
	"attach_pending": func(s *script) ([]string, error) {
		job, _, err := s.cache().LoadPrefix(s.query(), kvcache.LoadOptions{TokenNs: math.MaxInt64})
		if err != nil {
			return nil, err
		}
		s.job = job
		sequence, tokens, err := job.Attach(kvcache.PendingOptions{Wait: true})
		if err == nil {
			s.bind([]kvcache.Seq{sequence})
		}
		return []string{result("tokens", tokens)}, err
	},
	"wait_job": func(s *script) ([]string, error) {
		loaded, err := s.job.Wait(context.Background())
		if err != nil {
			return nil, err
		}
		_, pending, err := s.cache().Pending(s.sequence())
		after := 0
		if pending {
			after = 1
		}
		return []string{result("loaded", loaded), result("pending", after)}, err
	},
	"suspend": moved((*kvcache.Cache).Suspend),
	"resume":  moved((*kvcache.Cache).Resume),
	"tier_traffic": func(s *script) ([]string, error) {
		traffic, err := s.cache().TierTraffic()
		for err == nil && traffic.PagesWaiting > 0 {
			time.Sleep(time.Millisecond)
			traffic, err = s.cache().TierTraffic()
		}
		return []string{result("num_tiers", traffic.NumTiers), result("stored", traffic.PagesStored),
			result("dropped", traffic.PagesDropped), result("not_stored", traffic.PagesNotStored), result("loading", traffic.PagesLoading),
			result("loaded", traffic.PagesLoaded), result("not_loaded", traffic.PagesNotLoaded),
			result("suspended", traffic.SequencesSuspended)}, err
	},
}
