// Steps of one token that are recorded and run again on the device that BLEND_TEST_BACKEND names:
// to the bit what issuing every one of them gives, across a change of the parts that attention
// splits the keys into.
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/sequence.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

TEST(DeviceRecording, RecordedStepsAreThoseThatAreIssued) {
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
  const TempDir dir;
  const auto model =
      Model::load(runtime.value(), write_random_model(shape, dir.file("model.gguf")), {}, {});
  ASSERT_TRUE(model.is_ok()) << model.status().message();
  SplitMix random(3);
  const auto tokens = [&](size_t n) {
    std::vector<int32_t> out;
    for (size_t i = 0; i < n; ++i) {
      out.push_back(static_cast<int32_t>(259 + random.below(shape.n_vocab - 259)));
    }
    return out;
  };
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

}  // namespace
}  // namespace blend::test
