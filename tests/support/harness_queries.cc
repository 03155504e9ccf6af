// Queries, compared with the model.
#include <algorithm>
#include <string>
#include <unordered_map>

#include "harness.h"
#include "harness_call.h"

namespace kvt {

// ---- Queries -----------------------------------------------------------------------------------

kvc_status Harness::can_fit(const std::vector<Row> &rows, int layer_begin, int layer_end) {
  const Batch built(*this, rows, layer_begin, layer_end);
  return call("kvc_cache_can_fit", batch_faults(rows, layer_begin, layer_end),
              [&](kvc_error *e) { return kvc_cache_can_fit(cache_.get(), &built.batch, e); });
}

int64_t Harness::check_max_append(int handle) {
  const Sequence &s = sequence(handle);
  int64_t got = -1;
  call("kvc_seq_max_append", {}, [&](kvc_error *e) { return kvc_seq_max_append(cache_.get(), 1, &s.id, &got, e); });
  int64_t expected_tokens = 0;
  if (s.forward < 0) {
    auto fits = [&](int64_t n) {
      for (size_t g = 0; g < pools_.size(); g++) {
        if (is_cross(g)) continue;
        if (pages_needed(s, static_cast<int>(g), n) > free_pages(static_cast<int>(g))) return false;
      }
      return true;
    };
    int64_t low = 0, high = spec_.max_batch_tokens;  // more tokens never need fewer pages
    if (!s.nodes.empty()) high = std::min<int64_t>(high, spec_.tree_nodes() - static_cast<int64_t>(s.nodes.size()));
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (fits(middle)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    expected_tokens = low;
  }
  if (!open_faults().empty()) {
    if (got != expected_tokens && got != 0) fail("max_append with every forward in use");
    return got;
  }
  if (got != expected_tokens) {
    fail("max_append is " + std::to_string(got) + ", expected " + std::to_string(expected_tokens) + " (length " +
         std::to_string(s.tokens.size()) + ")");
  }
  if (s.forward >= 0) return got;
  const auto row = [&](int64_t n) {
    Row r{handle, static_cast<int32_t>(n)};
    if (!s.nodes.empty()) r.parents.assign(static_cast<size_t>(n), KVC_TREE_ROOT);
    return r;
  };
  if (got > 0) can_fit({row(got)});
  if (can_fit({row(got + 1)}) == KVC_OK) fail("one more than max_append fits");
  return got;
}

void Harness::check_nearest(int handle, int64_t position) {
  const Sequence &s = sequence(handle);
  int64_t before = -7, after = -7;
  if (position < 0 || position > length(handle)) {
    call("kvc_seq_nearest_position", {{KVC_ERROR_OUT_OF_RANGE}},
         [&](kvc_error *e) { return kvc_seq_nearest_position(cache_.get(), s.id, position, &before, &after, e); });
    return;
  }
  call("kvc_seq_nearest_position", {},
       [&](kvc_error *e) { return kvc_seq_nearest_position(cache_.get(), s.id, position, &before, &after, e); });
  int64_t low = position, high = position;
  while (!position_works(handle, low)) low--;
  while (high <= length(handle) && !position_works(handle, high)) high++;
  if (high > length(handle)) high = -1;
  if (before != low || after != high) {
    fail("nearest_position(" + std::to_string(position) + ") is " + std::to_string(before) + ", " +
         std::to_string(after) + "; expected " + std::to_string(low) + ", " + std::to_string(high));
  }
}

// The pages of a sequence, with those that its open forward has taken.
std::vector<int> Harness::pages_with_forward(int handle, size_t group) const {
  const Sequence &s = sequence(handle);
  std::vector<int> pages = s.pages[group];
  if (s.forward < 0) return pages;
  for (const OpenRow &row : forwards_.at(s.forward).rows) {
    if (row.sequence != handle) continue;
    if (row.copied[group]) pages.pop_back();
    pages.insert(pages.end(), row.fresh[group].begin(), row.fresh[group].end());
  }
  return pages;
}

void Harness::check_tables(int handle) {
  const Sequence &s = sequence(handle);
  int64_t got = -1;
  call("kvc_seq_lengths", {}, [&](kvc_error *e) { return kvc_seq_lengths(cache_.get(), 1, &s.id, &got, e); });
  if (got != length(handle)) fail("length is " + std::to_string(got) + ", expected " + std::to_string(length(handle)));
  mix(static_cast<uint64_t>(got));
  int32_t tree_nodes = -1;
  call("kvc_seq_tree_nodes", {},
       [&](kvc_error *e) { return kvc_seq_tree_nodes(cache_.get(), 1, &s.id, &tree_nodes, e); });
  if (tree_nodes != nodes(handle)) fail("tree_nodes is not " + std::to_string(nodes(handle)));
  int64_t stream[2] = {-1, -1};
  call("kvc_seq_get_streaming", {},
       [&](kvc_error *e) { return kvc_seq_get_streaming(cache_.get(), 1, &s.id, &stream[0], &stream[1], e); });
  if (stream[0] != s.sinks || stream[1] != s.window) fail("the streaming window is another one");
  for (size_t g = 0; g < pools_.size(); g++) {
    // kvc_seq_pages leaves out the pages of uncommitted nodes.
    const int64_t tokens = length_in(handle, static_cast<int>(g));
    const std::vector<int> pages(s.pages[g].begin(), s.pages[g].begin() + ceil_div(tokens, spec_.page_size));
    int64_t encoder_tokens = -1;
    const Faults faults = is_cross(g) ? Faults{} : Faults{{KVC_ERROR_INVALID_ARGUMENT}};
    call("kvc_seq_encoder_lengths", faults, [&](kvc_error *e) {
      return kvc_seq_encoder_lengths(cache_.get(), static_cast<int32_t>(g), 1, &s.id, &encoder_tokens, e);
    });
    if (is_cross(g) && encoder_tokens != tokens) fail("encoder_lengths is not " + std::to_string(tokens));
    int64_t exclusive = -1, alone = 0;
    call("kvc_seq_exclusive_pages", {}, [&](kvc_error *e) {
      return kvc_seq_exclusive_pages(cache_.get(), static_cast<int32_t>(g), 1, &s.id, &exclusive, e);
    });
    for (const int page : pages_with_forward(handle, g)) alone += page >= 0 && pools_[g].refs.at(page) == 1;
    if (exclusive != alone) {
      fail("group " + std::to_string(g) + ": exclusive_pages is " + std::to_string(exclusive) + ", expected " +
           std::to_string(alone));
    }
    std::vector<int32_t> ids(pages.size() + 1, -99);
    int64_t count = -1;
    call("kvc_seq_pages", {}, [&](kvc_error *e) {
      return kvc_seq_pages(cache_.get(), s.id, static_cast<int32_t>(g), ids.data(), static_cast<int64_t>(ids.size()),
                           &count, e);
    });
    if (count != static_cast<int64_t>(pages.size())) {
      fail("group " + std::to_string(g) + " has " + std::to_string(count) + " pages, expected " +
           std::to_string(pages.size()) + " (length " + std::to_string(length(handle)) + ")");
    }
    if (ids.back() != -99) fail("kvc_seq_pages wrote past its count");
    Pool &pool = pools_[g];
    for (size_t i = 0; i < pages.size(); i++) {
      mix(static_cast<uint64_t>(ids[i]) + 3);
      const std::string where = "group " + std::to_string(g) + " sequence " + std::to_string(handle) + " page entry " +
                                std::to_string(i) + " is " + std::to_string(ids[i]);
      if (pages[i] < 0) {
        if (ids[i] != -1) fail(where + ", expected -1 (it left the window)");
        continue;
      }
      if (ids[i] < 0 || ids[i] >= pool.total) fail(where + ", expected a page held in the pool");
      auto it = pool.to_library.find(pages[i]);
      if (it != pool.to_library.end()) {
        if (it->second != ids[i]) fail(where + ", expected the same page as before, " + std::to_string(it->second));
      } else if (pool.from_library.count(ids[i])) {
        fail(where + ", a page that belongs to another table and is not shared with this one");
      } else {
        pool.to_library[pages[i]] = ids[i];
        pool.from_library[ids[i]] = pages[i];
      }
    }
  }
}

void Harness::check_stats() {
  int64_t total = 0, used = 0, held_most = 0, storage = 0;
  const bool quiet = forwards_.empty();
  int64_t logical = 0;
  for (const auto &[handle, s] : sequences_) logical += static_cast<int64_t>(s.tokens.size());
  for (size_t g = 0; g < pools_.size(); g++) {
    kvc_stats stats;
    kvc_stats_init(&stats);
    call("kvc_cache_stats", {},
         [&](kvc_error *e) { return kvc_cache_stats(cache_.get(), static_cast<int32_t>(g), &stats, e); });
    const Pool &pool = pools_[g];
    auto expect = [&](const char *name, int64_t got, int64_t wanted) {
      if (got != wanted) {
        fail("stats of group " + std::to_string(g) + ": " + name + " is " + std::to_string(got) + ", expected " +
             std::to_string(wanted));
      }
    };
    int64_t token_bytes = 0, page_bytes = 0;
    for (const LayerSpec &l : spec_.layers) {
      if (l.group != static_cast<int>(g) || l.kv_layer >= 0) continue;
      token_bytes += l.token_bytes();
      page_bytes += l.page_bytes(spec_.page_size);
    }
    expect("pages_total", stats.pages_total, pool.total);
    expect("pages_used", stats.pages_used, pool.used);
    expect("pages_free", stats.pages_free, pool.total - pool.used);
    expect("pages_peak", stats.pages_peak, pool.peak);
    total += pool.total;
    used += pool.used;
    storage += pool.total * page_bytes;
    expect("storage_bytes", stats.storage_bytes, pool.total * page_bytes);
    if (!quiet) continue;
    expect("num_sequences", stats.num_sequences, static_cast<int64_t>(sequences_.size()));
    int64_t of_group = 0;
    for (const auto &[handle, s] : sequences_) of_group += length_in(handle, static_cast<int>(g));
    expect("tokens_logical", stats.tokens_logical, of_group);
    // The tokens of a page are those of its longest owner; the shared ones are those of its second longest owner.
    std::unordered_map<int, std::pair<int64_t, int64_t>> coverage;
    for (const auto &[handle, s] : sequences_) {
      for (size_t i = 0; i < s.pages[g].size(); i++) {
        if (s.pages[g][i] < 0) continue;
        const int64_t tokens = std::min<int64_t>(
            spec_.page_size, length_in(handle, static_cast<int>(g)) - static_cast<int64_t>(i) * spec_.page_size);
        if (tokens <= 0) continue;  // nodes only
        auto &[most, second] = coverage[s.pages[g][i]];
        if (tokens > most) {
          second = most;
          most = tokens;
        } else {
          second = std::max(second, tokens);
        }
      }
    }
    int64_t held = 0, held_shared = 0, shared = 0;
    for (const auto &[page, tokens] : coverage) {
      held += tokens.first;
      held_shared += tokens.second;
      shared += pool.refs.at(page) > 1;
    }
    expect("pages_shared", stats.pages_shared, shared);
    expect("tokens_held", stats.tokens_held, held);
    expect("tokens_shared", stats.tokens_shared, held_shared);
    expect("fragmentation_bytes", stats.fragmentation_bytes, pool.used * page_bytes - held * token_bytes);
    held_most = std::max(held_most, held);
  }
  kvc_stats stats;
  kvc_stats_init(&stats);
  call("kvc_cache_stats", {}, [&](kvc_error *e) { return kvc_cache_stats(cache_.get(), -1, &stats, e); });
  if (stats.pages_total != total || stats.pages_used != used || stats.pages_free != total - used ||
      stats.storage_bytes != storage) {
    fail("stats of the whole cache: pages or bytes are not the groups' sums");
  }
  if (quiet && (stats.tokens_held != held_most || stats.tokens_logical != logical)) {
    fail("stats of the whole cache: tokens_held " + std::to_string(stats.tokens_held) + " expected " +
         std::to_string(held_most) + ", tokens_logical " + std::to_string(stats.tokens_logical) + " expected " +
         std::to_string(logical));
  }
}

void Harness::check_invariants() {
  call("kvc_cache_check_invariants", {}, [&](kvc_error *e) { return kvc_cache_check_invariants(cache_.get(), e); });
}

void Harness::check_all() {
  for (int handle : live()) {
    check_tables(handle);
    if (!is_busy(handle)) check_contents(handle);
  }
  check_stats();
  check_invariants();
  mix(digest());
}

}  // namespace kvt
