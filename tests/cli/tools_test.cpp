// The results of calls, of which a body may have very many.
#include "serve/tools.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace blend_cli::serve {
namespace {

// A search in all calls would take hours.
TEST(Tools, ManyResultsFindTheirFunctions) {
  constexpr size_t kMany = 300000;
  std::map<std::string, std::string> calls;
  const auto id = [](size_t i) { return "call_" + std::to_string(i); };
  const auto called = [&](size_t i, const char* name) {
    const Json call = {{"id", id(i)}, {"function", {{"name", name}}}};
    tool_members({{"role", "assistant"}, {"tool_calls", Json::array({call})}}, "m", calls);
  };
  for (size_t i = 0; i < kMany; ++i) called(i, "time");
  called(0, "weather");  // the last call of an id counts
  for (size_t i = 0; i < kMany; ++i) {
    const Json result = {{"role", "tool"}, {"tool_call_id", id(i)}};
    const std::string name = i == 0 ? "weather" : "time";
    ASSERT_EQ(Json::parse(tool_members(result, "m", calls))["name"], name) << i;
  }
}

}  // namespace
}  // namespace blend_cli::serve
