// World: the objects of a fuzzed program. Each cache has a naive model beside it, in which a sequence is an array of
// tokens.
//
// Every token has a tag in 1..8. All of its K and V have this value, which is exact in every stored format. So an
// export shows which token is in a slot, and outputs of attention are between 0 and 8. Pools begin as NaN, so a read of
// a slot without a token shows too. call() checks the rules of all functions: a refused call changes nothing and fills
// kvc_error as documented, and no call returns INTERNAL.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "bytes.h"
#include "reached.h"
#include "wrappers.h"

namespace fuzz {

[[noreturn, gnu::format(printf, 1, 2)]] void die(const char *format, ...);

inline const bool trace = std::getenv("KVC_FUZZ_TRACE") != nullptr;  // print every call

constexpr DLDataType kFloat32 = {kDLFloat, 32, 1};
constexpr uint8_t kUnknown = 0xff;  // the tag of a token that a hostile call may have stored

struct Token {
  uint8_t tag;
  uint32_t layers;  // bit per layer that stored it
};

struct Node {
  Token token;
  int32_t parent;
};

struct Sequence {
  kvc_seq id;
  std::vector<Token> tokens;
  std::vector<Node> nodes;                     // of its uncommitted tree
  std::map<int, std::vector<Token>> encoders;  // by group
};

struct Step {
  kvc_forward id;
  struct Row {
    kvc_seq id;
    std::vector<uint8_t> tags;
    std::vector<int32_t> parents;  // of a tree row
  };
  std::vector<Row> rows;
  int encoder = -1;
  uint32_t stored = 0;  // bit per layer
  bool unknown = false;
  int64_t tokens() const {
    int64_t n = 0;
    for (const Row &row : rows) n += static_cast<int64_t>(row.tags.size());
    return n;
  }
};

// A cache's config with all that it points to, and the model of the cache.
struct Cache {
  kvc_cache *cache = nullptr;
  kvc_cache_config config;
  std::vector<kvc_layer_config> layers;
  std::vector<kvc_group_config> groups;
  std::deque<kvc_rope_scaling> scalings;
  std::deque<std::vector<float>> scales;
  std::deque<std::vector<double>> factors;
  kvc_state_config states[2];
  bool unknown = false;  // a hostile call may have stored tokens that the model does not have

  std::vector<Sequence> sequences;
  std::vector<Step> steps;
  std::vector<kvc_forward> graphs;
  std::vector<uint64_t> stale;

  bool has_state(int layer) const { return groups[layers[layer].group].row == KVC_ROW_STATE; }
  bool sees_encoder(int layer) const { return groups[layers[layer].group].visibility == KVC_VISIBLE_ENCODER; }
  int source(int layer) const { return layers[layer].kv_layer ? layers[layer].kv_layer - 1 : layer; }
  int64_t v_dim(int layer) const {
    const kvc_layer_config &l = layers[layer];
    return l.latent_dim ? l.latent_dim : l.v_head_dim ? l.v_head_dim : l.head_dim;
  }
  Sequence *find(kvc_seq id) {
    for (Sequence &s : sequences) {
      if (s.id == id) return &s;
    }
    return nullptr;
  }
};

// A DLTensor and its memory, which is exactly as large as its shape and strides reach.
struct Tensor {
  DLTensor dl;
  int64_t shape[8], strides[8];
  char *memory;
};

struct Plan {
  kvc_plan *plan;
  kvc_plan_config config;
  uint64_t generation;
};

// The sequence that was saved last.
struct Saved {
  std::string bytes;
  Sequence sequence = {};
  const Cache *of = nullptr;
  bool unknown = false;
  bool with_tokens = false;
};

struct World {
  explicit World(Bytes bytes) : in(bytes) {}
  ~World();

  Bytes in;
  kvc_context *context = nullptr;
  Cache caches[2];
  std::vector<Plan> plans;
  std::vector<DLManagedTensorVersioned *> views;
  std::deque<Tensor> tensors;                   // of the current call
  std::vector<std::unique_ptr<char[]>> memory;  // likewise
  Saved saved;
  std::string writing, reading;  // of the current save or load
  int failing_bytes = -1;        // number of the call of its callback that fails; -1 = none
  kvc_error last_error;

  // Calls a function by its address; `name` is its name, and the last argument is error().
  template <class Function, class... Arguments>
  auto call(const char *name, Function function, Arguments... arguments) {
    if constexpr (!std::is_same_v<decltype(function(arguments...)), kvc_status>) {
      reached[name].succeeded++;
      return function(arguments...);
    } else {
      kvc_cache *cache = cache_of(arguments...);
      const uint64_t before = digest(cache);
      const kvc_status status = function(arguments...);
      reached[name].count(status == KVC_OK);
      if (trace) std::fprintf(stderr, "%s: %s%s\n", name, kvc_status_name(status), in.fired() ? ", one fault" : "");
      if (status != KVC_OK) check_refusal(name, status, digest(cache) == before);
      return status;
    }
  }

  // Hooks of arguments that many functions have.
  kvc_error *error();
  // For a call without hostile arguments. It reads no bytes.
  kvc_error *plain_error() {
    kvc_error_init(&last_error);
    error_given_ = true;
    return &last_error;
  }
  void *stream() { return in.wrong() ? reinterpret_cast<void *>(8) : nullptr; }
  kvc_context *some_context() { return in.pointer(context); }
  kvc_cache *handle(const Cache &c) { return in.pointer(c.cache); }
  Cache &some_cache() { return caches[in.byte() % 8 == 7 && caches[1].cache ? 1 : 0]; }
  int some_layer(const Cache &c) { return static_cast<int>(in.below(static_cast<int64_t>(c.layers.size()))); }
  kvc_seq some_sequence(Cache &c);
  Step *some_step(Cache &c);
  // An invalid id: stale, made up, of another cache or of another kind.
  uint64_t wrong_id(Cache &c, bool of_sequence);

  // A copy of exactly the values' size, so that the sanitizers notice a read past the last one. It lives until the call
  // has returned.
  // Draws the adapter and the media of a kvc_page_keys_args or kvc_prefix_query. The arrays are as long as the numbers
  // say, or longer.
  template <class Args>
  void draw_context(Args *args) {
    const std::vector<uint8_t> text(32 * 3, in.byte());
    args->adapter = in.pointer(array(text));
    args->adapter_bytes = in.fewer(in.below(96));
    std::vector<int64_t> begins, lengths;
    const int64_t spans = in.below(3);
    for (int64_t i = 0, at = 0; i < spans; i++) {
      begins.push_back(in.number(at + in.below(20)));
      lengths.push_back(in.number(in.between(1, 40)));
      at = begins.back() % 4096 + lengths.back() % 64;  // small for any numbers
    }
    args->media_begins = in.pointer(array(begins));
    args->media_tokens = in.pointer(array(lengths));
    args->media_hashes = in.pointer(array(text));
    args->num_media = in.fewer(spans);
  }
  template <class T>
  T *array(const std::vector<T> &values) {
    char *bytes = allocate(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes, values.data(), values.size() * sizeof(T));
    return reinterpret_cast<T *>(bytes);
  }
  char *allocate(size_t bytes);
  // rows: a tensor in which all values of a row are values[row % size]. indices: an index tensor. Every field has a
  // hook.
  DLTensor *rows(DLDataType dtype, const std::vector<int64_t> &shape, const std::vector<int64_t> &values = {1}) {
    return tensor(dtype, shape, values, false);
  }
  DLTensor *indices(const std::vector<int64_t> &values, std::vector<int64_t> shape = {}, bool wide = false) {
    if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
    return tensor({kDLInt, static_cast<uint8_t>(wide ? 64 : 32), 1}, shape, values, true);
  }
  DLTensor *nullable(DLTensor *tensor) { return in.one_in(4) ? tensor : nullptr; }

  void check_model(Cache &c);
  void close(Cache *c);

 private:
  static uint64_t digest(kvc_cache *cache);
  template <class First, class... Rest>
  static kvc_cache *cache_of(First first, Rest...) {
    if constexpr (std::is_same_v<First, kvc_cache *>) return first;
    return nullptr;
  }
  void check_refusal(const char *name, kvc_status status, bool unchanged);
  DLTensor *tensor(DLDataType dtype, const std::vector<int64_t> &shape, const std::vector<int64_t> &values,
                   bool by_element);
  bool error_given_ = false;
};

// The calls, by section of the header. Each function draws a call of its section, makes it, and updates the model.
void call_context(World &w);
void call_select(World &w);
void call_cache(World &w);
void call_prefix(World &w);
void call_saves(World &w);
void call_transfers(World &w);
void call_sequence(World &w);
void call_step(World &w);
void call_layer(World &w);
void call_tensors(World &w);
void call_plan(World &w);
void call_stateless(World &w);
// Creates a cache with groups of drawn kinds. Without a hostile argument it must be accepted.
void create_cache(World &w, Cache *c);

}  // namespace fuzz

// A call of a public function by its name.
#define CALL(function, ...) w.call(#function, function __VA_OPT__(, ) __VA_ARGS__)
