// From text to text on real weights: tokenize, fuse, generate, as a host does it.
#include <gtest/gtest.h>

#include "conformance/abi.h"
#include "support/outside_data.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

std::vector<int32_t> tokenize(const Model& model, const std::string& text, uint32_t flags) {
  size_t n = 0;
  blend_error* error = nullptr;
  int32_t code =
      blend_model_tokenize(model.get(), text.data(), text.size(), flags, nullptr, 0, &n, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_E_BUFFER_TOO_SMALL);
  std::vector<int32_t> tokens(n);
  code = blend_model_tokenize(model.get(), text.data(), text.size(), flags, tokens.data(), n, &n,
                              &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_OK);
  return tokens;
}

int32_t append_text(void* user, int32_t /*token*/, const char* text, size_t text_bytes) {
  EXPECT_EQ(text[text_bytes], '\0');
  static_cast<std::string*>(user)->append(text, text_bytes);
  return 0;
}

std::string generate(const Fusion& fusion, uint32_t max_tokens) {
  blend_generate_options options;
  EXPECT_EQ(blend_generate_options_init(&options, sizeof options), BLEND_OK);
  options.max_tokens = max_tokens;
  options.temperature = 0;
  std::string text;
  blend_error* error = nullptr;
  const int32_t code =
      blend_fusion_generate(fusion.get(), &options, append_text, &text, nullptr, &error);
  EXPECT_GE(outcome(code, error).code, 0);
  return text;
}

class StoryModel : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = outside_data("models/stories260K.gguf");
    if (path.empty()) GTEST_SKIP() << kNoOutsideData;
    ctx_ = make_ctx();
    model_ = open_model(ctx_, path);
    ASSERT_TRUE(model_);
    prompt_ = tokenize(model_, kPrompt, BLEND_TOKENIZE_BOS);
  }

  static constexpr const char* kPrompt = "Once upon a time";
  static constexpr const char* kStory =
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the "
      "park. One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
      "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know what to do. "
      "She said, \"I want to play with your ball, but I can't find it.\"";

  // The prompt's text and at most as many tokens as the story has bytes, cut to its length.
  static std::string story_of(const Fusion& fusion) {
    const std::string story = kStory;
    return (kPrompt + generate(fusion, 250)).substr(0, story.size());
  }

  Ctx ctx_;
  Model model_;
  std::vector<int32_t> prompt_;
};

TEST_F(StoryModel, GreedyTextFromText) {
  const Fusion f = fuse(model_, Store(), {{BLEND_SEGMENT_TEXT, prompt_, false}},
                        {.policy = BLEND_POLICY_FULL, .reserve_tokens = 260});
  EXPECT_EQ(story_of(f), kStory);
}

TEST_F(StoryModel, GreedyTextFromAQuestionWithTheDefaultPolicy) {
  const Fusion f = fuse(model_, Store(), {{BLEND_SEGMENT_QUESTION, prompt_, false}},
                        {.on_miss = BLEND_MISS_COMPUTE, .reserve_tokens = 260});
  EXPECT_EQ(story_of(f), kStory);
}

// The prompt's first part comes from the store; being exact, it must not change a letter.
TEST_F(StoryModel, GreedyTextAfterAStoredPrefix) {
  const TempDir dir;
  const Store store = open_store(ctx_, dir.file("store"), BLEND_DTYPE_F32);
  ASSERT_GE(prompt_.size(), 3u);
  const Prompt prompt = {{BLEND_SEGMENT_PREFIX, {prompt_.begin(), prompt_.end() - 2}, false},
                         {BLEND_SEGMENT_QUESTION, {prompt_.end() - 2, prompt_.end()}, false}};
  for (int round = 0; round < 2; ++round) {  // a miss, then a hit
    const Fusion f = fuse(model_, store, prompt, {.reserve_tokens = 260});
    EXPECT_EQ(info(f).n_hits, static_cast<uint64_t>(round));
    EXPECT_EQ(story_of(f), kStory);
  }
}

// Generation in two calls is generation in one.
TEST_F(StoryModel, GenerationContinues) {
  const auto start = [&] {
    return fuse(model_, Store(), {{BLEND_SEGMENT_TEXT, prompt_, false}},
                {.policy = BLEND_POLICY_FULL, .reserve_tokens = 100});
  };
  const std::string at_once = generate(start(), 60);
  const Fusion f = start();
  std::string in_parts = generate(f, 13);
  in_parts += generate(f, 47);
  EXPECT_EQ(in_parts, at_once);
}

TEST_F(StoryModel, TokensGiveTheTextBack) {
  const std::string text = kStory;
  const std::vector<int32_t> tokens = tokenize(model_, text, BLEND_TOKENIZE_BOS);
  std::string back(4096, '\0');
  size_t n = 0;
  blend_error* error = nullptr;
  const int32_t code = blend_model_detokenize(model_.get(), tokens.data(), tokens.size(), 0,
                                              back.data(), back.size(), &n, &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_OK);
  back.resize(n);
  EXPECT_EQ(back, text);
}

}  // namespace
}  // namespace blend::test
