// KeyMask: which keys each row of a call sees, from the input key_padding_mask of MultiHeadAttention.
#pragma once

#include <kvcache.h>

#include <optional>
#include <vector>

#include "vectors.h"

namespace kvc_ort {

class KeyMask {
 public:
  // `mask` is absent, [rows] with the number of keys, or [rows, keys] with 0 for each hidden key. The operator adds one
  // large negative number to the scores of hidden keys, so a row without any other key sees all of them.
  KeyMask(const Operand& mask, const Vectors& keys);

  // Some row sees keys that are no range. Then the caches of the call are Vectors::pages.
  bool has_gaps() const { return has_gaps_; }

  // Sets the lengths of the caches. `args` borrows what this object has.
  void set(kvc_flash_attn_args* args);

 private:
  void read_row(const int32_t* visible, int32_t row, int32_t first_page);

  int32_t rows_, keys_;
  bool has_gaps_ = false;
  std::vector<int32_t> begins_, ends_;   // [rows]: keys [begin, end) of a row are seen, if there are no gaps
  std::vector<int32_t> counts_, pages_;  // [rows], [rows, keys]: how many keys of a row are seen, and which
  View begins_view_, ends_view_, counts_view_;
  std::optional<View> pages_view_;
};

}  // namespace kvc_ort
