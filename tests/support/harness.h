// Harness: a cache of the library in lockstep with a naive model of it.
//
// The model has every sequence's tokens in plain arrays, and every page as a number with a count. It predicts the
// status and the numbers of each call, the page tables (up to the names of pages), the statistics, every stored K and
// V, and attention. The first difference throws Mismatch.
//
// Contents are a hash of (tag of the token, position, layer, head, dim). Each append gives its tokens unique tags, so a
// slot of a wrong page, position, layer or ancestor is noticed at once.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "wrappers.h"

namespace kvt {

struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A failure that the model accepts. kAny matches every value of that field.
struct Fault {
  static constexpr int64_t kAny = INT64_MIN;
  kvc_status status;
  int64_t index = kAny, required = kAny, available = kAny, group = kAny;
};
using Faults = std::vector<Fault>;

// How one token was stored: by which append, and with which inputs.
struct Token {
  uint32_t tag = 0;
  DType input = DType::kF32;  // dtype of the given k and v
  bool rough = false;         // values that need rounding; else they are exact in every dtype
  bool as_stored = false;     // the library did not rotate it
  uint64_t layers = ~0ull;    // bit per layer that stored it
};

struct Options {
  uint64_t seed = 1;
  int threads = 1;
  const char *simd = nullptr;
  kvc_parallel_for_fn parallel_for = nullptr;
  void *parallel_for_user = nullptr;
  bool poison = true;          // fill the pools with NaN first
  bool check_contents = true;  // export what each step touched
  bool check_digest = true;    // digest before and after refused calls
  bool check_invariants = true;
  double attend_checks = 1.0;   // part of the forwards whose attention is compared
  int heads_checked = 1 << 20;  // q heads sampled per row and layer
  int rows_checked = 1 << 20;   // query rows sampled per batch row, first and last always
  bool trace = false;           // print every operation, for a reproduction
  bool graph = false;           // half of the forwards use a graph, if it has no open step
  bool plain_inputs = false;    // f32 inputs, contiguous, fused attend, no attention options (for speed)
};

class Harness {
 public:
  static constexpr int kInert = -1, kRaw = -2;
  struct Row {
    int sequence;  // handle, kInert or kRaw
    int32_t length;
    kvc_seq raw = 0;                    // kRaw: this id as it is
    std::vector<int32_t> parents = {};  // of a tree row, [length]; empty = a plain row
    std::vector<int32_t> spans = {};    // [length], or empty: none
    int encoder = -1;                   // of all rows: the cross group whose encoder sequences grow; -1 = none
  };

  Harness(const CacheSpec &spec, const Options &options);
  ~Harness();

  // ---- Operations: each returns the status that library and model agree on. ----
  kvc_status add(int n, std::vector<int> *handles);
  int add();  // must succeed
  kvc_status remove(const std::vector<int> &handles);
  kvc_status fork(const std::vector<int> &parents, const std::vector<int64_t> *positions, std::vector<int> *children);
  int fork(int parent, int64_t position = -1);  // must succeed
  kvc_status truncate(const std::vector<int> &handles, const std::vector<int64_t> &lengths);
  kvc_status clear();
  kvc_status begin(const std::vector<Row> &rows, int *forward, int layer_begin = 0, int layer_end = 0);
  void run_layer(int forward, int layer);  // the remaining calls of append and attend
  void append_layer(int forward, int layer);
  void attend_layer(int forward, int layer);
  void run_layers(int forward);  // the remaining layers, in a random order
  kvc_status end(int forward);
  kvc_status abort(int forward);
  kvc_status cancel(int forward);
  kvc_status step(const std::vector<Row> &rows, int *forward = nullptr);  // begin, layers, end
  kvc_status commit(const std::vector<int> &handles, const std::vector<int32_t> &leaves);
  kvc_status set_streaming(const std::vector<int> &handles, const std::vector<int64_t> &sinks,
                           const std::vector<int64_t> &windows, bool prefix_is_sink = false);
  kvc_status import(int handle, int tokens, bool rotate, bool bad_layer = false);

  // ---- Queries, compared with the model. ----
  kvc_status can_fit(const std::vector<Row> &rows, int layer_begin = 0, int layer_end = 0);
  int64_t check_max_append(int handle);
  void check_nearest(int handle, int64_t position);
  void check_tables(int handle);
  void check_contents(int handle);
  void check_contents(int handle, int layer, int64_t begin, int64_t end);
  void check_export_refused(int handle, int layer, int64_t begin, int64_t end);
  void check_stats();
  void check_invariants();
  void check_all();                // every live sequence, statistics, invariants
  void check_misuse(int forward);  // calls out of order on an open forward: refused, nothing changed
  void check_stale(kvc_seq id);
  uint64_t digest();

  // ---- State of the model. ----
  std::vector<int> live() const;  // handles, oldest first
  std::vector<int> idle() const;  // those in no open forward
  std::vector<int> open() const;
  bool is_busy(int handle) const { return sequence(handle).forward >= 0; }
  int64_t length(int handle) const { return static_cast<int64_t>(sequence(handle).tokens.size()); }
  int32_t nodes(int handle) const { return static_cast<int32_t>(sequence(handle).nodes.size()); }
  // The positions [begin, end) that a group has freed; begin == end: none.
  struct Freed {
    int64_t begin, end;
  };
  Freed freed(int handle, int group) const;
  bool position_works(int handle, int64_t position) const;
  int64_t sinks(int handle) const { return sequence(handle).sinks; }
  int64_t window(int handle) const { return sequence(handle).window; }
  bool stores(int layer) const { return spec_.layers[layer].kv_layer < 0; }
  bool is_cross(size_t group) const { return spec_.groups[group].cross; }
  // Tokens of a sequence in a group: its own, or those of its encoder sequence.
  int64_t held(int handle, int layer) const;
  int64_t length_in(int handle, int group) const {
    return static_cast<int64_t>(tokens_in(sequence(handle), static_cast<size_t>(group)).size());
  }
  kvc_seq id(int handle) const { return sequence(handle).id; }
  kvc_forward forward_id(int forward) const { return forwards_.at(forward).id; }
  int64_t used(int group) const { return pools_[group].used; }
  int64_t free_pages(int group) const { return pools_[group].total - pools_[group].used; }
  bool has_forgotten() const { return doomed_ > 0; }
  const std::vector<kvc_seq> &stale() const { return stale_; }
  const CacheSpec &spec() const { return spec_; }
  kvc_cache *cache() { return cache_.get(); }
  kvc_context *context() { return context_.get(); }
  std::mt19937_64 &random() { return random_; }
  uint64_t trail() const { return trail_; }  // hash of digests and page tables seen: equal for equal runs
  uint64_t attends_checked() const { return attends_checked_; }
  // How often each call returned each status ("kvc_seq_fork KVC_OK"), and which attention was compared ("full tree",
  // "full softcap").
  const std::map<std::string, int64_t> &drawn() const { return drawn_; }

  // Value of K (which = 0) or V (1) before rotation, as it is given (rounded to the token's input dtype).
  static float value(const Token &token, int64_t position, int layer, int head, int dim, int which);

 private:
  void poison_pool(int32_t layer, int32_t pool);
  struct Pool {
    int64_t total = 0, used = 0, peak = 0;
    int next = 0;
    std::unordered_map<int, int> refs;
    std::unordered_map<int, int32_t> to_library;
    std::unordered_map<int32_t, int> from_library;
  };
  // A token of an uncommitted tree; its parent is a node of the sequence or -1.
  struct Node {
    Token token;
    int32_t parent;
    int64_t position;
  };
  struct Sequence {
    kvc_seq id = 0;
    std::vector<Token> tokens;
    std::vector<Node> nodes;
    std::vector<std::vector<Token>> encoders;  // per group, of cross groups
    std::vector<std::vector<int>> pages;       // per group, list of page numbers, -1 = freed
    int64_t sinks = 0, window = 0;             // of its streaming window, 0 = it does not stream
    int forward = -1;
    bool doomed = false;
    int64_t stored() const { return static_cast<int64_t>(tokens.size() + nodes.size()); }
  };
  struct OpenRow {
    int sequence;  // or kInert
    int32_t length;
    int64_t start;              // tokens and nodes stored before
    std::vector<Node> entries;  // the new tokens; a plain one is its predecessor's child
    bool tree;
    std::vector<std::vector<int>> fresh;  // per group: new pages, the copy of a shared one first
    std::vector<bool> copied;             // per group: fresh[0] replaces the last page
    std::vector<int32_t> spans;           // as Row's
  };
  struct Open {
    kvc_forward id = 0;
    std::vector<OpenRow> rows;
    int layer_begin = 0, layer_end = 0;
    int64_t tokens = 0;
    std::set<int> appended, attended;
    bool checked = false, cancelled = false;
    int encoder = -1;  // as Row's
    DType input = DType::kF32;
    bool as_stored = false;
  };
  struct Need {
    std::vector<int64_t> total;   // per group
    std::vector<int> first_over;  // per group: first row that does not fit, -1
  };

  const Sequence &sequence(int handle) const { return sequences_.at(handle); }
  Sequence &sequence(int handle) { return sequences_.at(handle); }
  [[noreturn]] void fail(const std::string &what) const;
  void note(const char *format, ...) const __attribute__((format(printf, 2, 3)));
  template <class Call>
  kvc_status call(const char *function, const Faults &faults, Call &&function_call);
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  int64_t uniform(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

  // The ids of a call's handles, valid or not. Adds faults for handles that are stale or occur twice. Calls
  // visit(index, sequence) for live ones.
  std::vector<kvc_seq> resolve(const std::vector<int> &handles, Faults *faults,
                               const std::function<void(size_t, const Sequence &)> &visit);
  int take_page(int group);
  void share_page(int group, int page);
  void drop_page(int group, int page);
  int64_t pages_needed(const Sequence &s, int group, int64_t tokens) const;
  std::vector<int> pages_with_forward(int handle, size_t group) const;
  Need need(const std::vector<Row> &rows) const;
  Faults batch_faults(const std::vector<Row> &rows, int layer_begin, int layer_end, bool in_graph = false) const;
  Faults open_faults() const;
  bool lacks_tokens(const Row &row, int encoder, int layer_begin, int layer_end) const;
  void apply_begin(const std::vector<Row> &rows, Open *open);
  void apply_end(Open *open);
  void apply_abort(Open *open);
  void release(int handle);
  void close(int forward);
  // A kvc_batch and what it points to; not copyable.
  struct Batch {
    std::vector<kvc_seq> ids;
    std::vector<int32_t> lengths, parents, spans;
    kvc_batch batch;
    Batch(const Harness &harness, const std::vector<Row> &rows, int layer_begin, int layer_end);
    Batch(const Batch &) = delete;
    Batch &operator=(const Batch &) = delete;
  };
  static bool has_trees(const std::vector<Row> &rows);
  static bool has_spans(const std::vector<Row> &rows);
  static int encoder_of(const std::vector<Row> &rows) { return rows.empty() ? -1 : rows[0].encoder; }
  const std::vector<Token> &tokens_in(const Sequence &s, size_t group) const {
    return is_cross(group) ? s.encoders[group] : s.tokens;
  }
  int64_t stored_in(const Sequence &s, size_t group) const {
    return is_cross(group) ? static_cast<int64_t>(s.encoders[group].size()) : s.stored();
  }
  // Whether a step makes the lists of a group longer, and whether a layer takes K and V from it.
  bool grows(size_t group, int encoder) const {
    return is_cross(group) ? static_cast<int>(group) == encoder : encoder < 0;
  }
  bool appends(const Open &open, int layer) const {
    return stores(layer) && grows(static_cast<size_t>(spec_.layers[layer].group), open.encoder);
  }
  // The layer whose K and V a layer reads; in most cases itself.
  int source(int layer) const { return stores(layer) ? layer : spec_.layers[layer].kv_layer; }
  void tree_faults(const std::vector<Row> &rows, Faults *faults) const;
  void drop_nodes(Sequence *s, int64_t length);
  Sequence child_of(const Sequence &parent, kvc_seq id, int64_t position);
  static bool sees(const Sequence &s, const GroupSpec &group, int64_t position, int64_t key);
  Freed freed(const Sequence &s, int group) const;
  bool works(const Sequence &s, int64_t position) const;
  void slide(Sequence *s);
  Node stored_at(const OpenRow &row, int64_t index) const;
  Token new_token();
  void expected(const Token &token, int64_t position, int layer, int head, int which, float *values,
                float *flips) const;
  // Options of an attend; empty vectors and zeros: none.
  struct Attended {
    double softcap = 0, scale = 0;
    std::vector<float> slopes, sinks;  // [hq]
    bool causal = true, parts = false;
    int64_t heads = 0;
    DLTensor tensors[6];
    // Lists of keys, [rows of tensors][list_heads][list_entries]; list_heads 0: none.
    std::vector<int32_t> indices;
    int64_t index_shape[3] = {0, 0, 0};
    int32_t index_block = 1;
    bool has_lists() const { return index_shape[1] > 0; }
    bool lists(int64_t token, int64_t kv_head, int64_t key) const;
    // Biases and a mask, or empty: [rows or 1][hq][distances], [sequences][keys][1 or hkv], [rows][1 or hkv][keys].
    std::vector<float> rel_bias, key_bias;
    std::vector<uint8_t> mask;
    int64_t rel_shape[3] = {0, 0, 0}, key_shape[3] = {0, 0, 0}, mask_shape[3] = {0, 0, 0};
    bool rel_zero = false, no_spans = false, step_window = false;
    bool unmasked(int64_t token, int64_t kv_head, int64_t key) const;
    double bias(int64_t row, int64_t token, int64_t head, int64_t kv_head, int64_t key, int64_t distance) const;
    void set(kvc_attend_args *args);  // which then points into this
  };
  std::vector<int64_t> visible(const OpenRow &row, int32_t query, const GroupSpec &group, const Attended &how) const;
  Attended random_options(const LayerSpec &layer);
  void draw_lists(const Open &open, int layer, int64_t rows, Attended *how);
  void draw_biases(const Open &open, int layer, int64_t rows, Attended *how);
  // Attends to the past and to the new tokens in calls of their own, in either order, and merges. The result is that of
  // one attend. Outputs are float32.
  void attend_parts(const Open &open, int layer, const kvc_attend_args &args, Tensor *out, Tensor *lse);
  void count_attention(const Open &open, int layer, const Attended &how);
  void check_attention(const Open &open, int layer, const Attended &how, const Tensor &q, const Tensor &out,
                       const Tensor *lse);
  void fill_q(const Open &open, const LayerSpec &l, float amplitude, Tensor *q);
  // New K and V for `rows` rows of tensors. Returns false if k has all and v must not be given (MLA).
  bool make_kv(const Open &open, int layer, int64_t rows, int64_t padding, int64_t offset, Tensor *k, Tensor *v);
  void check_info(const Open &open);
  void mix(uint64_t x) {
    trail_ = (trail_ ^ x) * 0x9E3779B97F4A7C15ull;
    trail_ ^= trail_ >> 29;
  }

  CacheSpec spec_;
  Options options_;
  std::mt19937_64 random_;
  ContextPtr context_;
  CachePtr cache_;
  std::vector<Pool> pools_;
  std::map<int, Sequence> sequences_;
  std::map<int, Open> forwards_;
  std::vector<kvc_seq> stale_;
  std::vector<kvc_forward> stale_forwards_;
  kvc_forward graph_ = 0;
  int next_handle_ = 0, next_forward_ = 0, doomed_ = 0;
  uint32_t next_tag_ = 1;
  uint64_t trail_ = 1, calls_ = 0, attends_checked_ = 0;
  std::map<std::string, int64_t> drawn_;
  std::string last_call_;
};

// A pool of the host, which runs items in a random order on up to `threads` threads.
class RandomPool {
 public:
  RandomPool(int threads, uint64_t seed) : threads_(threads), random_(seed) {}
  static void run(void *self, int64_t n, void (*item)(void *, int64_t), void *arg);
  int64_t runs() const { return runs_; }

 private:
  int threads_;
  std::mt19937_64 random_;
  int64_t runs_ = 0;
};

// Runs `body`, which may throw Mismatch. Returns the message, or "".
template <class Body>
std::string mismatch_of(Body &&body) {
  try {
    body();
  } catch (const std::exception &e) {
    return e.what();
  }
  return "";
}

}  // namespace kvt
