#include "layer/head_shares.h"

#include <algorithm>
#include <cinttypes>

namespace kvc {
namespace {

int32_t num_shares(int32_t total, int32_t size) noexcept { return std::min(total, size); }
// How many ranks have the same share.
int32_t ranks_of_share(int32_t total, int32_t size) noexcept { return size / num_shares(total, size); }

}  // namespace

bool can_share_heads(int32_t total, int32_t size) noexcept {
  const int32_t shares = num_shares(total, size);
  return total % shares == 0 && size % shares == 0;
}

HeadRange heads_of_rank(int32_t total, TpRank tp) noexcept {
  const int32_t count = total / num_shares(total, tp.size);
  return {tp.rank / ranks_of_share(total, tp.size) * count, count};
}

HeadRange sent_heads(int32_t total, TpRank sender, TpRank receiver) noexcept {
  const int32_t equal = ranks_of_share(total, sender.size), first_equal = sender.rank / equal * equal;
  const int32_t nearest = receiver.rank * sender.size / receiver.size;
  if (sender.rank != std::clamp(nearest, first_equal, first_equal + equal - 1)) return {};
  const HeadRange from = heads_of_rank(total, sender), to = heads_of_rank(total, receiver);
  const int32_t first = std::max(from.first, to.first);
  const int32_t end = std::min(from.first + from.count, to.first + to.count);
  return end > first ? HeadRange{first, end - first} : HeadRange{};
}

Status read_total_heads(int32_t num_kv_heads, int32_t total_kv_heads, bool latent, TpRank tp, int64_t layer,
                        int32_t* total) {
  constexpr int32_t kMaxTotal = 65536;
  const int64_t wanted = total_kv_heads != 0 ? total_kv_heads : latent ? 1 : int64_t{num_kv_heads} * tp.size;
  if (wanted >= 1 && wanted <= kMaxTotal && can_share_heads(static_cast<int32_t>(wanted), tp.size)) {
    *total = static_cast<int32_t>(wanted);
    if (heads_of_rank(*total, tp).count == num_kv_heads) return Status();
  }
  return Status::error(KVC_ERROR_INVALID_ARGUMENT,
                       "layer %" PRId64 ": no rank of %d has num_kv_heads %d of total_kv_heads %" PRId64, layer,
                       tp.size, num_kv_heads, wanted)
      .at(layer);
}

}  // namespace kvc
