#include "scene.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "kernels/common/row_formats.h"
#include "kernels/common/scales.h"
#include "kernels/cpu/backend.h"
#include "pool.h"
#include "staged_attend.h"

namespace kvc::kernels::test {
namespace {

constexpr int32_t kPoison = 0x7fffffff;
constexpr unsigned char kOutFill = 0x5a;

// Distance in bytes from an aligned address to the memory of a scene.
int64_t misalignment(Kind kind) { return tests_cuda() ? bytes_of(kind) : 2; }
// The same for pools, and elements between their rows. On CUDA the pools of most scenes are aligned to 16 bytes, as
// tensor cores need. Every fourth seed has pools that only the simple kernel can read.
bool has_aligned_pools(const SceneConfig& config) { return tests_cuda() && config.seed % 4 != 0; }
int64_t pool_misalignment(const SceneConfig& config) { return has_aligned_pools(config) ? 0 : misalignment(config.kv); }

}  // namespace

kvc_backend_rows plain_rows(int32_t num_rows, int32_t num_tokens, const int32_t* token_begin, const int32_t* kv_lengths,
                            const int32_t* positions) {
  kvc_backend_rows rows = {};
  rows.num_rows = num_rows;
  rows.num_tokens = num_tokens;
  rows.token_begin = token_begin;
  rows.kv_lengths = kv_lengths;
  rows.positions = positions;
  return rows;
}

std::string SceneConfig::describe() const {
  std::string text = std::to_string(q_heads) + "/" + std::to_string(kv_heads) + " D" + std::to_string(head_dim) + "/" +
                     std::to_string(v_head_dim) + " page " + std::to_string(page_size) + " window " +
                     std::to_string(window) + " chunk " + std::to_string(chunk) + " flags " + std::to_string(flags) +
                     (spans ? " spans" : "") + (alibi ? " alibi" : "") + (sinks ? " sinks" : "") + " bias " +
                     std::to_string(rel_bias) + "/" + std::to_string(key_bias) + " mask " + std::to_string(mask) +
                     " cap " + std::to_string(softcap) + " q " + name_of(q) + " kv " + name_of(kv) + " out " +
                     name_of(out) + (nhd ? " NHD" : " HND") + (rotate ? " rotate" : "") + " splits " +
                     std::to_string(splits) + " tile " + std::to_string(query_tile) + " heads " +
                     std::to_string(heads_per_item) + " scales " + std::to_string(head_scales) + " rows";
  text.append(on_read ? " on-read" : "").append(row_kind == KVC_BACKEND_ROW_LATENT ? " latent" : "");
  text.append(row_kind == KVC_BACKEND_ROW_LATENT_SPLIT ? " latent-split" : "");
  for (const SceneRow& row : rows)
    text += " " + std::to_string(row.queries) + "@" + std::to_string(row.kv_length) + "/" +
            std::to_string(row.stream_window) + "/" + std::to_string(row.stream_sinks) + "/" +
            std::to_string(row.parents.size());
  for (const SceneShare& share : shares) {
    text += " share";
    for (int row : share.rows) text.append(" ").append(std::to_string(row));
    text += ":" + std::to_string(share.begin) + ".." + std::to_string(share.end);
  }
  return text + " seed " + std::to_string(seed);
}

Scene::Scene(const SceneConfig& config) : config_(config) {
  std::mt19937 random(config.seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  token_begin_.push_back(0);
  for (const SceneRow& row : config_.rows) {
    num_tokens_ += row.queries;
    token_begin_.push_back(num_tokens_);
    kv_lengths_.push_back(row.kv_length);
    k_values_.emplace_back(static_cast<size_t>(row.kv_length) * config_.kv_heads * config_.head_dim);
    v_values_.emplace_back(static_cast<size_t>(row.kv_length) * config_.kv_heads * config_.v_head_dim);
    for (float& x : k_values_.back()) x = normal(random);
    for (float& x : v_values_.back()) x = normal(random);
  }
  for (const SceneShare& share : config_.shares) {
    for (int row : share.rows) {
      const auto copy = [&](std::vector<std::vector<float>>& values, int dims) {
        const size_t key = static_cast<size_t>(config_.kv_heads) * dims;
        std::copy_n(values[share.rows[0]].begin() + share.begin * key, (share.end - share.begin) * key,
                    values[row].begin() + share.begin * key);
      };
      copy(k_values_, config_.head_dim);
      copy(v_values_, config_.v_head_dim);
    }
  }
  q_values_.resize(static_cast<size_t>(num_tokens_) * config_.q_heads * config_.head_dim);
  for (float& x : q_values_) x = normal(random);
  const int rope_offset = is_latent() ? config_.v_head_dim : 0;
  const int rope_dim = (config_.head_dim - rope_offset) / 2 * 2;
  for (std::vector<float>* table : {&cos_sin_, &cos_sin_sinks_}) {
    table->resize(static_cast<size_t>(num_tokens_) * rope_dim);
    for (float& x : *table) x = std::cos(normal(random));
  }

  layer_.page_size = config_.page_size;
  layer_.num_q_heads = config_.q_heads;
  layer_.num_kv_heads = config_.kv_heads;
  layer_.head_dim = config_.head_dim;
  layer_.v_head_dim = config_.v_head_dim;
  layer_.window_tokens = config_.window;
  layer_.chunk_tokens = config_.chunk;
  layer_.row_kind = config_.row_kind;
  layer_.format = stored_format(dtype_of(config_.kv));
  if (const kvt::BlockFormat* format = block_format(config_.kv)) {
    layer_.format = descriptor_of(*packed_row_format(format->id), is_latent(), config_.head_dim);
  }
  layer_.softmax_scale = static_cast<float>(config_.scale != 0.0 ? config_.scale : 1.0 / std::sqrt(config_.head_dim));
  layer_.rope_class = config_.rotate ? 0 : -1;
  layer_.rope_dim = rope_dim;
  layer_.rope_offset = rope_offset;
  if (config_.on_read) {
    std::vector<double> frequencies;
    for (int i = 0; i < rope_dim / 2; ++i) frequencies.push_back(std::pow(10.0, -2.0 * i / rope_dim));
    key_table_.resize(static_cast<size_t>(KVC_BACKEND_ROPE_LEVELS * KVC_BACKEND_ROPE_RADIX * rope_dim));
    const kvc_backend_rope_table args = {rope_dim, 0, frequencies.data(), 1.0, key_table_.data()};
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cpu_backend_get(KVC_BACKEND_VERSION)->rope_table(nullptr, &args, &error), KVC_OK);
  }
  build_masks();
  build_biases();
  build_pages();
  build_tables();
  build_items();
  store();
}

float& Scene::k(int row, int position, int head, int dim) {
  return k_values_[row][(static_cast<size_t>(position) * config_.kv_heads + head) * config_.head_dim + dim];
}
float& Scene::v(int row, int position, int head, int dim) {
  if (is_latent()) return k(row, position, head, dim);
  return v_values_[row][(static_cast<size_t>(position) * config_.kv_heads + head) * config_.v_head_dim + dim];
}
float& Scene::q(int token, int head, int dim) {
  return q_values_[(static_cast<size_t>(token) * config_.q_heads + head) * config_.head_dim + dim];
}

void Scene::build_tree(const SceneRow& row) {
  const int count = static_cast<int>(row.parents.size()), committed = row.kv_length - count;
  tree_begin_.push_back(committed);
  tree_offset_.push_back(static_cast<int32_t>(tree_nodes_.size()));
  std::vector<std::vector<int>> children(count + 1);
  for (int i = 0; i < count; ++i) children[row.parents[i] + 1].push_back(i);
  std::vector<kvc_backend_tree_node> nodes(count);
  int32_t clock = 0;
  const std::function<void(int, int)> visit = [&](int node, int depth) {
    nodes[node].enter = clock++;
    nodes[node].position = committed + depth;
    nodes[node].parent = row.parents[node];
    for (int child : children[node + 1]) visit(child, depth + 1);
    nodes[node].exit = clock;
  };
  for (int root : children[0]) visit(root, 0);
  tree_nodes_.insert(tree_nodes_.end(), nodes.begin(), nodes.end());
}

void Scene::build_masks() {
  for (size_t r = 0; r < config_.rows.size(); ++r) {
    const SceneRow& row = config_.rows[r];
    stream_windows_.push_back(row.stream_window);
    stream_sinks_.push_back(row.stream_sinks);
    build_tree(row);
    for (int i = 0; i < row.queries; ++i) {
      const int key = row.kv_length - row.queries + i;
      const int end = i / 5 % 2 == 0 ? key + 1 : std::min(row.kv_length, key - i % 5 + 5);
      key_ends_.push_back(config_.spans ? end : key + 1);
      positions_.push_back(key_position(static_cast<int>(r), key));
      row_of_.push_back(static_cast<int>(r));
    }
  }
  for (int h = 0; h < config_.q_heads; ++h) {
    slopes_.push_back(std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(config_.q_heads)));
    sinks_.push_back(h % 5 == 4 ? -INFINITY : static_cast<float>(h % 3) - 1.0f);
  }
}

void Scene::build_biases() {
  std::mt19937 random(config_.seed + 3);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  const int longest = *std::max_element(kv_lengths_.begin(), kv_lengths_.end());
  if (config_.rel_bias != 0) {
    bias_.relative_head_stride = config_.distances + 2;
    bias_.relative_token_stride = config_.rel_bias == 1 ? 0 : bias_.relative_head_stride * config_.q_heads + 1;
    bias_.num_distances = config_.distances;
    const int64_t tables = config_.rel_bias == 1 ? 0 : num_tokens_ - 1;
    rel_bias_.assign(
        static_cast<size_t>(tables * bias_.relative_token_stride + config_.q_heads * bias_.relative_head_stride), NAN);
    for (int64_t t = 0; t <= tables; ++t) {
      for (int h = 0; h < config_.q_heads; ++h) {
        float* const table = &rel_bias_[t * bias_.relative_token_stride + h * bias_.relative_head_stride];
        for (int d = 0; d < config_.distances; ++d) table[d] = d % 11 == 10 ? -INFINITY : normal(random);
      }
    }
    bias_.relative = rel_bias_.data();
  }
  if (config_.key_bias != 0) {
    const int heads = config_.key_bias == 1 ? 1 : config_.kv_heads;
    bias_.key_stride = heads + 1;
    bias_.key_head_stride = config_.key_bias == 1 ? 0 : 1;
    bias_.key_row_stride = longest * bias_.key_stride;
    key_bias_.resize(config_.rows.size() * static_cast<size_t>(bias_.key_row_stride));
    for (float& x : key_bias_) x = normal(random);
    bias_.keys = key_bias_.data();
  }
  if (config_.mask == 0) return;
  const int heads = config_.mask == 1 ? 1 : config_.kv_heads;
  bias_.mask_head_stride = config_.mask == 1 ? 0 : longest;
  bias_.mask_token_stride = int64_t{heads} * longest + 3;
  mask_.resize(static_cast<size_t>(bias_.mask_token_stride) * num_tokens_);
  for (int t = 0; t < num_tokens_; ++t) {
    // Every seventh query sees nothing. The others do not see runs of keys, and single keys.
    for (int64_t i = 0; i < bias_.mask_token_stride; ++i) {
      const bool seen = t % 7 != 6 && (i + t) / 40 % 3 != 1 && random() % 4 != 0;
      mask_[static_cast<size_t>(t * bias_.mask_token_stride + i)] = seen ? static_cast<uint8_t>(1 + i % 3) : 0;
    }
  }
  bias_.mask = mask_.data();
}

bool Scene::in_range(int row, int key) const {
  if (key >= tree_begin_[row]) return true;
  for (int t = token_begin_[row]; t < token_begin_[row + 1]; ++t) {
    if (sees(t, key)) return true;
  }
  return false;
}

bool Scene::needed(int row, int key) const {
  if (!in_range(row, key)) return false;
  if (config_.mask == 0) return true;
  for (int t = token_begin_[row]; t < token_begin_[row + 1]; ++t) {
    for (int h = 0; h < config_.kv_heads; ++h) {
      if (sees(t, key) && unmasked(t, h, key)) return true;
    }
  }
  return false;
}

void Scene::build_pages() {
  int total = 3;  // pages without a sequence
  for (const SceneRow& row : config_.rows) total += (row.kv_length + config_.page_size - 1) / config_.page_size;
  std::vector<int> ids(total);
  for (int i = 0; i < total; ++i) ids[i] = i;
  std::shuffle(ids.begin(), ids.end(), std::mt19937(config_.seed + 7));
  size_t next = 0;
  for (const SceneRow& row : config_.rows) {
    const int count = (row.kv_length + config_.page_size - 1) / config_.page_size;
    pages_.emplace_back(ids.begin() + next, ids.begin() + next + count);
    next += count;
  }
  for (const SceneShare& share : config_.shares) {
    for (int row : share.rows) {
      for (int page = share.begin / config_.page_size; page < share.end / config_.page_size; ++page) {
        pages_[row][page] = pages_[share.rows[0]][page];
      }
    }
  }
  layer_.num_pages = total;
  const auto lay_out = [&](kvc_backend_pool& pool, int dims, std::vector<unsigned char>& memory) {
    const int64_t gap = has_aligned_pools(config_) ? 16 / bytes_of(config_.kv) : 3;
    int64_t page_stride = 0, head_stride = 0, slot_stride = 0;
    if (config_.nhd) {
      head_stride = dims + gap;
      slot_stride = head_stride * config_.kv_heads;
      page_stride = slot_stride * config_.page_size + gap;
    } else {
      slot_stride = dims;
      head_stride = slot_stride * config_.page_size;
      page_stride = head_stride * config_.kv_heads + gap;
    }
    memory.assign(static_cast<size_t>(page_stride) * total * bytes_of(config_.kv) + pool_misalignment(config_),
                  0xff);  // 0xff..: NaN
    pool = pool_of(dtype_of(config_.kv), memory.data() + pool_misalignment(config_), page_stride, head_stride,
                   slot_stride, dims);
  };
  lay_out(layer_.k, units_of(config_.kv, config_.head_dim - k_begin()), k_pool_);
  lay_out(layer_.v, units_of(config_.kv, config_.v_head_dim), v_pool_);
  if (layer_.row_kind == KVC_BACKEND_ROW_LATENT) {
    const int64_t v_row_bytes = layer_.v.row_bytes;
    layer_.v = layer_.k;
    layer_.v.row_bytes = v_row_bytes;
  }
  build_scales();
  const auto lay_out_tensor = [&](kvc_backend_tensor& tensor, Kind kind, int dims, bool aligned, auto& memory) {
    const int64_t offset = aligned ? 0 : misalignment(kind);
    tensor.head_stride = aligned ? (dims + 23) / 16 * 16 : dims + 5;
    tensor.token_stride = tensor.head_stride * config_.q_heads + (aligned ? 16 : 7);
    tensor.dtype = dtype_of(kind);
    memory.assign(static_cast<size_t>(tensor.token_stride) * num_tokens_ * bytes_of(kind) + offset, kOutFill);
    tensor.data = memory.data() + offset;
  };
  lay_out_tensor(q_tensor_, config_.q, config_.head_dim, tests_cuda() && config_.seed % 2 != 0, q_data_);
  lay_out_tensor(out_tensor_, config_.out, config_.v_head_dim, false, out_data_);
  lse_.assign(static_cast<size_t>(num_tokens_) * config_.q_heads, 12345.0f);
}

// The scales of a token are bytes 0xff until a key is stored in its slot: NaN in every format.
void Scene::build_scales() {
  const auto lay_out = [&](kvc_backend_scales& scales, float first, int dims, std::vector<float>& memory) {
    if (const int64_t each = scale_floats(config_.kv, dims); each > 0) {
      const int64_t page_stride = (int64_t{config_.kv_heads + 1} * config_.page_size + 5) * each;
      memory.resize(static_cast<size_t>(page_stride * layer_.num_pages));
      std::memset(memory.data(), 0xff, memory.size() * sizeof(float));
      scales = scales_of_tokens(memory.data(), page_stride, each * (config_.nhd ? 1 : config_.page_size),
                                each * (config_.nhd ? config_.kv_heads + 1 : 1));
      scales.row_bytes *= each;
    } else if (is_quantised(config_.kv) && block_format(config_.kv) == nullptr && config_.head_scales > 0) {
      for (int h = 0; h < (config_.head_scales == 2 ? config_.kv_heads : 1); ++h) {
        memory.push_back(first * std::ldexp(1.0f + 0.1f * static_cast<float>(h), h % 5 - 4));
      }
      scales = scales_of_heads(memory.data(), config_.head_scales == 2 ? 1 : 0);
    }
  };
  lay_out(layer_.k_scales, 0.3f, config_.head_dim, k_scales_);
  lay_out(layer_.v_scales, 0.07f, config_.v_head_dim, v_scales_);
  if (is_latent()) layer_.v_scales = layer_.k_scales;
}

void Scene::forget_keys() { std::fill(kv_lengths_.begin(), kv_lengths_.end(), 0); }

void Scene::store() {
  expected_.clear();
  for (size_t r = 0; r < config_.rows.size(); ++r) {
    const int row = static_cast<int>(r);
    for (int key = 0; key < kv_lengths_[r]; ++key) {
      if (needed(row, key)) store_key(row, key);
    }
  }
  rotate_keys();
  const int bytes = bytes_of(config_.q);
  for (int t = 0; t < num_tokens_; ++t) {
    for (int h = 0; h < config_.q_heads; ++h) {
      for (int d = 0; d < config_.head_dim; ++d) {
        float& x = q(t, h, d);
        x = rounded(config_.q, x);
        const int64_t element = t * q_tensor_.token_stride + h * q_tensor_.head_stride + d;
        write_number(config_.q, static_cast<unsigned char*>(q_tensor_.data) + element * bytes, x);
      }
    }
  }
}

void Scene::build_tables() {
  constexpr int kFanout = KVC_BACKEND_NODE_FANOUT;
  nodes_.assign(2 * kFanout, kPoison);  // two nodes that belong to no list
  for (size_t r = 0; r < pages_.size(); ++r) {
    std::vector<int32_t> entries(pages_[r].size(), kPoison);
    for (int key = 0; key < kv_lengths_[r]; ++key) {
      const int page = key / config_.page_size;
      if (entries[page] == kPoison && in_range(static_cast<int>(r), key)) entries[page] = pages_[r][page];
    }
    int32_t levels = 0;
    while (levels == 0 || entries.size() > 1) {
      std::vector<int32_t> parents;
      for (size_t i = 0; i < entries.size(); i += kFanout) {
        const int32_t id = static_cast<int32_t>(nodes_.size() / kFanout);
        bool needed = false;
        for (size_t j = 0; j < kFanout; ++j) {
          nodes_.push_back(i + j < entries.size() ? entries[i + j] : kPoison);
          needed = needed || nodes_.back() != kPoison;
        }
        parents.push_back(needed ? id : kPoison);
      }
      entries = parents;
      ++levels;
    }
    roots_.push_back(entries[0]);
    levels_.push_back(levels);
  }
}

kvc_status Scene::try_attend(const kvc_backend* backend, kvc_backend_device* device, kvc_error* error) {
  std::fill(out_data_.begin(), out_data_.end(), kOutFill);
  std::fill(counters_.begin(), counters_.end(), -7);  // what another call left
  std::fill(partials_.begin(), partials_.end(), NAN);
  kvc_backend_rows rows = plain_rows(static_cast<int32_t>(config_.rows.size()), num_tokens_, token_begin_.data(),
                                     kv_lengths_.data(), positions_.data());
  if (config_.spans) rows.key_ends = key_ends_.data();
  if (std::any_of(stream_windows_.begin(), stream_windows_.end(), [](int w) { return w > 0; })) {
    rows.stream_windows = stream_windows_.data();
    rows.stream_sinks = stream_sinks_.data();
  }
  if (!tree_nodes_.empty()) {
    rows.tree_begin = tree_begin_.data();
    rows.tree_offset = tree_offset_.data();
    rows.tree_nodes = tree_nodes_.data();
  }
  const kvc_backend_tables tables = {nodes_.data(), roots_.data(), levels_.data()};
  kvc_backend_plan plan = {};
  plan.arrays = {rows, tables, nullptr, items_.data(), tiles_.data(), spans_.data(), parts_.data()};
  plan.layer = &layer_;
  plan.flags = config_.flags;
  plan.num_items = static_cast<int64_t>(items_.size());
  plan.num_tiles = static_cast<int64_t>(tiles_.size());
  plan.num_spans = static_cast<int64_t>(spans_.size());
  plan.num_parts = static_cast<int64_t>(parts_.size());
  plan.counters = counters_.data();
  plan.partials = partials_.data();
  kvc_backend_attend args = {};
  args.layer = &layer_;
  args.q = q_tensor_;
  args.out = out_tensor_;
  args.lse = lse_.data();
  args.lse_token_stride = config_.q_heads;
  args.lse_head_stride = 1;
  args.key_tables = config_.on_read ? key_table_.data() : nullptr;
  args.cos_sin = config_.rotate ? cos_sin_.data() : nullptr;
  args.cos_sin_sinks = config_.rotate ? cos_sin_sinks_.data() : nullptr;
  args.softmax_scale = config_.call_scale;
  args.softcap = config_.softcap;
  args.alibi_slopes = config_.alibi ? slopes_.data() : nullptr;
  args.sinks = config_.sinks ? sinks_.data() : nullptr;
  args.bias = bias_;
  args.cancel_host = &cancel_;
  return staged_attend(backend, device, args, plan, nullptr, error);
}

float Scene::unwritten() const {
  const unsigned char fill[4] = {kOutFill, kOutFill, kOutFill, kOutFill};
  return read_number(config_.out, fill);
}

void Scene::attend(const kvc_backend* backend, kvc_backend_device* device) {
  kvc_error error = KVC_ERROR_INIT;
  ASSERT_EQ(try_attend(backend, device, &error), KVC_OK) << error.message;
  const int bytes = bytes_of(config_.out);
  for (int t = 0; t < num_tokens_; ++t) {
    for (int64_t e = 0; e < out_tensor_.token_stride; ++e) {
      const bool gap =
          e % out_tensor_.head_stride >= config_.v_head_dim || e / out_tensor_.head_stride >= config_.q_heads;
      if (!gap) continue;
      for (int b = 0; b < bytes; ++b) {
        ASSERT_EQ(out_data_[misalignment(config_.out) + (t * out_tensor_.token_stride + e) * bytes + b], kOutFill)
            << "gap of out was written";
      }
    }
  }
}

float Scene::out(int token, int head, int dim) const {
  const int64_t element = token * out_tensor_.token_stride + head * out_tensor_.head_stride + dim;
  return read_number(config_.out, out_data_.data() + misalignment(config_.out) + element * bytes_of(config_.out));
}

void run_scene(const SceneConfig& config, int threads, bool with_reference) {
  Scene scene(config);
  for_each_implementation(
      threads,
      [&](const std::string& name, kvc_backend_device* device) {
        scene.attend(test_backend(), device);
        scene.check(name);
      },
      with_reference);
}

}  // namespace kvc::kernels::test
