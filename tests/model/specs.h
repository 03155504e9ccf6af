// Random cache configs of every kind, for the model tests and the fuzz target.
#pragma once

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "wrappers.h"

namespace kvt {

enum class Kind { kFull, kSliding, kTiny, kBoth, kThree, kChunked, kMixed, kLatent, kCross, kAny };

struct Case {
  int page_size;
  Kind kind;
};

inline std::string name_of(const Case &c) {
  const char *kinds[] = {"full", "sliding", "window1", "both", "three", "chunked", "mixed", "latent", "cross", "any"};
  return std::string("page") + std::to_string(c.page_size) + "_" + kinds[static_cast<int>(c.kind)];
}

// A layer of an MLA group; its row is rotated in the dims after the latent ones.
inline void make_latent(bool deep, std::mt19937_64 &random, LayerSpec *l) {
  if (!deep && random() % 12 == 0) {  // rows of 576 dims: few heads, because they are slow
    *l = LayerSpec{l->group, l->hq / l->hkv, 1, 576, 0, DType::kDsMla, l->rope};
    l->latent = 512;
    l->scale = 0.05;
    return;
  }
  l->hq *= 8 / l->hkv;
  l->hkv = 1;
  const int unit = is_packed(l->dtype) ? 16 : 1;
  l->d = unit * (deep ? 4 : random() % 2 ? 6 : 10);
  l->latent = l->rope != KVC_ROPE_NONE ? l->d - 2 * unit : random() % 2 ? l->d : unit;
  l->rope_dim = l->dv = 0;
  l->num_scales = std::min(l->num_scales, 1);
  l->scale = 0.5;
}

// A layer that reads the K and V of another one, with queries of its own.
inline void add_reader(std::mt19937_64 &random, CacheSpec *spec) {
  const int source = static_cast<int>(random() % spec->layers.size());
  LayerSpec l = spec->layers[static_cast<size_t>(source)];
  l.kv_layer = source;
  l.hq = l.hkv * static_cast<int>(1 + random() % 4);
  l.scale = l.latent || random() % 2 ? 0.7 : 0;
  l.num_scales = 0;
  spec->layers.push_back(l);
}

// Two to five groups with any rows and visibilities. The first one holds the sequences' own tokens. *latent: the groups
// with latent rows.
inline std::vector<GroupSpec> any_groups(int64_t pages, int64_t window, std::mt19937_64 &random,
                                         std::set<int> *latent) {
  std::vector<GroupSpec> groups;
  const int count = 2 + static_cast<int>(random() % 4);
  for (int g = 0; g < count; g++) {
    const auto more = pages + static_cast<int64_t>(random() % 4);
    const uint64_t visibility = random() % (g == 0 ? 3 : 4);
    if (random() % 3 == 0) latent->insert(g);
    groups.push_back(visibility == 1   ? GroupSpec{window, more}
                     : visibility == 2 ? GroupSpec{0, more, window}
                     : visibility == 3 ? GroupSpec{0, more, 0, true}
                                       : GroupSpec{0, more});
  }
  return groups;
}

inline std::vector<GroupSpec> groups_of(Kind kind, int64_t pages, int64_t window, std::mt19937_64 &random,
                                        std::set<int> *latent) {
  switch (kind) {
    case Kind::kFull:
      return {{0, pages}};
    case Kind::kSliding:
      return {{window, pages}};
    case Kind::kTiny:
      return {{1, pages}, {window, pages + 3}};
    case Kind::kBoth:
      return {{window, pages}, {0, pages + 2}};
    case Kind::kThree:
      return {{0, pages + 1}, {window, pages}, {3 * window, pages + 2}};
    case Kind::kChunked:
      return {{0, pages, window}};
    case Kind::kMixed:
      return {{0, pages, window}, {0, pages + 3}, {window, pages + 1}, {0, pages, 1}};
    case Kind::kLatent:  // latent rows with each visibility, beside K and V
      *latent = {0, 1, 2, 3};
      return {{0, pages + 1}, {window, pages}, {0, pages + 2, window}, {0, pages, 0, true}, {0, pages + 2}};
    case Kind::kCross:
      return {{0, pages + 1}, {0, pages, 0, true}, {window, pages}};
    case Kind::kAny:
      return any_groups(pages, window, random, latent);
  }
  return {};
}

inline CacheSpec make_spec(const Case &c, std::mt19937_64 &random) {
  auto pick = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + static_cast<int64_t>(random() % values.size()));
  };
  CacheSpec spec;
  spec.page_size = c.page_size;
  spec.max_sequences = static_cast<int>(pick({5, 9, 12}));
  spec.max_batch_tokens = static_cast<int>(pick({7, 24, 40 + c.page_size}));
  spec.max_open_forwards = static_cast<int>(pick({1, 2, 3}));
  spec.rollback = pick({0, 1, 5, c.page_size, 20});
  spec.max_tree_nodes = static_cast<int>(pick({0, 4, 13, 1024}));
  const uint32_t flags[] = {0, KVC_CACHE_NO_PREFIX_SHARING, KVC_CACHE_SHARE_ALL_PREFIXES, KVC_CACHE_DETERMINISTIC};
  spec.flags = flags[random() % 4];
  int64_t pages = pick({6, 11, 24}) + (c.page_size < 16 ? 60 / c.page_size : 0);
  // Page lists that are trees of two and three levels (more than 32 and 1,024 pages).
  const bool deep = c.page_size < 16 && random() % 4 == 0;
  if (deep) {
    pages = 2600;
    spec.max_batch_tokens = 900;
  }
  const int64_t window = pick({2, 3, c.page_size, c.page_size + 1, 2 * c.page_size, 17});
  std::set<int> latent;
  spec.groups = groups_of(c.kind, pages, window, random, &latent);
  const DType types[] = {DType::kF32,  DType::kF16, DType::kBF16, DType::kE4M3,
                         DType::kE5M2, DType::kI8,  DType::kU4,   DType::kE2M1};
  spec.layers.clear();
  const int layers = static_cast<int>(spec.groups.size()) + static_cast<int>(random() % 2);
  for (int i = 0; i < layers; i++) {
    LayerSpec l;
    l.group = i % static_cast<int>(spec.groups.size());
    l.hkv = static_cast<int>(pick({1, 1, 2}));
    l.hq = l.hkv * static_cast<int>(pick({1, 2, 3}));
    l.d = deep ? 2 : static_cast<int>(pick({1, 2, 4, 6}));
    l.dv = static_cast<int>(pick({0, 0, 3}));
    l.dtype = types[random() % (deep ? 6 : 8)];
    if (is_packed(l.dtype)) {
      l.d = static_cast<int>(pick({16, 32, 48}));
      l.dv = static_cast<int>(pick({0, 16}));
    }
    if (has_head_scales(l.dtype)) l.num_scales = static_cast<int>(pick({0, 1, l.hkv}));
    if (l.d % 2 == 0 && random() % 3 == 0 && !spec.groups[static_cast<size_t>(l.group)].cross) {
      l.rope = random() % 2 ? KVC_ROPE_ON_APPEND : KVC_ROPE_ON_READ;
      l.theta = random() % 2 ? 0 : 1e6;
      l.rope_dim = random() % 2 ? 0 : 2;
    }
    l.scale = random() % 4 ? 0 : 0.5;
    if (latent.count(l.group) > 0) make_latent(deep, random, &l);
    spec.layers.push_back(l);
  }
  if (random() % 2) add_reader(random, &spec);
  const bool full = std::any_of(spec.groups.begin(), spec.groups.end(), [](const GroupSpec &g) { return g.full(); });
  spec.streaming = random() % 2 == 0 && full;
  if (random() % 2) spec.layout = kAdoptedLayouts[random() % std::size(kAdoptedLayouts)];
  return spec;
}

}  // namespace kvt
