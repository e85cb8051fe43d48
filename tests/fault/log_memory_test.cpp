// Fails each allocation of a record: the record is lost, and the caller sees nothing of it.
#include <gtest/gtest.h>

#include "base/log.h"
#include "fault/failing_malloc.h"

namespace blend {
namespace {

TEST(LogMemory, ARecordThatFindsNoMemoryIsLost) {
  size_t n_told = 0;
  const Log log(BLEND_LOG_DEBUG,
                [&](const LogRecord& r) { n_told += r.fields.size() == 2 ? 1 : 0; });
  const auto write = [&] {
    log.write(BLEND_LOG_INFO, BLEND_OK, "test", [](LogRecord& record) {
      record.message = "a sentence that does not fit into the string itself";
      record.add("path", "a value that does not fit into the string itself");
      record.add("bytes", 7);
    });
  };
  write();
  ASSERT_EQ(n_told, 1u);
  bool fired = true;
  int lost = 0;
  for (uint64_t n = 1; fired && n < 20; ++n) {
    const size_t before = n_told;
    {
      const test::FailingMalloc failing(n, true);
      write();
      fired = failing.fired();
    }
    lost += n_told == before ? 1 : 0;
    EXPECT_EQ(n_told == before, fired) << n;
  }
  EXPECT_FALSE(fired);
  EXPECT_GE(lost, 3);
}

TEST(LogMemory, NothingIsAllocatedWhenNobodyListens) {
  const Log log;
  const Status status(BLEND_E_IO, "a sentence that does not fit into the string itself");
  const test::FailingMalloc failing(1, true);
  log.write(BLEND_LOG_ERROR, "test", status);
  EXPECT_FALSE(failing.fired());
}

}  // namespace
}  // namespace blend
