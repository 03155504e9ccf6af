/* Calls over the script's own tensors, and plans. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runner.h"

static void read_flash_attn_indices(kvc_flash_attn_args *args) {
  args->cache_seqlens = tensor("cache_seqlens");
  args->seqused_k = tensor("seqused_k");
  args->cache_batch_idx = tensor("cache_batch_idx");
  args->cache_leftpad = tensor("cache_leftpad");
  args->block_table = tensor("block_table");
  args->cu_seqlens_q = tensor("cu_seqlens_q");
  args->cu_seqlens_k_new = tensor("cu_seqlens_k_new");
  args->rotary_cos = tensor("rotary_cos");
  args->rotary_sin = tensor("rotary_sin");
  args->rotary_seqlens = tensor("rotary_seqlens");
}

static kvc_status flash_attn(void) {
  kvc_flash_attn_args args;
  kvc_flash_attn_args_init(&args);
  args.flags = (flag("causal") ? KVC_FLASH_ATTN_CAUSAL : 0) |
               (flag("rotary_interleaved") ? KVC_FLASH_ATTN_ROTARY_INTERLEAVED : 0) |
               (text("window_left") ? KVC_FLASH_ATTN_WINDOW_LEFT : 0) |
               (text("window_right") ? KVC_FLASH_ATTN_WINDOW_RIGHT : 0) |
               (flag("alibi_signed") ? KVC_FLASH_ATTN_ALIBI_SIGNED : 0);
  args.q = tensor("q");
  args.k_cache = tensor("k_cache");
  args.v_cache = tensor("v_cache");
  args.k = tensor("k");
  args.v = tensor("v");
  args.qv = tensor("qv");
  args.out = tensor("out");
  args.softmax_lse = tensor("lse");
  read_flash_attn_indices(&args);
  args.q_descale = tensor("q_descale");
  args.k_descale = tensor("k_descale");
  args.v_descale = tensor("v_descale");
  args.alibi_slopes = tensor("alibi");
  args.sinks = tensor("sinks");
  args.indices = tensor("indices");
  args.softmax_scale = number("softmax_scale");
  args.softcap = number("softcap");
  args.window_left = (int32_t)integer("window_left", 0);
  args.window_right = (int32_t)integer("window_right", 0);
  args.attention_chunk = (int32_t)integer("chunk", 0);
  args.num_splits = (int32_t)integer("num_splits", 0);
  const kvc_status status = kvc(flash_attn_with_kvcache)(context(), &args, NULL, &error);
  if (status != KVC_OK) return status;
  result_tensor("out", args.out, AS_HEX);
  if (args.softmax_lse) result_tensor("lse", args.softmax_lse, AS_HEX);
  return KVC_OK;
}

static kvc_status append_slots(void) {
  kvc_append_slots_args args;
  kvc_append_slots_args_init(&args);
  args.flags = flag("rotary_interleaved") ? KVC_APPEND_SLOTS_ROTARY_INTERLEAVED : 0;
  args.k = tensor("k");
  args.v = tensor("v");
  args.k_cache = tensor("k_cache");
  args.v_cache = tensor("v_cache");
  args.slot_mapping = tensor("slots");
  args.k_scale = tensor("k_scale");
  args.v_scale = tensor("v_scale");
  args.rotary_cos = tensor("rotary_cos");
  args.rotary_sin = tensor("rotary_sin");
  args.positions = tensor("positions");
  return kvc(append_slots)(context(), &args, NULL, &error);
}

static kvc_status page_keys(void) {
  int64_t n = 0;
  kvc_page_keys_args args;
  kvc_page_keys_args_init(&args);
  args.tokens = integers_32("tokens", &args.num_tokens);
  args.page_size = integer("page_size", 0);
  args.begin = integer("begin", 0);
  args.parent = hex_bytes("parent", &n);
  args.fingerprint = hex_bytes("fingerprint", &n);
  args.adapter = hex_bytes("adapter", &args.adapter_bytes);
  args.salt = hex_bytes("salt", &args.salt_bytes);
  args.salt_begin = integer("salt_begin", 0);
  args.media_begins = integers("media_begins", &n);
  args.media_tokens = integers("media_tokens", &args.num_media);
  args.media_hashes = hex_bytes("media_hashes", &n);
  const int64_t pages = args.page_size > 0 ? args.num_tokens / args.page_size : 0;
  uint8_t *keys = take((size_t)pages * 32 + 1);
  const kvc_status status = kvc(page_keys)(&args, keys, &error);
  if (status != KVC_OK) return status;
  char *digits = take((size_t)pages * 64 + 1);
  for (int64_t i = 0; i < pages * 32; i++) sprintf(digits + 2 * i, "%02x", keys[i]);
  result_text("keys", digits);
  return KVC_OK;
}

const operation stateless_operations[] = {
    {"page_keys", page_keys},
    {"flash_attn", flash_attn},
    {"append_slots", append_slots},
    {NULL, NULL},
};
