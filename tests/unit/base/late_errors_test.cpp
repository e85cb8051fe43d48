#include "base/late_errors.h"

#include <gtest/gtest.h>

namespace blend {
namespace {

Sha256 id(size_t n) {
  Sha256 out{};
  out[0] = static_cast<uint8_t>(n);
  out[31] = static_cast<uint8_t>(n >> 8);
  return out;
}
Status failed(size_t n) { return {BLEND_E_IO, "job " + std::to_string(n), 5}; }

TEST(LateErrors, EachIsRememberedUntilItsWorkBeginsAnew) {
  LateErrors errors;
  errors.add(id(1), failed(1));
  errors.add(id(256), failed(256));
  EXPECT_EQ(errors.of(id(1)).message(), "job 1");
  EXPECT_EQ(errors.of(id(1)).code(), BLEND_E_IO);
  EXPECT_EQ(errors.of(id(1)).detail(), 5);
  EXPECT_EQ(errors.of(id(256)).message(), "job 256");
  EXPECT_TRUE(errors.of(id(2)).is_ok());
  errors.add(id(1), failed(7));
  EXPECT_EQ(errors.of(id(1)).message(), "job 7") << "the last time";
  errors.forget(id(1));
  errors.forget(id(2));
  EXPECT_TRUE(errors.of(id(1)).is_ok());
  EXPECT_EQ(errors.of(id(256)).message(), "job 256");
}

TEST(LateErrors, TheFirstIsTakenOnceWhateverIsForgotten) {
  LateErrors errors;
  EXPECT_TRUE(errors.take_first().is_ok());
  errors.add(id(1), failed(1));
  errors.add(id(2), failed(2));
  errors.forget(id(1));
  EXPECT_EQ(errors.take_first().message(), "job 1");
  EXPECT_TRUE(errors.take_first().is_ok());
  EXPECT_EQ(errors.of(id(2)).message(), "job 2") << "taking forgets none";
  errors.add(id(3), failed(3));
  EXPECT_EQ(errors.take_first().message(), "job 3");
}

TEST(LateErrors, OfTooManyTheOldestGoes) {
  LateErrors errors;
  for (size_t n = 0; n <= LateErrors::kMost; ++n) errors.add(id(n), failed(n));
  EXPECT_TRUE(errors.of(id(0)).is_ok());
  EXPECT_FALSE(errors.of(id(1)).is_ok());
  EXPECT_FALSE(errors.of(id(LateErrors::kMost)).is_ok());
}

// Its first failure must not take the second with it.
TEST(LateErrors, WhatFailsAgainIsTheYoungest) {
  LateErrors errors;
  errors.add(id(0), failed(0));
  for (size_t n = 1; n < LateErrors::kMost; ++n) errors.add(id(n), failed(n));
  errors.add(id(0), failed(9999));
  EXPECT_FALSE(errors.of(id(1)).is_ok()) << "there is room for all";
  errors.add(id(5000), failed(5000));
  EXPECT_EQ(errors.of(id(0)).message(), "job 9999");
  EXPECT_TRUE(errors.of(id(1)).is_ok());
}

}  // namespace
}  // namespace blend
