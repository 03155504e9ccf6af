// Selection of keys. It has a cache of its own, because no layer of other caches has keys only.
#include "objects.h"

namespace fuzz {
namespace {

constexpr DLDataType kFloat = {kDLFloat, 32, 1};

void select(World &w, kvc_cache *cache, kvc_forward forward, int64_t tokens) {
  const bool each = w.in.one_in(2);
  const int64_t lists = each ? 2 : 1, k = w.in.between(1, 5);
  kvc_select_args args;
  kvc_select_args_init(&args);
  args.rule = each ? KVC_SELECT_EACH_HEAD : KVC_SELECT_RELU_SUM;
  args.q = w.rows(kFloat, {tokens, 2, 4}, {1, -2, 3});
  if (!each) args.weights = w.nullable(w.rows(kFloat, {tokens, 2}));
  args.indices = w.indices(std::vector<int64_t>(static_cast<size_t>(tokens * lists * k)), {tokens, lists, k});
  args.index_block = static_cast<int32_t>(w.in.below(4));
  args.last_blocks = static_cast<int32_t>(w.in.below(k + 1));
  if (w.in.one_in(3)) {
    std::vector<int64_t> entries(static_cast<size_t>(tokens * 3));
    for (size_t i = 0; i < entries.size(); i++) entries[i] = static_cast<int64_t>(i * 5 % 7) - 2;
    args.candidates = w.indices(entries, {tokens, 1, 3});
    args.candidate_block = static_cast<int32_t>(w.in.below(3));
  }
  w.in.size_of(args);
  w.in.numbers(args.rule, args.index_block, args.candidate_block, args.first_blocks, args.last_blocks);
  const bool exact = !w.in.fired();
  const DLTensor *const written = args.indices;
  if (CALL(kvc_forward_select, cache, forward, w.in.number(int32_t{0}), w.in.pointer(&args), w.error()) != KVC_OK)
    return;
  if (!exact || w.in.fired()) return;
  const auto *entries = static_cast<const int32_t *>(written->data);
  for (int64_t i = 0; i < tokens * lists * k; i++) {
    const int32_t before = i % k == 0 ? -1 : entries[i - 1];
    if (entries[i] >= 0 ? entries[i] <= before || entries[i] >= tokens : entries[i] != -1) {
      die("entry %lld of a list is %d after %d", static_cast<long long>(i), entries[i], before);
    }
  }
}

}  // namespace

void call_select(World &w) {
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = 2;
  layer.num_kv_heads = 1;
  layer.head_dim = 4;
  layer.flags = KVC_LAYER_KEYS_ONLY;
  layer.dtype = kvt::dl_type(static_cast<kvt::DType>(w.in.below(6)));
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.page_size = 4;
  config.max_sequences = 2;
  config.capacity_tokens = 32;
  kvc_cache *cache = nullptr;
  if (kvc_cache_create(w.context, &config, &cache, nullptr) != KVC_OK) return;
  const int32_t length = static_cast<int32_t>(w.in.between(1, 20));
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = w.rows(kFloat, {length, 1, 4}, {1, 0, -1});
  kvc_seq seq = 0;
  kvc_forward forward = 0;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  if (kvc_seq_add(cache, 1, &seq, nullptr) == KVC_OK &&
      kvc_forward_begin(cache, &batch, nullptr, &forward, nullptr) == KVC_OK) {
    if (kvc_forward_append(cache, forward, 0, &append, nullptr) == KVC_OK) select(w, cache, forward, length);
    kvc_forward_abort(cache, forward, nullptr);
  }
  kvc_cache_destroy(cache);
}

}  // namespace fuzz
