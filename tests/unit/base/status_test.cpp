#include "base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace blend {
namespace {

TEST(Status, OkByDefault) {
  EXPECT_TRUE(Status().is_ok());
  EXPECT_TRUE(Status::ok().is_ok());
  EXPECT_EQ(Status::ok().code(), BLEND_OK);
  EXPECT_TRUE(Status(BLEND_EXISTS, "").is_ok()) << "positive codes are no errors";
  EXPECT_FALSE(Status(BLEND_E_IO, "x"));
}

TEST(Status, FormatsLongMessages) {
  const std::string name(5000, 'n');
  const Status s = make_error(BLEND_E_FORMAT, "tensor '%s' at %d%%", name.c_str(), 42);
  EXPECT_EQ(s.code(), BLEND_E_FORMAT);
  EXPECT_EQ(s.message(), "tensor '" + name + "' at 42%");
  EXPECT_EQ(s.detail(), 0);
}

TEST(Status, ErrnoIsNamedAndKept) {
  const Status s = make_errno(BLEND_E_IO, ENOSPC, "cannot write '%s'", "a b");
  EXPECT_EQ(s.code(), BLEND_E_IO);
  EXPECT_EQ(s.detail(), ENOSPC);
  EXPECT_EQ(s.message(), "cannot write 'a b': No space left on device");
}

TEST(Status, ContextGoesInFrontAndKeepsTheRest) {
  const Status s = Status(BLEND_E_CALLBACK, "stopped", 7).with_context("layer 3");
  EXPECT_EQ(s.message(), "layer 3: stopped");
  EXPECT_EQ(s.code(), BLEND_E_CALLBACK);
  EXPECT_EQ(s.detail(), 7);
  EXPECT_EQ(Status::ok().with_context("layer 3").message(), "");
}

Result<std::unique_ptr<int>> make(bool good) {
  if (!good) return make_error(BLEND_E_NOT_FOUND, "none");
  return std::make_unique<int>(5);
}

Status use(bool good, int& out) {
  BLEND_ASSIGN(auto p, make(good));
  out = *p;
  BLEND_RETURN_IF_ERROR(make_error(BLEND_E_FULL, "after"));
  out = -1;
  return Status::ok();
}

TEST(Result, MovesValuesAndPassesErrors) {
  int out = 0;
  EXPECT_EQ(use(false, out).code(), BLEND_E_NOT_FOUND);
  EXPECT_EQ(out, 0);
  EXPECT_EQ(use(true, out).code(), BLEND_E_FULL);
  EXPECT_EQ(out, 5) << "what follows a failing step must not run";
}

}  // namespace
}  // namespace blend
