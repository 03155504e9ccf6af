// A scene: the rows of a batch over a paged pool. All that must not be read is poison.
//
//   - every slot that no query sees holds NaN, in pages of the scene and in pages without a sequence;
//   - page ids are shuffled, and table entries that no query needs are 0x7fffffff;
//   - pools, q and out are 2 bytes off any alignment (on CUDA one element), with gaps between rows. Gaps of out must
//   not
//     change. On CUDA most pools and every second q are aligned, because kernels then read them in another way.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kvcache_backend.h"
#include "number.h"

namespace kvc::kernels::test {

struct SceneRow {
  int queries;  // the last tokens of kv_length
  int kv_length;
  int stream_window = 0, stream_sinks = 0;
  std::vector<int> parents = {};  // of a tree, which is the last keys: index of each node's parent; -1 = root
};

// Keys [begin, end) that rows share, in whole pages. Shared items attend to them. The shares of a row are contiguous
// from key 0 on, and the row's own items have the rest.
struct SceneShare {
  std::vector<int> rows;
  int begin, end;
};

struct SceneConfig {
  int q_heads = 4, kv_heads = 2, head_dim = 64, v_head_dim = 64, page_size = 16;
  int window = 0, chunk = 0;
  uint32_t flags = 0;  // KVC_ATTEND_*
  bool spans = false;  // every second group of 5 new tokens is a span, whose tokens see each other
  double softcap = 0.0;
  bool alibi = false, sinks = false;
  int rel_bias = 0;  // 0 = none, 1 = a table for all queries, 2 = a table for each
  int distances = 20;
  int key_bias = 0;  // 0 = none, 1 = the same for all heads, 2 = for each kv head
  int mask = 0;      // likewise
  Kind q = Kind::kF32, kv = Kind::kF32, out = Kind::kF32;
  std::vector<SceneRow> rows = {{1, 100}};
  std::vector<SceneShare> shares = {};
  bool nhd = false;
  uint32_t row_kind = KVC_BACKEND_ROW_KV;
  bool rotate = false;   // pass cos_sin to attend
  bool on_read = false;  // keys are raw, and rotated on read
  int head_scales = 0;   // of fp8: 0 = none, 1 = one for all heads, 2 = one for each kv head
  double scale = 0.0;    // of the layer; 0 = head_dim^-0.5
  double call_scale = 0.0;
  int splits = 1;          // items over the keys of each tile; 1 = no merge, so items write out
  int query_tile = 0;      // queries of an item; 0 = all of the row
  int heads_per_item = 0;  // 0 = all
  unsigned seed = 1;

  std::string describe() const;
};

// The expected outputs of one row and head, in float64 and as plain float32 code computes them.
struct Expected {
  std::vector<double> exact, naive;
  double rounding = 0.0;  // where P is rounded: the sum of independent roundings. Naive code may have less by chance
  double exact_lse, naive_lse;
};

// Sanitizers and emulations are slow, so large grids run every kSampling-th case there. KVC_KERNEL_SAMPLING sets it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr unsigned kUsualSampling = 5;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr unsigned kUsualSampling = 5;
#else
constexpr unsigned kUsualSampling = 1;
#endif
#else
constexpr unsigned kUsualSampling = 1;
#endif
inline unsigned sampling() {
  const char* set = std::getenv("KVC_KERNEL_SAMPLING");
  const char* backend = std::getenv("KVC_KERNEL_BACKEND");
  const int value = set != nullptr ? std::atoi(set) : 0;
  if (value > 0) return static_cast<unsigned>(value);
  return backend != nullptr && std::strcmp(backend, "cuda") == 0 ? 7 : kUsualSampling;  // kernels/cuda on fibers
}
inline const unsigned kSampling = sampling();

class Scene {
 public:
  explicit Scene(const SceneConfig& config);

  // Values of the keys of a row. After store() they are the values as read, times their scale. head: a kv head.
  float& k(int row, int position, int head, int dim);
  float& v(int row, int position, int head, int dim);
  // q as given, before rotation.
  float& q(int token, int head, int dim);
  // Writes these values, rounded, to pools and tensors. Must be called after a change of them.
  void store();
  // Makes K and V of one stored key NaN, or only V, until store().
  void poison_key(int row, int position);
  void poison_value(int row, int position);
  // Replaces the stored V of kv head 0, and its scales in the page.
  void store_value_bytes(int row, int position, const std::vector<unsigned char>& bytes,
                         const std::vector<unsigned char>& page_scales = {});
  // Whether a query sees the key at an index of its row, by the definitions. The mask of the call is apart.
  bool sees(int token, int key) const;
  bool unmasked(int token, int kv_head, int key) const;
  // Makes the lengths of all sequences 0, so no query sees a key.
  void forget_keys();

  kvc_backend_layer layer() const { return layer_; }
  int num_tokens() const { return num_tokens_; }
  int position(int token) const { return positions_[token]; }
  int row_of(int token) const { return row_of_[token]; }

  // Runs the backend's attend. The test fails if it returns an error or writes to a gap.
  void attend(const kvc_backend* backend, kvc_backend_device* device);
  kvc_status try_attend(const kvc_backend* backend, kvc_backend_device* device, kvc_error* error);
  void set_cancel(int32_t cancel) { cancel_ = cancel; }
  float unwritten() const;  // the value of output elements that were never written
  float out(int token, int head, int dim) const;
  float lse(int token, int head) const { return lse_[token * config_.q_heads + head]; }
  Expected expect(int token, int head) const;
  // |out - exact| <= 2 max(|naive - exact|, rounding) + 1e-5 for every row and head, and the same for the LSE.
  void check(const std::string& name);

 private:
  void build_pages();
  void build_tables();
  void build_items();
  void build_masks();
  void build_tree(const SceneRow& row);
  void add_items(const kvc_backend_item& item, int key_begin, int key_end, int splits, int64_t* offset);
  void add_shared_items(int64_t* offset);
  // Whether a key must have a page, because it is a node of a tree or in the range of a query; and whether it must have
  // values, because a query sees it.
  bool in_range(int row, int key) const;
  bool needed(int row, int key) const;
  void poison(const kvc_backend_pool& pool, const kvc_backend_scales& scales, int row, int position);
  bool is_latent() const { return config_.row_kind != KVC_BACKEND_ROW_KV; }
  bool is_split() const { return config_.row_kind == KVC_BACKEND_ROW_LATENT_SPLIT; }
  int k_begin() const { return is_split() ? config_.v_head_dim : 0; }  // first dim of the K row that is in K's pool
  int key_position(int row, int key) const;
  int distance(int token, int key) const;  // p_q - p_k
  float bias(int token, int head, int key) const;
  void build_biases();
  void build_scales();
  void store_key(int row, int position);
  void store_row(const kvc_backend_pool& pool, const kvc_backend_scales& scales, int64_t page, int head, int64_t slot,
                 float* values, int dims);
  void rotate_keys();
  Kind rounding_of_p() const;
  float value_scale(int row, int key, int head) const;  // of int8
  float rotated_q(int token, int head, int dim, const std::vector<float>& cos_sin) const;
  // Scores of the keys that a query sees, in float64 and as plain float32 code computes them.
  void score(int token, int head, std::vector<int>* keys, std::vector<double>* exact, std::vector<float>* naive) const;

  SceneConfig config_;
  kvc_backend_layer layer_ = {};
  int num_tokens_ = 0;
  int32_t cancel_ = 0;
  std::vector<int> token_begin_, kv_lengths_, positions_, row_of_;
  std::vector<std::vector<int>> pages_;                  // [row][page index]
  std::vector<std::vector<float>> k_values_, v_values_;  // [row]: [kv_length][heads][dims]
  std::vector<Expected> expected_;                       // [token * q_heads + head], filled by check, dropped by store
  std::vector<std::vector<float>> rotated_k_values_;     // the same rotated, if on_read
  std::vector<double> key_table_;
  std::vector<float> q_values_, cos_sin_, cos_sin_sinks_, lse_, partials_, slopes_, sinks_;
  std::vector<float> rel_bias_, key_bias_;
  std::vector<uint8_t> mask_;
  kvc_backend_bias bias_ = {};
  std::vector<int32_t> key_ends_, stream_windows_, stream_sinks_, tree_begin_, tree_offset_;
  std::vector<kvc_backend_tree_node> tree_nodes_;
  std::vector<float> k_scales_, v_scales_;  // of quantised pools
  std::vector<unsigned char> k_pool_, v_pool_, q_data_, out_data_;
  kvc_backend_tensor q_tensor_ = {}, out_tensor_ = {};
  std::vector<int32_t> nodes_, roots_, levels_, counters_;
  std::vector<kvc_backend_item> items_;
  std::vector<kvc_backend_tile> tiles_;
  std::vector<kvc_backend_span> spans_;
  std::vector<int64_t> parts_;
  std::vector<int> shared_keys_, shared_tiles_;  // [row]: keys that shared items cover, and its tile, -1 = none
};

// Rows without spans, streams and trees.
kvc_backend_rows plain_rows(int32_t num_rows, int32_t num_tokens, const int32_t* token_begin, const int32_t* kv_lengths,
                            const int32_t* positions);

// The backend under test: the CPU's. With KVC_KERNEL_BACKEND=cuda it is kernels/cuda on the emulation, and with a path
// it is the plug-in of that file. The reference is always the CPU's.
const kvc_backend* test_backend();
bool tests_cuda();
// Runs body(name, device) for each implementation that this machine can run, on a host with `threads` threads. The
// reference runs only if requested, and then first.
void for_each_implementation(int threads, const std::function<void(const std::string&, kvc_backend_device*)>& body,
                             bool with_reference = false);
// Runs body on CUDA's device that attends by warpgroups, if there is one. (for_each_implementation does so only on
// GPUs.)
void for_warpgroups(const std::function<void(const std::string&, kvc_backend_device*)>& body);
// The same on the device that attends by tensor cores without warpgroups ("sm_90_mma").
void for_warps(const std::function<void(const std::string&, kvc_backend_device*)>& body);
// Computes a scene by each implementation, and compares it with float64.
void run_scene(const SceneConfig& config, int threads, bool with_reference = false);

}  // namespace kvc::kernels::test
