// Tensors: those of the layers of a step, exports, imports, views, and the tables of a step.
#include <algorithm>
#include <cmath>

#include "objects.h"

namespace fuzz {
namespace {

constexpr DLDataType kUint8 = {kDLUInt, 8, 1};

DLDataType some_float(World &w) { return kvt::dl_type(static_cast<kvt::DType>(w.in.below(3))); }

std::vector<int64_t> tags_of(const Step &step) {
  std::vector<int64_t> tags;
  for (const Step::Row &row : step.rows) tags.insert(tags.end(), row.tags.begin(), row.tags.end());
  if (tags.empty()) tags.push_back(1);
  return tags;
}

// K and V of the new tokens of a layer. v is null if whole MLA rows are given.
void make_kv(World &w, const Cache &c, int layer, int64_t n, const std::vector<int64_t> &tags, const DLTensor **k,
             const DLTensor **v) {
  const kvc_layer_config &l = c.layers[layer];
  const DLDataType dtype = some_float(w);
  const bool latent = l.latent_dim > 0, halves = latent && w.in.one_in(2);
  *k = w.rows(dtype, {n, l.num_kv_heads, halves ? l.head_dim - l.latent_dim : l.head_dim}, tags);
  *v = latent && !halves ? nullptr : w.rows(dtype, {n, l.num_kv_heads, c.v_dim(layer)}, tags);
}

// The output of attention over tags is between 0 and the largest tag, within rounding. It is 0 if nothing but sinks is
// seen.
void check_output(const Cache &c, const Step &step, const DLTensor &out, bool fused) {
  const auto *values = static_cast<const float *>(out.data);
  int64_t row = 0;
  for (const Step::Row &r : step.rows) {
    for (size_t i = 0; i < r.tags.size(); i++, row++) {
      if (r.id == 0) continue;  // outputs of padding rows are not written
      for (int64_t e = row * out.strides[0]; e < (row + 1) * out.strides[0]; e++) {
        const bool between = values[e] >= -0.01f && values[e] <= 8.5f;
        if (fused ? !std::isfinite(values[e]) : !between) {
          die("attention over tags is %g in row %lld of a cache with %zu layers", values[e],
              static_cast<long long>(row), c.layers.size());
        }
      }
    }
  }
}

// Lists of keys for some attends. They draw no byte, so inputs that were found before keep their meaning.
void make_lists(World &w, const kvc_layer_config &l, int64_t n, kvc_attend_args *args) {
  if (n % 4 != 2) return;
  const int64_t heads = n % 8 == 2 ? l.num_kv_heads : 1;
  std::vector<int64_t> entries(static_cast<size_t>(n * heads * (1 + n % 5)));
  for (size_t i = 0; i < entries.size(); i++) entries[i] = static_cast<int64_t>(i * 5 % 7) - 1;
  args->indices = w.indices(entries, {n, heads, 1 + n % 5});
  args->index_block = static_cast<int32_t>(n % 3);
}

// Biases and a mask for some attends, with too few keys for some rows. They draw no byte either.
void make_biases(World &w, const kvc_layer_config &l, int64_t n, int64_t rows, kvc_attend_args *args) {
  if (n % 4 != 1) return;
  const int64_t heads = n % 8 == 1 ? l.num_kv_heads : 1, keys = 8 + n * 8;
  args->rel_bias = n % 3 == 0 ? w.rows(kFloat32, {l.num_q_heads, 1 + n % 5}) : w.rows(kFloat32, {n, l.num_q_heads, 3});
  args->key_bias = w.rows(kFloat32, {rows, keys, heads});
  args->mask = w.rows(kUint8, {n, heads, keys});
}

void attend(World &w, Cache &c, Step &step, int layer, kvc_forward id) {
  const kvc_layer_config &l = c.layers[layer];
  const int64_t n = step.tokens();
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  const bool takes = l.kv_layer == 0 && !c.sees_encoder(layer) && !(step.stored >> layer & 1);
  const bool projects = l.latent_dim > 0 && w.in.one_in(3);
  const int64_t rotary = l.head_dim - l.latent_dim, dims = projects ? 5 + rotary : l.head_dim;
  args.q = w.rows(some_float(w), {n, l.num_q_heads, dims});
  DLTensor *out = w.rows(kFloat32, {n, l.num_q_heads, projects ? 6 : c.v_dim(layer)});
  args.out = out;
  if (projects) {
    args.w_uk = w.rows(kFloat32, {l.num_q_heads, 5, l.latent_dim});
    args.w_uv = w.rows(kFloat32, {l.num_q_heads, 6, l.latent_dim});
  }
  args.lse = w.nullable(w.rows(kFloat32, {n, l.num_q_heads}));
  if (takes && !w.in.one_in(8)) make_kv(w, c, layer, n, tags_of(step), &args.k, &args.v);
  if (w.in.one_in(4)) args.flags = uint32_t{1} << w.in.below(3);
  if (w.in.one_in(4)) args.softcap = 30;
  args.alibi_slopes = w.nullable(w.rows(kFloat32, {l.num_q_heads}));
  args.sinks = w.nullable(w.rows(kFloat32, {l.num_q_heads}));
  if (w.in.one_in(8)) args.rope_cos_sin = w.rows(kFloat32, {n, 2, 2}, {1, 1});
  make_lists(w, l, n, &args);
  make_biases(w, l, n, static_cast<int64_t>(step.rows.size()), &args);
  w.in.size_of(args);
  w.in.numbers(args.flags, args.softmax_scale, args.softcap);
  const bool exact = !w.in.fired();
  const int32_t to = w.in.number(layer);
  if (CALL(kvc_forward_attend, w.handle(c), id, to, w.in.pointer(&args), w.error()) != KVC_OK) return;
  if (args.k) step.stored |= 1u << to;
  if (args.k && w.in.fired()) step.unknown = c.unknown = true;
  if (exact && !w.in.fired() && !c.unknown) check_output(c, step, *out, projects);
}

void append(World &w, Cache &c, Step &step, int layer, kvc_forward id) {
  kvc_append_args args;
  kvc_append_args_init(&args);
  make_kv(w, c, layer, step.tokens(), tags_of(step), &args.k, &args.v);
  if (w.in.one_in(4)) args.flags = KVC_APPEND_AS_STORED;
  if (w.in.one_in(8)) args.k_scale = args.v_scale = w.rows(kFloat32, {step.tokens(), c.layers[layer].num_kv_heads});
  if (w.in.one_in(8)) args.rope_cos_sin = w.rows(kFloat32, {step.tokens(), 2, 2});
  w.in.size_of(args);
  w.in.numbers(args.flags);
  const int32_t to = w.in.number(layer);
  if (CALL(kvc_forward_append, w.handle(c), id, to, w.in.pointer(&args), w.error()) != KVC_OK) return;
  step.stored |= 1u << to;
  if (w.in.fired()) step.unknown = c.unknown = true;
}

void states(World &w, Cache &c, Step &step, int layer, kvc_forward id) {
  for (int32_t state = 0; state < 2; state++) {
    const kvc_state_config &s = c.states[state];
    DLTensor *tensor = w.rows(kFloat32, {std::ssize(step.rows), s.shape[0], s.shape[1]});
    if (w.in.one_in(2)) {
      CALL(kvc_forward_load_state, w.handle(c), id, w.in.number(layer), w.in.number(state), -1, tensor, w.error());
    }
    CALL(kvc_forward_store_state, w.handle(c), id, w.in.number(layer), w.in.number(state), -1, tensor, w.error());
    // The state after the first token of each row, in some steps. It takes no bytes of the input.
    const int32_t token = static_cast<int32_t>(step.rows.size() % 2) - 1 + state;
    if (token < 0) continue;
    CALL(kvc_forward_load_state, c.cache, step.id, layer, state, token, tensor, w.plain_error());
    CALL(kvc_forward_store_state, c.cache, step.id, layer, state, token, tensor, w.plain_error());
  }
}

void run_layer(World &w, Cache &c, Step &step, int layer) {
  const kvc_forward id = w.in.wrong() ? w.wrong_id(c, false) : step.id;
  if (c.has_state(layer)) return states(w, c, step, layer, id);
  if (step.encoder >= 0 ? c.layers[layer].group == step.encoder : w.in.one_in(5)) return append(w, c, step, layer, id);
  if (step.encoder < 0 || w.in.one_in(8)) attend(w, c, step, layer, id);
}

void step_tables(World &w, Cache &c, Step &step) {
  kvc_tables tables;
  kvc_tables_init(&tables);
  tables.part = static_cast<int32_t>(w.in.one_in(2) ? 0 : w.in.below(4));
  tables.flags = static_cast<uint32_t>(w.in.below(4));
  tables.arrays = static_cast<uint32_t>(w.in.below(8));
  w.in.size_of(tables);
  w.in.numbers(tables.flags, tables.part, tables.pad_value, tables.arrays);
  const auto group = static_cast<int32_t>(w.in.below(std::ssize(c.groups)));
  CALL(kvc_forward_tables, w.handle(c), w.in.number(step.id), w.in.number(group), w.in.pointer(&tables), w.error());
  // Seldom, so that few inputs that were found before change their meaning.
  if (tables.part == 0 && tables.flags == 3) call_select(w);
}

// Checks that an export holds the model's tokens. A token that the layer did not store reads as zeros, if it can be
// read at all.
void check_export(const Cache &c, const Sequence &s, const kvc_export_args &args,
                  const DLManagedTensorVersioned *managed) {
  static const std::vector<Token> kNone;
  const auto encoder = s.encoders.find(c.layers[args.layer].group);
  const std::vector<Token> &tokens = !c.sees_encoder(args.layer)   ? s.tokens
                                     : encoder == s.encoders.end() ? kNone
                                                                   : encoder->second;
  const DLTensor &t = managed->dl_tensor;
  const DLDataType dtype = c.layers[args.layer].dtype;
  if (dtype.bits <= 8) return;  // the export has stored bytes
  for (int64_t i = 0; i < t.shape[0]; i++) {
    const Token &token = tokens.at(static_cast<size_t>(args.position_begin + i));
    const bool stored = token.layers >> c.source(args.layer) & 1;
    const float got = kvt::at(t, {i, 0, 0}), wanted = stored ? token.tag : 0;
    if (token.tag != kUnknown && got != wanted) {
      die("layer %d, token %lld is %g, the model has %g", args.layer, static_cast<long long>(i), got, wanted);
    }
  }
}

void export_sequence(World &w, Cache &c) {
  kvc_export_args args;
  kvc_export_args_init(&args);
  const kvc_seq id = w.some_sequence(c);
  const Sequence *s = c.find(id);
  args.layer = w.in.number(w.some_layer(c));
  const int64_t length = s ? std::ssize(s->tokens) : 0;
  if (w.in.one_in(2)) {
    args.position_begin = w.in.number(w.in.between(0, length));
    args.position_end = w.in.number(w.in.between(args.position_begin, length));
  }
  args.parts = w.in.number(static_cast<uint32_t>(w.in.one_in(2) ? w.in.below(16) : 0));
  w.in.size_of(args);
  w.in.numbers(args.reserved);
  kvc_exported out;
  kvc_exported_init(&out);
  if (CALL(kvc_seq_export, w.handle(c), id, w.in.pointer(&args), w.in.pointer(&out), w.stream(), w.error()) != KVC_OK) {
    return;
  }
  const bool latent = c.layers[args.layer].latent_dim > 0;  // RoPE does not rotate its leading dims, which are V
  const DLManagedTensorVersioned *values = latent ? out.k : out.v;
  if (values) check_export(c, *s, args, values);
  for (DLManagedTensorVersioned *tensor : {out.k, out.v, out.k_scale, out.v_scale}) {
    if (tensor) tensor->deleter(tensor);
  }
}

void import_sequence(World &w, Cache &c) {
  kvc_import_args args;
  kvc_import_args_init(&args);
  const kvc_seq id = w.some_sequence(c);
  const int64_t n = w.in.between(1, 6);
  const auto tag = static_cast<uint8_t>(1 + id % 8);
  std::vector<const DLTensor *> k, v;
  uint32_t stored = 0;
  for (int layer = 0; layer < static_cast<int>(c.layers.size()); layer++) {
    k.push_back(nullptr);
    v.push_back(nullptr);
    if (c.layers[layer].kv_layer || c.sees_encoder(layer)) continue;
    make_kv(w, c, layer, n, {tag}, &k.back(), &v.back());
    stored |= 1u << layer;
  }
  args.k = w.in.pointer(w.array(k));
  args.v = w.in.pointer(w.array(v));
  args.num_layers = w.in.number(static_cast<int32_t>(c.layers.size()));
  args.flags = static_cast<uint32_t>(w.in.below(2));
  w.in.size_of(args);
  w.in.numbers(args.flags, args.reserved);
  if (CALL(kvc_seq_import, w.handle(c), id, w.in.pointer(&args), w.stream(), w.error()) != KVC_OK) return;
  Sequence *s = c.find(id);
  if (w.in.fired()) c.unknown = true;
  s->tokens.insert(s->tokens.end(), static_cast<size_t>(n), Token{w.in.fired() ? kUnknown : tag, stored});
}

}  // namespace

void call_layer(World &w) {
  Cache &c = w.some_cache();
  Step *step = w.some_step(c);
  if (step == nullptr) return;
  const int64_t choice = w.in.below(8);
  if (choice == 7) return step_tables(w, c, *step);
  if (choice < 2) return run_layer(w, c, *step, w.some_layer(c));
  for (int layer = 0; layer < static_cast<int>(c.layers.size()); layer++) {
    if (!(step->stored >> layer & 1)) run_layer(w, c, *step, layer);
  }
}

void call_tensors(World &w) {
  Cache &c = w.some_cache();
  if (c.cache == nullptr) return;
  switch (w.in.below(8)) {
    case 0: {
      DLManagedTensorVersioned *view = nullptr;
      if (CALL(kvc_cache_export_pool, w.handle(c), w.in.number(w.some_layer(c)),
               w.in.number(static_cast<int32_t>(w.in.below(5))), w.in.number(static_cast<uint32_t>(w.in.below(2))),
               w.in.pointer(&view), w.stream(), w.error()) == KVC_OK) {
        w.views.push_back(view);
      }
      break;
    }
    case 1: {
      const int64_t capacity = w.in.below(12);
      int64_t count = 0;
      CALL(kvc_cache_take_copies, w.handle(c),
           w.in.pointer(w.array(std::vector<kvc_copy>(static_cast<size_t>(capacity)))),
           w.in.number<uint32_t>(sizeof(kvc_copy)), w.in.fewer(capacity), w.in.pointer(&count), w.error());
      break;
    }
    case 2:
    case 3:
    case 4:
      import_sequence(w, c);
      break;
    default:
      export_sequence(w, c);
  }
}

}  // namespace fuzz
