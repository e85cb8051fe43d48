// The run itself, where the command cannot reach: a temporary store that is emptied on the way.
#include "eval/run.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "choices.h"
#include "eval/options.h"
#include "interrupt.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend_cli {
namespace {

class EvalRun : public ::testing::Test {
 protected:
  EvalRun() : model_(ctx_, blend::test::write_random_model({}, temp_.file("model.gguf"))) {
    install_interrupt_handler();
    plan_.prompt.limits.max_tokens = 4;
    plan_.configs = make_configs({"full", "reuse", "hkvd"}, {"v"}, {0.3}, {"alone", "bos"}, 1);
    plan_.showcase = showcase_of(plan_.configs);
    for (int i = 0; i < 9; ++i) {
      Record record;
      record.chunks = {"the cat sat on the mat\n", "then " + std::string(i % 4u, 'a') + " ran\n"};
      record.question = "who ran";
      record.answers = {"nobody"};
      records_.push_back(record);
    }
  }
  EvalResult run(const std::string& name, uint64_t trim_bytes, uint64_t& n_chunks) {
    plan_.trim_bytes = trim_bytes;
    const blendpp::Store store(ctx_, temp_.file(name));
    const EvalResult result = run_eval(model_, store, records_, plan_);
    n_chunks = store.stat().n_chunks;
    return result;
  }

  blend::test::TempDir temp_;
  blendpp::Context ctx_;
  blendpp::Model model_;
  EvalPlan plan_;
  std::vector<Record> records_;
};

TEST_F(EvalRun, ABudgetOfFlopsIsMetOrNamed) {
  const blendpp::Store store(ctx_, temp_.file("budget"));
  const auto configs = make_configs({"full", "hkvd", "probe"}, {"v"}, {0}, {"alone"}, 1);
  plan_.configs = with_budgets(configs, {0.8});
  plan_.showcase = plan_.configs.size();
  EXPECT_TRUE(fit_ratios(model_, store, records_, plan_).empty());
  ASSERT_EQ(plan_.configs.size(), 3u);
  EXPECT_GT(plan_.configs[1].ratio, 0.0);
  EXPECT_GT(plan_.configs[2].ratio, 0.0);
  records_.resize(4);  // that ratios are fitted on
  const EvalResult result = run_eval(model_, store, records_, plan_);
  for (size_t k = 1; k < 3; ++k) {
    double full = 0, own = 0;
    for (const QuestionResult& question : result.questions) {
      full += question.full.flops;
      own += question.outcomes[k].flops;
    }
    EXPECT_LE(own, 0.8 * full) << k;
    EXPECT_GT(own, 0.7 * full) << k << ": rows are whole";
  }
  plan_.configs = with_budgets(configs, {0.01});
  const std::vector<std::string> left_out = fit_ratios(model_, store, records_, plan_);
  EXPECT_EQ(plan_.configs.size(), 1u);
  ASSERT_EQ(left_out.size(), 2u);
  EXPECT_NE(left_out[0].find("hkvd v costs more than 1.0 %"), std::string::npos) << left_out[0];
}

// Layers that convolve keep rows of another width than K and V.
TEST_F(EvalRun, CountsWhatEachLayerKeeps) {
  for (const std::string family : {"llama2", "lfm2"}) {
    const std::string path = temp_.file(family + ".gguf");
    const blendpp::Model model(
        ctx_, blend::test::write_random_model(blend::test::random_family(family), path));
    const blendpp::Store store(ctx_, temp_.file(family));
    plan_.configs = with_codecs(make_configs({"full", "reuse"}, {}, {}, {"alone"}, 1), {"none"});
    plan_.showcase = showcase_of(plan_.configs);
    const CodecSize size = run_eval(model, store, records_, plan_).sizes.at(BLEND_CODEC_NONE);
    // The fused cache has 4 bytes an element on a CPU.
    EXPECT_EQ(size.elements, size.tokens * model.info().kv_bytes_per_token / 4) << family;
    EXPECT_GE(size.bits_per_element(), 16) << family;
  }
}

TEST_F(EvalRun, ATrimmedStoreGivesTheSameFigures) {
  uint64_t kept = 0;
  uint64_t trimmed = 0;
  const EvalResult a = run("kept", 0, kept);
  const EvalResult b = run("trimmed", 1, trimmed);
  EXPECT_EQ(kept, 2u * (1u + 5u));  // BOS and five chunks, of each of two kinds apart
  EXPECT_EQ(trimmed, 0u);
  ASSERT_EQ(a.questions.size(), b.questions.size());
  for (size_t i = 0; i < a.questions.size(); ++i) {
    for (size_t k = 0; k < plan_.configs.size(); ++k) {
      EXPECT_EQ(a.questions[i].outcomes[k].kl, b.questions[i].outcomes[k].kl);
      EXPECT_EQ(b.questions[i].outcomes[k].n_misses, 0u);
    }
  }
}

TEST_F(EvalRun, KeepsTheRowsOfAFewQuestionsOnly) {
  uint64_t n = 0;
  const EvalResult result = run("store", 0, n);
  size_t kept = 0;
  for (const QuestionResult& question : result.questions) {
    kept += question.trace.n_rows > 0 ? 1 : 0;
    EXPECT_EQ(question.tokens.size(), question.trace.n_rows);
  }
  EXPECT_EQ(kept, 3u);  // nobody's answer is right: none is telling
}

}  // namespace
}  // namespace blend_cli
