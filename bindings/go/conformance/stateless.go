package main

import (
	"encoding/hex"
	"fmt"
	"strings"

	"kvcache.dev/kvcache"
)

var stateless = map[string]func(*script) ([]string, error){
	"flash_attn": func(s *script) ([]string, error) {
		args := kvcache.FlashAttn{Q: s.tensor("q"), KCache: s.tensor("k_cache"), VCache: s.tensor("v_cache"), K: s.tensor("k"),
			V: s.tensor("v"), QV: s.tensor("qv"), Out: s.tensor("out"), SoftmaxLSE: s.tensor("lse"),
			CacheSeqlens: s.tensor("cache_seqlens"), SequsedK: s.tensor("seqused_k"), CacheBatchIdx: s.tensor("cache_batch_idx"),
			CacheLeftpad: s.tensor("cache_leftpad"), BlockTable: s.tensor("block_table"), CuSeqlensQ: s.tensor("cu_seqlens_q"),
			CuSeqlensKNew: s.tensor("cu_seqlens_k_new"), RotaryCos: s.tensor("rotary_cos"), RotarySin: s.tensor("rotary_sin"),
			RotarySeqlens: s.tensor("rotary_seqlens"), QDescale: s.tensor("q_descale"), KDescale: s.tensor("k_descale"),
			VDescale: s.tensor("v_descale"), AlibiSlopes: s.tensor("alibi"), Sinks: s.tensor("sinks"), Indices: s.tensor("indices"), Causal: s.has("causal"), AlibiSigned: s.has("alibi_signed"),
			RotaryInterleaved: s.has("rotary_interleaved"), AttentionChunk: s.integer("chunk"), NumSplits: s.integer("num_splits"),
			SoftmaxScale: s.number("softmax_scale"), Softcap: s.number("softcap"),
			Window: &kvcache.FlashWindow{Left: s.integerOr("window_left", -1), Right: s.integerOr("window_right", -1)}}
		if err := s.context().FlashAttnWithKVCache(args); err != nil {
			return nil, err
		}
		return s.outputs(args.Out, args.SoftmaxLSE), nil
	},
	"append_slots": quiet(func(s *script) error {
		return s.context().AppendSlots(kvcache.AppendSlots{K: s.tensor("k"), V: s.tensor("v"), KCache: s.tensor("k_cache"),
			VCache: s.tensor("v_cache"), SlotMapping: s.tensor("slots"), KScale: s.tensor("k_scale"), VScale: s.tensor("v_scale"),
			RotaryCos: s.tensor("rotary_cos"), RotarySin: s.tensor("rotary_sin"), Positions: s.tensor("positions"),
			RotaryInterleaved: s.has("rotary_interleaved")})
	}),
	"page_keys": func(s *script) ([]string, error) {
		args := kvcache.PageKeysArgs{Tokens: list(s, "tokens", int32Of), PageSize: s.integer("page_size"), Adapter: hexOf(s, "adapter"),
			Salt: hexOf(s, "salt"), SaltBegin: int64(s.integer("salt_begin")), Begin: int64(s.integer("begin"))}
		if s.has("fingerprint") {
			args.Fingerprint = (*[32]byte)(hexOf(s, "fingerprint"))
		}
		if s.has("parent") {
			args.Parent = (*kvcache.PageKey)(hexOf(s, "parent"))
		}
		args.Media = s.media()
		keys, err := kvcache.PageKeys(args)
		var text strings.Builder
		for _, key := range keys {
			fmt.Fprintf(&text, "%x", key)
		}
		return []string{result("keys", text.String())}, err
	},
	"plan_create": quiet(func(s *script) error {
		mode := choice(s, "mode", map[string]kvcache.PlanMode{"decode": kvcache.PlanDecode, "extend": kvcache.PlanExtend,
			"verify": kvcache.PlanVerify, "draft_decode": kvcache.PlanDraftDecode})
		made, err := kvcache.NewPlan(kvcache.PlanConfig{Context: s.context(), Mode: mode, PageSize: s.integer("page_size"),
			DraftTokens: s.integer("num_draft_tokens"), Steps: s.integer("num_steps"), TopK: s.integer("top_k"), Arrays: arraysOf(s),
			PadValue: padOf(s), Slots: s.has("slots"), LengthsWithNew: s.has("lengths_with_new"), Graph: s.has("graph"),
			MaxRows: s.integer("max_rows"), MaxTokens: s.integer("max_tokens"), MaxPagesPerRow: s.integer("max_pages_per_row"),
			Window: int64(s.integer("window")), Chunk: int64(s.integer("chunk")), PoolPages: int64(s.integer("num_pool_pages"))})
		if err == nil {
			s.plans[s.integer("plan")] = made
		}
		return err
	}),
	"plan_build": func(s *script) ([]string, error) {
		generation, err := s.plan().Build(kvcache.PlanStep{SeqLens: s.tensor("seq_lens"), AppendLengths: s.tensor("append_lengths"),
			Rows: s.tensor("rows"), BlockTable: s.tensor("block_table"), ReqToToken: s.tensor("req_to_token"),
			EncoderLens: s.tensor("encoder_lens"), TreeParents: s.tensor("tree_parents"), RowsGrew: s.has("rows_grew")})
		return []string{result("generation", generation)}, err
	},
	"plan_tables": func(s *script) ([]string, error) {
		tables, err := s.plan().Tables(s.integer("step"), partOf(s))
		if err != nil {
			return nil, err
		}
		return append(tableResults(tables), result("generation", tables.Generation)), nil
	},
	"plan_check": quiet(func(s *script) error { return s.plan().Check(uint64(s.integer("generation"))) }),
	"plan_close": quiet(func(s *script) error {
		defer delete(s.plans, s.integer("plan"))
		return s.plan().Close()
	}),
}

func hexOf(s *script, key string) []byte { return parse(s.words[key], hex.DecodeString) }
