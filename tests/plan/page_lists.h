// Rows over page lists that forks share, for tests of plans: a page table, and the arrays of a batch.
#pragma once

#include <cstdint>
#include <vector>

#include "page/page_table.h"

namespace kvc {

class PageLists {
 public:
  PageLists(int64_t pages, int64_t lists) : table_(pages, PageTable::nodes_needed(pages, lists + 4, pages, false)) {}

  // A row that begins with the first `shared` pages of row `parent` (-1: no row), followed by `own` pages of its own.
  int add(int parent, int64_t shared, int64_t own) {
    PageList list = parent < 0 ? PageList{} : table_.share(lists_[static_cast<size_t>(parent)], shared);
    for (int64_t i = 0; i < own; ++i) table_.append(list);
    lists_.push_back(list);
    return static_cast<int>(lists_.size()) - 1;
  }
  int64_t size(int row) const { return lists_[static_cast<size_t>(row)].size; }
  int32_t page(int row, int64_t index) const { return table_.at(lists_[static_cast<size_t>(row)], index); }
  // Tables of these rows, valid until the next call or change.
  const kvc_backend_tables& tables(const std::vector<int>& rows) {
    roots_.clear();
    levels_.clear();
    for (int row : rows) {
      roots_.push_back(lists_[static_cast<size_t>(row)].root);
      levels_.push_back(lists_[static_cast<size_t>(row)].levels);
    }
    tables_ = {table_.node_data(), roots_.data(), levels_.data()};
    return tables_;
  }
  // The number of leading pages that two rows share.
  int64_t common(int a, int b) const {
    int64_t n = 0;
    while (n < size(a) && n < size(b) && page(a, n) == page(b, n)) ++n;
    return n;
  }

 private:
  PageTable table_;
  std::vector<PageList> lists_;
  std::vector<int32_t> roots_, levels_;
  kvc_backend_tables tables_ = {};
};

}  // namespace kvc
