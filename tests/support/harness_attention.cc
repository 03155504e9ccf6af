// Attention of one layer, compared with the float64 reference.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <sstream>

#include "harness.h"
#include "harness_call.h"
#include "reference.h"

namespace kvt {

Harness::Attended Harness::random_options(const LayerSpec &layer) {
  Attended how;
  if (options_.plain_inputs || chance(0.4)) return how;
  if (chance(0.4)) how.softcap = chance(0.5) ? 5.0 : 30.0;
  if (chance(0.4)) how.scale = 0.05 + 0.01 * static_cast<double>(uniform(0, 40));
  how.causal = chance(0.75);
  const auto heads = [&](double low, double step) {
    std::vector<float> values;
    for (int h = 0; h < layer.hq; h++)
      values.push_back(static_cast<float>(low + step * static_cast<double>(uniform(0, 16))));
    return values;
  };
  if (chance(0.4)) how.slopes = heads(0.0, 0.03125);
  if (chance(0.4)) how.sinks = heads(-3.0, 0.5);
  return how;
}

void Harness::Attended::set(kvc_attend_args *args) {
  heads = static_cast<int64_t>(std::max(slopes.size(), sinks.size()));
  const auto tensor_of = [&](std::vector<float> &values, DLTensor *tensor) -> const DLTensor * {
    *tensor = {values.data(), test_device(), 1, {kDLFloat, 32, 1}, &heads, nullptr, 0};
    return values.empty() ? nullptr : tensor;
  };
  args->alibi_slopes = tensor_of(slopes, &tensors[0]);
  args->sinks = tensor_of(sinks, &tensors[1]);
  if (has_lists()) {
    tensors[2] = {indices.data(), test_device(), 3, {kDLInt, 32, 1}, index_shape, nullptr, 0};
    args->indices = &tensors[2];
    args->index_block = index_block;
  }
  if (!rel_bias.empty()) {
    const int skipped = rel_shape[0] == 1 ? 1 : 0;
    tensors[3] = {rel_bias.data(), test_device(), 3 - skipped, {kDLFloat, 32, 1}, rel_shape + skipped, nullptr, 0};
    args->rel_bias = &tensors[3];
    if (rel_zero) args->flags |= KVC_ATTEND_REL_BIAS_ZERO;
  }
  if (!key_bias.empty()) {
    tensors[4] = {key_bias.data(), test_device(), 3, {kDLFloat, 32, 1}, key_shape, nullptr, 0};
    args->key_bias = &tensors[4];
  }
  if (!mask.empty()) {
    tensors[5] = {mask.data(), test_device(), 3, {kDLBool, 8, 1}, mask_shape, nullptr, 0};
    args->mask = &tensors[5];
  }
  if (no_spans) args->flags |= KVC_ATTEND_NO_SPANS;
  if (step_window) args->flags |= KVC_ATTEND_STEP_WINDOW;
  args->softcap = softcap;
  args->softmax_scale = scale;
  if (!causal) args->flags |= KVC_ATTEND_NON_CAUSAL;
}

bool Harness::Attended::lists(int64_t token, int64_t kv_head, int64_t key) const {
  if (!has_lists()) return true;
  const int64_t head = index_shape[1] == 1 ? 0 : kv_head;
  const int32_t *begin = indices.data() + (token * index_shape[1] + head) * index_shape[2];
  return std::find(begin, begin + index_shape[2], key / index_block) != begin + index_shape[2];
}

// Random lists for some calls: tokens or blocks, in any order, with repetitions and padding. Entries of inert rows, and
// of rows from T on, are never read.
void Harness::draw_lists(const Open &open, int layer, int64_t rows, Attended *how) {
  if (options_.plain_inputs || !chance(0.35)) return;
  const LayerSpec &l = spec_.layers[layer];
  constexpr int32_t kBlocks[] = {1, 1, 3, 4, 16, 64};
  how->index_block = kBlocks[uniform(0, 5)];
  how->index_shape[0] = rows;
  how->index_shape[1] = chance(0.5) ? 1 : l.hkv;
  how->index_shape[2] = chance(0.1) ? 0 : uniform(1, chance(0.2) ? 300 : 24);
  how->indices.assign(rows * how->index_shape[1] * how->index_shape[2], INT32_MAX);
  const bool sorted = chance(0.3);
  int32_t *entry = how->indices.data();
  for (const OpenRow &row : open.rows) {
    const int64_t held = row.sequence < 0                         ? 0
                         : is_cross(static_cast<size_t>(l.group)) ? length_in(row.sequence, l.group)
                                                                  : row.start + row.length;
    const int64_t units = (held + how->index_block - 1) / how->index_block;
    for (int64_t list = 0; list < row.length * how->index_shape[1]; list++, entry += how->index_shape[2]) {
      if (row.sequence < 0) continue;
      for (int64_t i = 0; i < how->index_shape[2]; i++) {
        const int64_t first = chance(0.5) ? 0 : std::max<int64_t>(0, units - 8);
        entry[i] = units == 0 || chance(0.15) ? -static_cast<int32_t>(uniform(1, 3))
                                              : static_cast<int32_t>(uniform(first, units - 1));
      }
      if (sorted) std::sort(entry, entry + how->index_shape[2]);
    }
  }
}

// Random queries; NaN in inert rows and from T on.
void Harness::fill_q(const Open &open, const LayerSpec &l, float amplitude, Tensor *q) {
  int64_t t = 0;
  for (const OpenRow &row : open.rows) {
    for (int32_t j = 0; j < row.length; j++, t++) {
      const uint64_t base = random_();
      for (int h = 0; h < l.hq; h++) {
        for (int i = 0; i < l.d; i++) {
          const float x = static_cast<float>(static_cast<int32_t>(hash(base + h * 1024 + i)) >> 8) / 8388608.0f;
          q->set(t, h, i, row.sequence < 0 ? NAN : x * amplitude);
        }
      }
    }
  }
  for (; t < q->dim(0); t++) {
    for (int h = 0; h < l.hq; h++) {
      for (int i = 0; i < l.d; i++) q->set(t, h, i, NAN);
    }
  }
}

void Harness::attend_layer(int forward, int layer) {
  Open &open = forwards_.at(forward);
  const LayerSpec &l = spec_.layers[layer];
  const bool cross = is_cross(static_cast<size_t>(l.group));
  if (open.as_stored && !cross && !open.appended.count(source(layer))) append_layer(forward, source(layer));
  const bool plain = options_.plain_inputs, fused = appends(open, layer) && !open.appended.count(layer);
  const int64_t rows = open.tokens + (plain ? 0 : uniform(0, 2)), padding = plain ? 0 : uniform(0, 3),
                offset = plain ? 0 : uniform(0, 5);
  const DType q_type = plain ? DType::kF32 : static_cast<DType>(uniform(0, 2));
  const DType out_type = plain ? DType::kF32 : static_cast<DType>(uniform(0, 2));
  const bool with_lse = plain || chance(0.7);
  Tensor k, v, q(q_type, {rows, l.hq, l.d}, padding, offset), out(out_type, {rows, l.hq, l.v_dim()}, padding, offset);
  Tensor lse(DType::kF32, {rows, l.hq}, padding, offset);
  const float amplitude = 1.0f + 3.0f * static_cast<float>(uniform(0, 3));
  fill_q(open, l, amplitude, &q);
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.q = q.dl(true);
  args.out = out.dl(true);
  if (with_lse) args.lse = lse.dl(true);
  Attended how = random_options(l);
  draw_lists(open, layer, rows, &how);
  draw_biases(open, layer, rows, &how);
  how.set(&args);
  if (fused) {
    args.v = make_kv(open, layer, rows, padding, offset, &k, &v) ? v.dl(true) : nullptr;
    args.k = k.dl(true);
  }
  how.parts = !plain && !cross && with_lse && out_type == DType::kF32 && chance(0.4);
  if (how.parts) {
    attend_parts(open, layer, args, &out, &lse);
  } else {
    call("kvc_forward_attend", {},
         [&](kvc_error *e) { return kvc_forward_attend(cache_.get(), open.id, layer, &args, e); });
  }
  if (fused) open.appended.insert(layer);
  open.attended.insert(layer);

  // Outputs of padding, inert rows and rows from T on must not be written.
  const Tensor fresh_out(out_type, {rows, l.hq, l.v_dim()}, padding, offset);
  Tensor seen = fresh_out, seen_lse(DType::kF32, {rows, l.hq}, padding, offset);
  int64_t t = 0;
  for (const OpenRow &row : open.rows) {
    for (int32_t j = 0; j < row.length; j++, t++) {
      for (int h = 0; h < l.hq; h++) {
        const bool inert = row.sequence < 0;
        if (!inert) {
          std::memcpy(seen.bytes().data() + (offset + seen.index(t, h, 0)) * size_of(out_type),
                      out.bytes().data() + (offset + out.index(t, h, 0)) * size_of(out_type),
                      l.v_dim() * size_of(out_type));
        }
        // The LSE of a row that sees nothing: it is not written, or is -infinity.
        const float x = lse.at(t, h);
        if (!inert || x == -INFINITY) seen_lse.set(t, h, x);
      }
    }
  }
  if (seen.bytes() != out.bytes()) fail("attend wrote outside the rows of its sequences");
  if (with_lse && seen_lse.bytes() != lse.bytes()) fail("attend wrote lse outside the rows of its sequences");
  if (open.checked) check_attention(open, layer, how, q, out, with_lse ? &lse : nullptr);
}

void Harness::attend_parts(const Open &open, int layer, const kvc_attend_args &args, Tensor *out, Tensor *lse) {
  const LayerSpec &l = spec_.layers[layer];
  const int64_t tokens = open.tokens;
  Tensor outs[3], lses[3];
  for (int i = 0; i < 3; i++) {
    outs[i] = Tensor(DType::kF32, {tokens, l.hq, l.v_dim()});
    lses[i] = Tensor(DType::kF32, {tokens, l.hq});
  }
  const bool past_first = chance(0.5), sinks_first = chance(0.5);
  bool stored = false;
  for (int i = 0; i < 2; i++) {
    kvc_attend_args part = args;
    const bool past = (i == 0) == past_first;
    part.flags |= past ? KVC_ATTEND_PAST : KVC_ATTEND_SELF;
    if (stored || (past && i == 0 && chance(0.5))) part.k = part.v = nullptr;  // the past needs no new k and v
    stored = stored || part.k != nullptr;
    if ((i == 0) != sinks_first) part.sinks = nullptr;
    part.out = outs[i].dl();
    part.lse = lses[i].dl();
    call("kvc_forward_attend", {},
         [&](kvc_error *e) { return kvc_forward_attend(cache_.get(), open.id, layer, &part, e); });
  }
  const DLTensor *outputs[] = {outs[0].dl(), outs[1].dl()}, *part_lses[] = {lses[0].dl(), lses[1].dl()};
  kvc_merge_args merge;
  kvc_merge_args_init(&merge);
  merge.num_parts = 2;
  merge.outputs = outputs;
  merge.lses = part_lses;
  merge.out = outs[2].dl();
  merge.lse = lses[2].dl();
  call("kvc_merge_states", {}, [&](kvc_error *e) { return kvc_merge_states(context_.get(), &merge, nullptr, e); });
  int64_t t = 0;
  for (const OpenRow &row : open.rows) {
    for (int32_t j = 0; j < row.length; j++, t++) {
      for (int h = 0; h < l.hq && row.sequence >= 0; h++) {
        lse->set(t, h, lses[2].at(t, h));
        for (int i = 0; i < l.v_dim(); i++) out->set(t, h, i, outs[2].at(t, h, i));
      }
    }
  }
}

void Harness::count_attention(const Open &open, int layer, const Attended &how) {
  const GroupSpec &group = spec_.groups[spec_.layers[layer].group];
  const std::string kind = spec_.layers[layer].latent ? "mla "
                           : group.cross              ? "cross "
                           : group.window             ? "sliding "
                           : group.chunk              ? "chunked "
                                                      : "full ";
  const auto count = [&](bool has, const char *what) { drawn_[kind + what] += has; };
  for (const OpenRow &row : open.rows) {
    if (row.sequence < 0) continue;
    const bool streams = sequence(row.sequence).window > 0 && group.full();
    count(row.tree, "tree");
    count(!row.spans.empty(), "spans");
    count(streams, "streaming");
    count(!row.tree && !streams && row.spans.empty(), "plain");
  }
  count(how.softcap > 0, "softcap");
  count(how.scale > 0, "scale");
  count(!how.slopes.empty(), "alibi");
  count(!how.sinks.empty(), "sinks");
  count(!how.causal, "non-causal");
  count(how.parts, "parts");
  count(how.has_lists(), "lists");
  count(!how.rel_bias.empty(), "relative bias");
  count(!how.key_bias.empty(), "key bias");
  count(!how.mask.empty(), "mask");
  count(how.no_spans, "no spans");
  count(how.step_window, "step window");
  count(!stores(layer), "reader");
}

void Harness::check_attention(const Open &open, int layer, const Attended &how, const Tensor &q, const Tensor &out,
                              const Tensor *lse) {
  const LayerSpec &l = spec_.layers[layer];
  const GroupSpec &group = spec_.groups[l.group];
  const int ratio = l.hq / l.hkv;
  attends_checked_++;
  count_attention(open, layer, how);
  int64_t t0 = 0;
  for (const OpenRow &row : open.rows) {
    const int64_t first_t = t0;
    t0 += row.length;
    if (row.sequence < 0) continue;
    const Sequence &s = sequence(row.sequence);
    std::set<int> heads;
    if (l.hq <= options_.heads_checked) {
      for (int h = 0; h < l.hq; h++) heads.insert(h);
    } else {
      while (static_cast<int>(heads.size()) < options_.heads_checked)
        heads.insert(static_cast<int>(uniform(0, l.hq - 1)));
    }
    std::set<int32_t> queries{0, row.length - 1};
    if (row.length <= options_.rows_checked) {
      for (int32_t j = 0; j < row.length; j++) queries.insert(j);
    } else {
      for (int i = 0; i < options_.rows_checked; i++) queries.insert(static_cast<int32_t>(uniform(0, row.length - 1)));
    }
    const int64_t next = row.tree ? static_cast<int64_t>(s.tokens.size()) : row.start;  // lowest position of a query
    const bool streams = s.window > 0 && group.full();
    const int64_t low = streams ? 0 : group.first_seen(next);
    const int64_t high = group.cross ? length_in(row.sequence, l.group) : row.start + row.length;
    const auto stored = [&](int64_t index) {
      if (!group.cross) return stored_at(row, index);
      return Node{s.encoders[static_cast<size_t>(l.group)][static_cast<size_t>(index)], -1, index};
    };
    int loaded = -1;
    std::vector<float> keys((high - low) * l.d), values((high - low) * l.v_dim()), flips(l.d), unused(l.v_dim());
    std::vector<std::vector<float>> key_flips;
    std::vector<int64_t> flipped;
    for (int h : heads) {
      if (h / ratio != loaded) {
        loaded = h / ratio;
        key_flips.clear();
        flipped.clear();
        for (int64_t p = low; p < high; p++) {
          const Node entry = stored(p);
          if (!(entry.token.layers >> source(layer) & 1)) fail("attended to a token that the layer never stored");
          expected(entry.token, entry.position, layer, loaded, 0, &keys[(p - low) * l.d], flips.data());
          if (l.rope == KVC_ROPE_ON_READ) {
            float *key = &keys[(p - low) * l.d];
            const std::vector<float> raw(key + l.latent, key + l.d);
            rotate_rounded(DType::kF32, raw.data(), l.d - l.latent, l.rotated(), l.base(), entry.position,
                           key + l.latent, flips.data() + l.latent);
          }
          expected(entry.token, entry.position, layer, loaded, 1, &values[(p - low) * l.v_dim()], unused.data());
          if (std::any_of(flips.begin(), flips.end(), [](float x) { return x != 0; })) {
            flipped.push_back(p);
            key_flips.push_back(flips);
          }
        }
      }
      for (int32_t j : queries) {
        const int64_t position = row.entries[j].position;
        // In a streaming row, q is rotated twice: [0, d) is for the window and [d, 2d) for the sinks. A key is 0 in the
        // half that is not its own.
        const int parts = streams && l.rope != KVC_ROPE_NONE ? 2 : 1;
        const int width = parts * l.d;
        std::vector<float> query(width), query_flips(width, 0.0f), raw(l.d);
        for (int i = 0; i < width; i++) raw[i % l.d] = query[i] = q.at(first_t + j, h, i % l.d);
        for (int part = 0; part < parts && l.rope != KVC_ROPE_NONE; part++) {
          rotate_rounded(q.type(), raw.data() + l.latent, l.d - l.latent, l.rotated(), l.base(),
                         part ? std::min(position, s.window - 1) : position, &query[part * l.d + l.latent],
                         &query_flips[part * l.d + l.latent]);
        }
        std::vector<int64_t> seen;
        if (!group.cross) seen = visible(row, j, group, how);
        for (int64_t index = 0; group.cross && index < high; index++) seen.push_back(index);
        std::erase_if(seen, [&](int64_t index) {
          return !how.lists(first_t + j, h / ratio, index) || !how.unmasked(first_t + j, h / ratio, index);
        });
        std::vector<float> seen_keys, seen_values;
        std::vector<double> bias;
        for (const int64_t index : seen) {
          const float *key = &keys[(index - low) * l.d], *value = &values[(index - low) * l.v_dim()];
          const int part = parts == 2 && stored(index).position < s.sinks ? 1 : 0;
          seen_keys.resize(seen_keys.size() + width, 0.0f);
          std::copy_n(key, l.d, seen_keys.end() - width + part * l.d);
          seen_values.insert(seen_values.end(), value, value + l.v_dim());
          if (how.slopes.empty() && how.rel_bias.empty() && how.key_bias.empty()) continue;
          // For the sinks of a streaming row, the kept tokens count as contiguous.
          const int64_t key_position = stored(index).position;
          const int64_t from = streams && key_position < s.sinks ? std::min(position, s.window - 1) : position;
          const int64_t distance = from - key_position, row_number = &row - open.rows.data();
          bias.push_back(how.bias(row_number, first_t + j, h, h / ratio, index, distance));
          if (how.slopes.empty()) continue;
          bias.back() -=
              static_cast<double>(how.slopes[static_cast<size_t>(h)]) * static_cast<double>(std::abs(distance));
        }
        if (seen.empty()) {  // an encoder sequence without tokens, or a list without visible keys
          const float sink = how.sinks.empty() ? -INFINITY : how.sinks[static_cast<size_t>(h)];
          for (int i = 0; i < l.v_dim(); i++) {
            if (out.at(first_t + j, h, i) != 0.0f) fail("attention over nothing is not 0");
          }
          if (lse && lse->at(first_t + j, h) != sink) fail("the LSE of nothing is not the sink's, or -inf");
          continue;
        }
        double slack = 0, query_slack = 0;
        for (size_t f = 0; f < flipped.size(); f++) {
          double sum = 0;
          for (int i = 0; i < width; i++) sum += std::fabs(query[i]) * key_flips[f][i % l.d];
          slack = std::max(slack, sum);
        }
        // |k| is about 1. If a rotated query is rounded in either direction, the score changes by this much.
        for (int i = 0; i < width; i++) query_slack += 1.5 * query_flips[i];
        AttentionInput in;
        in.q = query.data();
        in.d = width;
        in.dv = l.v_dim();
        in.n = static_cast<int64_t>(seen.size());
        in.keys = seen_keys.data();
        in.values = seen_values.data();
        in.key_stride = width;
        in.value_stride = l.v_dim();
        in.scale = how.scale > 0 ? how.scale : l.softmax_scale();
        in.softcap = how.softcap;
        in.bias = bias.empty() ? nullptr : bias.data();
        in.sink = how.sinks.empty() ? nullptr : &how.sinks[static_cast<size_t>(h)];
        in.p_type = type_of_p(q.type(), l.dtype);
        in.score_slack = (slack + query_slack) * in.scale;
        const AttentionOutput ref = attend_reference(in);
        for (int i = 0; i < l.v_dim(); i++) {
          const double got = out.at(first_t + j, h, i);
          const double allowed = ref.tolerance + half_ulp(out.type(), std::fabs(ref.out[i]) + ref.tolerance);
          if (std::fabs(got - ref.out[i]) <= allowed) continue;
          std::ostringstream text;
          text << "attention of sequence " << row.sequence << " layer " << layer << " position " << position
               << " q head " << h << " dim " << i << ": " << got << ", expected " << ref.out[i] << " +- " << allowed
               << " (" << seen.size() << " keys from " << seen[0] << " on" << (row.tree ? ", tree" : "")
               << (how.has_lists() ? ", listed" : "") << (how.mask.empty() ? "" : ", masked")
               << (how.rel_bias.empty() && how.key_bias.empty() ? "" : ", biased") << ", q " << name_of(q.type())
               << ", kv " << name_of(l.dtype) << ", out " << name_of(out.type()) << ", D " << l.d << ", Hq/Hkv " << l.hq
               << "/" << l.hkv << ", threads " << options_.threads << ", simd "
               << (options_.simd ? options_.simd : "default") << ")";
          fail(text.str());
        }
        if (!lse) continue;
        const double got = lse->at(first_t + j, h);
        if (!(std::fabs(got - ref.lse) <= ref.lse_tolerance)) {
          std::ostringstream text;
          text << "lse of sequence " << row.sequence << " layer " << layer << " position " << position << " q head "
               << h << ": " << got << ", expected " << ref.lse << " +- " << ref.lse_tolerance;
          fail(text.str());
        }
      }
    }
  }
}

}  // namespace kvt
