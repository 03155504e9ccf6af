// A server with an allocator of its own: rows of tokens in shuffled pages, as a block table and as req_to_token. Every
// slot records its token, so tables are judged by the tokens that they name.
#pragma once

#include <map>
#include <memory>
#include <numeric>
#include <random>

#include "reader.h"
#include "wrappers.h"

namespace kvt {

// A tensor of integers that a plan borrows.
struct Ints {
  std::vector<int32_t> narrow;
  std::vector<int64_t> wide, shape, strides;
  DLTensor tensor = {};

  explicit Ints(const std::vector<int64_t> &values, bool is_wide = false, int64_t columns = 0) {
    const auto size = static_cast<int64_t>(values.size());
    narrow.assign(values.begin(), values.end());
    wide = values;
    shape = columns ? std::vector<int64_t>{size / columns, columns} : std::vector<int64_t>{size};
    strides = columns ? std::vector<int64_t>{columns, 1} : std::vector<int64_t>{1};
    void *data = is_wide ? static_cast<void *>(wide.data()) : narrow.data();
    tensor = {data,
              {kDLCPU, 0},
              columns ? 2 : 1,
              {kDLInt, static_cast<uint8_t>(is_wide ? 64 : 32), 1},
              shape.data(),
              strides.data(),
              0};
  }
  Ints(const Ints &) = delete;
};

class Server {
 public:
  // Rows of `columns` pages each. An entry gets a slot when `fill` is called for it, and is poison before.
  Server(int rows, int columns, int page_size, uint32_t seed)
      : rng(seed),
        page_size(page_size),
        columns(columns),
        num_pages(rows * columns + 3),
        rows_(static_cast<size_t>(rows)) {
    free_.resize(static_cast<size_t>(num_pages));
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), rng);
    for (auto &row : rows_) row.assign(static_cast<size_t>(columns), -1);
  }

  // Records that entry e of a row holds `token`.
  void put(int row, int64_t entry, int64_t token) {
    int64_t &page = rows_[static_cast<size_t>(row)][static_cast<size_t>(entry / page_size)];
    if (page < 0) {
      page = free_.back();
      free_.pop_back();
    }
    tokens_[page * page_size + entry % page_size] = token;
  }
  int64_t slot(int row, int64_t entry) const {
    return rows_[static_cast<size_t>(row)][static_cast<size_t>(entry / page_size)] * page_size + entry % page_size;
  }
  // Token of a slot; poison if it holds none.
  int64_t token(int64_t slot) const {
    const auto at = tokens_.find(slot);
    return at == tokens_.end() ? -999 : at->second;
  }
  std::unique_ptr<Ints> block_table() {
    std::vector<int64_t> values;
    for (const auto &row : rows_) {
      for (const int64_t page : row) values.push_back(page >= 0 ? page : poison());
    }
    return std::make_unique<Ints>(values, false, columns);
  }
  std::unique_ptr<Ints> req_to_token() {
    std::vector<int64_t> values;
    for (const auto &row : rows_) {
      for (const int64_t page : row) {
        for (int i = 0; i < page_size; i++) values.push_back(page >= 0 ? page * page_size + i : poison());
      }
    }
    return std::make_unique<Ints>(values, false, int64_t{columns} * page_size);
  }

  std::mt19937 rng;
  const int page_size, columns, num_pages;

 private:
  int64_t poison() { return rng() % 2 ? INT32_MAX : -7; }

  std::vector<int64_t> free_;
  std::vector<std::vector<int64_t>> rows_;
  std::map<int64_t, int64_t> tokens_;
};

struct PlanDeleter {
  void operator()(kvc_plan *plan) const { kvc_plan_destroy(plan); }
};
using PlanPtr = std::unique_ptr<kvc_plan, PlanDeleter>;

inline PlanPtr make_plan(kvc_context *context, const kvc_plan_config &config) {
  kvc_plan *plan = nullptr;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_plan_create(context, &config, &plan, &error), KVC_OK) << error.message;
  return PlanPtr(plan);
}
inline kvc_plan_config plan_config(int32_t mode, int32_t page_size) {
  kvc_plan_config config;
  kvc_plan_config_init(&config);
  config.mode = mode;
  config.page_size = page_size;
  return config;
}
inline kvc_tables tables_of(kvc_plan *plan, int32_t part, int32_t step = 0) {
  kvc_tables tables;
  kvc_tables_init(&tables);
  tables.part = part;
  kvc_error error = KVC_ERROR_INIT;
  EXPECT_EQ(kvc_plan_tables(plan, step, &tables, &error), KVC_OK) << error.message;
  return tables;
}

}  // namespace kvt
