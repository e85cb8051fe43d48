// The dataset parser: both shapes, and what bad input gets.
#include "dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "command.h"

namespace blend_cli {
namespace {

using Texts = std::vector<std::string>;

const char* const kGood = R"({"chunks":["a\n","b\n"],"question":"q?","answers":["x","y"]})";

TEST(EvalDataset, ReadsJsonLines) {
  const auto records =
      parse_dataset(std::string("\xEF\xBB\xBF") + kGood + "\r\n\n  \n" + kGood + "\n", "d", 0);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].chunks, (Texts{"a\n", "b\n"}));
  EXPECT_EQ(records[0].question, "q?");
  EXPECT_EQ(records[0].answers, (Texts{"x", "y"}));
  EXPECT_EQ(records[0].line, 1u);
  EXPECT_EQ(records[1].line, 4u);
}

TEST(EvalDataset, ReadsOneArray) {
  const std::string text = std::string("[\n  ") + kGood +
                           ",\n{\"question\": \"]},[\\\"\", \"chunks\":\n[\"c\"], " +
                           "\"answers\": \"z\"}, " + kGood + "\n]\n";
  const auto records = parse_dataset(text, "d", 0);
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].question, "]},[\"");
  EXPECT_EQ(records[1].answers, Texts{"z"});
  EXPECT_EQ(records[0].line, 2u);
  EXPECT_EQ(records[1].line, 3u);
  EXPECT_EQ(records[2].line, 4u);
  EXPECT_EQ(parse_dataset(text, "d", 2).size(), 2u);
}

TEST(EvalDataset, ReadsThePublicShape) {
  const auto records = parse_dataset(
      R"({"id":7,"ctxs":[{"title":"T","text":"one"},{"text":"two\n"}],"question":"q","answers":[["a","b"],["c"]]})",
      "d", 0);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].chunks, (Texts{"T\none\n", "two\n"}));
  EXPECT_EQ(records[0].answers, (Texts{"a", "b", "c"}));
}

TEST(EvalDataset, ReadsTheGroup) {
  const std::string text =
      R"({"chunks":["a"],"question":"q","answers":["x"],"hops":2,"kind":"pair","list":[]})";
  EXPECT_EQ(parse_dataset(text, "d", 0, "hops")[0].group, "2");
  EXPECT_EQ(parse_dataset(text, "d", 0, "kind")[0].group, "pair");
  EXPECT_EQ(parse_dataset(text, "d", 0)[0].group, "");
  EXPECT_THROW(parse_dataset(text, "d", 0, "other"), CommandError);
  EXPECT_THROW(parse_dataset(text, "d", 0, "list"), CommandError);
}

TEST(EvalDataset, TakesTheFirstRecords) {
  const std::string text = std::string(kGood) + "\n" + kGood + "\n" + kGood;
  EXPECT_EQ(parse_dataset(text, "d", 2).size(), 2u);
  EXPECT_EQ(parse_dataset(text, "d", 9).size(), 3u);
  // The rest of the file is not looked at.
  EXPECT_EQ(parse_dataset(std::string(kGood) + "\nnot json", "d", 1).size(), 1u);
}

// The exit code and the message of a failure.
std::pair<int, std::string> failure(const std::string& text) {
  try {
    parse_dataset(text, "data.jsonl", 0);
  } catch (const CommandError& error) {
    return {error.exit_code(), error.what()};
  }
  return {kExitOk, ""};
}

struct Bad {
  const char* text;
  const char* named;  // in the message
};

TEST(EvalDataset, BadRecordsAreNamedWithTheirLine) {
  const Bad cases[] = {
      {"{", "cut off"},
      {"not json", "column 2"},
      {R"({"chunks":["a"],"question":"q","answers":["x"]} extra)", "column 49"},
      {"7", "must be an object"},
      {R"({"question":"q","answers":["x"]})", "neither"},
      {R"({"chunks":"a","question":"q","answers":["x"]})", "\"chunks\" must be a list"},
      {R"({"chunks":[],"question":"q","answers":["x"]})", "\"chunks\" must be a list"},
      {R"({"chunks":["a",3],"question":"q","answers":["x"]})", "\"chunks\"[1] must be a string"},
      {R"({"chunks":["a"," \n"],"question":"q","answers":["x"]})", "\"chunks\"[1] is empty"},
      {R"({"ctxs":["a"],"question":"q","answers":["x"]})", "\"ctxs\"[0] must be an object"},
      {R"({"ctxs":[{"title":"a"}],"question":"q","answers":["x"]})", "\"ctxs\"[0] has no"},
      {R"({"ctxs":[{"title":1,"text":"a"}],"question":"q","answers":["x"]})", "[0].title"},
      {R"({"chunks":["a"],"answers":["x"]})", "no \"question\""},
      {R"({"chunks":["a"],"question":["q"],"answers":["x"]})", "\"question\" must be a string"},
      {R"({"chunks":["a"],"question":"","answers":["x"]})", "\"question\" is empty"},
      {R"({"chunks":["a"],"question":"q"})", "no \"answers\""},
      {R"({"chunks":["a"],"question":"q","answers":[]})", "empty list"},
      {R"({"chunks":["a"],"question":"q","answers":[null]})", "an answer must be a string"},
      {R"({"chunks":["a"],"question":"q","answers":[["x"],[]]})", "an answer must be a string"},
      {"{\"chunks\":[\"\xFF\"],\"question\":\"q\",\"answers\":[\"x\"]}", "not JSON"},
  };
  for (const Bad& bad : cases) {
    // After a good record and a blank line: it is line 3.
    const auto [code, message] = failure(std::string(kGood) + "\n\n" + bad.text + "\n");
    EXPECT_EQ(code, kExitDamaged) << bad.text;
    EXPECT_NE(message.find("data.jsonl:3: "), std::string::npos) << message;
    EXPECT_NE(message.find(bad.named), std::string::npos) << message;
  }
}

TEST(EvalDataset, BadElementsOfAnArrayAreNamedWithTheirLine) {
  const auto [code, message] = failure(std::string("[\n") + kGood + ",\n\n{\"chunks\":\n[]}\n]");
  EXPECT_EQ(code, kExitDamaged);
  EXPECT_NE(message.find("data.jsonl:4: \"chunks\" must"), std::string::npos) << message;
  const auto [cut, why] = failure(std::string("[\n") + kGood + ",\n");
  EXPECT_EQ(cut, kExitDamaged);
  EXPECT_NE(why.find("cut off"), std::string::npos) << why;
  const auto [syntax, where] = failure(std::string("[\n") + kGood + ",\n  ;]");
  EXPECT_EQ(syntax, kExitDamaged);
  EXPECT_NE(where.find("data.jsonl:3: not JSON at column 3"), std::string::npos) << where;
}

TEST(EvalDataset, NoRecordIsNotFound) {
  for (const char* text : {"", "\n \n", "[]", " [ ] "}) {
    EXPECT_EQ(failure(text).first, kExitNotFound) << text;
  }
  EXPECT_THROW(read_dataset("/nowhere/at/all.jsonl", 0), CommandError);
}

TEST(EvalDataset, ShufflesBySeedAndPlace) {
  Record record;
  for (int i = 0; i < 8; ++i) record.chunks.push_back(std::to_string(i));
  const auto shuffled = [&](uint64_t seed, size_t place) {
    Record copy = record;
    shuffle_chunks(copy, seed, place);
    return copy.chunks;
  };
  EXPECT_EQ(shuffled(1, 0), shuffled(1, 0));
  EXPECT_NE(shuffled(1, 0), shuffled(2, 0));
  EXPECT_NE(shuffled(1, 0), shuffled(1, 1));
  EXPECT_NE(shuffled(1, 0), record.chunks);
  EXPECT_TRUE(std::ranges::is_permutation(shuffled(1, 0), record.chunks));
}

}  // namespace
}  // namespace blend_cli
