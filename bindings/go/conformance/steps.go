package main

import (
	"context"
	"strconv"
	"strings"

	"kvcache.dev/kvcache"
)

var background = context.Background()

var steps = map[string]func(*script) ([]string, error){
	"graph_create": quiet(func(s *script) error {
		made, err := s.cache().NewGraph(kvcache.GraphConfig{MaxSequences: s.integer("max_sequences"),
			MaxTokens: s.integer("max_tokens"), MaxPagesPerRow: s.integer("max_pages_per_row")})
		if err == nil {
			s.graphs[s.integer("graph")] = made
		}
		return err
	}),
	"graph_close": quiet(func(s *script) error { return s.graph().Close() }),
	"can_fit":     quiet(func(s *script) error { return placeOf(s).CanFit(batchOf(s)) }),
	"begin": quiet(func(s *script) error {
		step, err := placeOf(s).Begin(background, batchOf(s))
		if err == nil {
			s.steps[s.integer("step")] = step
		}
		return err
	}),
	"info": func(s *script) ([]string, error) {
		positions, err := s.step().Positions()
		if err != nil {
			return nil, err
		}
		rows, err := s.step().LastRows()
		return []string{integers("positions", positions), integers("last_rows", rows)}, err
	},
	"describe": quiet(func(s *script) error {
		_, err := s.step().Describe()
		return err
	}),
	"append": quiet(func(s *script) error {
		return s.step().Append(background, s.integer("layer"), kvcache.Append{K: s.tensor("k"), V: s.tensor("v"),
			RopeCosSin: s.tensor("rope_cos_sin"), KScale: s.tensor("k_scale"), VScale: s.tensor("v_scale"), AsStored: s.has("as_stored")})
	}),
	"attend": func(s *script) ([]string, error) {
		args := kvcache.Attend{Q: s.tensor("q"), K: s.tensor("k"), V: s.tensor("v"), Out: s.tensor("out"), LSE: s.tensor("lse"),
			AlibiSlopes: s.tensor("alibi"), Sinks: s.tensor("sinks"), RopeCosSin: s.tensor("rope_cos_sin"), WUK: s.tensor("w_uk"),
			WUV: s.tensor("w_uv"), Indices: s.tensor("indices"), IndexBlock: s.integer("index_block"), RelBias: s.tensor("rel_bias"),
			KeyBias: s.tensor("key_bias"), Mask: s.tensor("mask"), SoftmaxScale: s.number("softmax_scale"), Softcap: s.number("softcap"),
			Flags: choice(s, "part", map[string]kvcache.AttendFlags{"past": kvcache.Past, "self": kvcache.Self})}
		if s.has("non_causal") {
			args.Flags |= kvcache.NonCausal
		}
		for word, flag := range map[string]kvcache.AttendFlags{"alibi_signed": kvcache.AlibiSigned, "rel_bias_zero": kvcache.RelBiasZero,
			"no_spans": kvcache.NoSpans, "step_window": kvcache.StepWindow} {
			if s.has(word) {
				args.Flags |= flag
			}
		}
		if err := s.step().Attend(background, s.integer("layer"), args); err != nil {
			return nil, err
		}
		return s.outputs(args.Out, args.LSE), nil
	},
	"select": func(s *script) ([]string, error) {
		args := kvcache.Select{Q: s.tensor("q"), Weights: s.tensor("weights"), Indices: s.tensor("out"), Candidates: s.tensor("candidates"),
			RopeCosSin: s.tensor("rope_cos_sin"), EachHead: s.has("each_head"), IndexBlock: s.integer("index_block"),
			CandidateBlock: s.integer("candidate_block"), FirstBlocks: s.integer("first_blocks"), LastBlocks: s.integer("last_blocks")}
		if err := s.step().Select(background, s.integer("layer"), args); err != nil {
			return nil, err
		}
		return s.outputs(args.Indices, kvcache.Tensor{}), nil
	},
	"load_state": func(s *script) ([]string, error) {
		out := s.tensor("out")
		load := func() error { return s.step().LoadState(s.integer("layer"), s.integer("state"), out) }
		if s.has("token") {
			load = func() error {
				return s.step().LoadStateBefore(s.integer("layer"), s.integer("state"), s.integer("token"), out)
			}
		}
		if err := load(); err != nil {
			return nil, err
		}
		return s.outputs(out, kvcache.Tensor{}), nil
	},
	"store_state": quiet(func(s *script) error {
		if s.has("token") {
			return s.step().StoreStateAfter(s.integer("layer"), s.integer("state"), s.integer("token"), s.tensor("value"))
		}
		return s.step().StoreState(s.integer("layer"), s.integer("state"), s.tensor("value"))
	}),
	"tables": func(s *script) ([]string, error) {
		tables, err := s.step().Tables(s.integer("group"), kvcache.TablesOptions{Part: partOf(s), Arrays: arraysOf(s),
			Slots: s.has("slots"), PadValue: padOf(s)})
		if err != nil {
			return nil, err
		}
		return tableResults(tables), nil
	},
	"cancel": quiet(func(s *script) error { return s.step().Cancel() }),
	"end":    quiet(func(s *script) error { return s.step().End() }),
	"abort":  quiet(func(s *script) error { return s.step().Abort() }),
}

// place is where a step may be begun.
type place interface {
	CanFit(batch kvcache.Batch) error
	Begin(ctx context.Context, batch kvcache.Batch) (*kvcache.Step, error)
}

func placeOf(s *script) place {
	if s.has("graph") {
		return s.graph()
	}
	return s.cache()
}

func batchOf(s *script) kvcache.Batch {
	batch := kvcache.Batch{Sequences: s.sequences("seqs"), AppendLengths: list(s, "tokens", int32Of),
		TreeParents: list(s, "parents", int32Of), SpanIDs: list(s, "spans", int32Of), EncoderGroup: s.index("encoder_group")}
	if layers := list(s, "layers", strconv.Atoi); layers != nil {
		batch.LayerBegin, batch.LayerEnd = layers[0], layers[1]
	}
	return batch
}

// outputs are out, and lse if the line has one.
func (s *script) outputs(out, lse kvcache.Tensor) []string {
	found := []string{printed("out", out, asHex)}
	if s.has("lse") {
		found = append(found, printed("lse", lse, asHex))
	}
	return found
}

func partOf(s *script) kvcache.TablesPart {
	return choice(s, "part", map[string]kvcache.TablesPart{"whole": kvcache.TablesWhole, "prefix": kvcache.TablesPrefix,
		"branches": kvcache.TablesBranches, "encoder": kvcache.TablesEncoder})
}

func arraysOf(s *script) (arrays kvcache.TablesArrays) {
	known := map[string]kvcache.TablesArrays{"dense": kvcache.TablesDense, "csr": kvcache.TablesCSR, "tokens": kvcache.TablesTokens}
	for _, word := range strings.Split(s.words["arrays"], ",") {
		arrays |= known[word]
	}
	return arrays
}

func padOf(s *script) *int32 {
	if !s.has("pad") {
		return nil
	}
	value := parse(s.words["pad"], int32Of)
	return &value
}

func tableResults(t kvcache.Tables) []string {
	causal := 0
	if t.Causal {
		causal = 1
	}
	found := []string{result("causal", causal), result("num_rows", t.Rows), result("num_queries", t.Queries), result("page_size", t.PageSize),
		result("max_seqlen_q", t.MaxSeqlenQ), result("max_seqlen_k", t.MaxSeqlenK), result("max_pages", t.MaxPages),
		result("num_pages", t.Pages), result("num_keys", t.Keys)}
	if t.BlockTable != nil {
		table := []int32{}
		for row := range len(t.BatchRows) { // in a graph more than Rows
			table = append(table, t.Row(row)...)
		}
		found = append(found, integers("block_table", table))
	}
	for _, array := range []struct {
		name   string
		values []int32
	}{
		{"cache_seqlens", t.CacheSeqlens}, {"cu_seqlens_q", t.CuSeqlensQ}, {"cu_seqlens_k", t.CuSeqlensK}, {"indptr", t.Indptr},
		{"indices", t.Indices}, {"last_page_len", t.LastPageLen}, {"key_starts", t.KeyStarts}, {"leftpad", t.Leftpad},
		{"batch_rows", t.BatchRows}, {"sink_tokens", t.SinkTokens}, {"hole_tokens", t.HoleTokens}, {"positions", t.Positions},
		{"last_rows", t.LastRows},
	} {
		if array.values != nil {
			found = append(found, integers(array.name, array.values))
		}
	}
	if t.SlotMapping != nil {
		found = append(found, integers("slot_mapping", t.SlotMapping))
	}
	return found
}
