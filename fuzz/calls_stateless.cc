// Calls without a cache: plans, attention over a caller's own cache, slots, merges.
#include <algorithm>

#include "objects.h"

namespace fuzz {
namespace {

DLDataType some_dtype(World &w) {
  return kvt::dl_type(static_cast<kvt::DType>(w.in.one_in(3) ? 3 + w.in.below(2) : w.in.below(3)));
}

// n values in [low, high], each with a hook.
std::vector<int64_t> draw(World &w, int64_t n, int64_t low, int64_t high) {
  std::vector<int64_t> values;
  while (n-- > 0) values.push_back(w.in.number(w.in.between(low, high)));
  return values;
}

// n values in [0, limit) from two bytes, each with a hook.
std::vector<int64_t> spread(World &w, int64_t n, int64_t limit) {
  std::vector<int64_t> values;
  const int64_t first = w.in.byte(), step = w.in.byte();
  for (int64_t i = 0; i < n; i++) values.push_back(w.in.number((first + i * step) % limit));
  return values;
}

std::vector<int64_t> sums_of(const std::vector<int64_t> &values) {
  std::vector<int64_t> sums = {0};
  for (const int64_t value : values) sums.push_back(sums.back() + std::clamp<int64_t>(value, 0, 64));
  return sums;
}

void merge(World &w) {
  kvc_merge_args args;
  kvc_merge_args_init(&args);
  const int64_t n = w.in.between(1, 4), heads = w.in.between(1, 2);
  std::vector<const DLTensor *> outputs, lses;
  for (int part = 0; part < 2; part++) {
    outputs.push_back(w.rows(kFloat32, {n, heads, 3}));
    lses.push_back(w.rows(kFloat32, {n, heads}));
  }
  args.outputs = w.in.pointer(w.array(outputs));
  args.lses = w.in.pointer(w.array(lses));
  args.out = w.in.one_in(4) ? outputs[0] : w.rows(kFloat32, {n, heads, 3});
  args.lse = w.nullable(w.rows(kFloat32, {n, heads}));
  args.num_parts = static_cast<int32_t>(w.in.fewer(2));
  w.in.size_of(args);
  CALL(kvc_merge_states, w.some_context(), w.in.pointer(&args), w.stream(), w.error());
}

void flash_attn(World &w) {
  kvc_flash_attn_args args;
  kvc_flash_attn_args_init(&args);
  const int64_t rows = w.in.between(1, 3), queries = w.in.between(1, 3), kv_heads = w.in.between(1, 2);
  const int64_t heads = kv_heads * w.in.between(1, 2), pages = 6, page_size = w.in.between(1, 4),
                fresh = w.in.between(1, 3);
  const bool paged = w.in.one_in(2), ragged = w.in.one_in(4), qv = w.in.one_in(6);
  const DLDataType stored = some_dtype(w), dtype = stored.bits == 8 ? kFloat32 : stored;
  const std::vector<int64_t> counts = draw(w, rows, 0, queries), sums = sums_of(counts);
  const auto per_row = [&](int64_t n, int64_t h, int64_t d) {
    return ragged ? std::vector<int64_t>{sums.back(), h, d} : std::vector<int64_t>{rows, n, h, d};
  };
  const int64_t first = paged ? pages : rows, capacity = paged ? page_size : 8;
  args.q = w.rows(dtype, per_row(queries, heads, 4));
  args.k_cache = w.rows(stored, {first, capacity, kv_heads, 4});
  args.v_cache = w.rows(stored, {first, capacity, kv_heads, 6});
  args.out = w.rows(kFloat32, per_row(queries, heads, 6));
  if (ragged) args.cu_seqlens_q = w.indices(sums);
  if (qv) args.qv = w.rows(dtype, per_row(queries, heads, 6));
  if (paged) args.block_table = w.indices(draw(w, rows * 2, 0, pages - 1), {rows, 2});
  const int64_t room = paged ? 2 * page_size : 8;
  args.cache_seqlens = w.nullable(w.indices(draw(w, rows, 0, std::max<int64_t>(room - fresh, 0))));
  if (args.cache_seqlens && w.in.one_in(2)) {
    args.k = w.rows(dtype, {rows, fresh, kv_heads, 4});
    args.v = w.rows(dtype, {rows, fresh, kv_heads, 6});
    if (w.in.one_in(2)) {
      args.rotary_cos = w.rows(kFloat32, {16, 2});
      args.rotary_sin = w.rows(kFloat32, {16, 2});
      args.rotary_seqlens = w.nullable(w.indices(draw(w, rows, 0, 8)));
    }
  }
  args.softmax_lse =
      w.nullable(ragged ? w.rows(kFloat32, {heads, sums.back()}) : w.rows(kFloat32, {rows, heads, queries}));
  if (w.in.one_in(6)) args.cache_batch_idx = w.indices(draw(w, rows, 0, rows - 1));
  if (w.in.one_in(6)) args.cache_leftpad = w.indices(draw(w, rows, 0, 2));
  if (w.in.one_in(6)) args.seqused_k = w.indices(draw(w, rows, 0, 4));
  if (w.in.one_in(6)) args.alibi_slopes = w.rows(kFloat32, {heads});
  if (w.in.one_in(6)) args.sinks = w.rows(kFloat32, {heads});
  if (w.in.one_in(6)) args.k_descale = args.v_descale = w.rows(kFloat32, {rows, kv_heads});
  args.flags = static_cast<uint32_t>(w.in.below(16));
  if (args.flags & KVC_FLASH_ATTN_WINDOW_LEFT) args.window_left = 2;
  if (w.in.one_in(8)) args.attention_chunk = 3;
  if (w.in.one_in(8)) args.num_splits = static_cast<int32_t>(w.in.between(1, 3));
  w.in.size_of(args);
  w.in.numbers(args.flags, args.softmax_scale, args.softcap, args.window_left, args.window_right, args.attention_chunk,
               args.num_splits);
  CALL(kvc_flash_attn_with_kvcache, w.some_context(), w.in.pointer(&args), w.stream(), w.error());
}

void append_slots(World &w) {
  kvc_append_slots_args args;
  kvc_append_slots_args_init(&args);
  const int64_t n = w.in.between(1, 4), heads = w.in.between(1, 2), pages = 3, page_size = w.in.between(1, 4);
  const bool latent = w.in.one_in(4), wide = w.in.one_in(2);
  const DLDataType stored = some_dtype(w), dtype = stored.bits == 8 ? kFloat32 : stored;
  if (latent) {
    args.k = w.rows(dtype, {n, 1, 4});
    args.v = w.rows(dtype, {n, 1, 6});
    args.k_cache = w.rows(stored, {pages, page_size, 1, 10});
  } else {
    args.k = w.rows(dtype, {n, heads, 4});
    args.v = w.rows(dtype, {n, heads, 6});
    args.k_cache = w.rows(stored, {pages, page_size, heads, 4});
    args.v_cache = w.rows(stored, {pages, page_size, heads, 6});
  }
  args.slot_mapping = w.indices(draw(w, n, -1, w.in.one_in(4) ? -1 : pages * page_size - 1), {n}, wide);
  if (stored.bits == 8 && w.in.one_in(2)) args.k_scale = w.rows(kFloat32, {1});
  if (w.in.one_in(2)) {
    const int64_t positions = w.in.number(w.in.below(6));
    args.rotary_cos = w.rows(kFloat32, {std::clamp<int64_t>(positions, 0, 9), 2});
    args.rotary_sin = w.rows(kFloat32, {std::clamp<int64_t>(positions, 0, 9), 2});
    args.positions = w.indices(draw(w, n, 0, std::max<int64_t>(positions, 1) - 1), {n}, wide);
  }
  args.flags = static_cast<uint32_t>(w.in.below(2));
  w.in.size_of(args);
  w.in.numbers(args.flags);
  CALL(kvc_append_slots, w.some_context(), w.in.pointer(&args), w.stream(), w.error());
}

kvc_plan_config draw_plan(World &w) {
  kvc_plan_config config;
  kvc_plan_config_init(&config);
  config.mode = static_cast<int32_t>(w.in.below(4));
  config.page_size = static_cast<int32_t>(w.in.between(1, 4));
  if (config.mode == KVC_PLAN_VERIFY) config.num_draft_tokens = static_cast<int32_t>(w.in.between(1, 4));
  if (config.mode == KVC_PLAN_DRAFT_DECODE) {
    config.num_steps = static_cast<int32_t>(w.in.between(1, 3));
    config.top_k = static_cast<int32_t>(w.in.below(3));
  }
  if (w.in.one_in(3)) config.flags |= KVC_PLAN_SLOTS;
  if (w.in.one_in(3) && config.mode != KVC_PLAN_DRAFT_DECODE) config.flags |= KVC_PLAN_LENGTHS_WITH_NEW;
  if (w.in.one_in(3)) {
    config.flags |= KVC_PLAN_GRAPH;
    config.max_rows = 4;
    config.max_pages_per_row = 24;
    if (config.mode == KVC_PLAN_EXTEND) config.max_tokens = 16;
  }
  if (w.in.one_in(3)) {
    (w.in.one_in(2) ? config.window_tokens : config.chunk_tokens) = w.in.between(1, 6);
  }
  config.arrays = static_cast<uint32_t>(w.in.below(8));
  if (w.in.one_in(2)) config.num_pool_pages = 40;
  w.in.size_of(config);
  w.in.numbers(config.flags, config.mode, config.page_size, config.num_draft_tokens, config.num_steps, config.top_k,
               config.pad_value, config.arrays, config.window_tokens, config.chunk_tokens, config.num_pool_pages);
  if (w.in.wrong()) config.max_rows = config.max_tokens = config.max_pages_per_row = w.in.hostile<int32_t>(64);
  return config;
}

void build(World &w, Plan &p) {
  kvc_plan_args args;
  kvc_plan_args_init(&args);
  const int64_t n = w.in.between(0, 3), page_size = std::clamp(p.config.page_size, 1, 64), columns = 24;
  const bool wide = w.in.one_in(2);
  args.seq_lens = w.indices(draw(w, n, 1, 12), {n}, wide);
  if (p.config.mode == KVC_PLAN_EXTEND) args.append_lengths = w.indices(draw(w, n, 0, 3), {n}, wide);
  if (w.in.one_in(3)) args.rows = w.indices(draw(w, n, -1, n - 1), {n});
  if (w.in.one_in(2)) {
    args.block_table = w.indices(spread(w, n * columns, 10), {n, columns});
  } else {
    std::vector<int64_t> slots = draw(w, n, 0, 3);  // of each row, runs of pages in order
    std::vector<int64_t> table;
    for (const int64_t first : slots) {
      const auto begin = static_cast<uint64_t>(first) * static_cast<uint64_t>(page_size);  // may be beyond int64
      for (uint64_t i = 0; i < static_cast<uint64_t>(columns); i++) table.push_back(static_cast<int64_t>(begin + i));
    }
    args.req_to_token = w.indices(table, {n, columns});
  }
  if (w.in.one_in(4)) args.encoder_lens = w.indices(draw(w, n, 0, 4), {n});
  if (p.config.mode == KVC_PLAN_VERIFY && w.in.one_in(2)) {
    std::vector<int64_t> parents;
    for (int64_t i = 0; i < n * std::clamp(p.config.num_draft_tokens, 0, 64); i++) {
      parents.push_back(w.in.number(w.in.between(-1, i % p.config.num_draft_tokens - 1)));
    }
    args.tree_parents = w.indices(parents, {std::ssize(parents)});
  }
  if (w.in.one_in(6)) args.flags = KVC_PLAN_ROWS_GREW;
  w.in.size_of(args);
  w.in.numbers(args.flags);
  CALL(kvc_plan_build, w.in.pointer(p.plan), w.in.pointer(&args), w.stream(), w.in.pointer(&p.generation), w.error());
}

}  // namespace

void call_plan(World &w) {
  if (w.plans.empty() || (w.plans.size() < 3 && w.in.one_in(4))) {
    Plan p = {nullptr, draw_plan(w), 0};
    if (CALL(kvc_plan_create, w.some_context(), w.in.pointer(&p.config), w.in.pointer(&p.plan), w.error()) == KVC_OK) {
      w.plans.push_back(p);
    }
    return;
  }
  const auto at = w.plans.begin() + w.in.below(std::ssize(w.plans));
  kvc_tables tables;
  kvc_tables_init(&tables);
  switch (w.in.below(8)) {
    case 0:
      CALL(kvc_plan_destroy, at->plan);
      w.plans.erase(at);
      break;
    case 1:
      CALL(kvc_plan_check, w.in.pointer(at->plan), w.in.number(at->generation), w.error());
      break;
    case 2:
    case 3:
      tables.part = static_cast<int32_t>(w.in.one_in(2) ? 0 : w.in.below(4));
      w.in.size_of(tables);
      w.in.numbers(tables.part, tables.flags, tables.pad_value, tables.arrays);
      CALL(kvc_plan_tables, w.in.pointer(at->plan), w.in.number(static_cast<int32_t>(w.in.below(3))),
           w.in.pointer(&tables), w.error());
      break;
    default:
      build(w, *at);
  }
}

// Page keys of tokens, with parts of the root key, salts and media.
void page_keys(World &w) {
  kvc_page_keys_args args;
  kvc_page_keys_args_init(&args);
  const int64_t tokens = w.in.below(80), page_size = w.in.between(1, 33);
  const std::vector<uint8_t> text(32 * 3, w.in.byte());
  args.page_size = w.in.one_in(8) ? w.in.hostile(page_size) : page_size;
  args.tokens = w.in.pointer(w.array(std::vector<int32_t>(static_cast<size_t>(tokens), 3)));
  args.num_tokens = w.in.fewer(tokens);
  args.begin = w.in.one_in(3) ? page_size * w.in.below(4) : 0;
  args.parent = args.begin > 0 || w.in.one_in(4) ? w.in.pointer(w.array(text)) : nullptr;
  args.fingerprint = w.in.pointer(w.array(text));
  args.salt = w.in.pointer(w.array(text));
  args.salt_bytes = w.in.fewer(w.in.below(96));
  args.salt_begin = w.in.below(100);
  w.draw_context(&args);
  w.in.size_of(args);
  w.in.numbers(args.reserved, args.begin, args.salt_begin);
  std::vector<uint8_t> keys(static_cast<size_t>(32 * 80));
  CALL(kvc_page_keys, w.in.pointer(&args), w.in.pointer(keys.data()), w.error());
}

void call_stateless(World &w) {
  const int64_t choice = w.in.below(16);
  if (choice == 15) return page_keys(w);
  switch (choice % 4) {
    case 0:
      return merge(w);
    case 1:
      return append_slots(w);
    default:
      return flash_attn(w);
  }
}

}  // namespace fuzz
