package main

import "kvcache.dev/kvcache"

var transfers = map[string]func(*script) ([]string, error){
	"tensor": quiet(func(s *script) error {
		s.tensors[s.words["name"]] = s.tensor("value")
		return nil
	}),
	"show": func(s *script) ([]string, error) {
		return []string{printed("value", s.tensorOf("$"+s.words["name"]), printing(s.has("hash")))}, nil
	},
	"merge_states": func(s *script) ([]string, error) {
		parts := kvcache.Merge{Outputs: s.tensors_("outs"), LSEs: s.tensors_("lses"), Out: s.tensor("out"), LSE: s.tensor("lse")}
		if err := s.context().Merge(parts); err != nil {
			return nil, err
		}
		return s.outputs(parts.Out, parts.LSE), nil
	},
	"export": func(s *script) ([]string, error) {
		what := kvcache.Export{Layer: s.integer("layer"), Begin: int64(s.integer("begin")), End: int64(s.integer("end")),
			Parts: kvcache.ExportK | kvcache.ExportV}
		if s.has("scales") {
			what.Parts |= kvcache.ExportKScale | kvcache.ExportVScale
		}
		exported, err := s.cache().Export(s.sequence(), what)
		if err != nil {
			return nil, err
		}
		var found []string
		for key, part := range map[string]kvcache.Tensor{"k": exported.K, "v": exported.V, "k_scale": exported.KScale, "v_scale": exported.VScale} {
			if part.DType() == 0 {
				continue
			}
			found = append(found, printed(key, part, printing(!s.has("hex"))))
			if s.has(key) {
				s.tensors[s.words[key]] = part
			}
		}
		return found, nil
	},
	"import": quiet(func(s *script) error {
		return s.cache().Import(s.sequence(), kvcache.Import{K: s.tensors_("k"), V: s.tensors_("v"), KScale: s.tensors_("k_scale"),
			VScale: s.tensors_("v_scale"), AsStored: s.has("as_stored")})
	}),
	"export_pool": func(s *script) ([]string, error) {
		pool := choice(s, "pool", map[string]kvcache.Pool{"kv": kvcache.PoolKV, "k": kvcache.PoolK, "v": kvcache.PoolV,
			"k_scale": kvcache.PoolKScale, "v_scale": kvcache.PoolVScale})
		view, err := s.cache().ViewPool(s.integer("layer"), pool, s.has("writable"))
		if err != nil {
			return nil, err
		}
		defer view.Close()
		readonly := 0
		if view.ReadOnly {
			readonly = 1
		}
		return []string{printed("pool", view.Tensor, asHash), result("readonly", readonly)}, nil
	},
	"take_copies": func(s *script) ([]string, error) {
		copies, err := s.cache().TakeCopies()
		var flat []int64
		for _, c := range copies {
			flat = append(flat, int64(c.Group), c.SourceSlot, c.TargetSlot, int64(c.Count))
		}
		return []string{integers("copies", flat)}, err
	},
}
