#include "key_mask.h"

#include <algorithm>

namespace kvc_ort {
namespace {

constexpr DLDataType kInt32 = {kDLInt, 32, 1};

}  // namespace

KeyMask::KeyMask(const Operand& mask, const Vectors& keys)
    : rows_(static_cast<int32_t>(keys.batch)),
      keys_(static_cast<int32_t>(keys.tokens)),
      begins_(static_cast<size_t>(rows_)),
      ends_(begins_.size(), keys_),
      counts_(begins_.size(), keys_),
      begins_view_(begins_.data(), kInt32, {rows_}, {1}),
      ends_view_(ends_.data(), kInt32, {rows_}, {1}),
      counts_view_(counts_.data(), kInt32, {rows_}, {1}) {
  if (!mask) return;
  const int32_t* values = static_cast<const int32_t*>(mask.data);
  const std::vector<int64_t> of_lengths = {rows_}, with_offsets = {3 * int64_t{rows_} + 2};
  if (mask.shape == of_lengths || mask.shape == with_offsets) {
    for (size_t row = 0; row < ends_.size(); row++) {
      if (values[row] > 0) ends_[row] = std::min(keys_, values[row]);
    }
  } else if (mask.shape == std::vector<int64_t>{rows_, keys_}) {
    pages_.resize(begins_.size() * static_cast<size_t>(keys_));
    const int64_t pages_of_row = keys.batch_stride / keys.token_stride;
    for (int32_t row = 0; row < rows_; row++) {
      read_row(values + int64_t{row} * keys_, row, static_cast<int32_t>(row * pages_of_row));
    }
  } else {
    refuse("key_padding_mask has shape " + mask.text() + ", but must be [" + std::to_string(rows_) + "] or [" +
           std::to_string(rows_) + ", " + std::to_string(keys_) + "]");
  }
}

void KeyMask::read_row(const int32_t* visible, int32_t row, int32_t first_page) {
  const bool all = std::all_of(visible, visible + keys_, [](int32_t value) { return value <= 0; });
  const size_t index = static_cast<size_t>(row);
  int32_t* pages = pages_.data() + index * static_cast<size_t>(keys_);
  int32_t count = 0, end = 0;
  for (int32_t key = 0; key < keys_; key++) {
    if (visible[key] <= 0 && !all) continue;
    pages[count++] = first_page + key;
    end = key + 1;
  }
  if (count > 0) begins_[index] = pages[0] - first_page;
  ends_[index] = end;
  counts_[index] = count;
  has_gaps_ = has_gaps_ || end - begins_[index] != count;
}

void KeyMask::set(kvc_flash_attn_args* args) {
  if (has_gaps_) {
    pages_view_.emplace(pages_.data(), kInt32, std::initializer_list<int64_t>{rows_, keys_},
                        std::initializer_list<int64_t>{keys_, 1});
    args->block_table = pages_view_->get();
    args->cache_seqlens = counts_view_.get();
  } else {
    args->cache_leftpad = begins_view_.get();
    args->cache_seqlens = ends_view_.get();
  }
}

}  // namespace kvc_ort
