// KVC_CACHE_DETERMINISTIC: the bits of a token's output depend on its sequence alone. Every influence is tested alone
// and with all others, beside one prefill of one sequence on one thread. Without the flag, several of them change bits,
// so the test can fail.
#include <gtest/gtest.h>

#include <cstring>

#include "replicas.h"

namespace kvt {
namespace {

constexpr int32_t kBatchTokens = 2600;

struct Setting {
  DType dtype = DType::kF32;
  int rope = KVC_ROPE_NONE;
  StepOptions options = {};
  std::string simd = "";
  int32_t length = 2300;          // tokens of the sequence: more than two blocks of 1,024
  bool wide = false;              // only heads of 512 dims, the largest that scratch must serve
  bool latent = false;            // only MLA rows of 64 dims
  int64_t sinks = 0, window = 0;  // of a streaming window, from the first token on
};

CacheSpec spec_of(const Setting &setting, uint32_t flags) {
  CacheSpec spec;
  spec.page_size = 16;
  spec.max_sequences = 12;
  spec.max_batch_tokens = kBatchTokens;
  spec.rollback = 16;
  spec.flags = flags;
  spec.groups = {{0, 1400}, {700, 1400}, {0, 1400, 900}};
  LayerSpec full{0, 4, 2, 32, 0, setting.dtype, setting.rope}, sliding{1, 3, 1, 24, 40, setting.dtype};
  spec.layers = {full, sliding, LayerSpec{2, 4, 4, 16, 0, setting.dtype}};
  if (setting.wide) {
    spec.groups = {{0, 1400}};
    spec.layers = {LayerSpec{0, 3, 1, 512, 0, setting.dtype, setting.rope}};
  }
  if (setting.latent) {
    spec.groups = {{0, 1400}};
    spec.layers = {LayerSpec{0, 5, 1, 64, 0, setting.dtype, setting.rope}};
    spec.layers[0].latent = 48;
    spec.layers[0].scale = 0.15;
  }
  spec.streaming = setting.window > 0;
  for (LayerSpec &layer : spec.layers) layer.num_scales = setting.dtype == DType::kE5M2 ? layer.hkv : 0;
  return spec;
}

// How the sequence is brought into a cache.
struct Way {
  int threads = 1;
  int32_t piece = 0;        // tokens of a step; 0 = all at once, -1 = random ones
  int32_t decode_from = 0;  // from here on in steps of one token; 0 = never
  int neighbours = 0;       // other sequences in each step
  int64_t forked_at = 0;    // 0: no fork
  bool shuffled = false;    // page ids
};

uint64_t tag_of(int sequence, int64_t position) {
  return static_cast<uint64_t>(sequence) * 1000003 + static_cast<uint64_t>(position);
}

// Bytes of out and LSE of every token of the sequence, all layers.
using Bits = std::vector<std::vector<float>>;

void keep(const StepOutputs &outputs, int64_t first_token, int64_t count, int64_t position, Bits *bits) {
  for (int64_t t = 0; t < count; t++) {
    std::vector<float> &row = (*bits)[static_cast<size_t>(position + t)];
    for (size_t layer = 0; layer < outputs.out.size(); layer++) {
      const Tensor &out = outputs.out[layer];
      for (int64_t h = 0; h < out.dim(1); h++) {
        for (int64_t d = 0; d < out.dim(2); d++) row.push_back(out.at(first_token + t, h, d));
        row.push_back(outputs.lse[layer].at(first_token + t, h));
      }
    }
  }
}

// Other sequences take and free pages before ours takes any.
void shuffle_pages(Replica *cache, std::mt19937 *random) {
  std::vector<int> others;
  for (int i = 0; i < 8; i++) {
    others.push_back(cache->add());
    std::vector<uint64_t> tags(50 + (*random)() % 200, 1);
    cache->step({others.back()}, {static_cast<int32_t>(tags.size())}, tags);
  }
  std::shuffle(others.begin(), others.end(), *random);
  for (int other : others) cache->remove(other);
}

Bits bits_of(const Setting &setting, uint32_t flags, const Way &way) {
  Replica cache(spec_of(setting, flags), way.threads, setting.simd.empty() ? nullptr : setting.simd.c_str());
  std::mt19937 random(17);
  if (way.shuffled) shuffle_pages(&cache, &random);
  Bits bits(static_cast<size_t>(setting.length));
  int sequence = cache.add();
  if (setting.window > 0) cache.stream(sequence, setting.sinks, setting.window);
  std::vector<int> neighbours;
  for (int i = 0; i < way.neighbours; i++) neighbours.push_back(cache.add());
  for (int64_t at = 0; at < setting.length;) {
    int64_t count = way.piece == 0 ? setting.length : way.piece > 0 ? way.piece : 1 + random() % 400;
    if (way.decode_from > 0) count = at >= way.decode_from ? 1 : std::min<int64_t>(count, way.decode_from - at);
    if (way.forked_at > at) count = std::min(count, way.forked_at - at);
    count = std::min(count, setting.length - at);
    std::vector<int> rows;
    std::vector<int32_t> lengths;
    std::vector<uint64_t> tags;
    for (size_t i = 0; i < neighbours.size(); i++) {  // some rows before ours, some after it
      const int32_t length = 1 + static_cast<int32_t>(random() % 12);
      rows.push_back(neighbours[i]);
      lengths.push_back(length);
      for (int32_t t = 0; t < length; t++) tags.push_back(random());
    }
    const size_t place = rows.size() / 2;
    int64_t first_token = 0;
    for (size_t i = 0; i < place; i++) first_token += lengths[i];
    rows.insert(rows.begin() + static_cast<int64_t>(place), sequence);
    lengths.insert(lengths.begin() + static_cast<int64_t>(place), static_cast<int32_t>(count));
    for (int64_t t = 0; t < count; t++) tags.insert(tags.begin() + first_token + t, tag_of(1, at + t));
    StepOptions options = setting.options;
    options.positions.assign(tags.size(), 0);  // a neighbour's lists name its first block
    for (int64_t t = 0; t < count; t++) options.positions[static_cast<size_t>(first_token + t)] = at + t;
    keep(cache.step(rows, lengths, tags, options), first_token, count, at, &bits);
    at += count;
    if (at == way.forked_at) {  // from here on it is a child, beside its parent
      neighbours.push_back(sequence);
      sequence = cache.fork(sequence, at);
    }
  }
  return bits;
}

// The first token whose bits differ; -1 = none.
int64_t first_difference(const Bits &a, const Bits &b) {
  for (size_t t = 0; t < a.size(); t++) {
    if (a[t].size() != b[t].size() || std::memcmp(a[t].data(), b[t].data(), a[t].size() * sizeof(float)) != 0) {
      return static_cast<int64_t>(t);
    }
  }
  return -1;
}

struct Axis {
  const char *name;
  Way way;
};

std::vector<Axis> axes(int32_t length) {
  return {
      {"threads", {.threads = 3}},
      {"pieces", {.piece = -1}},
      {"decoding", {.decode_from = length - 60}},
      {"neighbours", {.piece = 300, .neighbours = 5}},
      {"pages", {.shuffled = true}},
      {"forks", {.piece = 200, .decode_from = length - 40, .forked_at = length - 90}},
      {"everything", {4, -1, length - 70, 4, length - 100, true}},
  };
}

void expect_same_bits(const Setting &setting, const std::string &what) {
  const Bits once = bits_of(setting, KVC_CACHE_DETERMINISTIC, {});
  for (const Axis &axis : axes(setting.length)) {
    EXPECT_EQ(first_difference(once, bits_of(setting, KVC_CACHE_DETERMINISTIC, axis.way)), -1)
        << what << ", " << axis.name;
  }
}

TEST(Deterministic, EveryAxis) {
  expect_same_bits({}, "f32");
  expect_same_bits({DType::kBF16, KVC_ROPE_ON_APPEND}, "bf16, RoPE");
  StepOptions all;
  all.softcap = 4.0;
  all.alibi = all.sinks = true;
  expect_same_bits({DType::kI8, KVC_ROPE_ON_READ, all}, "int8, RoPE on read, options");
  expect_same_bits({DType::kE5M2, KVC_ROPE_NONE, all}, "e5m2, options");
  expect_same_bits({DType::kF16, KVC_ROPE_ON_READ}, "f16");
}

// Biases and masks by the index of a key, which does not depend on how its tokens came.
TEST(Deterministic, Biases) {
  StepOptions options;
  options.rel_bias = options.by_key = true;
  expect_same_bits({.options = options, .length = 1500}, "f32, biases");
  options.softcap = 4.0;
  options.sinks = true;
  expect_same_bits({.dtype = DType::kBF16, .rope = KVC_ROPE_ON_APPEND, .options = options}, "bf16, biases");
  options.list_block = 37;
  expect_same_bits({.options = options, .length = 1500, .latent = true}, "latent, biases, lists");
}

// Lists of more keys than a fold: places of a list take the part of keys.
TEST(Deterministic, Lists) {
  StepOptions options;
  options.list_block = 37;
  expect_same_bits({.dtype = DType::kBF16, .rope = KVC_ROPE_ON_APPEND, .options = options}, "bf16, lists");
  const Setting plain = {.options = options, .length = 1500};
  EXPECT_NE(first_difference(bits_of(plain, 0, {}), bits_of(plain, 0, {.threads = 3, .decode_from = 1300})), -1)
      << "without the flag bits are the same: the test cannot fail";
  options.softcap = 4.0;
  options.alibi = options.sinks = true;
  expect_same_bits({.dtype = DType::kI8, .rope = KVC_ROPE_ON_READ, .options = options}, "int8, lists, options");
  expect_same_bits({.options = options, .length = 1500, .latent = true}, "latent, lists, options");
}

TEST(Deterministic, EveryTarget) {
  std::vector<std::string> targets = simd_targets();
  targets.push_back("reference");
  for (const std::string &target : targets) {
    Setting setting = {DType::kBF16, KVC_ROPE_ON_APPEND, {}, target};
    if (target == "reference") setting.length = 1300;
    const Way everything = axes(setting.length).back().way;
    EXPECT_EQ(first_difference(bits_of(setting, KVC_CACHE_DETERMINISTIC, {}),
                               bits_of(setting, KVC_CACHE_DETERMINISTIC, everything)),
              -1)
        << target;
  }
}

TEST(Deterministic, WideHeads) {
  const Setting setting = {DType::kBF16, KVC_ROPE_ON_APPEND, {}, "", 1200, true};
  for (const Way &way : {Way{.threads = 2, .piece = 150}, Way{.piece = 700, .decode_from = 1150}}) {
    EXPECT_EQ(
        first_difference(bits_of(setting, KVC_CACHE_DETERMINISTIC, {}), bits_of(setting, KVC_CACHE_DETERMINISTIC, way)),
        -1);
  }
}

// Sinks and window are two states: from the first token on, in the step in which the window begins to move, and later.
TEST(Deterministic, EveryStream) {
  StepOptions all;
  all.softcap = 4.0;
  all.alibi = all.sinks = true;
  for (const auto &[sinks, window] : {std::pair{4, 600}, {4, 1500}, {1100, 1600}, {0, 700}}) {
    const std::string what = std::to_string(sinks) + " sinks of " + std::to_string(window);
    expect_same_bits({DType::kF32, KVC_ROPE_ON_APPEND, all, "", 2300, false, false, sinks, window}, what);
  }
  expect_same_bits({DType::kBF16, KVC_ROPE_ON_READ, {}, "", 2300, false, false, 4, 1500}, "bf16, RoPE on read");
  expect_same_bits({DType::kI8, KVC_ROPE_NONE, {}, "", 1300, false, true, 4, 1100}, "latent rows");
}

// Latent rows, in latent space and with up-projections (deterministic caches always absorb these).
TEST(Deterministic, EveryLatentRow) {
  StepOptions projected;
  projected.projected = projected.sinks = true;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    expect_same_bits({dtype, KVC_ROPE_ON_APPEND, {}, "", 1300, false, true}, name_of(dtype));
    expect_same_bits({dtype, KVC_ROPE_ON_READ, projected, "", 1300, false, true},
                     std::string(name_of(dtype)) + " by up-projections");
  }
}

// Rounds of one tree: the parents of the nodes of each round.
using Rounds = std::vector<std::vector<int32_t>>;

struct TreeSetting {
  DType dtype = DType::kF32;
  int rope = KVC_ROPE_ON_APPEND;
  StepOptions options = {};
  std::string simd = "";
  int64_t window = 700, chunk = 900;
  bool latent = false;
  int threads = 1;
};

CacheSpec tree_spec(const TreeSetting &setting) {
  Setting plain = {setting.dtype, setting.rope};
  plain.latent = setting.latent;
  CacheSpec spec = spec_of(plain, KVC_CACHE_DETERMINISTIC);
  spec.max_sequences = 40;
  spec.rollback = 64;
  if (!setting.latent) spec.groups = {{0, 1400}, {setting.window, 1400}, {0, 1400, setting.chunk}};
  return spec;
}

// The nodes from the root's child to `node`.
std::vector<int32_t> path_to(const std::vector<int32_t> &parents, int32_t node) {
  std::vector<int32_t> path;
  for (; node >= 0; node = parents[static_cast<size_t>(node)]) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

uint64_t tag_of_node(int32_t node) { return 77000000 + static_cast<uint64_t>(node); }

bool same_token(const StepOutputs &a, int64_t token_a, const StepOutputs &b, int64_t token_b) {
  Bits bits(2);
  keep(a, token_a, 1, 0, &bits);
  keep(b, token_b, 1, 1, &bits);
  return bits[0].size() == bits[1].size() &&
         std::memcmp(bits[0].data(), bits[1].data(), bits[0].size() * sizeof(float)) == 0;
}

// Each node has the bits that its token has if its path is appended plainly to the same prefix, in one step and one by
// one. After a commit of `leaf`, so have the following tokens.
void expect_plain_bits(const TreeSetting &setting, int64_t prefix, const Rounds &rounds, int32_t leaf,
                       const std::string &what) {
  SCOPED_TRACE(what + ", prefix " + std::to_string(prefix));
  Replica cache(tree_spec(setting), setting.threads, setting.simd.empty() ? nullptr : setting.simd.c_str());
  const int plain = cache.add();
  std::vector<uint64_t> tags;
  for (int64_t t = 0; t < prefix; t++) tags.push_back(tag_of(1, t));
  cache.step({plain}, {static_cast<int32_t>(prefix)}, tags, setting.options);
  const int tree = cache.fork(plain, prefix);
  std::vector<int32_t> parents;
  std::vector<StepOutputs> outputs;
  for (const std::vector<int32_t> &round : rounds) {
    std::vector<uint64_t> nodes;
    for (size_t i = 0; i < round.size(); i++) nodes.push_back(tag_of_node(static_cast<int32_t>(parents.size() + i)));
    outputs.push_back(cache.step({tree}, {static_cast<int32_t>(round.size())}, nodes, setting.options, round));
    parents.insert(parents.end(), round.begin(), round.end());
  }
  const auto follow = [&](int sequence, const std::vector<int32_t> &path, bool at_once) {
    std::vector<uint64_t> nodes;
    for (int32_t node : path) nodes.push_back(tag_of_node(node));
    if (at_once) return cache.step({sequence}, {static_cast<int32_t>(nodes.size())}, nodes, setting.options);
    StepOutputs last;
    for (uint64_t node : nodes) last = cache.step({sequence}, {1}, {node}, setting.options);
    return last;
  };
  int32_t node = 0;
  for (size_t r = 0; r < rounds.size(); r++) {
    for (size_t i = 0; i < rounds[r].size(); i++, node++) {
      const std::vector<int32_t> path = path_to(parents, node);
      for (bool at_once : {true, false}) {
        const int child = cache.fork(plain, prefix);
        const StepOutputs expected = follow(child, path, at_once);
        const int64_t token = at_once ? static_cast<int64_t>(path.size()) - 1 : 0;
        EXPECT_TRUE(same_token(outputs[r], static_cast<int64_t>(i), expected, token))
            << "node " << node << (at_once ? " at once" : " one by one");
        cache.remove(child);
      }
    }
  }
  cache.commit(tree, leaf);
  const int committed = cache.fork(plain, prefix);
  follow(committed, path_to(parents, leaf), true);
  for (uint64_t t = 0; t < 3; t++) {
    const StepOutputs a = cache.step({tree}, {1}, {t}, setting.options),
                      b = cache.step({committed}, {1}, {t}, setting.options);
    EXPECT_TRUE(same_token(a, 0, b, 0)) << "token " << t << " after the commit";
  }
}

constexpr int32_t kRoot = KVC_TREE_ROOT;
const Rounds kBinary = {{kRoot, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}};
const Rounds kTwins = {{kRoot, kRoot, 0, 1, 0, 1, 2, 3, 7, 6}};
// A second and a third round, below nodes of earlier rounds.
const Rounds kStacked = {{kRoot, 0, 0, kRoot}, {2, 1, 3, 1, 4, 6}, {9, 4, 5, 8, 13, 12, 11}};

TEST(Deterministic, NodesOfTrees) {
  // The tree is within a block of 1,024 keys, crosses from one block to the next, or begins with a block.
  for (int64_t prefix : {20, 500, 1017, 1024, 2040}) {
    expect_plain_bits({}, prefix, kBinary, 13, "binary tree");
    expect_plain_bits({}, prefix, kTwins, 8, "two trees");
    expect_plain_bits({}, prefix, kStacked, 14, "stacked rounds");
  }
}

TEST(Deterministic, NodesOfTreesInEveryGeometry) {
  StepOptions all;
  all.softcap = 4.0;
  all.alibi = all.sinks = true;
  StepOptions biased;
  biased.rel_bias = true;
  const TreeSetting settings[] = {
      {DType::kBF16, KVC_ROPE_ON_APPEND},
      {DType::kBF16, KVC_ROPE_ON_READ, all},
      {DType::kF16, KVC_ROPE_NONE, all},
      {DType::kI8, KVC_ROPE_ON_READ},
      {DType::kE5M2, KVC_ROPE_NONE, all},
      {.window = 3, .chunk = 5},
      {.options = all, .window = 40, .chunk = 17},
      {.options = biased},
      {.dtype = DType::kBF16, .latent = true},
      {.latent = true},
      {.threads = 3},
  };
  for (const TreeSetting &setting : settings) {
    const std::string what = std::string(name_of(setting.dtype)) + " window " + std::to_string(setting.window) +
                             " chunk " + std::to_string(setting.chunk) + (setting.latent ? " latent" : "");
    for (int64_t prefix : {500, 1017}) {
      expect_plain_bits(setting, prefix, kBinary, 9, what + " binary tree");
      expect_plain_bits(setting, prefix, kStacked, 15, what + " stacked rounds");
    }
  }
}

TEST(Deterministic, NodesOfTreesOnEveryTarget) {
  std::vector<std::string> targets = simd_targets();
  targets.push_back("reference");
  for (const std::string &target : targets) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      expect_plain_bits({.dtype = dtype, .simd = target}, 1017, kStacked, 14, target);
    }
  }
}

// Attention over the tokens of the step alone, and over those before it.
TEST(Deterministic, NodesOfTreesInParts) {
  for (uint32_t flag : {uint32_t{KVC_ATTEND_PAST}, uint32_t{KVC_ATTEND_SELF}}) {
    StepOptions part;
    part.flags = flag;
    TreeSetting setting;
    setting.options = part;
    SCOPED_TRACE("flags " + std::to_string(flag));
    Replica cache(tree_spec(setting));
    for (int64_t prefix : {500, 1017}) {
      const int plain = cache.add();
      std::vector<uint64_t> tags;
      for (int64_t t = 0; t < prefix; t++) tags.push_back(tag_of(1, t));
      cache.step({plain}, {static_cast<int32_t>(prefix)}, tags);
      const int tree = cache.fork(plain, prefix);
      std::vector<uint64_t> nodes;
      for (int32_t node = 0; node < 15; node++) nodes.push_back(tag_of_node(node));
      const StepOutputs outputs = cache.step({tree}, {15}, nodes, part, kBinary[0]);
      for (int32_t node = 0; node < 15; node++) {
        std::vector<uint64_t> path;
        for (int32_t n : path_to(kBinary[0], node)) path.push_back(tag_of_node(n));
        const int child = cache.fork(plain, prefix);
        const StepOutputs expected = cache.step({child}, {static_cast<int32_t>(path.size())}, path, part);
        EXPECT_TRUE(same_token(outputs, node, expected, static_cast<int64_t>(path.size()) - 1))
            << "prefix " << prefix << " node " << node;
        cache.remove(child);
      }
      cache.remove(tree);
      cache.remove(plain);
    }
  }
}

// Decoding from the first token on.
TEST(Deterministic, OneByOne) {
  Setting setting;
  setting.length = 1200;
  const Way way = {.threads = 2, .piece = 1};
  EXPECT_EQ(
      first_difference(bits_of(setting, KVC_CACHE_DETERMINISTIC, {}), bits_of(setting, KVC_CACHE_DETERMINISTIC, way)),
      -1);
}

// The comparison detects what the flag prevents.
TEST(Deterministic, WithoutTheFlagBitsDiffer) {
  const Setting setting = {DType::kF32, KVC_ROPE_NONE, {}, "", 2300};
  const Bits once = bits_of(setting, 0, {});
  for (const Axis &axis : axes(setting.length)) {
    const bool differs = first_difference(once, bits_of(setting, 0, axis.way)) >= 0;
    if (std::string(axis.name) == "pages") {
      EXPECT_FALSE(differs);  // the only influence that never matters
    } else if (axis.way.decode_from > 0) {
      EXPECT_TRUE(differs) << axis.name;
    }
  }
}

}  // namespace
}  // namespace kvt
