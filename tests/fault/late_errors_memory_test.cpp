// Fails each allocation of LateErrors::add: that something failed is told all the same.
#include <gtest/gtest.h>

#include "base/late_errors.h"
#include "fault/failing_malloc.h"

namespace blend {
namespace {

TEST(LateErrorsMemory, AnErrorThatFindsNoMemoryIsAnError) {
  const Status status(BLEND_E_IO, "a sentence that does not fit into the string itself");
  const Sha256 id{};
  bool fired = true;
  int forgotten = 0;
  for (uint64_t n = 1; fired && n < 20; ++n) {
    LateErrors errors;
    {
      const test::FailingMalloc failing(n, true);
      errors.add(id, status);
      fired = failing.fired();
    }
    const Status first = errors.take_first(), of = errors.of(id);
    EXPECT_FALSE(first.is_ok()) << n;
    EXPECT_FALSE(first.message().empty()) << n;
    if (of.is_ok()) {
      EXPECT_TRUE(fired) << n;
      ++forgotten;
    } else {
      EXPECT_EQ(of.message(), status.message()) << n;
    }
  }
  EXPECT_FALSE(fired);
  EXPECT_GE(forgotten, 2) << "its sentence twice";
}

}  // namespace
}  // namespace blend
