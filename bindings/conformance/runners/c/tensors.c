/* Tensors in and out of a cache, and copies that it leaves to the engine. */
#include <string.h>

#include "runner.h"

static kvc_status keep_tensor(void) {
  keep(text("name"), tensor("value"));
  return KVC_OK;
}

static const DLTensor *named(void) {
  char *form = take(strlen(text("name")) + 2);
  form[0] = '$';
  strcpy(form + 1, text("name"));
  return named_tensor(form);
}

static kvc_status show(void) {
  result_tensor("value", named(), flag("hash") ? AS_HASH : AS_HEX);
  return KVC_OK;
}

static kvc_status merge_states(void) {
  kvc_merge_args args;
  int64_t num_outs, num_lses;
  kvc_merge_args_init(&args);
  args.outputs = tensors("outs", &num_outs);
  args.lses = tensors("lses", &num_lses);
  args.num_parts = (int32_t)num_outs;
  args.out = tensor("out");
  args.lse = tensor("lse");
  const kvc_status status = kvc(merge_states)(context(), &args, NULL, &error);
  if (status != KVC_OK) return status;
  result_tensor("out", args.out, AS_HEX);
  if (args.lse) result_tensor("lse", args.lse, AS_HEX);
  return KVC_OK;
}

/* Prints what was exported, keeps a copy where the script has a name for it, and releases it. */
static void finish_export(const char *key, DLManagedTensorVersioned *exported) {
  if (!exported) return;
  result_tensor(key, &exported->dl_tensor, flag("hex") ? AS_HEX : AS_HASH);
  if (text(key)) keep(text(key), copy_tensor(&exported->dl_tensor));
  exported->deleter(exported);
}

static kvc_status export_tokens(void) {
  kvc_export_args args;
  kvc_exported exported;
  kvc_export_args_init(&args);
  kvc_exported_init(&exported);
  args.layer = (int32_t)integer("layer", 0);
  args.parts = KVC_EXPORT_K | KVC_EXPORT_V | (flag("scales") ? KVC_EXPORT_K_SCALE | KVC_EXPORT_V_SCALE : 0);
  args.position_begin = integer("begin", 0);
  args.position_end = integer("end", 0);
  const kvc_status status = kvc(seq_export)(cache(), sequence(integer("seq", 0)), &args, &exported, NULL, &error);
  if (status != KVC_OK) return status;
  finish_export("k", exported.k);
  finish_export("v", exported.v);
  finish_export("k_scale", exported.k_scale);
  finish_export("v_scale", exported.v_scale);
  return KVC_OK;
}

static kvc_status import_tokens(void) {
  kvc_import_args args;
  int64_t num_layers, ignored;
  kvc_import_args_init(&args);
  args.flags = flag("as_stored") ? KVC_IMPORT_AS_STORED : 0;
  args.k = tensors("k", &num_layers);
  args.v = tensors("v", &ignored);
  args.k_scale = tensors("k_scale", &ignored);
  args.v_scale = tensors("v_scale", &ignored);
  args.num_layers = (int32_t)num_layers;
  return kvc(seq_import)(cache(), sequence(integer("seq", 0)), &args, NULL, &error);
}

static kvc_status export_pool(void) {
  static const char *const pools[] = {"kv", "k", "v", "k_scale", "v_scale", NULL};
  DLManagedTensorVersioned *pool = NULL;
  const kvc_status status = kvc(cache_export_pool)(cache(), (int32_t)integer("layer", 0), choice("pool", pools),
                                                   flag("writable") ? KVC_POOL_WRITABLE : 0, &pool, NULL, &error);
  if (status != KVC_OK) return status;
  result_tensor("pool", &pool->dl_tensor, AS_HASH);
  result_integer("readonly", (pool->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0);
  pool->deleter(pool);
  return KVC_OK;
}

static kvc_status take_copies(void) {
  int64_t count = 0;
  kvc_status status = kvc(cache_take_copies)(cache(), NULL, sizeof(kvc_copy), 0, &count, &error);
  if (status != KVC_OK) return status;
  kvc_copy *copies = take((size_t)count * sizeof(*copies));
  int64_t *values = take((size_t)count * 4 * sizeof(*values));
  status = kvc(cache_take_copies)(cache(), copies, sizeof(kvc_copy), count, &count, &error);
  for (int64_t i = 0; i < count; i++) {
    values[4 * i] = copies[i].group;
    values[4 * i + 1] = copies[i].source_slot;
    values[4 * i + 2] = copies[i].target_slot;
    values[4 * i + 3] = copies[i].count;
  }
  result_integers("copies", count * 4, values);
  return status;
}

const operation tensor_operations[] = {
    {"tensor", keep_tensor},        {"show", show},
    {"merge_states", merge_states}, {"export", export_tokens},
    {"import", import_tokens},      {"export_pool", export_pool},
    {"take_copies", take_copies},   {NULL, NULL},
};
