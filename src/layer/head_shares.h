// Which kv heads the ranks of tensor parallelism have, and which of them a transfer moves. Pure functions; any thread.
//
// A layer has `total` kv heads in all ranks together. Let shares = min(size, total). The heads are cut into equal
// shares, and size / shares consecutive ranks have the same share. For example, of 2 heads on 4 ranks, ranks 0 and 1
// have head 0, and ranks 2 and 3 have head 1.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace kvc {

inline constexpr int32_t kMaxTpSize = 4096;

struct TpRank {
  int32_t rank = 0;
  int32_t size = 1;
  bool operator==(const TpRank&) const = default;
};

struct HeadRange {
  int32_t first = 0;
  int32_t count = 0;
};

// Whether `total` heads can be cut into equal shares for `size` ranks.
bool can_share_heads(int32_t total, int32_t size) noexcept;

// The heads of a rank, among all heads of the layer. can_share_heads(total, tp.size) must be true.
HeadRange heads_of_rank(int32_t total, TpRank tp) noexcept;

// The heads that a sender sends to a receiver, among all heads of the layer; count 0: none. Several senders may have a
// head that the receiver needs. Then only one of them sends it: the one whose rank is nearest to receiver.rank *
// sender.size / receiver.size.
HeadRange sent_heads(int32_t total, TpRank sender, TpRank receiver) noexcept;

// Reads kvc_layer_config.total_kv_heads. Fails with INVALID_ARGUMENT if the rank's share of the total is not
// num_kv_heads.
Status read_total_heads(int32_t num_kv_heads, int32_t total_kv_heads, bool latent, TpRank tp, int64_t layer,
                        int32_t* total);

}  // namespace kvc
