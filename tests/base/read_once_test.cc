#include "base/read_once.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace kvc {
namespace {

TEST(ReadOnce, TheCopyDoesNotFollowTheArray) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{512}, size_t{513}, size_t{5000}}) {
    std::vector<uint64_t> array(count);
    std::iota(array.begin(), array.end(), 7);
    const std::vector<uint64_t> before = array;
    const CallArray copy(array.data(), static_cast<int64_t>(count));
    std::fill(array.begin(), array.end(), 0);
    EXPECT_EQ(std::vector<uint64_t>(copy.span().begin(), copy.span().end()), before);
  }
}

TEST(ReadOnce, NullIsEmptyWhateverItsSize) {
  const double* null = nullptr;
  EXPECT_TRUE(CallArray(null, 5).span().empty());
}

TEST(ReadOnce, ASizeThatMemoryCannotHaveThrows) {
  const int64_t one = 1;
  EXPECT_THROW(CallArray(&one, std::numeric_limits<int64_t>::max() / 4), std::bad_alloc);
}

}  // namespace
}  // namespace kvc
