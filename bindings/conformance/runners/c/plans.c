/* Plans, and how tables of them and of steps are printed. */
#include <string.h>

#include "runner.h"

uint32_t table_arrays(void) {
  const char *words = text("arrays");
  if (!words) return 0;
  return (strstr(words, "dense") ? KVC_TABLES_DENSE : 0) | (strstr(words, "csr") ? KVC_TABLES_CSR : 0) |
         (strstr(words, "tokens") ? KVC_TABLES_TOKENS : 0);
}

int32_t table_part(void) {
  static const char *const parts[] = {"whole", "prefix", "branches", "encoder", NULL};
  return choice("part", parts);
}

/* The elements of an array, by its strides; nothing of one that is not there. */
static void result_array(const char *name, const DLTensor *array) {
  if (array->ndim == 0) return;
  const int64_t rows = array->ndim == 2 ? array->shape[0] : 1, columns = array->shape[array->ndim - 1];
  const int64_t row_stride = array->ndim == 2 ? array->strides[0] : 0;
  int64_t *values = take((size_t)(rows * columns) * sizeof(*values));
  const char *data = (const char *)array->data + array->byte_offset;
  for (int64_t row = 0; row < rows; row++)
    for (int64_t i = 0; i < columns; i++)
      values[row * columns + i] = array->dtype.bits == 64 ? ((const int64_t *)data)[row * row_stride + i]
                                                          : ((const int32_t *)data)[row * row_stride + i];
  result_integers(name, rows * columns, values);
}

void result_tables(const kvc_tables *tables) {
  result_integer("causal", tables->causal);
  result_integer("num_rows", tables->num_rows);
  result_integer("num_queries", tables->num_queries);
  result_integer("page_size", tables->page_size);
  result_integer("max_seqlen_q", tables->max_seqlen_q);
  result_integer("max_seqlen_k", tables->max_seqlen_k);
  result_integer("max_pages", tables->max_pages);
  result_integer("num_pages", tables->num_pages);
  result_integer("num_keys", tables->num_keys);
  result_array("block_table", &tables->block_table);
  result_array("cache_seqlens", &tables->cache_seqlens);
  result_array("cu_seqlens_q", &tables->cu_seqlens_q);
  result_array("cu_seqlens_k", &tables->cu_seqlens_k);
  result_array("indptr", &tables->indptr);
  result_array("indices", &tables->indices);
  result_array("last_page_len", &tables->last_page_len);
  result_array("key_starts", &tables->key_starts);
  result_array("leftpad", &tables->leftpad);
  result_array("batch_rows", &tables->batch_rows);
  result_array("sink_tokens", &tables->sink_tokens);
  result_array("hole_tokens", &tables->hole_tokens);
  result_array("slot_mapping", &tables->slot_mapping);
  result_array("positions", &tables->positions);
  result_array("last_rows", &tables->last_rows);
}

static kvc_status plan_create(void) {
  static const char *const modes[] = {"decode", "extend", "verify", "draft_decode", NULL};
  kvc_plan_config config;
  kvc_plan_config_init(&config);
  config.flags = (flag("graph") ? KVC_PLAN_GRAPH : 0) | (text("pad") ? KVC_PLAN_PAD_VALUE : 0) |
                 (flag("slots") ? KVC_PLAN_SLOTS : 0) | (flag("lengths_with_new") ? KVC_PLAN_LENGTHS_WITH_NEW : 0);
  config.mode = choice("mode", modes);
  config.page_size = (int32_t)integer("page_size", 0);
  config.num_draft_tokens = (int32_t)integer("num_draft_tokens", 0);
  config.num_steps = (int32_t)integer("num_steps", 0);
  config.top_k = (int32_t)integer("top_k", 0);
  config.pad_value = (int32_t)integer("pad", 0);
  config.arrays = table_arrays();
  config.max_rows = (int32_t)integer("max_rows", 0);
  config.max_tokens = (int32_t)integer("max_tokens", 0);
  config.max_pages_per_row = (int32_t)integer("max_pages_per_row", 0);
  config.window_tokens = integer("window", 0);
  config.chunk_tokens = integer("chunk", 0);
  config.num_pool_pages = integer("num_pool_pages", 0);
  kvc_plan *made = NULL;
  const kvc_status status = kvc(plan_create)(context(), &config, &made, &error);
  if (status == KVC_OK) bind_plan(made);
  return status;
}

static kvc_status plan_close(void) {
  kvc(plan_destroy)(plan());
  bind_plan(NULL);
  return KVC_OK;
}

static kvc_status plan_build(void) {
  kvc_plan_args args;
  uint64_t generation = 0;
  kvc_plan_args_init(&args);
  args.flags = flag("rows_grew") ? KVC_PLAN_ROWS_GREW : 0;
  args.seq_lens = tensor("seq_lens");
  args.append_lengths = tensor("append_lengths");
  args.rows = tensor("rows");
  args.block_table = tensor("block_table");
  args.req_to_token = tensor("req_to_token");
  args.encoder_lens = tensor("encoder_lens");
  args.tree_parents = tensor("tree_parents");
  const kvc_status status = kvc(plan_build)(plan(), &args, NULL, &generation, &error);
  result_integer("generation", (int64_t)generation);
  return status;
}

static kvc_status plan_tables(void) {
  kvc_tables tables;
  kvc_tables_init(&tables);
  tables.part = table_part();
  const kvc_status status = kvc(plan_tables)(plan(), (int32_t)integer("step", 0), &tables, &error);
  if (status != KVC_OK) return status;
  result_tables(&tables);
  result_integer("generation", (int64_t)tables.generation);
  return KVC_OK;
}

static kvc_status plan_check(void) { return kvc(plan_check)(plan(), (uint64_t)integer("generation", 0), &error); }

const operation plan_operations[] = {
    {"plan_create", plan_create}, {"plan_close", plan_close}, {"plan_build", plan_build},
    {"plan_tables", plan_tables}, {"plan_check", plan_check}, {NULL, NULL},
};
