// Transfers between two caches of their own. They read nothing of the input.
#include <kvcache_transport.h>

#include "objects.h"

namespace fuzz {
namespace {

constexpr int kTokens = 10;

kvc_cache *create(kvc_context *context, int page_size) {
  kvc_layer_config layer;
  kvc_layer_config_init(&layer);
  layer.num_q_heads = layer.num_kv_heads = 1;
  layer.head_dim = 4;
  kvc_cache_config config;
  kvc_cache_config_init(&config);
  config.layers = &layer;
  config.num_layers = 1;
  config.page_size = page_size;
  config.max_sequences = 2;
  config.capacity_tokens = 64;
  kvc_cache *cache = nullptr;
  (void)kvc_cache_create(context, &config, &cache, nullptr);
  return cache;
}

void compute(kvc_cache *cache, kvc_seq seq) {
  float rows[kTokens * 4] = {};
  for (int i = 0; i < kTokens * 4; i++) rows[i] = static_cast<float>(i);
  int64_t shape[3] = {kTokens, 1, 4};
  const DLTensor kv = {rows, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, shape, nullptr, 0};
  kvc_append_args append;
  kvc_append_args_init(&append);
  append.k = append.v = &kv;
  const int32_t length = kTokens;
  kvc_batch batch;
  kvc_batch_init(&batch);
  batch.sequences = &seq;
  batch.append_lengths = &length;
  batch.num_sequences = 1;
  kvc_forward forward = 0;
  if (kvc_forward_begin(cache, &batch, nullptr, &forward, nullptr) != KVC_OK ||
      kvc_forward_append(cache, forward, 0, &append, nullptr) != KVC_OK ||
      kvc_forward_end(cache, forward, nullptr) != KVC_OK) {
    die("a step before a transfer failed");
  }
}

void transfer(World &w, kvc_cache *receiver, kvc_cache *sender) {
  kvc_transport transport;
  kvc_transport_init(&transport);
  CALL(kvc_cache_set_transport, receiver, &transport, w.plain_error());
  kvc_receive_args args;
  kvc_receive_args_init(&args);
  kvc_transfer in = 0, out = 0;
  CALL(kvc_transfer_receive, receiver, &args, &in, w.plain_error());
  args.num_tokens = kTokens;
  if (CALL(kvc_transfer_receive, receiver, &args, &in, w.plain_error()) != KVC_OK) return;
  char description[4096];
  int64_t bytes = 0;
  CALL(kvc_transfer_describe, receiver, kvc_transfer{99}, description, int64_t{4096}, &bytes, w.plain_error());
  if (CALL(kvc_transfer_describe, receiver, in, description, int64_t{4096}, &bytes, w.plain_error()) != KVC_OK) return;
  kvc_seq seq = 0;
  if (kvc_seq_add(sender, 1, &seq, nullptr) != KVC_OK) return;
  for (int64_t at = 0; at < bytes; at += 17) {
    char damaged[4096];
    std::memcpy(damaged, description, sizeof damaged);
    damaged[at] ^= static_cast<char>(1 << at % 8);
    const auto *const sent = static_cast<const void *>(damaged);
    if (CALL(kvc_transfer_send, sender, seq, sent, bytes, &out, w.plain_error()) == KVC_OK) {
      die("a damaged description was accepted");
    }
  }
  if (CALL(kvc_transfer_send, sender, seq, static_cast<const void *>(description), bytes, &out, w.plain_error()) !=
      KVC_OK) {
    die("a description was refused");
  }
  compute(sender, seq);
  kvc_transfer_info info;
  kvc_transfer_info_init(&info);
  CALL(kvc_transfer_poll, sender, kvc_transfer{99}, &info, w.plain_error());
  CALL(kvc_transfer_cancel, sender, kvc_transfer{99}, w.plain_error());
  for (int i = 0; i < 8 && info.done == 0; i++) {
    kvc_transfer_info sent;
    kvc_transfer_info_init(&sent);
    (void)kvc_transfer_poll(sender, out, &sent, nullptr);
    if (CALL(kvc_transfer_poll, receiver, in, &info, w.plain_error()) != KVC_OK) die("a transfer failed");
  }
  if (info.done == 0 || info.tokens != kTokens) die("a transfer has not ended");
  if (CALL(kvc_transfer_receive, receiver, &args, &in, w.plain_error()) == KVC_OK) {
    CALL(kvc_transfer_cancel, receiver, in, w.plain_error());
  }
  if (kvc_cache_check_invariants(receiver, nullptr) != KVC_OK) die("the receiver is not sound");
}

// The table of a transport that reaches nothing.
void set_transport(World &w, kvc_cache *cache) {
  kvc_transport t;
  kvc_transport_init(&t);
  t.name = "nothing";
  t.max_message_bytes = 65536;
  t.address = [](void *, void *, int64_t) -> int64_t { return -1; };
  t.connect = [](void *, const void *, int64_t, uint64_t *, kvc_error *) -> int32_t { return KVC_TRANSPORT_FAILED; };
  t.flush = [](void *, uint64_t, int64_t) { return int32_t{KVC_TRANSPORT_OK}; };
  t.disconnect = [](void *, uint64_t) {};
  t.send = [](void *, uint64_t, const void *, int64_t, const void *, int64_t, uint64_t, kvc_error *) -> int32_t {
    return KVC_TRANSPORT_FAILED;
  };
  t.poll = [](void *, kvc_transport_event *, int64_t) -> int64_t { return 0; };
  t.close = [](void *) {};
  CALL(kvc_cache_set_transport, cache, &t, w.plain_error());
}

}  // namespace

void call_transfers(World &w) {
  kvc_cache *const receiver = create(w.context, 4), *const sender = create(w.context, 8);
  if (receiver != nullptr && sender != nullptr) transfer(w, receiver, sender);
  kvc_cache_destroy(receiver);
  kvc_cache_destroy(sender);
  if (kvc_cache *const other = create(w.context, 4); other != nullptr) {
    set_transport(w, other);
    kvc_cache_destroy(other);
  }
}

}  // namespace fuzz
