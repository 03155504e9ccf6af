#include "sequence/sequence_store.h"

#include <algorithm>
#include <cinttypes>

#include "base/assert.h"

namespace kvc {
namespace {

int64_t nodes_of(const SequenceStoreConfig& config, const SequenceStoreConfig::Group& group) {
  const int32_t edges = group.rules.windowed() ? 1 : config.streaming && group.rules.streams() ? 2 : 0;
  // A list keeps the entries of freed pages. So its indices grow with the length of the sequence.
  const int64_t longest = ceil_div(config.max_length, group.rules.page_size);
  const int64_t max_index = edges > 0 ? longest : std::min(longest, group.num_pages);
  return PageTable::nodes_needed(group.num_pages, config.max_sequences + config.max_snapshots, max_index, edges);
}

// The number of nodes of a group's table. With a prefix index, two lists may have the same pages in different nodes.
// nodes_of does not count these nodes. So a table gets more nodes, for lists that are made from the index. When such a
// list is made, at least nodes_of(config, group) nodes must stay free for all other lists.
int64_t all_nodes_of(const SequenceStoreConfig& config, const SequenceStoreConfig::Group& group) {
  const int64_t nodes = nodes_of(config, group);
  if (!config.indexed) return nodes;
  return 2 * nodes + std::min<int64_t>(config.max_sequences, 64) * (group.num_pages / (PageTable::kFanout - 1) + 8);
}

// For each group, the number of its list in StoredLayers: 0 for the sequence's own tokens. Each encoder group has a
// list of its own, from 1 on.
std::vector<int32_t> lists_of(const SequenceStoreConfig& config, int32_t* num_lists) {
  std::vector<int32_t> lists;
  *num_lists = 1;
  for (const auto& group : config.groups) lists.push_back(group.rules.holds_encoder() ? (*num_lists)++ : 0);
  return lists;
}

}  // namespace

SequenceStore::SequenceStore(SequenceStoreConfig config)
    : config_(std::move(config)),
      ids_(IdKind::kSequence, config_.cache_tag, config_.max_sequences),
      num_groups_(static_cast<int32_t>(config_.groups.size())),
      records_(config_.max_sequences),
      lists_(config_.max_sequences * static_cast<int64_t>(config_.groups.size())),
      free_slots_(config_.max_sequences),
      snapshots_(config_.max_snapshots),
      tree_parents_(config_.max_sequences * config_.max_tree_nodes),
      path_(static_cast<size_t>(config_.max_tree_nodes)),
      needed_pages_(config_.groups.size()),
      donors_(config_.groups.size()) {
  tables_.reserve(config_.groups.size());
  for (const auto& group : config_.groups) {
    tables_.emplace_back(group.num_pages, all_nodes_of(config_, group));
    reserved_nodes_.push_back(nodes_of(config_, group));
    has_windows_ = has_windows_ || group.rules.windowed();
    ordinals_.push_back(num_state_groups_);
    num_state_groups_ += group.rules.holds_state();
  }
  has_encoders_ = config_.num_encoder_groups() > 0;
  int32_t num_lists = 0;
  lists_of_groups_ = lists_of(config_, &num_lists);
  std::vector<int32_t> list_of_layer;
  for (const int32_t group : config_.layer_groups) list_of_layer.push_back(group < 0 ? -1 : list_of(group));
  stored_layers_ = StoredLayers(config_.max_sequences, list_of_layer, num_lists);
  step_layers_.resize(static_cast<size_t>(num_lists));
  if (has_encoders_) encoder_tokens_ = LazyArray<int64_t>(config_.max_sequences * num_groups());
  if (!has_states()) return;
  checkpoint_positions_ = LazyArray<int64_t>(config_.max_sequences * config_.max_checkpoints);
  checkpoint_pages_ = LazyArray<int32_t>(config_.max_sequences * config_.max_checkpoints * num_state_groups_);
  tree_states_ = LazyArray<int32_t>(tree_state_index(static_cast<int32_t>(config_.max_sequences), 0, -1));
}

int64_t SequenceStore::bytes_needed(const SequenceStoreConfig& config) {
  const auto groups = static_cast<int64_t>(config.groups.size());
  int64_t bytes = config.max_sequences * static_cast<int64_t>(sizeof(Record) + sizeof(int32_t)) +
                  config.max_sequences * groups * static_cast<int64_t>(sizeof(PageList)) +
                  config.max_snapshots * static_cast<int64_t>(sizeof(Snapshot)) +
                  config.max_sequences * config.max_tree_nodes * static_cast<int64_t>(sizeof(int16_t)) +
                  config.max_tree_nodes * static_cast<int64_t>(sizeof(int32_t));
  const int64_t encoders = config.num_encoder_groups(), states = config.num_state_groups();
  for (const auto& group : config.groups) {
    bytes += group.num_pages * 8 + all_nodes_of(config, group) * (8 + PageTable::kFanout * 4);
  }
  if (encoders > 0) bytes += config.max_sequences * groups * static_cast<int64_t>(sizeof(int64_t));
  bytes +=
      StoredLayers::bytes_needed(config.max_sequences, static_cast<int64_t>(config.layer_groups.size()), 1 + encoders);
  if (states > 0) bytes += config.max_sequences * config.max_checkpoints * static_cast<int64_t>(sizeof(int64_t));
  bytes += config.max_sequences * (config.max_checkpoints + 1 + config.max_draft_states) * states *
           static_cast<int64_t>(sizeof(int32_t));
  return bytes;
}

int64_t SequenceStore::bytes() const noexcept {
  int64_t bytes = records_.bytes() + lists_.bytes() + free_slots_.bytes() + snapshots_.bytes() + tree_parents_.bytes() +
                  encoder_tokens_.bytes() + checkpoint_positions_.bytes() + checkpoint_pages_.bytes() +
                  tree_states_.bytes() + static_cast<int64_t>(path_.size() * sizeof(int32_t)) + stored_layers_.bytes();
  for (const PageTable& table : tables_) bytes += table.bytes();
  return bytes;
}

Status SequenceStore::stale(uint64_t id, int64_t index) const {
  const char* reason = "no longer exists";
  if (id == 0) {
    reason = "is no sequence (0)";
  } else if (kind_of(id) == IdKind::kForward) {
    reason = "is a forward's id";
  } else if (kind_of(id) != IdKind::kSequence) {
    reason = "is no id of this library";
  } else if (tag_of(id) != (config_.cache_tag & kTagMask)) {
    reason = "belongs to another cache";
  }
  return Status::error(KVC_ERROR_STALE_ID, "sequence %" PRIu64 " at index %" PRId64 " %s", id, index, reason).at(index);
}

// Starts a call in which resolve_first refuses the second occurrence of a sequence.
void SequenceStore::start_marking() noexcept {
  if (++mark_ != 0) return;
  for (int64_t i = 0; i < records_.size(); ++i) records_[i].mark = 0;
  mark_ = 1;
}

Status SequenceStore::duplicate(uint64_t id, int64_t index) const {
  return Status::error(KVC_ERROR_DUPLICATE, "sequence %" PRIu64 " occurs again at index %" PRId64, id, index).at(index);
}

// Says why a sequence is busy, for messages.
const char* SequenceStore::busy_text(int32_t slot) const noexcept {
  if ((records_[slot].state & kBusy) == 0) return "is suspended";
  switch (records_[slot].busy_with) {
    case BusyWith::kForward:
      return "is in an open forward";
    case BusyWith::kSave:
      return "is being saved";
    case BusyWith::kFill:
      return "is being loaded or received";
    case BusyWith::kSuspend:
      return "is being suspended";
    case BusyWith::kResume:
      return "is being resumed";
  }
  return "is busy";
}

Status SequenceStore::busy_error(int32_t slot, int64_t index) const {
  return Status::error(is_suspended(slot) ? KVC_ERROR_SUSPENDED : KVC_ERROR_BUSY,
                       "sequence %" PRIu64 " at index %" PRId64 " %s", records_[slot].id, index, busy_text(slot))
      .at(index);
}

void SequenceStore::set_pending(int32_t slot, bool pending) noexcept {
  uint8_t& state = records_[slot].state;
  state = static_cast<uint8_t>(pending ? state | kPending : state & ~kPending);
}

Status SequenceStore::pending_error(int32_t slot, int64_t index) const {
  return Status::error(KVC_ERROR_PENDING, "sequence %" PRIu64 " at index %" PRId64 " is pending: a job loads its pages",
                       records_[slot].id, index)
      .at(index);
}

int32_t SequenceStore::take_slot() noexcept {
  KVC_ASSERT(num_sequences_ < config_.max_sequences, num_sequences_, config_.max_sequences);
  const int32_t slot = free_slots_size_ > 0 ? free_slots_[--free_slots_size_] : fresh_slot_++;
  Record& record = records_[slot];
  KVC_ASSERT(!record.used, slot, record.id);
  record.stored = 0;
  record.id = ids_.make(++record.generation, slot);
  record.mark = 0;
  record.checkpoints = 0;
  record.nodes = 0;
  record.state = 0;
  record.used = true;
  record.streamed = false;
  record.stream = {};
  stored_layers_.clear(slot);
  for (int32_t g = 0; g < num_groups(); ++g) edit_list(slot, g) = PageList{};
  if (has_encoders_) std::fill_n(encoder_tokens_.data() + int64_t{slot} * num_groups(), num_groups(), 0);
  if (has_states()) {
    const int64_t first = tree_state_index(slot, 0, -1);
    std::fill_n(tree_states_.data() + first, tree_state_index(slot + 1, 0, -1) - first, -1);
  }
  ++num_sequences_;
  return slot;
}

void SequenceStore::free_slot(int32_t slot) noexcept {
  KVC_ASSERT(records_[slot].used && (records_[slot].state & kBusy) == 0, slot, records_[slot].state);
  if (is_suspended(slot)) {
    drop_suspended(slot);
    records_[slot].checkpoints = 0;
  }
  if (has_states()) {
    close_tree_states(slot, records_[slot].nodes - 1);
    drop_checkpoints_after(slot, -1);
  }
  for (int32_t g = 0; g < num_groups(); ++g) edit_table(g).release(edit_list(slot, g));
  if (records_[slot].removed()) --num_removed_;
  records_[slot].used = false;
  records_[slot].id = 0;
  free_slots_[free_slots_size_++] = slot;
  --num_sequences_;
}

Status SequenceStore::add(std::span<uint64_t> out) {
  KVC_TRY(check_slots(static_cast<int64_t>(out.size())));
  for (uint64_t& id : out) id = records_[take_slot()].id;
  return Status();
}

Status SequenceStore::remove(std::span<const uint64_t> ids) {
  start_marking();
  for (size_t i = 0; i < ids.size(); ++i) {
    int32_t slot = -1;
    KVC_TRY(resolve_first(ids[i], static_cast<int64_t>(i), &slot));
  }
  for (const uint64_t id : ids) {
    const int32_t slot = slot_of(id);
    KVC_ASSERT(records_[slot].used, slot, id);
    if ((records_[slot].state & kBusy) != 0) {
      records_[slot].id = 0;
      ++num_removed_;
    } else {
      free_slot(slot);
    }
  }
  return Status();
}

Status SequenceStore::check_works_at(int32_t slot, int64_t position, int64_t index) const {
  KVC_TRY(check_states_at(slot, position, index));
  for (int32_t g = 0; g < num_groups(); ++g) {
    const GroupRules rules = rules_of(slot, g);
    const Hole freed = hole(slot, g);
    if (rules.works_at(position, freed)) continue;
    int64_t before = 0, after = 0;
    nearest_position(slot, position, &before, &after);  // considers all groups
    return Status::error(KVC_ERROR_EVICTED,
                         "position %" PRId64 " needs keys from %" PRId64 " on, but group %d has freed [%" PRId64
                         ", %" PRId64 ") (nearest positions: %" PRId64 " and %" PRId64 ")",
                         position, rules.first_visible(position), g, freed.begin * rules.page_size,
                         freed.end * rules.page_size, before, after)
        .at(index)
        .in_group(g);
  }
  return Status();
}

Status SequenceStore::check_slots(int64_t n) const {
  const int64_t available = config_.max_sequences - num_sequences_;
  if (n <= available) return Status();
  return Status::error(KVC_ERROR_TOO_MANY_SEQUENCES,
                       "max_sequences is %" PRId64 ": %" PRId64 " exist, and the call adds %" PRId64,
                       config_.max_sequences, num_sequences_, n)
      .missing(n, available);
}

Status SequenceStore::check_pages(int32_t group, int64_t required, int64_t available) const {
  if (required <= available) return Status();
  return Status::error(KVC_ERROR_OUT_OF_PAGES, "%" PRId64 " pages of group %d needed, %" PRId64 " of %" PRId64 " free",
                       required, group, available, table(group).num_pages())
      .missing(required, available)
      .in_group(group);
}

Status SequenceStore::check_needed_pages() const {
  for (int32_t g = 0; g < num_groups(); ++g) {
    KVC_TRY(check_pages(g, needed_pages_[static_cast<size_t>(g)], table(g).available_pages()));
  }
  return Status();
}

Status SequenceStore::check_rows(const Shortage& shortage) const {
  if (!shortage.found()) return Status();
  return check_pages(shortage.group, shortage.required, table(shortage.group).available_pages()).at(shortage.row);
}

Status SequenceStore::check_nodes(int32_t group, int64_t first, int64_t count) const {
  const int64_t entries = count - first;
  const int64_t new_nodes = entries / (PageTable::kFanout - 1) + int64_t{2} * PageTable::levels_for(count);
  if (table(group).nodes().free() - new_nodes >= reserved_nodes_[static_cast<size_t>(group)]) return Status();
  return Status::error(KVC_ERROR_OUT_OF_MEMORY, "group %d has no memory for another page list of %" PRId64 " pages",
                       group, entries)
      .in_group(group);
}

Status SequenceStore::fork(std::span<const uint64_t> parents, std::span<const int64_t> positions,
                           std::span<uint64_t> children, std::vector<SlotCopy>* copies) {
  const auto n = static_cast<int64_t>(parents.size());
  const auto position_of = [&](int64_t i, int32_t slot) {
    const int64_t position = positions.empty() ? -1 : positions[static_cast<size_t>(i)];
    return position == -1 ? length(slot) : position;
  };
  for (int64_t i = 0; i < n; ++i) {
    int32_t slot = -1;
    KVC_TRY(resolve(parents[static_cast<size_t>(i)], i, &slot));
    KVC_TRY(check_idle(slot, i));
    const int64_t position = position_of(i, slot);
    if (position < 0 || position > length(slot)) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE, "position %" PRId64 " is outside the sequence's length %" PRId64,
                           position, length(slot))
          .at(i);
    }
    KVC_TRY(check_works_at(slot, position, i));
  }
  KVC_TRY(check_slots(n));
  int64_t num_copies = 0;
  Shortage shortage;
  for (int32_t g = 0; g < num_groups(); ++g) {
    int64_t& required = needed_pages_[static_cast<size_t>(g)];
    required = 0;
    if (!rules(g).holds_tokens()) continue;  // lists of states and encoder tokens are shared whole, without new pages
    int64_t first_missing = -1;
    for (int64_t i = 0; i < n; ++i) {
      if (position_of(i, slot_of(parents[static_cast<size_t>(i)])) % rules(g).page_size == 0) continue;
      if (++required > table(g).available_pages() && first_missing < 0) first_missing = i;
    }
    shortage.add(g, required, first_missing);
    num_copies += required;
  }
  KVC_TRY(check_rows(shortage));
  copies->reserve(copies->size() + static_cast<size_t>(2 * num_copies));  // nothing after this can fail
  make_room();
  for (int64_t i = 0; i < n; ++i) {
    const int32_t parent = slot_of(parents[static_cast<size_t>(i)]);
    const int64_t position = position_of(i, parent);
    const int32_t child = take_slot();
    share_prefix(parent, child, position, copies);
    children[static_cast<size_t>(i)] = records_[child].id;
  }
  return Status();
}

// Makes the child begin with the first `position` tokens of its parent, and copies the parent's settings.
void SequenceStore::share_prefix(int32_t parent, int32_t child, int64_t position,
                                 std::vector<SlotCopy>* copies) noexcept {
  records_[child].stored = position;
  records_[child].stream = stream(parent);
  records_[child].streamed = records_[parent].streamed;
  stored_layers_.copy(parent, child, 0, position);
  for (int32_t g = 0; g < num_groups(); ++g) {
    const int64_t page_size = rules(g).page_size;
    PageList& target = edit_list(child, g);
    const PageList& source = list(parent, g);
    if (rules(g).holds_encoder()) {
      target = edit_table(g).share(source, source.size);
      edit_list(parent, g).tail_shared = true;  // the sequence that appends first copies a partial last page
      encoder_tokens_[int64_t{child} * num_groups() + g] = stored_in(parent, g);
      stored_layers_.copy(parent, child, list_of(g), stored_in(parent, g));
      continue;
    }
    target = edit_table(g).share(source, ceil_div(position, page_size));
    if (rules(g).holds_state() || position % page_size == 0) continue;
    const int32_t partial = target.tail_page;
    const int32_t page = edit_table(g).replace_tail(target);
    copies->push_back({g, static_cast<int32_t>(position % page_size), partial * page_size, page * page_size});
    clear_rest(g, page, position % page_size, copies);
  }
  if (!has_states()) return;
  copy_checkpoints(parent, child, position);
  if (position < length(parent)) restore_states(child, position);
}

Status SequenceStore::truncate(std::span<const uint64_t> ids, std::span<const int64_t> lengths) {
  start_marking();
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    int32_t slot = -1;
    KVC_TRY(resolve_first(ids[i], index, &slot));
    if (busy(slot)) return busy_error(slot, index);
    if (is_pending(slot)) return pending_error(slot, index);
    if (lengths[i] < 0 || lengths[i] > length(slot)) {
      return Status::error(KVC_ERROR_OUT_OF_RANGE, "length %" PRId64 " exceeds sequence length %" PRId64, lengths[i],
                           length(slot))
          .at(index);
    }
    if (lengths[i] < length(slot)) KVC_TRY(check_works_at(slot, lengths[i], index));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    const int32_t slot = slot_of(ids[i]);
    const bool shorter = lengths[i] < length(slot);
    if (has_states()) close_tree_states(slot, -1);
    records_[slot].stored = lengths[i];
    stored_layers_.truncate(slot, 0, lengths[i]);
    drop_nodes(slot);
    for (int32_t g = 0; g < num_groups(); ++g) {
      if (rules(g).holds_encoder() || (rules(g).holds_state() && lengths[i] > 0)) continue;
      edit_table(g).truncate(edit_list(slot, g), ceil_div(lengths[i], rules(g).page_size));
    }
    if (!has_states() || !shorter) continue;
    drop_checkpoints_after(slot, lengths[i]);
    restore_states(slot, lengths[i]);
  }
  return Status();
}

Status SequenceStore::clear() {
  for (int32_t slot = 0; slot < fresh_slot_; ++slot) {
    if (records_[slot].used && (records_[slot].state & kBusy) != 0) {
      return Status::error(KVC_ERROR_BUSY, "a sequence %s", busy_text(slot));
    }
  }
  for (int32_t slot = 0; slot < fresh_slot_; ++slot) {
    if (records_[slot].used) free_slot(slot);
  }
  return Status();
}

bool SequenceStore::lists_work_at(int32_t slot, int64_t position) const noexcept {
  for (int32_t g = 0; g < num_groups(); ++g) {
    if (!rules_of(slot, g).works_at(position, hole(slot, g))) return false;
  }
  return true;
}

void SequenceStore::nearest_position(int32_t slot, int64_t position, int64_t* before, int64_t* after) const noexcept {
  if (has_states()) {
    nearest_checkpoint(slot, position, before, after);
    return;
  }
  // In each group, a sequence can be cut at all positions except one range. So each group moves each candidate at most
  // once.
  *before = *after = position;
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t g = 0; g < num_groups(); ++g) {
      const GroupRules rules = rules_of(slot, g);
      const Hole freed = hole(slot, g);
      if (!rules.works_at(*before, freed)) {
        *before = rules.last_before(freed);
        moved = true;
      }
      if (!rules.works_at(*after, freed)) {
        *after = rules.first_after(freed);
        moved = true;
      }
    }
  }
  if (*after > length(slot)) *after = -1;
}

int32_t SequenceStore::take_snapshot(int32_t slot, int32_t group) noexcept {
  for (int32_t i = 0; i < snapshots_.size(); ++i) {
    if (snapshots_[i].used) continue;
    const PageList& source = edit_list(slot, group);
    snapshots_[i] = {edit_table(group).share(source, source.size), group, true};
    return i;
  }
  return -1;
}

void SequenceStore::drop_snapshot(int32_t index) noexcept {
  KVC_ASSERT(snapshots_[index].used, index, snapshots_[index].group);
  edit_table(snapshots_[index].group).release(snapshots_[index].list);
  snapshots_[index].used = false;
}

}  // namespace kvc
