// Every kind of layer group with every field, option and call that does not belong to it. Tables list the bad values
// and combinations. Each is refused with a status of misuse and its values in the message, and changes nothing. What
// the tables allow succeeds, so no check refuses too much.
#include <algorithm>
#include <cmath>
#include <limits>

#include "fixture.h"
#include "hybrid.h"

namespace kvt {
namespace {

using Kinds = std::vector<int>;
const Kinds kNone = {}, kAll = {0, 1, 2, 3, 4, 5}, kAttending = {0, 1, 2, 3, 4}, kRotating = {0, 1, 2, 3},
            kPlain = {0, 1, 2, 4}, kMla = {3};

bool has(const Kinds &kinds, int kind) { return std::find(kinds.begin(), kinds.end(), kind) != kinds.end(); }

// A field of a layer or group that is set, the kinds that allow it, and the words of a refusal.
struct Setting {
  std::string what;
  Kinds allowed;
  std::vector<std::string> mentions;
  std::function<void(kvc_layer_config &, kvc_group_config &)> set;
  bool of_group = false;  // error->group names the group
};

using Layer = kvc_layer_config;
using Group = kvc_group_config;

void add_numbers(std::vector<Setting> *all) {
  const auto ints = [&](const char *name, int32_t Layer::*field, std::initializer_list<int32_t> values,
                        const Kinds &allowed) {
    for (const int32_t value : values) {
      const std::string text = std::string(name) + " " + std::to_string(value);
      all->push_back(
          {text, allowed, {name, std::to_string(value)}, [field, value](Layer &l, Group &) { l.*field = value; }});
    }
  };
  ints("group", &Layer::group, {-1, kKinds, INT32_MIN, INT32_MAX}, kNone);
  ints("num_q_heads", &Layer::num_q_heads, {-4, 65537, INT32_MAX, INT32_MIN}, kNone);
  ints("num_q_heads", &Layer::num_q_heads, {0}, {kRecurrentGroup});
  ints("num_q_heads", &Layer::num_q_heads, {3}, kMla);
  ints("num_q_heads", &Layer::num_q_heads, {6, 10, 2}, kAttending);
  ints("num_kv_heads", &Layer::num_kv_heads, {-1, 3, 4097, INT32_MIN}, kNone);
  ints("num_kv_heads", &Layer::num_kv_heads, {0}, {kRecurrentGroup});
  ints("num_kv_heads", &Layer::num_kv_heads, {4}, kPlain);
  ints("num_kv_heads", &Layer::num_kv_heads, {1}, kAttending);
  ints("head_dim", &Layer::head_dim, {-16, 1153, INT32_MAX, INT32_MIN}, kNone);
  ints("head_dim", &Layer::head_dim, {0}, {kRecurrentGroup});
  ints("head_dim", &Layer::head_dim, {513, 1152}, kMla);
  ints("head_dim", &Layer::head_dim, {512, 17}, kAttending);
  ints("head_dim", &Layer::head_dim, {1, 11}, kPlain);  // in MLA, narrower than the latent part
  ints("v_head_dim", &Layer::v_head_dim, {-1, 513, INT32_MAX}, kNone);
  ints("v_head_dim", &Layer::v_head_dim, {kLatent}, kAttending);
  ints("v_head_dim", &Layer::v_head_dim, {512, 3}, kPlain);
  ints("rope_mode", &Layer::rope_mode, {-1, 3, INT32_MAX}, kNone);
  ints("rope_mode", &Layer::rope_mode, {KVC_ROPE_ON_APPEND, KVC_ROPE_ON_READ}, kRotating);
  ints("kv_layer", &Layer::kv_layer, {-1, INT32_MIN}, kNone);
  for (const int32_t value : {99, INT32_MAX}) {  // kv_layer counts from 1, and messages from 0
    all->push_back(
        {"kv_layer " + std::to_string(value), kNone, {"kv_layer"}, [value](Layer &l, Group &) { l.kv_layer = value; }});
  }
  ints("num_scales", &Layer::num_scales, {-1, 1, kKvHeads, 3, INT32_MAX}, kNone);
  ints("num_states", &Layer::num_states, {-1, 17, INT32_MAX}, kNone);
  ints("num_states", &Layer::num_states, {1, 2}, {kRecurrentGroup});
  ints("latent_dim", &Layer::latent_dim, {-1, kDim + 1, INT32_MAX}, kNone);
  ints("latent_dim", &Layer::latent_dim, {1, kDim}, kMla);
  ints("total_kv_heads", &Layer::total_kv_heads, {-1, kKvHeads + 1, 65537, INT32_MIN, INT32_MAX}, kNone);
  ints("total_kv_heads", &Layer::total_kv_heads, {kKvHeads}, kPlain);
  ints("row_format", &Layer::row_format, {-1, 2, INT32_MIN, INT32_MAX}, kNone);
}

void add_rope(std::vector<Setting> *all) {
  const auto rope = [&](const char *what, const Kinds &allowed, const std::vector<std::string> &mentions,
                        const std::function<void(Layer &)> &set) {
    all->push_back({what, allowed, mentions, [set](Layer &l, Group &) { l.rope_mode = KVC_ROPE_ON_READ, set(l); }});
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  rope("rotated", kRotating, {}, [](Layer &) {});
  rope("odd rope_dim", kNone, {}, [](Layer &l) { l.rope_dim = 3; });
  rope("negative rope_dim", kNone, {}, [](Layer &l) { l.rope_dim = -2; });
  rope("rope_dim above the head", kNone, {}, [](Layer &l) { l.rope_dim = kDim + 2; });
  rope("rope_dim INT32_MAX", kNone, {}, [](Layer &l) { l.rope_dim = INT32_MAX; });
  rope("rope_dim of the head", {0, 1, 2}, {}, [](Layer &l) { l.rope_dim = kDim; });
  rope("negative rope_offset", kNone, {}, [](Layer &l) { l.rope_offset = -2; });
  rope("rope_offset at the head's end", kNone, {}, [](Layer &l) { l.rope_offset = kDim; });
  rope("rope_offset INT32_MAX", kNone, {}, [](Layer &l) { l.rope_offset = INT32_MAX, l.rope_dim = 2; });
  rope("rope_offset + rope_dim above the head", kNone, {}, [](Layer &l) { l.rope_offset = 14, l.rope_dim = 4; });
  rope("the last two dims", kRotating, {}, [](Layer &l) { l.rope_offset = 14; });
  rope("the first two dims", {0, 1, 2}, {}, [](Layer &l) { l.rope_offset = 2, l.rope_dim = 2; });
  rope("odd head_dim", kNone, {}, [](Layer &l) { l.head_dim = 15; });
  for (const double theta : {-1.0, 1e31, 1e-31, INFINITY * 1.0, nan}) {
    rope("rope_theta", kNone, {"rope_"}, [theta](Layer &l) { l.rope_theta = theta; });
  }
}

void add_the_rest(std::vector<Setting> *all) {
  static const float scales[3] = {0.5f, 0.25f, 1.0f}, bad_scales[2] = {0.5f, -1.0f};
  static kvc_state_config states[2];
  const auto layer = [&](const char *what, const Kinds &allowed, const std::vector<std::string> &mentions,
                         const std::function<void(Layer &)> &set) {
    all->push_back({what, allowed, mentions, [set](Layer &l, Group &) { set(l); }});
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double scale : {-1.0, 1e31, 1e-31, INFINITY * 1.0, nan}) {
    layer("softmax_scale", kNone, {}, [scale](Layer &l) { l.softmax_scale = scale; });
  }
  layer("softmax_scale 2", kAttending, {}, [](Layer &l) { l.softmax_scale = 2; });
  layer("keys only", {0, 1, 2}, {}, [](Layer &l) { l.flags = KVC_LAYER_KEYS_ONLY; });
  layer("flags 4", kNone, {}, [](Layer &l) { l.flags = 4; });
  layer("flags 1<<31", kNone, {}, [](Layer &l) { l.flags = 1u << 31; });
  layer("int32", kNone, {}, [](Layer &l) { l.dtype = {kDLInt, 32, 1}; });
  layer("float8 without scales", kAttending, {}, [](Layer &l) { l.dtype = dl_type(DType::kE4M3); });
  layer("scales missing", kNone, {}, [](Layer &l) { l.dtype = dl_type(DType::kE4M3), l.num_scales = 1; });
  layer("V's scales missing", kMla, {},
        [](Layer &l) { l.dtype = dl_type(DType::kE4M3), l.num_scales = 1, l.k_scales = scales; });
  layer("three scales", kNone, {},
        [](Layer &l) { l.dtype = dl_type(DType::kE4M3), l.num_scales = 3, l.k_scales = l.v_scales = scales; });
  layer("a scale below 0", kNone, {},
        [](Layer &l) { l.dtype = dl_type(DType::kE5M2), l.num_scales = 2, l.k_scales = l.v_scales = bad_scales; });
  layer("scales that are not counted", kNone, {},
        [](Layer &l) { l.dtype = dl_type(DType::kE5M2), l.k_scales = l.v_scales = scales; });
  layer("scales of int8", kNone, {},
        [](Layer &l) { l.dtype = dl_type(DType::kI8), l.num_scales = 1, l.k_scales = l.v_scales = scales; });
  layer("scales of float32", kNone, {}, [](Layer &l) { l.num_scales = 1, l.k_scales = l.v_scales = scales; });
  layer("rows of fp8_ds_mla with other dims", kNone, {}, [](Layer &l) { l.row_format = KVC_ROW_FORMAT_FP8_DS_MLA; });
  layer("rows of fp8_ds_mla", kMla, {}, [](Layer &l) {
    l.row_format = KVC_ROW_FORMAT_FP8_DS_MLA;
    l.head_dim = 576, l.latent_dim = 512, l.dtype = {0, 0, 0}, l.v_head_dim = 0;
  });
  layer("reserved", kNone, {"reserved"}, [](Layer &l) { l.reserved = 1; });
  layer("states", kNone, {}, [](Layer &l) { l.states = states; });
}

void add_groups(std::vector<Setting> *all) {
  const auto group = [&](const char *name, int64_t Group::*field, std::initializer_list<int64_t> values,
                         const Kinds &allowed) {
    for (const int64_t value : values) {
      all->push_back({std::string(name) + " " + std::to_string(value),
                      allowed,
                      {name, std::to_string(value)},
                      [field, value](Layer &, Group &g) { g.*field = value; },
                      true});
    }
  };
  const int64_t beyond = (int64_t{1} << 30) + 1;
  group("window_tokens", &Group::window_tokens, {-1, beyond, INT64_MIN, INT64_MAX}, kNone);
  group("window_tokens", &Group::window_tokens, {1, 100}, {kSlidingGroup});
  group("chunk_tokens", &Group::chunk_tokens, {-1, beyond, INT64_MIN, INT64_MAX}, kNone);
  group("chunk_tokens", &Group::chunk_tokens, {1, 100}, {kChunkedGroup});
  group("num_pages", &Group::num_pages, {-1, int64_t{1} << 31, INT64_MIN, INT64_MAX}, kNone);
  group("num_pages", &Group::num_pages, {1, 40}, kAll);
  all->push_back({"a window of 0",
                  {0, 2, 3, 4, 5},
                  {"window_tokens 0", "KVC_VISIBLE_WINDOW"},
                  [](Layer &, Group &g) { g.window_tokens = 0; },
                  true});
  all->push_back({"a chunk of 0",
                  {0, 1, 3, 4, 5},
                  {"chunk_tokens 0", "KVC_VISIBLE_CHUNK"},
                  [](Layer &, Group &g) { g.chunk_tokens = 0; },
                  true});
  const auto unknown = [&](const char *name, int32_t Group::*field, int32_t count) {
    for (const int32_t value : {-1, count, INT32_MAX, INT32_MIN}) {
      all->push_back(
          {name, kNone, {name, std::to_string(value)}, [field, value](Layer &, Group &g) { g.*field = value; }, true});
    }
  };
  unknown("row", &Group::row, KVC_ROW_STATE + 1);
  unknown("visibility", &Group::visibility, KVC_VISIBLE_ENCODER + 1);
  // The cache streams, so no group of it may have several tokens a row: compressed_test.cc has those that may.
  for (const int32_t value : {1, 2, 3, 4, -1, 5, INT32_MAX, INT32_MIN}) {
    all->push_back({"tokens_per_row " + std::to_string(value),
                    value == 1 ? kAll : kNone,
                    {"tokens_per_row " + std::to_string(value)},
                    [value](Layer &, Group &g) { g.tokens_per_row = value; },
                    true});
  }
  // Rows of keys may have every visibility. States may have none but all.
  const char *const names[] = {"KVC_VISIBLE_ALL", "KVC_VISIBLE_WINDOW", "KVC_VISIBLE_CHUNK", "KVC_VISIBLE_ENCODER"};
  for (int32_t visibility = KVC_VISIBLE_ALL; visibility <= KVC_VISIBLE_ENCODER; ++visibility) {
    all->push_back({names[visibility],
                    visibility == KVC_VISIBLE_ALL ? kAll : kAttending,
                    {"KVC_ROW_STATE", names[visibility]},
                    [visibility](Layer &, Group &g) {
                      g.visibility = visibility;
                      g.window_tokens = visibility == KVC_VISIBLE_WINDOW ? 5 : 0;
                      g.chunk_tokens = visibility == KVC_VISIBLE_CHUNK ? 5 : 0;
                    },
                    true});
  }
}

// Create and estimate agree. The error of create names the layer or the group.
void expect_config(kvc_context *context, const Hybrid &h, bool allowed, int64_t index, const Setting &setting) {
  kvc_cache *cache = nullptr;
  kvc_estimate estimate;
  kvc_estimate_init(&estimate);
  if (allowed) {
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(kvc_cache_create(context, &h.config, &cache, &error), KVC_OK) << error.message;
    EXPECT_EQ(kvc_cache_estimate(context, &h.config, -1, &estimate, &error), KVC_OK) << error.message;
    kvc_cache_destroy(cache);
    return;
  }
  kvc_error error = KVC_ERROR_INIT;
  const kvc_status status = kvc_cache_create(context, &h.config, &cache, &error);
  EXPECT_EQ(cache, nullptr);
  kvc_cache_destroy(cache);
  if (status == KVC_OK) {
    ADD_FAILURE() << "was not refused";
    return;
  }
  refused(
      nullptr, {status}, "kvc_cache_create",
      [&](kvc_error *e) { return kvc_cache_create(context, &h.config, &cache, e); }, setting.mentions);
  EXPECT_LT(status, 100) << kvc_status_name(status) << " is no misuse: " << error.message;
  EXPECT_EQ(error.index, index) << error.message;
  EXPECT_EQ(error.group, setting.of_group ? index : -1) << error.message;
  kvc_error estimated = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_cache_estimate(context, &h.config, -1, &estimate, &estimated), status);
  EXPECT_EQ(estimated.index, index);
}

TEST(Combinations, EveryFieldInEveryKindOfLayer) {
  ContextPtr context = make_context();
  std::vector<Setting> all;
  add_numbers(&all);
  add_rope(&all);
  add_the_rest(&all);
  add_groups(&all);
  for (const Setting &setting : all) {
    for (int kind = 0; kind < kKinds; kind++) {
      SCOPED_TRACE(setting.what + " in a layer of kind " + kNames[kind]);
      Hybrid h;
      h.config.num_layers = kKinds;  // another test has the layer that shares the K and V of layer 0
      setting.set(h.layers[kind], h.groups[kind]);
      expect_config(context.get(), h, has(setting.allowed, kind), kind, setting);
    }
  }
}

// Every field that says how K and V are stored, with another value in the layer that reads them.
TEST(Combinations, SharedLayersThatDisagree) {
  ContextPtr context = make_context();
  const std::vector<Setting> all = {
      {"another group", kNone, {"group"}, [](Layer &l, Group &) { l.group = 1; }},
      {"more kv heads", kNone, {"num_kv_heads 4"}, [](Layer &l, Group &) { l.num_kv_heads = 4; }},
      {"head_dim", kNone, {"head_dim 8"}, [](Layer &l, Group &) { l.head_dim = 8; }},
      {"v_head_dim", kNone, {"v_head_dim 8"}, [](Layer &l, Group &) { l.v_head_dim = 8; }},
      {"dtype", kNone, {"dtype"}, [](Layer &l, Group &) { l.dtype = dl_type(DType::kBF16); }},
      {"rope", kNone, {"rope"}, [](Layer &l, Group &) { l.rope_mode = KVC_ROPE_ON_APPEND; }},
      {"itself", kNone, {"kv_layer names layer 6"}, [](Layer &l, Group &) { l.kv_layer = kSharing + 1; }},
      {"a recurrent layer's", kNone, {}, [](Layer &l, Group &) { l.kv_layer = 1 + kRecurrentGroup; }},
      {"the recurrent group", kNone, {}, [](Layer &l, Group &) { l.group = kRecurrentGroup; }},
      {"scales",
       kNone,
       {"num_scales 1", "kv_layer names layer 0"},
       [](Layer &l, Group &) {
         static const float scale = 2.0f;
         l.dtype = dl_type(DType::kE4M3), l.num_scales = 1, l.k_scales = l.v_scales = &scale;
       }},
      {"more q heads", kAll, {}, [](Layer &l, Group &) { l.num_q_heads = 6; }},
      {"a scale", kAll, {}, [](Layer &l, Group &) { l.softmax_scale = 0.7; }},
  };
  for (const Setting &setting : all) {
    SCOPED_TRACE(setting.what);
    Hybrid h;
    setting.set(h.layers[kSharing], h.groups[0]);
    expect_config(context.get(), h, !setting.allowed.empty(), kSharing, setting);
  }
}

}  // namespace
}  // namespace kvt
