// Documents and a question without a template.
#include "text/plain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/tokenizer/bpe_tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"
#include "support/golden_tokens.h"

namespace blend::text {
namespace {

std::unique_ptr<BpeTokenizer> qwen() {  // without BOS
  auto spec = parse_tokenizer_json(test::golden_tokenizer("qwen2").json);
  EXPECT_TRUE(spec.is_ok()) << spec.status().message();
  return std::move(*BpeTokenizer::create(std::move(*spec)));
}

size_t n_control(const Tokenizer& t, const std::vector<int32_t>& ids) {
  return static_cast<size_t>(std::count_if(ids.begin(), ids.end(), [&](int32_t id) {
    return t.piece(id, 0).empty() && !t.piece(id, BLEND_TOKENIZE_SPECIAL).empty();
  }));
}

Prompt prompt_of(const Tokenizer& t, const std::vector<std::string>& documents,
                 std::string_view question, const PlainOptions& options) {
  auto prompt = make_plain_prompt(t, documents, question, options);
  EXPECT_TRUE(prompt.is_ok()) << prompt.status().message();
  return prompt.is_ok() ? std::move(*prompt) : Prompt();
}

TEST(PlainPrompt, WithoutBosBeginsWithTheFirstDocument) {
  const auto t = qwen();
  const Prompt prompt = prompt_of(*t, {"a\n", "b\n"}, "who", {});
  ASSERT_EQ(prompt.segments.size(), 3u);
  EXPECT_EQ(prompt.segments[0].kind, BLEND_SEGMENT_CHUNK);
  EXPECT_EQ(prompt.segments[2].kind, BLEND_SEGMENT_QUESTION);
  EXPECT_EQ(prompt.segments[2].tokens, *t->encode("Question: who\nAnswer:", 0));
  EXPECT_EQ(prompt.text, "a\nb\nQuestion: who\nAnswer:");
}

TEST(PlainPrompt, ControlTokensOfTheHostAreRecognizedWhereItSaysSo) {
  const auto t = qwen();
  PlainOptions options;
  options.system = "<|im_start|>system";
  options.question_template = "<|im_start|>user\n{question}<|im_end|>";
  const auto count = [&](bool special) {
    options.special = special;
    std::vector<size_t> out;
    for (const Segment& s : prompt_of(*t, {"<|im_end|>"}, "<|im_end|>", options).segments) {
      out.push_back(n_control(*t, s.tokens));
    }
    return out;
  };
  EXPECT_EQ(count(false), (std::vector<size_t>{0, 0, 0}));
  EXPECT_EQ(count(true), (std::vector<size_t>{1, 0, 2}));
}

TEST(PlainPrompt, AQuestionIsPutInEveryPlaceAndNeedsOne) {
  EXPECT_EQ(*put_question("{question}, {question}?", "a{question}"), "a{question}, a{question}?");
  EXPECT_EQ(put_question("who?", "x").status().code(), BLEND_E_INVALID_ARGUMENT);
  const auto t = qwen();
  PlainOptions options;
  options.question_template = "who?";
  EXPECT_EQ(make_plain_prompt(*t, {}, "x", options).status().code(), BLEND_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace blend::text
