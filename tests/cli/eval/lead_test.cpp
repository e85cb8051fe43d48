// Led along an answer: what is measured is what plain decoding gives.
#include "eval/lead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "compare.h"
#include "interrupt.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend_cli {
namespace {

class EvalLead : public ::testing::Test {
 protected:
  EvalLead() : model_(ctx_, blend::test::write_random_model({}, temp_.file("model.gguf"))) {
    install_interrupt_handler();
    limits_.max_tokens = 12;
  }
  blendpp::Fusion fuse(const std::string& text) const {
    blendpp::FuseOptions options;
    options.policy = BLEND_POLICY_FULL;
    options.reserve_tokens = limits_.max_tokens;
    blendpp::Prompt prompt;
    prompt.question(model_.tokenize(text));
    return blendpp::Fusion(model_, nullptr, prompt, options);
  }
  Reference reference(const std::string& text) const {
    blendpp::Fusion fusion = fuse(text);
    return reference_answer(model_, fusion, limits_);
  }
  Led led(const std::string& text, const Reference& along) const {
    blendpp::Fusion fusion = fuse(text);
    return led_answer(model_, fusion, along, limits_);
  }

  blend::test::TempDir temp_;
  blendpp::Context ctx_;
  blendpp::Model model_;
  AnswerLimits limits_;
};

TEST_F(EvalLead, AlongItsOwnAnswerItDiffersNowhere) {
  const Reference own = reference("the cat sat on");
  ASSERT_GT(own.likeliest.size(), 1u);
  EXPECT_EQ(own.logits.size(), std::min(kKlPlaces, own.likeliest.size()));
  const Led led = this->led("the cat sat on", own);
  EXPECT_EQ(led.answer, own.answer);
  EXPECT_EQ(led.n_agree, own.likeliest.size());
  EXPECT_TRUE(led.first_agrees);
  EXPECT_EQ(led.n_common, own.likeliest.size());
  for (const double kl : led.kl) EXPECT_LT(kl, 1e-9);
}

TEST_F(EvalLead, TheLeadIsOverTheSecondLikeliestToken) {
  const Reference own = reference("the cat sat on");
  ASSERT_EQ(own.lead.size(), own.likeliest.size());
  ASSERT_EQ(own.second.size(), own.likeliest.size());
  for (size_t i = 0; i < own.logits.size(); ++i) {
    std::vector<float> falling = own.logits[i];
    std::sort(falling.begin(), falling.end(), std::greater<>());
    EXPECT_NEAR(own.lead[i], falling[0] - falling[1], 1e-6) << i;
    EXPECT_EQ(own.logits[i][static_cast<size_t>(own.second[i])], falling[1]) << i;
  }
}

TEST_F(EvalLead, AlongAnotherAnswerItIsComparedPlaceByPlaceAndAnswersAsByItself) {
  const Reference other = reference("the dog ran to the park");
  const Led led = this->led("a bird sang", other);
  EXPECT_EQ(led.answer, reference("a bird sang").answer);
  ASSERT_EQ(led.kl.size(), other.logits.size());
  size_t n_agree = 0;
  for (size_t i = 0; i < other.likeliest.size(); ++i) {
    blendpp::Fusion fusion = fuse("a bird sang");
    if (i > 0) {
      fusion.decode(
          {other.likeliest.begin(), other.likeliest.begin() + static_cast<std::ptrdiff_t>(i)});
    }
    const auto view = fusion.logits();
    const Logits logits(view.begin(), view.end());
    n_agree +=
        std::max_element(logits.begin(), logits.end()) - logits.begin() == other.likeliest[i];
    if (i < led.kl.size()) {
      EXPECT_NEAR(led.kl[i], kl_divergence(other.logits[i], logits), 1e-6) << i;
    }
  }
  EXPECT_EQ(led.n_agree, n_agree);
  EXPECT_GT(*std::max_element(led.kl.begin(), led.kl.end()), 1e-3) << "two prompts, two answers";
}

TEST_F(EvalLead, WhereItLeavesTheAnswerItGoesOnByItself) {
  const Reference plain = reference("the cat sat on");
  for (const size_t place : {size_t{1}, size_t{3}, plain.likeliest.size() - 1}) {
    Reference other = plain;
    other.likeliest[place] = plain.likeliest[place] == 5 ? 6 : 5;
    const Led led = this->led("the cat sat on", other);
    EXPECT_EQ(led.answer, plain.answer) << place;
    EXPECT_TRUE(led.first_agrees);
    EXPECT_LT(led.n_agree, plain.likeliest.size());
    EXPECT_EQ(led.n_common, place);
    EXPECT_FALSE(led.took_second);
    other.second[place] = plain.likeliest[place];
    EXPECT_TRUE(this->led("the cat sat on", other).took_second);
    EXPECT_LT(led.kl[1], 1e-9) << "up to there both have the same tokens";
  }
}

TEST_F(EvalLead, TheStopTextEndsBoth) {
  const std::string whole = reference("the cat sat on").answer;
  ASSERT_GT(whole.size(), 3u);
  limits_.stop = whole.substr(2, 1);
  const Reference cut = reference("the cat sat on");
  EXPECT_EQ(cut.answer.find(limits_.stop), std::string::npos);
  EXPECT_LE(cut.likeliest.size(), limits_.max_tokens);
  EXPECT_EQ(led("a bird sang", cut).answer, reference("a bird sang").answer);
}

TEST(EvalAnswer, EndsBeforeTheStop) {
  EXPECT_EQ(answer_of(" the mat\nQuestion:", "\n"), "the mat");
  EXPECT_EQ(answer_of(" the mat \n", ""), "the mat");
  EXPECT_EQ(answer_of("\nmat", "\n"), "");
  EXPECT_EQ(answer_of("mat", "\n"), "mat");
}

}  // namespace
}  // namespace blend_cli
