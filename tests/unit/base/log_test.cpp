// Log: who listens gets what they asked for, and nothing is made for the others.
#include "base/log.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace blend {
namespace {

TEST(Log, NothingIsMadeThatNobodyWants) {
  int made = 0;
  std::vector<uint32_t> told;
  const auto all = [&](const Log& log) {
    for (uint32_t level = BLEND_LOG_ERROR; level <= BLEND_LOG_DEBUG; ++level) {
      log.write(level, BLEND_OK, "test", [&](LogRecord&) { ++made; });
    }
  };
  all(Log());
  EXPECT_EQ(made, 0);
  const Log warnings(BLEND_LOG_WARNING, [&](const LogRecord& r) { told.push_back(r.level); });
  all(warnings);
  EXPECT_EQ(made, 2);
  EXPECT_EQ(told, (std::vector<uint32_t>{BLEND_LOG_ERROR, BLEND_LOG_WARNING}));
  EXPECT_TRUE(warnings.wants(BLEND_LOG_WARNING));
  EXPECT_FALSE(warnings.wants(BLEND_LOG_INFO));
  all(Log(BLEND_LOG_DEBUG, nullptr));
  EXPECT_EQ(made, 2);
}

TEST(Log, FieldsKeepTheirTypes) {
  LogRecord record;
  record.add("text", std::string("a"));
  record.add("literal", "b");
  record.add("small", 7u);
  record.add("large", uint64_t{1} << 40);
  record.add("number", 0.5f);
  ASSERT_EQ(record.fields.size(), 5u);
  EXPECT_EQ(record.fields[0].text, "a");
  EXPECT_EQ(record.fields[1].text, "b");
  EXPECT_EQ(record.fields[2].integer, 7);
  EXPECT_EQ(record.fields[3].integer, int64_t{1} << 40);
  EXPECT_EQ(record.fields[4].number, 0.5);
  std::vector<uint32_t> types;
  for (const LogRecord::Field& field : record.fields) types.push_back(field.type);
  EXPECT_EQ(types, (std::vector<uint32_t>{BLEND_FIELD_TEXT, BLEND_FIELD_TEXT, BLEND_FIELD_INTEGER,
                                          BLEND_FIELD_INTEGER, BLEND_FIELD_NUMBER}));
}

TEST(Log, AStatusIsARecord) {
  LogRecord told;
  const Log log(BLEND_LOG_ERROR, [&](const LogRecord& r) { told = r; });
  log.write(BLEND_LOG_ERROR, "store", Status{BLEND_E_IO, "the disk is gone"});
  EXPECT_EQ(told.code, BLEND_E_IO);
  EXPECT_STREQ(told.component, "store");
  EXPECT_EQ(told.message, "the disk is gone");
}

TEST(Log, WhatFailsInItStaysInIt) {
  const Log log(BLEND_LOG_DEBUG,
                [](const LogRecord&) { throw std::runtime_error("a listener's"); });
  log.write(BLEND_LOG_INFO, BLEND_OK, "test", [](LogRecord&) {});
  log.write(BLEND_LOG_INFO, BLEND_OK, "test", [](LogRecord&) { throw std::bad_alloc(); });
}

}  // namespace
}  // namespace blend
