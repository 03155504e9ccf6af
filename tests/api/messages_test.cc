// The messages of the mistakes that newcomers make, compared with bindings/messages/c.txt. Every binding has such a
// file and test, over the same cache and the same mistakes.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "fixture.h"

namespace kvt {
namespace {

constexpr int kLayers = 2, kQHeads = 4, kKvHeads = 1, kDim = 16, kTokens = 3;

// Two equal layers over 8 pages of 4 tokens, two sequences, and an open step of 3 tokens.
struct Mistakes {
  ContextPtr context = make_context(1);
  CachePtr owner;
  kvc_cache *cache = nullptr;
  kvc_seq seq[2] = {};
  kvc_forward step = 0;
  LayerTensors tensors{LayerSpec{0, kQHeads, kKvHeads, kDim}, kTokens};
  std::ostringstream text;

  Mistakes() : owner(make_cache(context.get(), spec())), cache(owner.get()) {
    EXPECT_EQ(kvc_seq_add(cache, 2, seq, nullptr), KVC_OK);
    step = begin(seq[0], kTokens);
  }

  static CacheSpec spec() {
    CacheSpec spec;
    spec.page_size = 4;
    spec.max_sequences = 4;
    spec.max_batch_tokens = 64;
    spec.groups = {{0, 8}};
    spec.layers.assign(kLayers, LayerSpec{0, kQHeads, kKvHeads, kDim});
    return spec;
  }

  kvc_status try_begin(kvc_seq sequence, int32_t tokens, kvc_forward *out, kvc_error *error) {
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = &sequence;
    batch.append_lengths = &tokens;
    batch.num_sequences = 1;
    return kvc_forward_begin(cache, &batch, nullptr, out, error);
  }
  kvc_forward begin(kvc_seq sequence, int32_t tokens) {
    kvc_forward out = 0;
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_EQ(try_begin(sequence, tokens, &out, &error), KVC_OK) << error.message;
    return out;
  }
  void end(kvc_forward forward) {
    for (int32_t layer = 0; layer < kLayers; layer++) {
      const kvc_attend_args args = tensors.attend_args();
      EXPECT_EQ(kvc_forward_attend(cache, forward, layer, &args, nullptr), KVC_OK);
    }
    EXPECT_EQ(kvc_forward_end(cache, forward, nullptr), KVC_OK);
  }

  template <class Call>
  void add(const char *mistake, Call call) {
    kvc_error error = KVC_ERROR_INIT;
    EXPECT_NE(call(&error), KVC_OK) << mistake;
    std::string message = error.message;
    for (size_t i = 0; i < message.size(); i++) {  // an id has 19 digits, which differ from run to run
      size_t n = 0;
      while (i + n < message.size() && isdigit(message[i + n])) n++;
      if (n > 12) message.replace(i, n, "ID");
    }
    text << mistake << "\n    " << message << "\n";
  }
  template <class Change>
  void attend(const char *mistake, Change change, int32_t layer = 1) {
    kvc_attend_args args = tensors.attend_args();
    change(&args);
    add(mistake, [&](kvc_error *error) { return kvc_forward_attend(cache, step, layer, &args, error); });
  }
  template <class Change>
  void create(const char *mistake, Change change) {
    kvc_layer_config layers[kLayers];
    for (kvc_layer_config &layer : layers) {
      kvc_layer_config_init(&layer);
      layer.num_q_heads = kQHeads;
      layer.num_kv_heads = kKvHeads;
      layer.head_dim = kDim;
    }
    kvc_cache_config config;
    kvc_cache_config_init(&config);
    config.layers = layers;
    config.num_layers = kLayers;
    config.capacity_tokens = 32;
    change(&config, layers);
    kvc_cache *out = nullptr;
    add(mistake, [&](kvc_error *error) { return kvc_cache_create(context.get(), &config, &out, error); });
  }
};

void tensors_of_attend(Mistakes *m) {
  Tensor heads(DType::kF32, {kTokens, 2, kDim}), flat(DType::kF32, {kTokens, kQHeads * kDim});
  Tensor fewer(DType::kF32, {2, kQHeads, kDim}), other_dim(DType::kF32, {kTokens, kQHeads, 8});
  DLTensor integers = *m->tensors.q.dl();
  integers.dtype = {kDLInt, 32, 1};
  m->attend("k has the wrong number of heads", [&](kvc_attend_args *a) { a->k = heads.dl(); });
  m->attend("q has no dimension of heads", [&](kvc_attend_args *a) { a->q = flat.dl(); });
  m->attend("q has too few tokens", [&](kvc_attend_args *a) { a->q = fewer.dl(); });
  m->attend("q has elements of a wrong type", [&](kvc_attend_args *a) { a->q = &integers; });
  m->attend("out has the wrong head dim", [&](kvc_attend_args *a) { a->out = other_dim.dl(); });
  m->attend("v is left out", [&](kvc_attend_args *a) { a->v = nullptr; });
  m->attend("a layer attends before its k and v are stored", [&](kvc_attend_args *a) { a->k = a->v = nullptr; });
  m->attend("a layer does not exist", [](kvc_attend_args *) {}, 7);
}

void life_of_steps(Mistakes *m) {
  kvc_forward other = 0;
  const auto end = [&](kvc_error *error) { return kvc_forward_end(m->cache, m->step, error); };
  const auto attend = [&](int32_t layer, kvc_error *error) {
    const kvc_attend_args args = m->tensors.attend_args();
    return kvc_forward_attend(m->cache, m->step, layer, &args, error);
  };
  EXPECT_EQ(attend(0, nullptr), KVC_OK);
  m->add("a layer attends twice", [&](kvc_error *error) { return attend(0, error); });
  m->add("a step ends before every layer has its tokens", end);
  EXPECT_EQ(attend(1, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_end(m->cache, m->step, nullptr), KVC_OK);
  m->add("a step is used after its end", [&](kvc_error *error) { return attend(0, error); });
  m->step = m->begin(m->seq[0], kTokens);
  m->add("a sequence of an open step is truncated", [&](kvc_error *error) {
    const int64_t length = 0;
    return kvc_seq_truncate(m->cache, 1, m->seq, &length, error);
  });
  const kvc_forward second = m->begin(m->seq[1], 1);
  kvc_seq third = 0;
  EXPECT_EQ(kvc_seq_add(m->cache, 1, &third, nullptr), KVC_OK);
  m->add("a third step begins", [&](kvc_error *error) { return m->try_begin(third, 1, &other, error); });
  EXPECT_EQ(kvc_forward_abort(m->cache, second, nullptr), KVC_OK);
  EXPECT_EQ(kvc_forward_cancel(m->cache, m->step, nullptr), KVC_OK);
  m->add("a cancelled step ends", end);
  EXPECT_EQ(kvc_forward_abort(m->cache, m->step, nullptr), KVC_OK);
  EXPECT_EQ(kvc_seq_remove(m->cache, 1, &third, nullptr), KVC_OK);
  m->add("a removed sequence is used", [&](kvc_error *error) { return m->try_begin(third, 1, &other, error); });
  m->add("a sequence occurs twice", [&](kvc_error *error) {
    const kvc_seq twice[] = {m->seq[0], m->seq[0]};
    const int32_t lengths[] = {1, 1};
    kvc_batch batch;
    kvc_batch_init(&batch);
    batch.sequences = twice;
    batch.append_lengths = lengths;
    batch.num_sequences = 2;
    return kvc_forward_begin(m->cache, &batch, nullptr, &other, error);
  });
  m->add("a step has no new tokens", [&](kvc_error *error) { return m->try_begin(m->seq[0], 0, &other, error); });
  m->add("a step needs more pages than there are",
         [&](kvc_error *error) { return m->try_begin(m->seq[0], 40, &other, error); });
  m->add("a step is larger than max_batch_tokens",
         [&](kvc_error *error) { return m->try_begin(m->seq[0], 65, &other, error); });
}

void sequences(Mistakes *m) {
  m->add("tokens beyond the end are exported", [&](kvc_error *error) {
    kvc_export_args args;
    kvc_export_args_init(&args);
    args.position_end = 9;
    kvc_exported out;
    kvc_exported_init(&out);
    return kvc_seq_export(m->cache, m->seq[0], &args, &out, nullptr, error);
  });
  m->add("a sequence is truncated beyond its end", [&](kvc_error *error) {
    const int64_t length = 9;
    return kvc_seq_truncate(m->cache, 1, m->seq, &length, error);
  });
  m->add("a group does not exist", [&](kvc_error *error) {
    kvc_stats stats;
    kvc_stats_init(&stats);
    return kvc_cache_stats(m->cache, 3, &stats, error);
  });
  m->add("a tier is added without a prefix index", [&](kvc_error *error) {
    kvc_tier_config tier;
    kvc_tier_config_init(&tier);
    tier.directory = "tier";
    return kvc_cache_add_tier(m->cache, &tier, error);
  });
  m->add("a prefix is loaded without a tier", [&](kvc_error *error) {
    kvc_prefix_query query;
    kvc_prefix_query_init(&query);
    kvc_job job = 0;
    return kvc_prefix_load(m->cache, &query, nullptr, nullptr, &job, error);
  });
}

void configs(Mistakes *m) {
  m->create("q heads are no multiple of kv heads",
            [](kvc_cache_config *, kvc_layer_config *l) { l[1].num_kv_heads = 3; });
  m->create("a layer's group does not exist", [](kvc_cache_config *, kvc_layer_config *l) { l[1].group = 2; });
  m->create("a cache has no capacity", [](kvc_cache_config *c, kvc_layer_config *) { c->capacity_tokens = 0; });
  m->create("the head dim is forgotten", [](kvc_cache_config *, kvc_layer_config *l) { l[1].head_dim = 0; });
  m->create("kv_layer names a later layer", [](kvc_cache_config *, kvc_layer_config *l) { l[0].kv_layer = 1 + 1; });
}

TEST(Messages, OfCommonMistakes) {
  Mistakes m;
  tensors_of_attend(&m);
  life_of_steps(&m);
  sequences(&m);
  configs(&m);
  const std::string path = std::string(KVC_MESSAGES_DIR) + "/c.txt";
  if (std::getenv("KVC_UPDATE_MESSAGES") != nullptr) std::ofstream(path) << m.text.str();
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(m.text.str(), golden.str()) << "KVC_UPDATE_MESSAGES=1 writes " << path;
}

}  // namespace
}  // namespace kvt
