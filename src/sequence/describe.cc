// Writes the sequences in the output of kvc_cache_describe, with their pages and the pages that they share.
#include <algorithm>

#include "sequence/sequence_store.h"

namespace kvc {
namespace {

// Writes page ids as runs [first page, count]. Entries without a page are written as runs [-1, count].
class PageRuns {
 public:
  explicit PageRuns(JsonText* out) : out_(*out) { out_.open('['); }

  void add(int32_t page, int64_t count) {
    if (count <= 0) return;
    if (count_ > 0 && (page < 0 ? first_ < 0 : first_ >= 0 && page == first_ + count_)) {
      count_ += count;
      return;
    }
    flush();
    first_ = page;
    count_ = count;
  }
  void finish() {
    flush();
    out_.close(']');
  }

 private:
  void flush() {
    if (count_ == 0) return;
    out_.open('[');
    out_.number(first_);
    out_.number(count_);
    out_.close(']');
  }

  JsonText& out_;
  int64_t first_ = 0, count_ = 0;
};

// Returns the group from whose pages "parent" and "shared_tokens" are computed, or -1 if no group holds tokens. Prefers
// a group that frees no pages.
int32_t leading_group(const SequenceStore& store) {
  int32_t leading = -1;
  for (int32_t g = 0; g < store.num_groups(); ++g) {
    if (!store.rules(g).holds_tokens()) continue;
    if (leading < 0 || (store.rules(leading).windowed() && !store.rules(g).windowed())) leading = g;
  }
  return leading;
}

}  // namespace

const char* SequenceStore::state_text(int32_t slot) const noexcept {
  if (is_suspended(slot)) return "suspended";
  if (is_pending(slot)) return "pending";
  return busy(slot) ? "busy" : "idle";
}

void SequenceStore::describe(JsonText* out, std::vector<std::vector<PageUsers>>* users,
                             std::vector<int32_t>* numbers) const {
  users->clear();
  for (const PageTable& pages : tables_) users->emplace_back(static_cast<size_t>(pages.num_pages()));
  const int32_t leading = leading_group(*this);
  // Calls visit(entry, page) for the pages that a sequence uses: the pages of its list, and then its state pages,
  // whose entries follow those of the list. For a suspended sequence, visits the pages that it keeps.
  const auto for_each_used = [&](int32_t slot, int32_t group, auto visit) {
    int64_t entry = 0;
    if (const auto kept = suspended_.find(slot); is_suspended(slot) && kept != suspended_.end()) {
      for (const Place& place : kept->second[static_cast<size_t>(group)]) {
        if (place.is_kept()) visit(entry, place.page);
        ++entry;
      }
      return;
    }
    const PageList& pages = list(slot, group);
    table(group).for_each(pages, 0, pages.size, visit);
    entry = pages.size;
    for_each_state_page(slot, [&](int32_t g, int32_t page) {
      if (g == group) visit(entry++, page);
    });
  };
  numbers->assign(static_cast<size_t>(fresh_slot_), -1);
  int32_t number = 0;
  out->open('[');
  for (int32_t slot = 0; slot < fresh_slot_; ++slot) {
    const Record& record = records_[slot];
    if (!record.used || record.removed()) continue;
    out->open('{');
    out->member("id", static_cast<int64_t>(record.id));
    out->member("length", length(slot));
    out->member("nodes", record.nodes);
    out->member("checkpoints", record.checkpoints);
    out->name("state").text(state_text(slot));
    out->member("stream_sinks", record.stream.sinks);
    out->member("stream_window", record.stream.window);
    int32_t parent = -1;
    int64_t shared = 0;
    out->name("pages").open('[');
    for (int32_t g = 0; g < num_groups(); ++g) {
      PageRuns runs(out);
      int64_t next = 0;
      bool leads = g == leading;
      for_each_used(slot, g, [&](int64_t entry, int32_t page) {
        PageUsers& user = (*users)[static_cast<size_t>(g)][static_cast<size_t>(page)];
        leads = leads && user.first >= 0;
        if (leads) {
          parent = user.first;
          shared = (entry + 1) * rules(g).page_size;
        }
        if (user.count == 0) user.first = number;
        user.count += user.last != number;
        user.last = number;
        runs.add(-1, entry - next);
        runs.add(page, 1);
        next = entry + 1;
      });
      runs.add(-1, list(slot, g).size - next);
      runs.finish();
    }
    out->close(']');
    out->member("parent", parent);
    out->member("shared_tokens", std::min(shared, length(slot)));
    out->close('}');
    (*numbers)[static_cast<size_t>(slot)] = number++;
  }
  out->close(']');
}

}  // namespace kvc
