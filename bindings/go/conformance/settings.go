package main

import (
	"fmt"
	"strconv"
	"strings"

	"kvcache.dev/kvcache"
)

var settings = map[string]func(*script) ([]string, error){
	"version": func(*script) ([]string, error) {
		version, err := kvcache.Version()
		if err != nil {
			return nil, err
		}
		info, err := kvcache.BuildInfo()
		if err == nil && !strings.Contains(info, version) {
			err = fmt.Errorf("build info has not the version %s", version)
		}
		return []string{result("version", version)}, err
	},
	"context_create": quiet(func(s *script) error {
		made, err := kvcache.NewContext(kvcache.ContextConfig{Threads: s.integer("threads"), SIMD: s.words["simd"]})
		if err == nil {
			s.contexts[s.integer("context")] = made
		}
		return err
	}),
	"context_describe": quiet(func(s *script) error {
		_, err := s.context().Describe()
		return err
	}),
	"context_check": quiet(func(s *script) error {
		return s.context().Check()
	}),
	"context_close": quiet(func(s *script) error {
		defer delete(s.contexts, s.integer("context"))
		return s.context().Close()
	}),
	"group": quiet(func(s *script) error {
		row := choice(s, "row", map[string]kvcache.Row{"kv": kvcache.RowKV, "latent": kvcache.RowLatent,
			"state": kvcache.RowState})
		visibility := choice(s, "visibility", map[string]kvcache.Visibility{"all": kvcache.VisibleAll,
			"window": kvcache.VisibleWindow, "chunk": kvcache.VisibleChunk, "encoder": kvcache.VisibleEncoder})
		s.groups = append(s.groups, kvcache.Group{Row: row, Visibility: visibility, Window: int64(s.integer("window")),
			Chunk: int64(s.integer("chunk")), Pages: int64(s.integer("pages")), TokensPerRow: s.integer("tokens_per_row")})
		return nil
	}),
	"layer": quiet(func(s *script) error {
		s.layers = append(s.layers, layerOf(s))
		return nil
	}),
	"state": quiet(func(s *script) error {
		layer := &s.layers[len(s.layers)-1]
		layer.States = append(layer.States, kvcache.State{DType: choice(s, "dtype", dtypes), Shape: list(s, "shape", strconv.Atoi),
			Fill: s.number("fill")})
		return nil
	}),
	"estimate": func(s *script) ([]string, error) {
		e, err := kvcache.EstimateOf(configOf(s), s.integerOr("group", kvcache.WholeCache))
		return []string{result("num_pages", e.Pages), result("page_bytes", e.PageBytes), result("token_bytes", e.TokenBytes),
			result("storage_bytes", e.StorageBytes)}, err
	},
	"cache_create": quiet(func(s *script) error {
		made, err := kvcache.New(configOf(s))
		s.layers, s.groups = nil, nil
		if err == nil {
			s.caches[s.integer("cache")] = made
		}
		return err
	}),
}

func layerOf(s *script) kvcache.Layer {
	if s.has("recurrent") {
		return kvcache.Layer{Group: s.integer("group")}
	}
	layer := kvcache.Layer{Group: s.integer("group"), QHeads: s.integerOr("q_heads", 1), KVHeads: s.integerOr("kv_heads", 1),
		HeadDim: s.integer("head_dim"), VHeadDim: s.integer("v_head_dim"), DType: choice(s, "dtype", dtypes),
		Rope:    choice(s, "rope", map[string]kvcache.RopeMode{"on_append": kvcache.RopeOnAppend, "on_read": kvcache.RopeOnRead}),
		RopeDim: s.integer("rope_dim"), RopeOffset: s.integer("rope_offset"), RopeInterleaved: s.has("rope_interleaved"),
		RopeTheta: s.number("rope_theta"), SoftmaxScale: s.number("softmax_scale"), KVLayer: s.index("kv_layer"),
		KScales: list(s, "k_scales", float32Of), VScales: list(s, "v_scales", float32Of), LatentDim: s.integer("latent_dim"), TotalKVHeads: s.integer("total_kv_heads"), KeysOnly: s.has("keys_only"),
		RowFormat: choice(s, "row_format", map[string]kvcache.RowFormat{
			"fp8_ds_mla":   kvcache.RowFormatFP8DSMLA,
			"fp8_ds_v4":    kvcache.RowFormatFP8DSV4,
			"mxfp4":        kvcache.RowFormatMXFP4,
			"mxfp8":        kvcache.RowFormatMXFP8,
			"fp8_blocks":   kvcache.RowFormatFP8Blocks,
			"nvfp4":        kvcache.RowFormatNVFP4,
			"nvfp4_ds_mla": kvcache.RowFormatNVFP4DSMLA,
		}),
		KVStorage: s.tensor("kv_storage"), KStorage: s.tensor("k_storage"), VStorage: s.tensor("v_storage")}
	if s.has("scaling") {
		kind := choice(s, "scaling", map[string]kvcache.RopeScalingKind{"linear": kvcache.RopeLinear, "llama3": kvcache.RopeLlama3,
			"yarn": kvcache.RopeYarn, "longrope": kvcache.RopeLongrope})
		layer.RopeScaling = &kvcache.RopeScaling{Kind: kind, Factor: s.number("factor"), OriginalMaxPosition: int64(s.integer("original")),
			LowFreqFactor: s.number("low_freq"), HighFreqFactor: s.number("high_freq"), BetaFast: s.number("beta_fast"),
			BetaSlow: s.number("beta_slow"), AttentionFactor: s.number("attention_factor"),
			ShortFactors: list(s, "short", float64Of), LongFactors: list(s, "long", float64Of)}
	}
	return layer
}

func configOf(s *script) kvcache.Config {
	var fingerprint *[32]byte
	if s.has("fingerprint") {
		fingerprint = (*[32]byte)(hexOf(s, "fingerprint"))
	}
	return kvcache.Config{Context: s.context(), Layers: s.layers, Groups: s.groups, PageSize: s.integer("page_size"),
		MaxSequences: s.integer("max_sequences"), MaxBatchTokens: s.integer("max_batch_tokens"),
		MaxOpenForwards: s.integer("max_open_forwards"), MaxTreeNodes: s.integer("max_tree_nodes"),
		MaxCheckpoints: s.integer("max_checkpoints"), MaxDraftStates: s.integer("max_draft_states"), TPSize: s.integer("tp_size"), TPRank: s.integer("tp_rank"),
		RollbackTokens: int64(s.integer("rollback_tokens")),
		NoRollback:     s.has("rollback_tokens") && s.integer("rollback_tokens") == 0,
		CapacityTokens: int64(s.integer("capacity_tokens")), CapacityPages: int64(s.integer("capacity_pages")),
		CapacityBytes: int64(s.integer("capacity_bytes")), Streaming: s.has("streaming"), Deterministic: s.has("deterministic"),
		SharePrefixes: choice(s, "sharing", map[string]kvcache.SharePrefixes{"never": kvcache.ShareNever, "always": kvcache.ShareAlways}),
		Storage:       choice(s, "storage", map[string]kvcache.Storage{"none": kvcache.StorageNone}),
		PrefixIndex:   s.has("prefix_index"), PrefixPages: int64(s.integer("prefix_pages")),
		PrefixCheckpoints: int64(s.integer("prefix_checkpoints")), ZeroOnFree: s.has("zero_on_free"),
		PrefixPolicy: choice(s, "prefix_policy", map[string]kvcache.PrefixPolicy{"lru": kvcache.PrefixLRU}),
		Fingerprint:  fingerprint, EventsCapacity: int64(s.integer("events_capacity")),
		EventsTierPages: int64(s.integer("events_tier_pages"))}
}
