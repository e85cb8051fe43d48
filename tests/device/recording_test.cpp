// Steps on the device that BLEND_TEST_BACKEND names: those of one token that are recorded and run
// again are to the bit what issuing every one of them gives, across a change of the parts that
// attention splits the keys into; and those that several sequences take together what each gives by
// itself.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/sequence.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

class DeviceRecording : public testing::Test {
 protected:
  void SetUp() override {
    const char* const name = std::getenv("BLEND_TEST_BACKEND");
    const auto spec = parse_backend(name == nullptr ? "cuda" : name);
    ASSERT_TRUE(spec.is_ok()) << spec.status().message();
    const auto runtime = Runtime::create(2, {}, spec.value());
    ASSERT_TRUE(runtime.is_ok()) << runtime.status().message();
    RandomModelSpec shape;
    shape.dtype = DType::bf16;
    shape.head_dim = 64;
    shape.n_heads = 4;
    shape.n_kv_heads = 2;
    shape.context = 700;
    model =
        Model::load(runtime.value(), write_random_model(shape, dir_.file("model.gguf")), {}, {});
    ASSERT_TRUE(model.is_ok()) << model.status().message();
  }
  std::vector<int32_t> tokens(size_t n) {
    std::vector<int32_t> out;
    for (size_t i = 0; i < n; ++i) {
      out.push_back(
          static_cast<int32_t>(259 + random_.below(model.value()->config().n_vocab - 259)));
    }
    return out;
  }

  Result<std::shared_ptr<const Model>> model = Status{BLEND_E_INTERNAL, "not loaded"};

 private:
  TempDir dir_;
  SplitMix random_{3};
};

TEST_F(DeviceRecording, RecordedStepsAreThoseThatAreIssued) {
  const std::vector<int32_t> prompt = tokens(435), answer = tokens(40);
  const auto decode = [&](bool recorded) {
    std::vector<std::vector<float>> logits;
    const auto sequence = Sequence::create(model.value(), 460);
    EXPECT_TRUE(sequence.is_ok()) << sequence.status().message();
    Sequence& s = *sequence.value();
    if (!recorded) s.issue_every_step();
    EXPECT_TRUE(s.append(prompt, {}).is_ok());
    for (const int32_t token : answer) {
      if (s.n_rows() == s.capacity()) {
        EXPECT_TRUE(s.reserve(600).is_ok());
      }
      const Status status = s.append({&token, 1}, {});
      EXPECT_TRUE(status.is_ok()) << status.message();
      logits.push_back(s.logits());
    }
    EXPECT_EQ(s.records(), recorded) << "whether this device can take a step down";
    return logits;
  };
  const auto want = decode(false);
  EXPECT_EQ(decode(true), want);
}

// Short caches and long ones, whose keys are split; one drafts tokens.
TEST_F(DeviceRecording, StepsTogetherAreThoseOfEachAlone) {
  constexpr size_t kSequences = 33, kSteps = 6;
  struct One {
    std::vector<int32_t> prompt, answer;
    std::vector<std::vector<float>> alone;
    std::unique_ptr<Sequence> sequence;
  };
  std::vector<One> all(kSequences);
  const auto begin = [&](const One& one) {
    auto s = Sequence::create(model.value(), static_cast<uint32_t>(one.prompt.size() + kSteps));
    EXPECT_TRUE(s.is_ok()) << s.status().message();
    EXPECT_TRUE(s.value()->append(one.prompt, {}).is_ok());
    return std::move(s.value());
  };
  for (size_t i = 0; i < kSequences; ++i) {
    One& one = all[i];
    one.prompt = tokens(1 + i * 19);
    one.answer = tokens(kSteps);
    const auto s = begin(one);
    for (const int32_t token : one.answer) {
      ASSERT_TRUE(s->append({&token, 1}, {}).is_ok());
      one.alone.push_back(s->logits());
    }
    one.sequence = begin(one);
  }
  for (const size_t n : {size_t{1}, size_t{7}, size_t{32}, kSequences}) {
    for (size_t step = 0; step < kSteps; ++step) {
      std::vector<Sequence::Append> appends;
      for (size_t i = 0; i < n; ++i) {
        appends.push_back(
            {all[i].sequence.get(),
             all[i].answer[step],
             {},
             nullptr,
             Status::ok(),
             i == 5 ? std::span(all[i].answer).subspan(step + 1) : std::span<int32_t>()});
      }
      Sequence::append_each(appends);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_TRUE(appends[i].status.is_ok()) << appends[i].status.message();
        ASSERT_EQ(all[i].sequence->logits(), all[i].alone[step]) << n << " at once, row " << i;
      }
    }
    for (size_t i = 0; i < n; ++i) all[i].sequence = begin(all[i]);
  }
}

}  // namespace
}  // namespace blend::test
