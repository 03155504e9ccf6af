#include "page/page_table.h"

#include <algorithm>

#include "base/assert.h"

namespace kvc {
namespace {

// The index of the child that leads to list entry `index`, in a node at `level` (1 = a leaf).
constexpr int32_t digit(int64_t index, int32_t level) noexcept {
  return static_cast<int32_t>(index >> (PageTable::kFanoutLog2 * (level - 1))) & (PageTable::kFanout - 1);
}

// The number of entries under a child of a node at `level`.
constexpr int64_t child_span(int32_t level) noexcept { return int64_t{1} << (PageTable::kFanoutLog2 * (level - 1)); }

// Checks the invariants that a list has between two changes.
void assert_list(const PageList& list) noexcept {
  KVC_ASSERT(list.kept >= 0 && list.kept <= list.first && list.first <= list.size, list.kept, list.first);
  KVC_ASSERT(list.levels == 0 ? list.root < 0 : list.size <= child_span(list.levels + 1), list.levels, list.size);
  KVC_ASSERT(list.size > 0 || list.tail_page < 0, list.size, list.tail_page);
  static_cast<void>(list);
}

}  // namespace

int32_t PageTable::levels_for(int64_t max_index) noexcept {
  int32_t levels = 1;
  while (child_span(levels + 1) < max_index) ++levels;
  return levels;
}

int64_t PageTable::nodes_needed(int64_t num_pages, int64_t lists, int64_t max_index, int32_t edges) {
  int64_t total = 16;  // for node copies that exist during a change
  for (int32_t level = 1; level <= levels_for(max_index); ++level) {
    total += num_pages / child_span(level + 1) + lists * 2 * (1 + edges);
  }
  return total;
}

const int32_t* PageTable::leaf_of(const PageList& list, int64_t index) const noexcept {
  int32_t node = list.root;
  for (int32_t level = list.levels; level > 1 && node >= 0; --level) node = children(node)[digit(index, level)];
  return node < 0 ? nullptr : children(node);
}

int32_t PageTable::at(const PageList& list, int64_t index) const noexcept {
  KVC_ASSERT(index >= 0 && index < list.size, index, list.size);
  const int32_t* leaf = leaf_of(list, index);
  return leaf == nullptr ? -1 : leaf[index & (kFanout - 1)];
}

// The page at `index`, or -1 if another list shares a node on the path from the root to it.
int32_t PageTable::unshared_at(const PageList& list, int64_t index) const noexcept {
  KVC_ASSERT(index >= 0 && index < list.size, index, list.size);
  int32_t node = list.root;
  for (int32_t level = list.levels; level >= 1; --level) {
    KVC_ASSERT(node >= 0, node, index);
    if (nodes_.refs(node) != 1) return -1;
    node = children(node)[digit(index, level)];
  }
  return node;
}

bool PageTable::exclusive(const PageList& list, int64_t index) const noexcept {
  const int32_t page = unshared_at(list, index);
  return page >= 0 && pages_.refs(page) == 1;
}

bool PageTable::available_without(const PageList& list, int64_t index, uint32_t holds) const noexcept {
  const int32_t page = unshared_at(list, index);
  return page >= 0 && pages_.refs(page) - holds - pages_.is_indexed(page) == 1;
}

std::span<const int32_t> PageTable::changes() noexcept {
  int64_t used = 0;
  for (int64_t i = 0; i < num_changed_; ++i) {
    const int32_t node = changed_[i];
    if (nodes_.refs(node) > 0) {
      changed_[used++] = node;
    } else {
      is_changed_[node] = 0;  // the node is free: when a list uses it again, new_node marks it as changed
    }
  }
  num_changed_ = used;
  return {changed_.data(), static_cast<size_t>(used)};
}

void PageTable::forget_changes() noexcept {
  for (int64_t i = 0; i < num_changed_; ++i) is_changed_[changed_[i]] = 0;
  num_changed_ = 0;
}

int32_t PageTable::new_node() noexcept {
  const int32_t node = nodes_.allocate();
  mark(node);
  std::fill_n(children(node), kFanout, -1);
  return node;
}

void PageTable::unref_child(int32_t child, int32_t level) noexcept {
  if (child < 0) return;
  if (level == 1) {
    pages_.unref(child);
  } else {
    unref_node(child, level - 1);
  }
}

void PageTable::unref_node(int32_t node, int32_t level) noexcept {
  if (node < 0 || !nodes_.unref(node)) return;
  // Frees the children from last to first. If the pages were just allocated, this restores the order of the free
  // pages.
  for (int32_t i = kFanout; i-- > 0;) unref_child(children(node)[i], level);
}

// Returns a node that has only the children [keep_begin, keep_end) of `node`. If `node` is not shared, it is changed
// and returned. Otherwise the result is a copy. The caller's reference to `node` is consumed.
int32_t PageTable::own(int32_t node, int32_t level, int32_t keep_begin, int32_t keep_end) noexcept {
  if (nodes_.refs(node) == 1) {
    int32_t* entries = children(node);
    for (int32_t i = kFanout; i-- > 0;) {
      if (i >= keep_begin && i < keep_end) continue;
      unref_child(entries[i], level);
      if (entries[i] >= 0) mark(node);
      entries[i] = -1;
    }
    return node;
  }
  const int32_t copy = new_node();
  for (int32_t i = keep_begin; i < keep_end; ++i) {
    const int32_t child = children(node)[i];
    if (child < 0) continue;
    children(copy)[i] = child;
    (level == 1 ? pages_ : nodes_).ref(child);
  }
  nodes_.unref(node);
  return copy;
}

// Makes the path to `index` unshared, adds missing nodes, and returns the leaf, which the caller then writes.
int32_t* PageTable::own_path_to(PageList& list, int64_t index) noexcept {
  list.root = list.root < 0 ? new_node() : own(list.root, list.levels, 0, kFanout);
  int32_t node = list.root;
  for (int32_t level = list.levels; level > 1; --level) {
    int32_t& child = children(node)[digit(index, level)];
    const int32_t owned = child < 0 ? new_node() : own(child, level - 1, 0, kFanout);
    if (owned != child) mark(node);
    node = child = owned;
  }
  mark(node);
  return children(node);
}

void PageTable::grow_to(PageList& list, int64_t index) noexcept {
  while (list.levels == 0 || index >= child_span(list.levels + 1)) {
    if (list.root >= 0) {
      const int32_t root = new_node();
      children(root)[0] = list.root;  // new_node has marked the new root as changed
      list.root = root;
    }
    ++list.levels;
  }
}

void PageTable::append_page(PageList& list, int32_t page, bool shared) noexcept {
  const int64_t index = list.size;
  assert_list(list);
  grow_to(list, index);
  own_path_to(list, index)[index & (kFanout - 1)] = page;
  ++list.size;
  list.tail_page = page;
  list.tail_shared = shared;
  assert_list(list);
}

int32_t PageTable::append(PageList& list) noexcept {
  const int32_t page = pages_.allocate();
  append_page(list, page, false);
  return page;
}

void PageTable::skip(PageList& list, int64_t count) noexcept {
  KVC_ASSERT(!list.has_hole() && count > 0, list.first, count);
  list.kept = list.size;
  list.size = list.first = list.size + static_cast<int32_t>(count);
  list.tail_page = -1;
  list.tail_shared = false;
  if (list.root >= 0) grow_to(list, list.size - 1);
  assert_list(list);
}

void PageTable::append_shared(PageList& list, std::span<const int32_t> pages) noexcept {
  assert_list(list);
  while (!pages.empty()) {
    const int64_t index = list.size, begin = index & (kFanout - 1);
    const auto count = std::min<size_t>(static_cast<size_t>(kFanout - begin), pages.size());
    grow_to(list, index);
    std::copy_n(pages.begin(), count, own_path_to(list, index) + begin);
    for (const int32_t page : pages.first(count)) pages_.ref(page);
    list.size += static_cast<int32_t>(count);
    list.tail_page = pages[count - 1];
    list.tail_shared = true;
    pages = pages.subspan(count);
  }
  assert_list(list);
}

void PageTable::replace(PageList& list, int64_t index, int32_t page) noexcept {
  KVC_ASSERT(index >= 0 && index < list.size && pages_.refs(page) > 0, index, page);
  int32_t& entry = own_path_to(list, index)[index & (kFanout - 1)];
  KVC_ASSERT(entry >= 0, index, entry);
  pages_.ref(page);
  pages_.unref(entry);
  entry = page;
  if (index != list.size - 1) return;
  list.tail_page = page;
  list.tail_shared = true;
}

PageList PageTable::share(const PageList& list, int64_t count) noexcept {
  KVC_ASSERT(count >= 0 && count <= list.size, count, list.size);
  if (count == 0) return PageList{};
  PageList copy = list;
  if (copy.root >= 0) nodes_.ref(copy.root);
  truncate(copy, count);
  copy.tail_shared = true;
  return copy;
}

void PageTable::truncate(PageList& list, int64_t count) noexcept {
  KVC_ASSERT(count >= 0 && count <= list.size, count, list.size);
  if (count == 0) {
    release(list);
    return;
  }
  if (count < list.size) cut(list, count);
  // tail_shared is computed again even if no entry is dropped. The caller may have dropped tokens of a full last page.
  // Such a page may be shared although tail_shared is false.
  list.tail_page = list.root < 0 ? -1 : at(list, count - 1);
  list.tail_shared = list.tail_page >= 0 && !exclusive(list, count - 1);
  assert_list(list);
}

void PageTable::cut(PageList& list, int64_t count) noexcept {
  list.size = static_cast<int32_t>(count);
  list.first = std::min(list.first, list.size);
  if (list.first <= list.kept) list.kept = list.first = 0;  // no entry of the hole is left
  while (list.levels > 1 && count <= child_span(list.levels) && list.root >= 0) {
    const int32_t child = children(list.root)[0];
    if (child >= 0) nodes_.ref(child);
    unref_node(list.root, list.levels);
    list.root = child;
    --list.levels;
  }
  // Makes the nodes on the path to the last entry unshared, and drops their children after the path. The loop stops
  // at the level where a child ends exactly at `count`, because that child stays whole.
  int32_t* link = &list.root;
  int32_t parent = -1;
  for (int32_t level = list.levels; level >= 1 && *link >= 0; --level) {
    const int32_t last = digit(count - 1, level), owned = own(*link, level, 0, last + 1);
    if (owned != *link && parent >= 0) mark(parent);
    *link = parent = owned;
    if (count % child_span(level) == 0) break;
    link = &children(owned)[last];
  }
}

// Returns `node` without its entries [begin, end), which are counted from the first entry under `node`. Returns -1 if
// the range covers the whole node. The caller's reference to `node` is consumed.
int32_t PageTable::without(int32_t node, int32_t level, int64_t begin, int64_t end) noexcept {
  const int64_t span = child_span(level);
  if (node < 0) return node;
  if (begin <= 0 && end >= span * kFanout) {
    unref_node(node, level);
    return -1;
  }
  node = own(node, level, 0, kFanout);
  for (int32_t i = kFanout; i-- > 0;) {
    const int64_t base = i * span;
    if (base >= end || base + span <= begin) continue;
    int32_t& child = children(node)[i];
    const int32_t before = child;
    if (level > 1) {
      child = without(child, level - 1, begin - base, end - base);
    } else {
      unref_child(child, level);
      child = -1;
    }
    if (child != before) mark(node);
  }
  return node;
}

void PageTable::drop_front(PageList& list, int64_t count, int64_t keep) noexcept {
  count = std::min<int64_t>(count, list.size);
  if (count <= list.first || count <= keep) return;
  KVC_ASSERT(keep >= 0 && (!list.has_hole() || keep <= list.kept), keep, list.kept);
  list.kept = static_cast<int32_t>(keep);
  list.first = static_cast<int32_t>(count);
  const bool to_end = list.first == list.size;
  list.root = without(list.root, list.levels, keep, to_end ? INT64_MAX : count);
  if (list.root < 0) list.levels = 0;
  if (to_end) {
    list.tail_page = -1;
    list.tail_shared = false;
  }
  assert_list(list);
}

int32_t PageTable::replace_tail(PageList& list) noexcept {
  KVC_ASSERT(list.size > 0 && list.tail_page >= 0, list.size, list.tail_page);
  int32_t* leaf = own_path_to(list, list.size - 1);
  int32_t& entry = leaf[(list.size - 1) & (kFanout - 1)];
  pages_.unref(entry);
  entry = pages_.allocate();
  list.tail_page = entry;
  list.tail_shared = false;
  return entry;
}

void PageTable::restore_tail(PageList& list, int32_t page, bool shared) noexcept {
  KVC_ASSERT(list.size > 0 && pages_.refs(page) > 0, list.size, page);
  int32_t* leaf = own_path_to(list, list.size - 1);
  int32_t& entry = leaf[(list.size - 1) & (kFanout - 1)];
  pages_.unref(entry);
  entry = page;
  list.tail_page = page;
  list.tail_shared = shared;
}

void PageTable::release(PageList& list) noexcept {
  unref_node(list.root, list.levels);
  list = PageList{};
}

}  // namespace kvc
