// The reference implementation: plain loops, with scores, sums and outputs in float64. It is slow on purpose. All other
// implementations are tested against it, on the same items of the same plan. All implementations must store the same
// bits. So rounding and rotation are in float32 here too.
// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "kernels/common/bias.h"
#include "kernels/common/hadamard.h"
#include "kernels/common/merge.h"
#include "kernels/common/page_walk.h"
#include "kernels/common/query_place.h"
#include "kernels/common/rope_table.h"
#include "kernels/common/scales.h"
#include "kernels/common/stored_format.h"
#include "kernels/common/tree_path.h"
#include "kernels/cpu/implementation.h"

namespace kvc::kernels {
namespace {

void convert_row(Type target_type, void* target, Type source_type, const void* source, int32_t n) {
  if (target_type == source_type) {
    memcpy(target, source, static_cast<size_t>(n) * static_cast<size_t>(element_bytes(source_type)));
    return;
  }
  for (int32_t i = 0; i < n; ++i) store_element(target_type, target, i, load_element(source_type, source, i));
}

float quantise_row(Type type, void* target, const float* row, int32_t n, float scale) {
  if (type == Type::kI8) {
    uint32_t largest = 0;
    for (int32_t i = 0; i < n; ++i) {
      const uint32_t magnitude = float_bits(row[i]) & 0x7fffffffu;
      if (magnitude > largest) largest = magnitude;
    }
    scale = row_scale(largest);
    if (isnan(scale)) {
      memset(target, 0, static_cast<size_t>(n));
      return scale;
    }
  }
  for (int32_t i = 0; i < n; ++i) store_element(type, target, i, row[i] / scale);
  return scale;
}

void rotate_row(const kvc_backend_layer* layer, const float* cos_sin, float* row) {
  const int32_t half = layer->rope_dim / 2;
  for (int32_t i = 0; i < half; ++i) {
    float* a = row + layer->rope_offset + (layer->rope_interleaved != 0 ? 2 * i : i);
    float* b = a + (layer->rope_interleaved != 0 ? 1 : half);
    const float x = *a, y = *b, c = cos_sin[i], s = cos_sin[half + i];
    *a = x * c - y * s;
    *b = y * c + x * s;
  }
}

// One query and one of its q heads.
struct Query {
  QueryPlace place;
  int32_t head;  // q head
  const ListedQuery* listed;
  float q[kMaxHeadDim];
};

// The keys of an item that a query may see. They are numbered as in attend/view.h, and index() gives each key's index.
struct QueryKeys {
  QueryMask mask;
  KeyTree tree;
  const ListedQuery* listed;  // null: no lists. Else numbers are places in the list
  bool by_path;

  int32_t index(int32_t number) const {
    if (listed != nullptr) return listed->keys[number];
    return by_path ? index_on_path(&tree, &mask, number) : number;
  }
  bool sees(int32_t index) const { return listed != nullptr || by_path || sees_key(&tree, &mask, index); }
};

QueryKeys keys_of(const kvc_backend_attend& args, const kvc_backend_item& item, const Query& query) {
  const QueryPlace& place = query.place;
  QueryKeys keys = {{}, tree_of_row(&args.plan->arrays.rows, place.row), query.listed, args.plan->fold_keys > 0};
  if (query.listed != nullptr) {
    const KeyRange item_keys = {item.key_begin, item.key_end}, listed = {0, query.listed->num_keys};
    keys.mask.keys = intersect(item_keys, listed);
    keys.mask.position = bias_position(&args, &item, place.row, place.token);
  } else {
    keys.mask = keys.by_path ? path_mask(&args, &item, place.row, place.query)
                             : query_mask(&args, &item, place.row, place.query);
  }
  return keys;
}

void load_query(const kvc_backend_attend& args, const kvc_backend_item& item, Query* query) {
  const Type type = type_of(args.q.dtype);
  const kvc_backend_layer& layer = *args.layer;
  const QueryPlace& place = query->place;
  const int32_t q_begin = args.qv.data != nullptr ? layer.v_head_dim : 0;
  const int64_t qv =
      place.row * args.qv_row_stride + place.token * args.qv.token_stride + query->head * args.qv.head_stride;
  const int64_t q =
      place.row * args.q_row_stride + place.token * args.q.token_stride + query->head * args.q.head_stride;
  for (int32_t d = 0; d < q_begin; ++d) query->q[d] = load_element(type, args.qv.data, qv + d);
  for (int32_t d = q_begin; d < layer.head_dim; ++d) query->q[d] = load_element(type, args.q.data, q + d - q_begin);
  const float* cos_sin = item.part == KVC_BACKEND_PART_SINKS ? args.cos_sin_sinks : args.cos_sin;
  if (cos_sin == nullptr) return;
  rotate_row(&layer, cos_sin + static_cast<int64_t>(query->place.token) * layer.rope_dim, query->q);
  for (int32_t d = 0; d < layer.head_dim; ++d) query->q[d] = round_to(type, query->q[d]);
}

// The softmax state over the keys that the query sees.
struct State {
  double m, l;
  double o[kMaxHeadDim];
};

// A stored row. An element is (stored - zero_point) * scale.
struct StoredRow {
  const unsigned char* data;
  double scale;
  float zero_point;
};

// cursor: null if `position` is a slot of the pools. Else `position` is a key's index.
StoredRow row_of(const kvc_backend_layer& layer, const kvc_backend_pool& pool, const kvc_backend_scales& scales,
                 PageCursor* cursor, int32_t position, int32_t kv_head) {
  const int64_t index = position / layer.page_size, slot = position % layer.page_size;
  const int64_t page = cursor == nullptr ? index : page_at(cursor, index);
  const unsigned char* data = static_cast<const unsigned char*>(pool.data) + page * pool.page_stride_bytes +
                              kv_head * pool.head_stride_bytes + slot * pool.slot_stride_bytes;
  const float scale = scale_of(&scales, page, kv_head, slot);
  if (!has_rotated_rows(layer.format)) return {data, static_cast<double>(scale), 0.0f};
  return {data, static_cast<double>(without_zero_point(scale)), static_cast<float>(zero_point_of(scale))};
}

// Loads the elements of a row. Does not multiply them by the scale of the row or head. Undoes the rotation of rows that
// are stored rotated (hadamard.h). The sums of this rotation are exact.
void load_row(const kvc_backend_layer& layer, const StoredRow& stored, int32_t dims, float* row) {
  const Type type = stored_type(layer);
  for (int32_t d = 0; d < dims; ++d) {
    row[d] =
        type == Type::kDsMla ? load_ds_mla(stored.data, d) : load_element(type, stored.data, d) - stored.zero_point;
  }
  if (has_block_scales(layer.format)) {
    const unsigned char* const scales = stored.data + block_scales_at(layer, dims);
    for (int32_t d = 0; d < dims; ++d) row[d] *= block_scale(scales[d / kBlockDims]);
  }
  const int32_t block = rotation_block(layer, dims);
  if (block == 0) return;
  hadamard(row, dims, block);
  apply_rotation_signs(row, dims);
  for (int32_t d = 0; d < dims; ++d) row[d] /= static_cast<float>(block);
}

// Loads a key as the vector [head_dim] that q is multiplied with, from the stored rows k and v. table: null if keys
// are stored after RoPE. Else the key is rotated by RoPE for `position`.
void load_key(const kvc_backend_attend& args, const double* table, const StoredRow& k, const StoredRow& v,
              int32_t position, float* key) {
  const kvc_backend_layer& layer = *args.layer;
  const int32_t k_begin = layer.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT ? layer.v_head_dim : 0;
  if (k_begin > 0) load_row(layer, v, k_begin, key);
  load_row(layer, k, layer.head_dim - k_begin, key + k_begin);
  if (table == nullptr) return;
  double coarse[kMaxHeadDim];
  float cos_sin[kMaxHeadDim];
  rope_coarse(table, layer.rope_dim / 2, position, coarse);
  rope_fine(table, layer.rope_dim / 2, position, coarse, cos_sin);
  rotate_row(&layer, cos_sin, key);
}

// Returns the score of a dot product of q and k. distance: the position of q minus the position of k.
double score_of(const kvc_backend_attend& args, double dot, int32_t row, int32_t head, double distance) {
  double score =
      dot * (args.softmax_scale != 0.0 ? args.softmax_scale : static_cast<double>(args.layer->softmax_scale));
  if (args.softcap != 0.0) score = args.softcap * tanh(score / args.softcap);
  if (args.alibi_slopes == nullptr) return score;
  const double weighted = (args.plan->flags & KVC_ATTEND_ALIBI_SIGNED) != 0 ? distance : fabs(distance);
  return score - static_cast<double>(args.alibi_slopes[row * args.alibi_row_stride + head]) * weighted;
}

void attend_query(const kvc_backend_attend& args, const kvc_backend_item& item, const Query& query, State* state) {
  const kvc_backend_layer& layer = *args.layer;
  const int32_t kv_head = query.head / (layer.num_q_heads / layer.num_kv_heads);
  const QueryKeys keys = keys_of(args, item, query);
  PageCursor of_row = page_cursor(&args.plan->arrays.tables, item.row);
  PageCursor* const cursor = args.lists.physical != 0 ? nullptr : &of_row;
  const double* key_table = key_table_of_row(&args, item.row);
  const int32_t row = query.place.row;
  const double score_scale = static_cast<double>(row_factor(&args.q_scales, row, kv_head)) *
                             static_cast<double>(row_factor(&args.k_scales, row, kv_head));
  const double value_scale = static_cast<double>(row_factor(&args.v_scales, row, kv_head));
  *state = {-INFINITY, 0.0, {}};
  for (int32_t number = keys.mask.keys.begin; number < keys.mask.keys.end; ++number) {
    const int32_t key = keys.index(number);
    if (!keys.sees(key) || mask_hides(args.bias, query.place.token, kv_head, key)) continue;
    const StoredRow k = row_of(layer, layer.k, layer.k_scales, cursor, key, kv_head);
    const StoredRow v = row_of(layer, layer.v, layer.v_scales, cursor, key, kv_head);
    const int32_t position = key_position(&keys.tree, key);
    float stored[kMaxHeadDim];
    load_key(args, key_table, k, v, position, stored);
    double dot = 0.0;
    for (int32_t d = 0; d < layer.head_dim; ++d) {
      dot += static_cast<double>(query.q[d]) * static_cast<double>(stored[d]);
    }
    const int32_t distance = keys.mask.position - position;
    const double score = score_of(args, dot * (k.scale * score_scale), row, query.head, distance) +
                         static_cast<double>(bias_of(args.bias, args.plan->flags, row, query.place.token, query.head,
                                                     kv_head, key, distance));
    if (score > state->m) {
      const double factor = exp(state->m - score);
      state->m = score;
      state->l *= factor;
      for (int32_t d = 0; d < layer.v_head_dim; ++d) state->o[d] *= factor;
    }
    const double p = score == -INFINITY ? 0.0 : exp(score - state->m);  // 0 even if m is still -inf
    state->l += p;
    float value[kMaxHeadDim];
    load_row(layer, v, layer.v_head_dim, value);
    for (int32_t d = 0; d < layer.v_head_dim; ++d) {
      state->o[d] += p * (v.scale * value_scale) * static_cast<double>(value[d]);
    }
  }
}

// A state rounded to float32, as in the partials.
struct RoundedState {
  float m, l;
  float o[kMaxHeadDim];
};

// A state into which rounded states were merged.
struct MergedState {
  float m;
  double l;
  double o[kMaxHeadDim];
};

void round_state(const State& state, int32_t dims, RoundedState* rounded) {
  rounded->m = static_cast<float>(state.m);
  // Corrects l and o for the rounding of m.
  const double correction = state.l == 0.0 ? 0.0 : exp(state.m - static_cast<double>(rounded->m));
  for (int32_t d = 0; d < dims; ++d) rounded->o[d] = static_cast<float>(state.o[d] * correction);
  rounded->l = static_cast<float>(state.l * correction);
}

void write_partial(const kvc_backend_attend& args, const Query& query, const RoundedState& state) {
  const int64_t dims = args.layer->v_head_dim, states = query.place.states;
  const int64_t index = query.place.first_state + query.head;
  float* partial = args.plan->partials + query.place.partial_offset;
  for (int64_t d = 0; d < dims; ++d) partial[index * dims + d] = state.o[d];
  partial[states * dims + index] = state.m;
  partial[states * dims + states + index] = state.l;
}

// Writes output and LSE of a row. state.o: normalised.
void write_row(const kvc_backend_attend& args, const Query& query, const State& state, float lse) {
  const Type type = type_of(args.out.dtype);
  const QueryPlace& place = query.place;
  const int64_t base = out_element(args, place.row, place.token, query.head);
  for (int32_t d = 0; d < args.layer->v_head_dim; ++d) {
    store_element(type, args.out.data, base + d, static_cast<float>(state.o[d]));
  }
  if (args.lse == nullptr) return;
  memcpy(args.lse + lse_element(args, place.row, place.token, query.head), &lse, sizeof lse);
}

void write_output(const kvc_backend_attend& args, const Query& query, State* state) {
  const float* sink = args.sinks == nullptr ? nullptr : args.sinks + query.head;
  const FinalState final = final_state(state->m, state->l, sink);
  for (int32_t d = 0; d < args.layer->v_head_dim; ++d) state->o[d] *= final.scale;
  write_row(args, query, *state, final.lse);
}

// Computes the item's keys in blocks of fold_keys. Merges the blocks as merge_tile merges the parts of a tile.
void fold_query(const kvc_backend_attend& args, const kvc_backend_item& item, const Query& query, MergedState* folded) {
  const int32_t dims = args.layer->v_head_dim, length = args.plan->arrays.rows.kv_lengths[query.place.row];
  *folded = {-INFINITY, 0.0, {}};
  for (int32_t begin = item.key_begin, end; begin < item.key_end && begin < length; begin = end) {
    end = begin - begin % args.plan->fold_keys + args.plan->fold_keys;
    kvc_backend_item block = item;
    block.key_begin = begin;
    block.key_end = end < item.key_end ? end : item.key_end;
    State state;
    attend_query(args, block, query, &state);
    RoundedState rounded;
    round_state(state, dims, &rounded);
    merge_state(folded->o, &folded->m, &folded->l, rounded.o, rounded.m, rounded.l, dims);
  }
}

// Writes a folded query as a partial state, or normalised as merge_tile does.
void write_folded(const kvc_backend_attend& args, const Query& query, const MergedState& folded) {
  const int32_t dims = args.layer->v_head_dim;
  RoundedState rounded = {folded.m, static_cast<float>(folded.l), {}};
  for (int32_t d = 0; d < dims; ++d) rounded.o[d] = static_cast<float>(folded.o[d]);
  if (query.place.partial_offset >= 0) return write_partial(args, query, rounded);
  State state = {static_cast<double>(rounded.m), static_cast<double>(rounded.l), {}};
  for (int32_t d = 0; d < dims; ++d) state.o[d] = static_cast<double>(rounded.o[d]);
  write_output(args, query, &state);
}

void attend_rows(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed, Scratch*) {
  const int32_t group = args->layer->num_q_heads / args->layer->num_kv_heads;
  QueryCursor cursor = query_cursor(args, item);
  const KeyRange queries =
      listed != nullptr ? KeyRange{listed->query, listed->query + 1} : KeyRange{0, item->q_end - item->q_begin};
  const KeyRange heads =
      listed != nullptr ? KeyRange{listed->head_begin, listed->head_end} : KeyRange{item->head_begin, item->head_end};
  for (int32_t query = queries.begin; query < queries.end; ++query) {
    const QueryPlace place = place_of_query(&cursor, query);
    for (int32_t head = heads.begin * group; head < heads.end * group; ++head) {
      Query q;
      q.place = place;
      q.head = head;
      q.listed = listed;
      load_query(*args, *item, &q);
      if (args->plan->fold_keys > 0) {
        MergedState folded;
        fold_query(*args, *item, q, &folded);
        write_folded(*args, q, folded);
        continue;
      }
      State state;
      attend_query(*args, *item, q, &state);
      if (place.partial_offset >= 0) {
        RoundedState rounded;
        round_state(state, args->layer->v_head_dim, &rounded);
        write_partial(*args, q, rounded);
      } else {
        write_output(*args, q, &state);
      }
    }
  }
}

// Returns the dot product of a query and a key.
double dot_of(const kvc_backend_attend& args, PageCursor* cursor, const Query& query, int32_t key, int32_t kv_head) {
  const kvc_backend_layer& layer = *args.layer;
  const StoredRow k = row_of(layer, layer.k, layer.k_scales, cursor, key, kv_head);
  float stored[kMaxHeadDim];
  load_key(args, nullptr, k, k, key, stored);
  double dot = 0.0;
  for (int32_t d = 0; d < layer.head_dim; ++d) {
    dot += static_cast<double>(query.q[d]) * static_cast<double>(stored[d]);
  }
  return dot * k.scale;
}

// Computes the scores of one query and head, by the rule of kvc_backend_select. With RELU_SUM, they are added to the
// scores of earlier heads.
void score_query(const kvc_backend_attend& args, const kvc_backend_item& item, const Query& query, int32_t index,
                 const ScoreCall& call) {
  const kvc_backend_select& select = *call.select;
  const bool sums = select.rule == KVC_SELECT_RELU_SUM;
  if (!sums && (query.head < call.list_begin || query.head >= call.list_end)) return;
  const int32_t kv_head = query.head / (args.layer->num_q_heads / args.layer->num_kv_heads);
  const QueryKeys keys = keys_of(args, item, query);
  PageCursor cursor = page_cursor(&args.plan->arrays.tables, item.row);
  const int64_t token = query.place.token;
  const float weight =
      select.weights == nullptr
          ? 1.0f
          : select.weights[token * select.weights_token_stride + query.head * select.weights_head_stride];
  float* scores = call.scores + index * call.query_stride - first_scored(keys.mask);
  if (!sums) scores += (query.head - call.list_begin) * call.list_stride;
  for (int32_t number = keys.mask.keys.begin; number < keys.mask.keys.end; ++number) {
    const double dot = dot_of(args, &cursor, query, keys.index(number), kv_head);
    if (!sums) {
      scores[number] = static_cast<float>(dot);
      continue;
    }
    const double before = query.head == 0 ? 0.0 : static_cast<double>(scores[number]);
    scores[number] = static_cast<float>(before + static_cast<double>(weight) * (dot > 0.0 ? dot : 0.0));
  }
}

void score_rows(const kvc_backend_attend* args, const kvc_backend_item* item, const ListedQuery* listed,
                const ScoreCall* call, Scratch*) {
  QueryCursor cursor = query_cursor(args, item);
  const KeyRange queries =
      listed != nullptr ? KeyRange{listed->query, listed->query + 1} : KeyRange{0, item->q_end - item->q_begin};
  for (int32_t query = queries.begin; query < queries.end; ++query) {
    const QueryPlace place = place_of_query(&cursor, query);
    for (int32_t head = 0; head < args->layer->num_q_heads; ++head) {
      Query q;
      q.place = place;
      q.head = head;
      q.listed = listed;
      load_query(*args, *item, &q);
      score_query(*args, *item, q, query, *call);
    }
  }
}

void project_rows(const kvc_backend_project* args, int32_t head, int64_t token_begin, int64_t token_end, Scratch*) {
  const Type in_type = type_of(args->in.dtype), out_type = type_of(args->out.dtype);
  const Type weight_type = type_of(args->weights.dtype);
  const int64_t matrix = head * args->weights.token_stride, stride = args->weights.head_stride;
  for (int64_t t = token_begin; t < token_end; ++t) {
    const int64_t in = t * args->in.token_stride + head * args->in.head_stride;
    const int64_t out = t * args->out.token_stride + head * args->out.head_stride;
    for (int32_t o = 0; o < args->out_dims; ++o) {
      double sum = 0.0;
      for (int32_t i = 0; i < args->in_dims; ++i) {
        const int64_t weight = matrix + (args->transposed != 0 ? o * stride + i : i * stride + o);
        sum += static_cast<double>(load_element(in_type, args->in.data, in + i)) *
               static_cast<double>(load_element(weight_type, args->weights.data, weight));
      }
      store_element(out_type, args->out.data, out + o, static_cast<float>(sum));
    }
    for (int32_t i = 0; i < args->tail_dims; ++i) {
      store_element(out_type, args->out.data, out + args->out_dims + i,
                    load_element(in_type, args->in.data, in + args->in_dims + i));
    }
  }
}

// Every pair of types and every number of rows has the same functions.
consteval AttendFormats make_formats() {
  AttendFormats formats;
  for (auto& of_q : formats.of) {
    for (AttendFormat& format : of_q) format = {attend_rows, attend_rows, 1, 64, score_rows};
  }
  return formats;
}
constexpr AttendFormats kFormats = make_formats();

}  // namespace

constinit const Implementation kReferenceImplementation = {
    "reference", nullptr, &kFormats, 1, convert_row, quantise_row, rotate_row, project_rows,
};

}  // namespace kvc::kernels
