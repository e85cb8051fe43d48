// Sequences that decode together, on any backend: instantiate SharedStepsTest with one.
#pragma once

#include <string>
#include <vector>

#include "engine/shared_steps.h"
#include "support/engine_fixture.h"

namespace blend::test {

struct StepsCase {
  std::string name;
  Runtime::MakeBackend make;  // null: the CPU
  uint32_t step_rows = 24;
  std::vector<WeightForm> forms = {WeightForm::packed, WeightForm::mapped, WeightForm::int8};
  bool slow = false;  // emulated: fewer and shorter prompts
};

class SharedStepsTest : public EngineTest, public testing::WithParamInterface<StepsCase> {
 protected:
  void SetUp() override { model_ = open({}); }

  std::shared_ptr<const Model> open(const RandomModelSpec& spec, uint32_t n_threads = 2,
                                    WeightForm form = WeightForm::automatic) {
    Model::Options options;
    options.weights = form;
    return GetParam().make ? load_on(GetParam().make, spec, n_threads, options)
                           : load(spec, n_threads, options);
  }
  // Rows of a prompt, of which a slow backend has as many as cross the borders of key blocks.
  size_t length(size_t n) const { return GetParam().slow ? 1 + n % 70 : n; }
  // Told of progress, a sequence decodes by itself on its own thread.
  static Watch apart() {
    Watch watch;
    watch.progress = [](uint64_t, uint64_t) { return 0; };
    return watch;
  }
  std::unique_ptr<Sequence> prompt(size_t n, uint64_t seed, uint32_t capacity) {
    auto s = Sequence::create(model_, capacity);
    EXPECT_TRUE(s.is_ok()) << s.status().message();
    const Status filled = (*s)->append(tokens(n, seed), {});
    EXPECT_TRUE(filled.is_ok()) << filled.message();
    return std::move(*s);
  }
  // Logits after each of the tokens, computed alone.
  std::vector<std::vector<float>> reference(size_t n, uint64_t seed,
                                            std::span<const int32_t> next) {
    auto s = prompt(n, seed, static_cast<uint32_t>(n + next.size()));
    std::vector<std::vector<float>> out;
    for (const int32_t t : next) {
      EXPECT_TRUE(s->append({&t, 1}, apart()).is_ok());
      out.push_back(s->logits());
    }
    return out;
  }

  // As many as there are weights' forms and shapes of layers that a step may meet.
  struct Shape {
    const char* name;
    RandomModelSpec spec;
    WeightForm form;
  };
  static std::vector<Shape> shapes() {
    std::vector<Shape> all;
    RandomModelSpec llama;
    llama.dtype = DType::f16;
    all.push_back({"packed", llama, WeightForm::packed});
    all.push_back({"mapped", llama, WeightForm::mapped});
    all.push_back({"int8", llama, WeightForm::int8});
    RandomModelSpec blocks;
    blocks.d_model = blocks.d_ff = 256;
    blocks.head_dim = 32;
    blocks.blocks = {BlockType::q8_0, BlockType::q4_k, BlockType::q6_k};
    all.push_back({"blocks", blocks, WeightForm::mapped});
    RandomModelSpec streams = random_family("gemma3n");  // products of many kinds
    streams.d_model = streams.d_ff = 128;
    streams.input_dim = streams.laurel_rank = 32;
    streams.blocks = {BlockType::q4_0, BlockType::q5_1, BlockType::iq4_nl};
    all.push_back({"gemma3n", streams, WeightForm::mapped});
    RandomModelSpec gemma;
    gemma.architecture = "gemma3";
    gemma.window = 16;
    all.push_back({"gemma3", gemma, WeightForm::packed});
    RandomModelSpec qwen;
    qwen.architecture = "qwen2";
    all.push_back({"qwen2", qwen, WeightForm::packed});
    RandomModelSpec longer;
    longer.architecture = "phi3";
    longer.long_from = 100;
    all.push_back({"phi3", longer, WeightForm::packed});
    const std::vector<WeightForm>& kept = GetParam().forms;
    std::erase_if(all, [&](const Shape& shape) {
      return std::find(kept.begin(), kept.end(), shape.form) == kept.end();
    });
    return all;
  }
};

}  // namespace blend::test
