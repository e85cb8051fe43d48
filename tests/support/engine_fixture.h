// EngineTest: a small random model, loaded, for tests of the engine and the fusion.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/generate.h"
#include "engine/model.h"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace blend::test {

// All of a generation by itself; `generated` is right on failure too.
inline Status generate(Sequence& sequence, GenerateOptions options, GenerateCalls calls,
                       const Watch& watch, Utf8Stream& text, Generated& generated) {
  generated = {};
  GenerationRun run;
  run.watch = watch;
  auto made = Generation::create(sequence, std::move(options), std::move(calls), text);
  if (!made.is_ok()) return made.status();
  run.generation = std::move(*made);
  generate_each({&run, 1});
  generated = run.generation->so_far();
  return std::move(run.status);
}

class EngineTest : public ::testing::Test {
 protected:
  void SetUp() override { model_ = load({}); }

  std::shared_ptr<const Model> load(const RandomModelSpec& spec, uint32_t n_threads = 2,
                                    const Model::Options& options = {},
                                    const BackendSpec& backend = {}) {
    return load_on(backend, spec, n_threads, options);
  }
  // backend: a BackendSpec, or what makes one.
  template <typename B>
  std::shared_ptr<const Model> load_on(const B& backend, const RandomModelSpec& spec,
                                       uint32_t n_threads, const Model::Options& options) {
    auto runtime =
        Runtime::create(n_threads,
                        Log(BLEND_LOG_WARNING,
                            [this](const LogRecord& record) {
                              log_.push_back(std::to_string(record.code) + " " + record.message);
                            }),
                        backend);
    EXPECT_TRUE(runtime.is_ok()) << runtime.status().message();
    log_.clear();  // a CPU without fast kernels is one
    auto model =
        Model::load(*runtime, write_random_model(spec, dir_.file("model.gguf")), options, Watch{});
    EXPECT_TRUE(model.is_ok()) << model.status().message();
    return model.is_ok() ? *model : nullptr;
  }

  // Token ids that are ordinary text, different for each seed.
  std::vector<int32_t> tokens(size_t n, uint64_t seed) const {
    SplitMix random(seed);
    std::vector<int32_t> out;
    for (size_t i = 0; i < n; ++i) {
      out.push_back(static_cast<int32_t>(259 + random.below(model_->config().n_vocab - 259)));
    }
    return out;
  }

  TempDir dir_;
  std::vector<std::string> log_;  // warnings and errors
  std::shared_ptr<const Model> model_;
};

}  // namespace blend::test
