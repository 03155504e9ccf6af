#include "base/status.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace kvc {
namespace {

Status fail_if(bool fail) {
  if (fail) return Status::error(KVC_ERROR_OUT_OF_PAGES, "%d pages", 7).at(3).missing(7, 2).in_group(1);
  return Status();
}

Status try_it(bool fail, bool* reached) {
  KVC_TRY(fail_if(fail));
  *reached = true;
  return Status();
}

TEST(Status, CarriesNumbersAndText) {
  kvc_error error = KVC_ERROR_INIT;
  const Status status = fail_if(true);
  ASSERT_FALSE(status.ok());
  status.write_to("kvc_forward_begin", &error);
  EXPECT_EQ(error.code, KVC_ERROR_OUT_OF_PAGES);
  EXPECT_EQ(error.index, 3);
  EXPECT_EQ(error.required, 7);
  EXPECT_EQ(error.available, 2);
  EXPECT_EQ(error.group, 1);
  EXPECT_STREQ(error.message, "kvc_forward_begin: 7 pages");
}

TEST(Status, TryReturnsAtTheFirstFailure) {
  bool reached = false;
  EXPECT_EQ(try_it(true, &reached).code(), KVC_ERROR_OUT_OF_PAGES);
  EXPECT_FALSE(reached);
  EXPECT_TRUE(try_it(false, &reached).ok());
  EXPECT_TRUE(reached);
}

TEST(Status, LongMessagesAreCutAndTerminated) {
  kvc_error error = KVC_ERROR_INIT;
  Status::error(KVC_ERROR_INTERNAL, "%s", std::string(2000, 'x').c_str()).write_to("f", &error);
  EXPECT_LT(std::strlen(error.message), sizeof error.message);
  EXPECT_EQ(std::string(error.message, 5), "f: xx");
}

TEST(Status, TakesABackendsError) {
  kvc_error from = KVC_ERROR_INIT;
  from.index = 5;
  std::strcpy(from.message, "head_dim 513");
  const Status status = Status::from(KVC_ERROR_UNSUPPORTED, from);
  EXPECT_TRUE(Status::from(KVC_OK, from).ok());
  EXPECT_EQ(status.code(), KVC_ERROR_UNSUPPORTED);
  EXPECT_STREQ(status.message(), "head_dim 513");
}

TEST(StatusName, NamesCodesAndBands) {
  EXPECT_STREQ(kvc_status_name(KVC_OK), "KVC_OK");
  EXPECT_STREQ(kvc_status_name(KVC_ERROR_EVICTED), "KVC_ERROR_EVICTED");
  EXPECT_STREQ(kvc_status_name(57), "KVC_ERROR_UNKNOWN_MISUSE");
  EXPECT_STREQ(kvc_status_name(157), "KVC_ERROR_UNKNOWN_CAPACITY");
  EXPECT_STREQ(kvc_status_name(257), "KVC_ERROR_UNKNOWN_STATE");
  EXPECT_STREQ(kvc_status_name(357), "KVC_ERROR_UNKNOWN_DEVICE");
  EXPECT_STREQ(kvc_status_name(457), "KVC_ERROR_UNKNOWN_DATA");
  EXPECT_STREQ(kvc_status_name(957), "KVC_ERROR_UNKNOWN_INTERNAL");
  EXPECT_STREQ(kvc_status_name(-1), "KVC_ERROR_UNKNOWN");
}

}  // namespace
}  // namespace kvc
