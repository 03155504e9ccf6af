/* Steps: a batch, and what is called between its begin and its end. */
#include "runner.h"

static kvc_batch read_batch(void) {
  kvc_batch batch;
  int64_t n, ignored, num_layers;
  kvc_batch_init(&batch);
  batch.sequences = sequences("seqs", &n);
  batch.num_sequences = (int32_t)n;
  batch.append_lengths = integers_32("tokens", &ignored);
  batch.tree_parents = integers_32("parents", &ignored);
  batch.span_ids = integers_32("spans", &ignored);
  batch.encoder_group = (int32_t)integer("encoder_group", -1) + 1;
  batch.graph = text("graph") ? graph() : 0;
  const int32_t *layers = integers_32("layers", &num_layers);
  if (num_layers == 2) {
    batch.layer_begin = layers[0];
    batch.layer_end = layers[1];
  }
  return batch;
}

static kvc_status can_fit(void) {
  const kvc_batch batch = read_batch();
  return kvc(cache_can_fit)(cache(), &batch, &error);
}

static kvc_status begin(void) {
  const kvc_batch batch = read_batch();
  kvc_forward forward = 0;
  const kvc_status status = kvc(forward_begin)(cache(), &batch, NULL, &forward, &error);
  if (status == KVC_OK) bind_step(forward);
  return status;
}

static kvc_status graph_create(void) {
  kvc_graph_config config;
  kvc_graph_config_init(&config);
  config.max_sequences = (int32_t)integer("max_sequences", 0);
  config.max_tokens = (int32_t)integer("max_tokens", 0);
  config.max_pages_per_row = (int32_t)integer("max_pages_per_row", 0);
  kvc_forward made = 0;
  const kvc_status status = kvc(graph_create)(cache(), &config, &made, &error);
  if (status == KVC_OK) bind_graph(made);
  return status;
}

static kvc_status graph_close(void) { return kvc(graph_destroy)(cache(), graph(), &error); }

static kvc_status info(void) {
  kvc_forward_info info;
  kvc_forward_info_init(&info);
  const kvc_status status = kvc(forward_get_info)(cache(), step(), &info, &error);
  if (status != KVC_OK) return status;
  result_integers_32("positions", info.num_tokens, info.positions_host);
  result_integers_32("last_rows", info.num_sequences, info.last_rows_host);
  return KVC_OK;
}

static kvc_status describe(void) {
  char buffer[65536];
  return kvc(forward_describe)(cache(), step(), buffer, sizeof(buffer), NULL, &error);
}

static kvc_status append(void) {
  kvc_append_args args;
  kvc_append_args_init(&args);
  args.flags = flag("as_stored") ? KVC_APPEND_AS_STORED : 0;
  args.k = tensor("k");
  args.v = tensor("v");
  args.rope_cos_sin = tensor("rope_cos_sin");
  args.k_scale = tensor("k_scale");
  args.v_scale = tensor("v_scale");
  return kvc(forward_append)(cache(), step(), (int32_t)integer("layer", 0), &args, &error);
}

static kvc_status attend(void) {
  static const char *const parts[] = {"all", "past", "self", NULL};
  static const uint32_t part_flags[] = {0, KVC_ATTEND_PAST, KVC_ATTEND_SELF};
  kvc_attend_args args;
  kvc_attend_args_init(&args);
  args.flags = part_flags[choice("part", parts)] | (flag("non_causal") ? KVC_ATTEND_NON_CAUSAL : 0) |
               (flag("alibi_signed") ? KVC_ATTEND_ALIBI_SIGNED : 0) |
               (flag("rel_bias_zero") ? KVC_ATTEND_REL_BIAS_ZERO : 0) | (flag("no_spans") ? KVC_ATTEND_NO_SPANS : 0) |
               (flag("step_window") ? KVC_ATTEND_STEP_WINDOW : 0);
  args.q = tensor("q");
  args.k = tensor("k");
  args.v = tensor("v");
  args.out = tensor("out");
  args.lse = tensor("lse");
  args.softmax_scale = number("softmax_scale");
  args.softcap = number("softcap");
  args.alibi_slopes = tensor("alibi");
  args.sinks = tensor("sinks");
  args.rope_cos_sin = tensor("rope_cos_sin");
  args.w_uk = tensor("w_uk");
  args.w_uv = tensor("w_uv");
  args.indices = tensor("indices");
  args.index_block = (int32_t)integer("index_block", 0);
  args.rel_bias = tensor("rel_bias");
  args.key_bias = tensor("key_bias");
  args.mask = tensor("mask");
  const kvc_status status = kvc(forward_attend)(cache(), step(), (int32_t)integer("layer", 0), &args, &error);
  if (status != KVC_OK) return status;
  result_tensor("out", args.out, AS_HEX);
  if (args.lse) result_tensor("lse", args.lse, AS_HEX);
  return KVC_OK;
}

static kvc_status select_keys(void) {
  kvc_select_args args;
  kvc_select_args_init(&args);
  args.rule = flag("each_head") ? KVC_SELECT_EACH_HEAD : KVC_SELECT_RELU_SUM;
  args.q = tensor("q");
  args.weights = tensor("weights");
  args.indices = tensor("out");
  args.candidates = tensor("candidates");
  args.rope_cos_sin = tensor("rope_cos_sin");
  args.index_block = (int32_t)integer("index_block", 0);
  args.candidate_block = (int32_t)integer("candidate_block", 0);
  args.first_blocks = (int32_t)integer("first_blocks", 0);
  args.last_blocks = (int32_t)integer("last_blocks", 0);
  const kvc_status status = kvc(forward_select)(cache(), step(), (int32_t)integer("layer", 0), &args, &error);
  if (status == KVC_OK) result_tensor("out", args.indices, AS_HEX);
  return status;
}

static kvc_status load_state(void) {
  const DLTensor *out = tensor("out");
  const kvc_status status =
      kvc(forward_load_state)(cache(), step(), (int32_t)integer("layer", 0), (int32_t)integer("state", 0),
                              (int32_t)integer("token", -1), out, &error);
  if (status == KVC_OK) result_tensor("out", out, AS_HEX);
  return status;
}

static kvc_status store_state(void) {
  return kvc(forward_store_state)(cache(), step(), (int32_t)integer("layer", 0), (int32_t)integer("state", 0),
                                  (int32_t)integer("token", -1), tensor("value"), &error);
}

static kvc_status tables(void) {
  kvc_tables tables;
  kvc_tables_init(&tables);
  tables.flags = (text("pad") ? KVC_TABLES_PAD_VALUE : 0) | (flag("slots") ? KVC_TABLES_SLOTS : 0);
  tables.pad_value = (int32_t)integer("pad", 0);
  tables.part = table_part();
  tables.arrays = table_arrays();
  const kvc_status status = kvc(forward_tables)(cache(), step(), (int32_t)integer("group", 0), &tables, &error);
  if (status == KVC_OK) result_tables(&tables);
  return status;
}

static kvc_status cancel(void) { return kvc(forward_cancel)(cache(), step(), &error); }

static kvc_status end(void) {
  const kvc_status status = kvc(forward_end)(cache(), step(), &error);
  if (status == KVC_OK) step_closed();
  return status;
}

static kvc_status abort_step(void) {
  const kvc_status status = kvc(forward_abort)(cache(), step(), &error);
  if (status == KVC_OK) step_closed();
  return status;
}

const operation step_operations[] = {
    {"graph_create", graph_create},
    {"graph_close", graph_close},
    {"can_fit", can_fit},
    {"begin", begin},
    {"info", info},
    {"describe", describe},
    {"append", append},
    {"attend", attend},
    {"select", select_keys},
    {"load_state", load_state},
    {"store_state", store_state},
    {"tables", tables},
    {"cancel", cancel},
    {"end", end},
    {"abort", abort_step},
    {NULL, NULL},
};
