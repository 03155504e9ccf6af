// Cache: implements the calls of the C API on a cache. It owns the lock, the sequences, the layers with their pools,
// and the steps. Sequences, and the order of work on streams, change only under the lock. Methods of a Step run kernels
// outside the lock (in_step).
//
// Thread safety: any thread may call any method. The destructor must run when no other call runs. Ownership: keeps its
// context alive; shares pools with exported views. Invariants
//   1. A step's sequences are busy from begin to end or abort, so the page lists that its kernels read do not change.
//   2. A method that fails has changed nothing, with three exceptions. A device error in a step closes the step, as
//      abort does. Pages that were evicted from the prefix index stay evicted. A commit that fails after it has begun
//      copies makes the cache unusable (check_usable).
//   3. Step::in_use is true exactly while a call is inside that step.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "cache/cache_tiers.h"
#include "cache/cache_transfers.h"
#include "context/device_step.h"
#include "context/stream_order.h"
#include "events/event_log.h"
#include "events/event_message.h"
#include "layer/layers.h"
#include "prefix/prefix_store.h"
#include "save/saved_record.h"
#include "save/sequence_payload.h"
#include "sequence/copy_queue.h"
#include "sequence/rope_sets.h"
#include "sequence/sequence_store.h"
#include "step/step.h"

namespace kvc {

class Cache {
 public:
  static Status create(std::shared_ptr<Context> context, const CacheConfig& config, std::unique_ptr<Cache>* out);
  static Status estimate(const Context& context, const CacheConfig& config, int32_t group, kvc_estimate* out);

  ~Cache();

  // Returns DEVICE_FAILED if the device has failed permanently, or if the order of the cache's work on the device is
  // lost. After that, no call of the cache works.
  Status check_usable() const;

  // The 32 bytes that identify the model, or nullptr.
  const PageKey* fingerprint() const noexcept { return geometry_.fingerprint ? &*geometry_.fingerprint : nullptr; }

  // Sequences (cache.cc)
  Status add(std::span<kvc_seq> out);
  Status remove(std::span<const kvc_seq> ids);
  Status fork(std::span<const kvc_seq> parents, std::span<const int64_t> positions, std::span<kvc_seq> children,
              void* stream);
  Status truncate(std::span<const kvc_seq> ids, std::span<const int64_t> lengths);
  Status clear();
  Status lengths(std::span<const kvc_seq> ids, std::span<int64_t> out);
  Status pages(kvc_seq id, int32_t group, std::span<int32_t> out, int64_t* count);
  Status nearest_position(kvc_seq id, int64_t position, int64_t* before, int64_t* after);
  Status set_rope(std::span<const kvc_seq> ids, int32_t set);
  Status set_streaming(std::span<const kvc_seq> ids, std::span<const int64_t> sinks, std::span<const int64_t> windows,
                       uint32_t flags);
  Status streaming(std::span<const kvc_seq> ids, std::span<int64_t> sinks, std::span<int64_t> windows);
  Status max_append(std::span<const kvc_seq> ids, std::span<int64_t> out);
  Status exclusive_pages(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out);
  Status commit(std::span<const kvc_seq> ids, std::span<const int32_t> leaves, void* stream);
  Status tree_nodes(std::span<const kvc_seq> ids, std::span<int32_t> out);
  Status checkpoint(std::span<const kvc_seq> ids);
  Status encoder_lengths(int32_t group, std::span<const kvc_seq> ids, std::span<int64_t> out);
  // Moves all waiting copies to `out`, if it has room for them. An empty `out` leaves them waiting. Sets *count to the
  // number of waiting copies. (cache_copies.cc)
  Status take_copies(std::span<kvc_copy> out, int64_t* count);

  // Steps (cache_steps.cc)
  Status can_fit(const kvc_batch& batch);
  Status begin(const kvc_batch& batch, void* stream, kvc_forward* out);
  Status end(kvc_forward id);
  Status abort(kvc_forward id);
  Status cancel(kvc_forward id);
  Status info(kvc_forward id, kvc_forward_info* out);
  // Runs body(step) outside the lock. If another call is in the same step, returns BUSY. even_cancelled: run body even
  // if the step was cancelled.
  template <class Body>
  Status in_step(kvc_forward id, bool even_cancelled, Body body) {
    Step* step = nullptr;
    KVC_TRY(enter_step(id, even_cancelled, &step));
    const struct Leaving {
      Cache& cache;
      Step& step;
      ~Leaving() { cache.leave_step(step); }
    } leaving{*this, *step};
    return body(*step);
  }

  // Graphs (cache_graphs.cc)
  Status create_graph(const kvc_graph_config& config, kvc_forward* out);
  Status destroy_graph(kvc_forward id);

  // Prefix index (cache_prefix.cc)
  Status match_prefix(const PrefixQuery& query, kvc_prefix_hit* hit);
  Status attach_prefix(const PrefixQuery& query, void* stream, kvc_prefix_hit* hit, kvc_seq* out);
  Status publish_prefix(kvc_seq id, const PrefixQuery& query, const kvc_prefix_options& options,
                        kvc_prefix_published* published);
  Status drop_prefix(const PrefixQuery& query, int64_t* pages);
  Status drop_session(uint64_t session, int64_t* pages);
  Status set_prefix_priority(const PrefixQuery& query, int32_t priority, int64_t time_to_live);
  Status set_session_priority(uint64_t session, int32_t priority, int64_t time_to_live);
  Status pin_prefix(const PrefixQuery& query, kvc_prefix_hit* hit, uint64_t* pin);
  Status unpin_prefix(uint64_t pin);
  Status set_time(int64_t now);

  // Events of the prefix index (cache_events.cc). The caller has made all checks of the args that do not need the
  // cache.
  Status read_events(const kvc_events_args& args, kvc_events_range* range);
  Status snapshot_events(const kvc_events_args& args, kvc_events_range* range);
  // Tiers (cache_tier_calls.cc)
  Status add_tier(const TierWorker::Tier& tier);
  // Returns UNSUPPORTED if the cache cannot have tiers.
  Status check_can_have_tiers() const;
  Status load_prefix(const PrefixQuery& query, const kvc_prefix_load_options& options, kvc_prefix_hit* hit,
                     kvc_job* job);
  Status poll_job(kvc_job job, kvc_job_info* info);
  Status cancel_job(kvc_job job);
  Status job_descriptor(int32_t* descriptor);
  Status tier_traffic(kvc_tier_traffic* traffic);
  Status suspend(kvc_seq id, kvc_job* job);
  Status resume(kvc_seq id, kvc_job* job);

  // Transfers (cache_transfer_calls.cc). The caller has made all checks of the args that do not need the cache.
  Status set_transport(const kvc_transport& transport);
  Status receive_transfer(const kvc_receive_args& args, kvc_transfer* transfer);
  Status describe_transfer(kvc_transfer transfer, std::vector<uint8_t>* out);
  Status send_transfer(kvc_seq sequence, std::span<const uint8_t> description, kvc_transfer* transfer);
  Status poll_transfer(kvc_transfer transfer, kvc_transfer_info* info);
  Status cancel_transfer(kvc_transfer transfer);

  // Tensors (cache_tensors.cc)
  Status export_pool(int32_t layer, int32_t pool, uint32_t flags, DLManagedTensorVersioned** out, void* stream);
  Status export_sequence(kvc_seq id, const kvc_export_args& args, kvc_exported* out, void* stream);
  Status import_sequence(kvc_seq id, const kvc_import_args& args, void* stream);

  // Saved sequences (cache_save.cc)
  Status save_sequence(kvc_seq id, std::span<const int32_t> tokens, int64_t section_bytes, ByteSink* sink,
                       void* stream);
  static Status check_token_count(int64_t num_tokens, int64_t length);
  // Sets *num_tokens to the number of token ids in the source, even if `tokens` is too small for them. With an empty
  // `tokens`, no ids are read.
  Status load_sequence(ByteSource* source, std::span<int32_t> tokens, int64_t* num_tokens, void* stream, kvc_seq* out);

  // Statistics and checks (cache.cc; describe: cache_describe.cc)
  Status stats(int32_t group, kvc_stats* out);
  // Returns the text of kvc_cache_describe. Throws std::bad_alloc.
  std::string describe();
  uint64_t digest();
  Status check_invariants();

 private:
  Cache(std::unique_ptr<Layers> layers, uint32_t tag);
  int32_t num_groups() const noexcept { return layers_.num_groups(); }

  // Copies of tokens between slots. A cache with storage makes the copies itself (cache.cc). A cache without storage
  // queues them for its caller (cache_copies.cc).
  Status copy_slots(std::span<const SlotCopy> copies, void* stream, bool* begun = nullptr) KVC_REQUIRES(mutex_);
  Status copy_layers(std::span<const SlotCopy> copies, void* stream, bool* begun) KVC_REQUIRES(mutex_);
  Status check_copies_taken() const KVC_REQUIRES(mutex_);
  Status make_room_for_copies(int64_t more) KVC_REQUIRES(mutex_);

  Status check_prefix_index() const KVC_REQUIRES(mutex_);
  Status check_session(uint64_t session) const KVC_REQUIRES(mutex_);
  Status check_terms(int32_t priority, int64_t time_to_live, int64_t* expires) const KVC_REQUIRES(mutex_);
  // Returns UNSUPPORTED if no tier was added.
  Status find_tiers(CacheTiers** tiers) const;

  Status check_can_transfer() const;
  // Returns the object for transfers, which the first call creates.
  CacheTransfers& transfers();
  Status find_transfers(kvc_transfer transfer, CacheTransfers** out);
  Status begin_receive(const kvc_receive_args& args, uint64_t* sequence, std::vector<int64_t>* begins);

  Status create_events();
  Status check_events() const KVC_REQUIRES(mutex_);
  MessageFormat message_format(const kvc_events_args& args) const;
  Status copy_new_events(uint64_t next, std::span<kvc_event> events, std::span<int32_t> tokens,
                         kvc_events_range* range);

  // Adds the counts of a group, or of all groups (-1).
  void count(int32_t group, kvc_stats* out) const KVC_REQUIRES(mutex_);
  void count_traffic(kvc_tier_traffic* traffic) const KVC_REQUIRES(mutex_);
  void describe_group(int32_t group, std::span<const PageUsers> users, JsonText* out) const KVC_REQUIRES(mutex_);
  void describe_steps(std::span<const int32_t> numbers, JsonText* out) const KVC_REQUIRES(mutex_);

  uint64_t step_id(int32_t index) const KVC_REQUIRES(mutex_);
  Status resolve_step(kvc_forward id, Step** step) const KVC_REQUIRES(mutex_);
  // Finds the index of a graph, which may have an open step.
  Status resolve_graph(kvc_forward id, int32_t* index) const KVC_REQUIRES(mutex_);
  Status find_step(kvc_forward graph, int32_t* index) const KVC_REQUIRES(mutex_);
  Status enter_step(kvc_forward id, bool even_cancelled, Step** step);
  void leave_step(Step& step) noexcept;
  // Visits all open steps, also the steps of graphs.
  template <class Visit>
  void for_each_open(Visit visit) const {
    for (const auto& step : steps_) {
      if (step && step->is_open()) visit(*step);
    }
  }
  Status check_no_compressed_group(const char* what) const;
  Status read_kind(const kvc_batch& batch, StepKind* out) const KVC_REQUIRES(mutex_);
  Status check_batch(const kvc_batch& batch, std::span<int32_t> slots, StepKind* kind, int32_t* index)
      KVC_REQUIRES(mutex_);
  // Returns ORDER if the step's stream is being captured: then the step stays open. After any other failure the step is
  // closed, as by abort.
  Status close(Step& step, bool keep) KVC_REQUIRES(mutex_);
  void give_back(Step& step, bool keep) KVC_REQUIRES(mutex_);
  Status create_mirrors();
  Status stage(Step& step) KVC_REQUIRES(mutex_);
  SequencePages pages_of(int32_t slot, const SavedSequence& saved, bool loading) const KVC_REQUIRES(mutex_);
  Status begin_load(const SavedRecord& record, void* stream, int32_t* slot, SequencePages* pages);
  Status find_slots(int32_t slot, int32_t layer, int64_t begin, int64_t end, std::vector<int64_t>* slots) const
      KVC_REQUIRES(mutex_);

  const std::unique_ptr<Layers> owned_layers_;
  const Layers& layers_;
  const std::shared_ptr<Context> context_;
  const Geometry& geometry_;
  const IdLayout step_ids_;

  Mutex mutex_;
  SequenceStore store_ KVC_GUARDED_BY(mutex_);
  std::unique_ptr<PrefixStore> prefixes_ KVC_GUARDED_BY(mutex_);  // null without an index
  std::unique_ptr<EventLog> events_ KVC_GUARDED_BY(mutex_);       // null without events; a listener of the index
  RopeSets rope_sets_ KVC_GUARDED_BY(mutex_);
  static constexpr int32_t kMaxGraphs = 64;
  std::vector<std::unique_ptr<Step>> steps_;  // [max_open_forwards], then [kMaxGraphs] of graphs; entries may be null
  uint64_t graphs_made_ KVC_GUARDED_BY(mutex_) = 0;
  // Scratch of calls under the lock, allocated once: checked_slots_ has [max_sequences] entries, copies_ and
  // layer_copies_ have [max_sequences * groups]. A call that needs more copies enlarges them before it changes the
  // cache.
  std::vector<int32_t> checked_slots_ KVC_GUARDED_BY(mutex_);
  BatchArrays batch_ KVC_GUARDED_BY(mutex_);  // of a begin or can_fit
  std::vector<SlotCopy> copies_ KVC_GUARDED_BY(mutex_);
  std::vector<kvc_backend_slot_copy> layer_copies_ KVC_GUARDED_BY(mutex_);
  CopyQueue copy_queue_ KVC_GUARDED_BY(mutex_);  // of a cache without storage
  StreamOrder order_;                            // guarded by the lock, except for StreamOrder::check
  std::vector<NodeMirror> mirrors_;              // [groups]; empty handles if the device reads the host's page lists
  std::vector<kvc_backend_node_changes> node_changes_ KVC_GUARDED_BY(mutex_);
  std::unique_ptr<CacheTransfers> transfers_ KVC_GUARDED_BY(mutex_);  // null before the first transfer
  // Created with the first tier, and not replaced later. It is declared last, because its thread uses the other
  // members.
  std::unique_ptr<CacheTiers> owned_tiers_;
  std::atomic<CacheTiers*> tiers_ = nullptr;  // the same pointer, set once it can be used
};

}  // namespace kvc
