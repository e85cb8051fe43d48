// What blend_calibrate and blend_verify find on a random model, and what they write.
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "conformance/drifting.h"
#include "conformance/step_host.h"
#include "profile/profile.h"

namespace blend::test {
namespace {

class Calibrating : public Drifting {
 protected:
  Calibrating() : Drifting(0) {
    for (int i = 0; i < 18; ++i) {
      Prompt prompt;
      for (int c = 0; c < 3; ++c) {
        prompt.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng_, spec_.n_vocab, 18)});
      }
      prompt.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng_, spec_.n_vocab, 5)});
      prompts_.push_back(std::move(prompt));
    }
    for (const Prompt& prompt : prompts_) {
      auto& list = segments_.emplace_back(prompt.size());
      for (size_t s = 0; s < prompt.size(); ++s) {
        list[s] = blend_segment{}, list[s].struct_size = sizeof list[s];
        list[s].kind = prompt[s].kind;
        list[s].tokens = prompt[s].tokens.data();
        list[s].n_tokens = prompt[s].tokens.size();
      }
    }
    for (const auto& list : segments_) {
      blend_sample sample{};
      sample.struct_size = sizeof sample;
      sample.segments = list.data();
      sample.n_segments = list.size();
      samples_.push_back(sample);
    }
    EXPECT_EQ(blend_calibrate_options_init(&options_, sizeof options_), BLEND_OK);
    options_.score_tokens = 3;
    options_.ratios = ratios_;
    options_.n_ratios = 3;
    options_.on_measurement = [](void* user, const blend_measurement* line) {
      auto* self = static_cast<Calibrating*>(user);
      self->lines_.push_back(*line);
      return self->lines_.size() == self->stop_at_ ? 7 : 0;
    };
    options_.measurement_user = this;
  }
  Outcome calibrate(size_t n_samples, const std::string& file = "made") {
    lines_.clear();
    blend_error* error = nullptr;
    const int32_t rc = blend_calibrate(model_.get(), samples_.data(), n_samples, &options_,
                                       dir_.file(file).c_str(), &error);
    return outcome(rc, error);
  }
  bool exists(const std::string& file) { return std::ifstream(dir_.file(file)).good(); }

  std::vector<Prompt> prompts_;
  std::vector<std::vector<blend_segment>> segments_;
  std::vector<blend_sample> samples_;
  blend_calibrate_options options_;
  const double ratios_[3] = {0, 0.3, 1};
  std::vector<blend_measurement> lines_;
  size_t stop_at_ = 0;
};

TEST_F(Calibrating, MeasuresFitsChoosesAndWrites) {
  options_.max_kl = 1e-6;  // nothing but ratio 1 is as good
  options_.min_top1 = 1;
  const Outcome made = calibrate(6);
  ASSERT_EQ(made.code, BLEND_OK) << made.message;
  // None and BOS (the samples have no head), attention, hkvd plain and corrected, three ratios.
  ASSERT_EQ(lines_.size(), 18u);
  for (const blend_measurement& line : lines_) {
    EXPECT_GT(line.n_positions, 0u);
    EXPECT_LE(line.n_positions, 9u);  // three measured prompts, three tokens
    EXPECT_GE(line.kl_mean, 0);
    if (line.ratio == 1) {
      EXPECT_LT(line.kl_mean, 1e-6);
      EXPECT_EQ(line.top1, 1);
    } else {
      EXPECT_GT(line.kl_mean, 1e-6);
    }
  }
  const Profile profile = open_profile("made");
  blend_profile_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(blend_profile_get_info(profile.get(), &info, nullptr), BLEND_OK);
  EXPECT_EQ(info.trusted, 1u);
  EXPECT_EQ(info.ratio, 1);
  EXPECT_EQ(info.n_fitted, 3u);
  EXPECT_EQ(info.n_measured, 3u);
  EXPECT_EQ(info.n_measurements, 18u);
  EXPECT_EQ(info.drift_inputs, BLEND_DRIFT_DEVIATION | BLEND_DRIFT_FRESH | BLEND_DRIFT_CONSTANT);
  EXPECT_GT(info.drift_bytes, 0u);

  // The same prompts again: what was measured of them is measured again, to the last bit.
  blend_verify_options how;
  ASSERT_EQ(blend_verify_options_init(&how, sizeof how), BLEND_OK);
  how.score_tokens = 3;
  blend_verdict verdict{};
  verdict.struct_size = sizeof verdict;
  EXPECT_EQ(blend_verify(model_.get(), profile.get(), samples_.data(), 6, &how, &verdict, nullptr),
            BLEND_OK);
  EXPECT_EQ(verdict.trusted, 1u);
  EXPECT_EQ(verdict.ratio, 1);
  EXPECT_EQ(verdict.least_ratio, 1);

  // A profile that was made with wide limits, held against narrow ones.
  options_.max_kl = 100;
  options_.min_top1 = 0;
  ASSERT_EQ(calibrate(6, "easy").code, BLEND_OK);
  const Profile easy = open_profile("easy");
  EXPECT_EQ(blend_verify(model_.get(), easy.get(), samples_.data(), 6, &how, &verdict, nullptr),
            BLEND_OK);
  EXPECT_EQ(verdict.ratio, 0);
  EXPECT_EQ(verdict.least_ratio, 0);
  how.max_kl = 1e-6;
  EXPECT_EQ(blend_verify(model_.get(), easy.get(), samples_.data(), 6, &how, &verdict, nullptr),
            BLEND_BELOW_LIMITS);
  EXPECT_EQ(verdict.trusted, 0u);
  EXPECT_GT(verdict.kl_mean, 1e-6);
  EXPECT_EQ(verdict.least_ratio, -1);

  // One that trusts nothing asks for full prefill, which keeps every limit: that is no verdict.
  options_.max_kl = 1e-9;
  options_.min_top1 = 1;
  const double some = 0.2;
  options_.ratios = &some;
  options_.n_ratios = 1;
  ASSERT_EQ(calibrate(6, "strict").code, BLEND_BELOW_LIMITS);
  const Profile strict = open_profile("strict");
  how.max_kl = -1;
  EXPECT_EQ(blend_verify(model_.get(), strict.get(), samples_.data(), 6, &how, &verdict, nullptr),
            BLEND_BELOW_LIMITS);
  EXPECT_EQ(verdict.trusted, 0u);
  EXPECT_EQ(verdict.ratio, 1);
  EXPECT_LT(verdict.kl_mean, 1e-6);
}

// The default takes what the profile chose, with the maps of the rows that the probe leaves out; a
// layerwise, a prompt without a question and one with check layers take hkvd.
TEST_F(Calibrating, TheDefaultIsTheProfilesCascadeWhereThatCanBe) {
  options_.max_kl = 100;
  options_.min_top1 = 0;
  const uint32_t cascade = BLEND_POLICY_CASCADE;
  options_.policies = &cascade;
  options_.n_policies = 1;
  const double ratio = 0.2;
  options_.ratios = &ratio;
  options_.n_ratios = 1;
  ASSERT_EQ(calibrate(6).code, BLEND_OK);
  const Profile profile = open_profile("made");
  blend_profile_info i{};
  i.struct_size = sizeof i;
  ASSERT_EQ(blend_profile_get_info(profile.get(), &i, nullptr), BLEND_OK);
  EXPECT_EQ(i.policy, BLEND_POLICY_CASCADE);
  EXPECT_GT(i.stored_rank, 0u);
  random_.chunk_prefix.assign(i.chunk_prefix, i.chunk_prefix + i.n_chunk_prefix);
  const Store store = open_store(ctx_, dir_.file("store"));
  FuseCase how{.policy = BLEND_POLICY_AUTO, .metric = BLEND_METRIC_V_WEIGHED, .ratio = 0.2};
  how.chunk_prefix = random_.chunk_prefix;
  EXPECT_EQ(info(fuse(model_, store, prompts_[0], how)).policy, BLEND_POLICY_ATTENTION);
  how.profile = profile.get();
  how.correction = BLEND_CORRECTION_ON;
  const Fusion fused = fuse(model_, store, prompts_[0], how);
  EXPECT_EQ(info(fused).policy, BLEND_POLICY_CASCADE);
  const uint64_t left = info(fused).n_rows_reused - info(fused).n_rows_selected;
  EXPECT_GT(info(fused).n_rows_corrected, left / 2) << "the probe's rows alone are fewer";
  EXPECT_GT(layer_info(fused, 1).drift_share_k + layer_info(fused, 1).drift_share_v, 0)
      << "layer 1 is corrected too";
  how.profile = nullptr;
  how.correction = BLEND_CORRECTION_AUTO;
  EXPECT_EQ(info(make_layerwise(model_, store, prompts_[0], how)).policy, BLEND_POLICY_HKVD);
  how.check_layers = {{1, 0.2}};
  EXPECT_EQ(info(fuse(model_, store, prompts_[0], how)).policy, BLEND_POLICY_HKVD);
  how.check_layers.clear();
  Prompt text = prompts_[0];
  text.back().kind = BLEND_SEGMENT_TEXT;
  EXPECT_EQ(info(fuse(model_, store, text, how)).policy, BLEND_POLICY_HKVD);
}

// Rows that a layerwise fuse placed for the question to be asked at layer 1 are placed again, with
// the maps' correction of the rows that the answer left out: the host's answer is that of
// blend_fuse.
TEST_F(Calibrating, ALayerwiseFuseThatAskedCorrectsWhatTheProbeLeftOut) {
  ASSERT_EQ(calibrate(6).code, BLEND_OK);
  const Profile profile = open_profile("made");
  blend_profile_info i{};
  i.struct_size = sizeof i;
  ASSERT_EQ(blend_profile_get_info(profile.get(), &i, nullptr), BLEND_OK);
  ASSERT_GT(i.stored_rank, 0u);
  const Store store = open_store(ctx_, dir_.file("store"));
  FuseCase how{.policy = BLEND_POLICY_CASCADE, .metric = BLEND_METRIC_V, .ratio = 0.1};
  how.chunk_prefix.assign(i.chunk_prefix, i.chunk_prefix + i.n_chunk_prefix);
  how.profile = profile.get();
  for (const uint32_t correction : {BLEND_CORRECTION_ON, BLEND_CORRECTION_UNGUARDED}) {
    how.correction = correction;
    SCOPED_TRACE(testing::Message() << how);
    const Fusion fusion = fuse(model_, store, prompts_[0], how);
    ASSERT_GT(layer_info(fusion, 1).drift_share_k + layer_info(fusion, 1).drift_share_v, 0);
    for (const bool ahead : {false, true}) {
      const Layerwise layerwise = make_layerwise(model_, store, prompts_[0], how);
      ASSERT_TRUE(layerwise);
      StepHost host(reference_,
                    {.fetch_ahead = ahead, .n_asked = prompts_[0].back().tokens.size()});
      const StepRun run = host.run(layerwise.get());
      ASSERT_EQ(run.outcome.code, BLEND_OK) << run.outcome.message;
      EXPECT_LE(max_difference(logits(fusion), run.logits), 1e-4);
      EXPECT_EQ(selected(layerwise), selected(fusion));
      EXPECT_EQ(info(layerwise).n_rows_corrected, info(fusion).n_rows_corrected);
      for (uint32_t l = 0; l < spec_.n_layers; ++l) {
        EXPECT_NEAR(layer_info(layerwise, l).drift_share_k, layer_info(fusion, l).drift_share_k,
                    1e-3);
        EXPECT_NEAR(layer_info(layerwise, l).drift_share_v, layer_info(fusion, l).drift_share_v,
                    1e-3);
      }
    }
  }
}

TEST_F(Calibrating, TrustsNothingThatDoesNotKeepTheLimits) {
  options_.n_ratios = 2;  // without ratio 1
  options_.max_kl = 1e-6;
  EXPECT_EQ(calibrate(6).code, BLEND_BELOW_LIMITS);
  const Profile profile = open_profile("made");
  blend_fuse_options o;
  ASSERT_EQ(blend_fuse_options_init(&o, sizeof o), BLEND_OK);
  ASSERT_EQ(blend_profile_apply(profile.get(), &o, nullptr), BLEND_OK);
  EXPECT_EQ(o.ratio, 1) << "everything is recomputed";
  // A host that lowers the ratio all the same gets full prefill's answer, where it asks for that.
  random_.chunk_prefix.assign(o.chunk_prefix, o.chunk_prefix + o.n_chunk_prefix);
  const Store store = open_store(ctx_, dir_.file("store"));
  FuseCase how{.policy = BLEND_POLICY_AUTO, .metric = BLEND_METRIC_V_WEIGHED, .ratio = 0.3};
  how.chunk_prefix = random_.chunk_prefix;
  how.profile = profile.get();
  how.on_untrusted = BLEND_ON_UNTRUSTED_FULL;
  const Fusion full = fuse(model_, store, prompts_[1], {.policy = BLEND_POLICY_FULL});
  const Fusion fused = fuse(model_, store, prompts_[1], how);
  ASSERT_TRUE(full && fused);
  EXPECT_EQ(logits(fused), logits(full));
  EXPECT_EQ(info(fused).policy, BLEND_POLICY_FULL);
}

TEST_F(Calibrating, WithoutCorrectionEveryPromptIsMeasured) {
  options_.correction = BLEND_CORRECTION_OFF;
  options_.max_kl = 100;
  options_.min_top1 = 0;
  const uint32_t metrics[] = {BLEND_METRIC_K, BLEND_METRIC_KV};
  options_.metrics = metrics;
  options_.n_metrics = 2;
  const int32_t prefix[] = {7, 8};
  const blend_token_list list = {prefix, 2};
  options_.chunk_prefixes = &list;
  options_.n_chunk_prefixes = 1;
  ASSERT_EQ(calibrate(6).code, BLEND_OK);
  ASSERT_EQ(lines_.size(), 9u);  // attention, and hkvd by each metric
  const Profile profile = open_profile("made");
  blend_profile_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(blend_profile_get_info(profile.get(), &info, nullptr), BLEND_OK);
  EXPECT_EQ(info.n_measured, 6u);
  EXPECT_EQ(info.n_fitted, 0u);
  EXPECT_EQ(info.drift_inputs, 0u);
  EXPECT_EQ(info.corrected, 0u);
  EXPECT_EQ(info.ratio, 0);
  EXPECT_NE(info.metric, BLEND_METRIC_V);
  ASSERT_EQ(info.n_chunk_prefix, 2u);
  EXPECT_EQ(info.chunk_prefix[1], 8);
  EXPECT_EQ(calibrate(1).code, BLEND_OK) << "one prompt suffices";
}

TEST_F(Calibrating, BadInputIsRefusedAndWritesNothing) {
  const auto refused = [&](int32_t code, size_t n = 6) {
    const Outcome said = calibrate(n, "refused");
    EXPECT_EQ(said.code, code) << said.message;
    EXPECT_FALSE(exists("refused"));
  };
  refused(BLEND_E_INVALID_ARGUMENT, 0);
  refused(BLEND_E_INVALID_ARGUMENT, 1);
  const blend_calibrate_options sound = options_;
  const auto with = [&](const auto& change) {
    options_ = sound;
    change(options_);
    refused(BLEND_E_INVALID_ARGUMENT);
    options_ = sound;
  };
  const double bad_ratio[] = {1.5};
  const uint32_t bad_metric[] = {9};
  with([&](auto& o) { o.ratios = bad_ratio, o.n_ratios = 1; });
  with([&](auto& o) { o.ratios = nullptr; });
  with([&](auto& o) { o.metrics = bad_metric, o.n_metrics = 1; });
  with([&](auto& o) { o.check_layer = 0; });
  with([&](auto& o) { o.check_layer = 99; });
  with([&](auto& o) { o.drift_inputs = BLEND_DRIFT_FRESH; });
  with([&](auto& o) { o.drift_inputs = 15; });
  with([&](auto& o) { o.ridge = -2; });
  with([&](auto& o) { o.score_tokens = 0; });
  with([&](auto& o) { o.max_kl = std::nan(""); });
  with([&](auto& o) { o.min_top1 = 2; });
  with([&](auto& o) { o.kv_dtype = 9; });
  with([&](auto& o) { o.correction = 9; });
  const int32_t outside[] = {1 << 30};
  segments_[1][0].tokens = outside;
  segments_[1][0].n_tokens = 1;
  const Outcome said = calibrate(6, "refused");
  EXPECT_EQ(said.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(said.message.find("sample 1"), std::string::npos) << said.message;
}

// A chunk after its own chunk prefix has no drift: there is nothing to fit.
TEST_F(Calibrating, PromptsOfOneExactChunkCannotBeFitted) {
  for (auto& list : segments_) list.erase(list.begin(), list.begin() + 2);
  for (size_t i = 0; i < samples_.size(); ++i) {
    samples_[i].segments = segments_[i].data();
    samples_[i].n_segments = segments_[i].size();
  }
  const blend_token_list none = {nullptr, 0};
  options_.chunk_prefixes = &none;
  options_.n_chunk_prefixes = 1;
  const Outcome said = calibrate(6, "refused");
  EXPECT_EQ(said.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(said.message.find("two chunks"), std::string::npos) << said.message;
  EXPECT_FALSE(exists("refused"));
}

TEST_F(Calibrating, StopsWhenAsked) {
  stop_at_ = 2;
  const Outcome stopped = calibrate(6, "stopped");
  EXPECT_EQ(stopped.code, BLEND_E_CALLBACK);
  EXPECT_EQ(stopped.detail, 7);
  EXPECT_FALSE(exists("stopped"));
  stop_at_ = 0;
  blend_cancel* cancel = nullptr;
  ASSERT_EQ(blend_cancel_create(&cancel, nullptr), BLEND_OK);
  blend_cancel_request(cancel);
  options_.cancel = cancel;
  EXPECT_EQ(calibrate(6, "stopped").code, BLEND_E_CANCELLED);
  EXPECT_FALSE(exists("stopped"));
  blend_cancel_free(cancel);
  options_.cancel = nullptr;
  EXPECT_EQ(calibrate(6, "no/such/directory").code, BLEND_E_IO);
}

// Rounding is judged beside what the fuse itself leaves, at the same tokens.
TEST_F(Calibrating, CodecsAreMeasuredBesideTheFuse) {
  options_.correction = BLEND_CORRECTION_OFF;
  options_.max_kl = 100;
  options_.min_top1 = 0;
  options_.score_tokens = 1;
  options_.n_ratios = 1;
  const uint32_t attention = BLEND_POLICY_ATTENTION;
  options_.policies = &attention;
  options_.n_policies = 1;
  const int32_t prefix[] = {7, 8};
  const blend_token_list list = {prefix, 2};
  options_.chunk_prefixes = &list;
  options_.n_chunk_prefixes = 1;
  ASSERT_EQ(calibrate(6).code, BLEND_OK);
  const Profile profile = open_profile("made");
  std::map<uint32_t, blend_codec_cost> costs;
  for (const uint32_t codec : {BLEND_CODEC_INT8, BLEND_CODEC_INT4, BLEND_CODEC_RANS}) {
    blend_codec_cost& cost = costs[codec];
    cost.struct_size = sizeof cost;
    ASSERT_EQ(blend_profile_get_codec_cost(profile.get(), codec, &cost, nullptr), BLEND_OK);
    EXPECT_EQ(cost.codec, codec);
    EXPECT_EQ(cost.n_measured, 6u);
    EXPECT_NEAR(cost.kl_fuse, lines_.at(0).kl_mean, 1e-12);
    EXPECT_GT(cost.kl, 0);
  }
  EXPECT_LT(costs[BLEND_CODEC_INT8].kl * 10, costs[BLEND_CODEC_INT4].kl);
  EXPECT_GT(costs[BLEND_CODEC_INT8].bits, costs[BLEND_CODEC_INT4].bits);
}

// Chunks are measured as the store of a corpus has them, and a fuse with others is not vouched for.
TEST_F(Calibrating, RecordsInContextAreMeasuredAndAskedFor) {
  options_.correction = BLEND_CORRECTION_OFF;
  options_.max_kl = 100;
  options_.min_top1 = 0;
  options_.n_ratios = 1;
  const uint32_t attention = BLEND_POLICY_ATTENTION;
  options_.policies = &attention;
  options_.n_policies = 1;
  const int32_t prefix[] = {7, 8};
  const blend_token_list list = {prefix, 2};
  options_.chunk_prefixes = &list;
  options_.n_chunk_prefixes = 1;
  options_.n_contexts = BLEND_MOST_CONTEXTS + 1;
  EXPECT_EQ(calibrate(6).code, BLEND_E_INVALID_ARGUMENT);
  options_.n_contexts = 0;
  ASSERT_EQ(calibrate(6).code, BLEND_OK);
  const double after_prefix = lines_.at(0).kl_mean;
  options_.n_contexts = 2;
  ASSERT_EQ(calibrate(6).code, BLEND_OK);
  EXPECT_NE(lines_.at(0).kl_mean, after_prefix);
  const Profile profile = open_profile("made");
  blend_profile_info made{};
  made.struct_size = sizeof made;
  ASSERT_EQ(blend_profile_get_info(profile.get(), &made, nullptr), BLEND_OK);
  EXPECT_EQ(made.n_contexts, 2u);

  FuseCase how{.policy = BLEND_POLICY_ATTENTION, .ratio = 0.3};
  how.chunk_prefix = {7, 8};
  how.profile = profile.get();
  const Store store = open_store(ctx_, dir_.file("store"));
  const Fusion doubted = fuse(model_, store, prompts_[0], how);
  ASSERT_TRUE(doubted);
  EXPECT_EQ(info(doubted).flags & BLEND_FUSION_UNTRUSTED, BLEND_FUSION_UNTRUSTED);
  how.on_untrusted = BLEND_ON_UNTRUSTED_FAIL;
  const Outcome refused = try_fuse(model_, store, prompts_[0], how).outcome;
  EXPECT_EQ(refused.code, BLEND_E_UNTRUSTED);
  EXPECT_NE(refused.message.find("store it with its corpus"), std::string::npos) << refused.message;
  how.on_untrusted = BLEND_ON_UNTRUSTED_FULL;
  const Fusion full = fuse(model_, store, prompts_[0], how);
  const Fusion exact = fuse(model_, store, prompts_[0], {.policy = BLEND_POLICY_FULL});
  ASSERT_TRUE(full && exact);
  EXPECT_EQ(logits(full), logits(exact));
  // Whatever chooses the ratio or the layers.
  FuseCase own = how;
  own.check_layers = {{0, 0.5}, {1, 0.2}};
  FuseCase automatic = how;
  automatic.ratio = BLEND_RATIO_FIDELITY;
  for (const FuseCase& c : {how, own, automatic}) {
    const Layerwise layerwise = make_layerwise(model_, store, prompts_[0], c);
    ASSERT_TRUE(layerwise);
    blend_fusion_report report{};
    report.struct_size = sizeof report;
    ASSERT_EQ(blend_layerwise_get_report(layerwise.get(), &report, nullptr), BLEND_OK);
    EXPECT_EQ(report.policy, BLEND_POLICY_FULL);
    EXPECT_EQ(report.n_rows_always, report.n_rows);
  }

  std::vector<blend_corpus_chunk> chunks;
  for (const Prompt& prompt : prompts_) {
    for (size_t c = 0; c < 3; ++c) {
      blend_corpus_chunk& chunk = chunks.emplace_back();
      chunk = {};
      chunk.struct_size = sizeof chunk;
      chunk.tokens = prompt[c].tokens.data();
      chunk.n_tokens = prompt[c].tokens.size();
    }
  }
  blend_corpus_options corpus;
  ASSERT_EQ(blend_corpus_options_init(&corpus, sizeof corpus), BLEND_OK);
  corpus.chunk_prefix = prefix;
  corpus.n_chunk_prefix = 2;
  ASSERT_EQ(blend_precompute_corpus(model_.get(), store.get(), chunks.data(), chunks.size(),
                                    &corpus, nullptr),
            BLEND_OK);
  how.on_untrusted = BLEND_ON_UNTRUSTED_FAIL;
  EXPECT_TRUE(fuse(model_, store, prompts_[0], how));
}

// Progress ends where it said it would.
TEST_F(Calibrating, ProgressReachesItsEnd) {
  struct Seen {
    uint64_t done = 0, total = 0;
  } seen;
  options_.progress = [](void* user, uint64_t done, uint64_t total) {
    auto* s = static_cast<Seen*>(user);
    EXPECT_EQ(done, s->done + 1);
    *s = {done, total};
    return 0;
  };
  options_.progress_user = &seen;
  ASSERT_GE(calibrate(5).code, 0);
  EXPECT_EQ(seen.done, seen.total);
  EXPECT_GT(seen.total, 0u);
  // With prompts enough for the layers' steps, and the same without asking for them: as it is
  // reused and as the profile fuses, an exact run and one a layer of nine prompts, and three of
  // nine more.
  const uint32_t hkvd = BLEND_POLICY_HKVD;
  options_.policies = &hkvd;
  options_.n_policies = options_.n_ratios = 1;
  options_.correction = BLEND_CORRECTION_OFF;
  options_.score_tokens = 1;
  seen = {};
  ASSERT_GE(calibrate(18).code, 0);
  EXPECT_EQ(seen.done, seen.total);
  const uint64_t with_steps = seen.total;
  seen = {};
  options_.step_samples = 0;
  ASSERT_GE(calibrate(18).code, 0);
  EXPECT_EQ(seen.done, seen.total);
  EXPECT_EQ(seen.total + 2 * (9 * (1 + spec_.n_layers) + 9 * 3), with_steps);
}

// What is put into a store that uses a profile is rounded by the profile's steps, a fuse's missing
// chunks too. What is put into another store is not.
TEST_F(Calibrating, AStoreRoundsAsTheProfileSays) {
  ReferenceDrift drift;
  make_profile(1, 0, 0.5, drift, "plain");
  Result<blend::Profile> made = read_profile(dir_.file("plain"));
  ASSERT_TRUE(made.is_ok());
  made->layer_steps = {std::vector<float>(spec_.n_layers, 1.0f / 32), 0.5, 0.25, 0.125, 4, 3, 12};
  made->codec_costs = {{BLEND_CODEC_RANS, 0.5, 0.25, 0.125, 3, 12}};
  ASSERT_TRUE(write_profile(*made, dir_.file("fine")).is_ok());
  const Profile plain = open_profile("plain"), fine = open_profile("fine");
  ASSERT_TRUE(plain && fine);
  blend_profile_info info{};
  info.struct_size = sizeof info;
  ASSERT_EQ(blend_profile_get_info(plain.get(), &info, nullptr), BLEND_OK);
  EXPECT_EQ(info.layer_steps, nullptr);
  EXPECT_EQ(info.n_layer_steps, 0u);
  ASSERT_EQ(blend_profile_get_info(fine.get(), &info, nullptr), BLEND_OK);
  ASSERT_EQ(info.n_layer_steps, spec_.n_layers);
  EXPECT_EQ(info.layer_steps[1], 1.0f / 32);
  EXPECT_EQ(info.steps_kl_alike, 0.5);
  EXPECT_EQ(info.steps_kl_split, 0.25);
  EXPECT_EQ(info.steps_gain_margin, 0.125);
  EXPECT_EQ(info.steps_bits_alike, 4);
  EXPECT_EQ(info.steps_bits_split, 3);
  EXPECT_EQ(info.n_steps_measured, 12u);
  blend_codec_cost cost{};
  cost.struct_size = sizeof cost;
  ASSERT_EQ(blend_profile_get_codec_cost(fine.get(), BLEND_CODEC_RANS, &cost, nullptr), BLEND_OK);
  EXPECT_EQ(cost.codec, BLEND_CODEC_RANS);
  EXPECT_EQ(cost.kl, 0.5);
  EXPECT_EQ(cost.kl_margin, 0.25);
  EXPECT_EQ(cost.kl_fuse, 0.125);
  EXPECT_EQ(cost.bits, 3);
  EXPECT_EQ(cost.n_measured, 12u);
  for (const uint32_t codec : {BLEND_CODEC_INT8, BLEND_CODEC_ZSTD, 99u}) {
    EXPECT_EQ(blend_profile_get_codec_cost(fine.get(), codec, &cost, nullptr), BLEND_E_NOT_FOUND);
  }

  const FuseCase how{.policy = BLEND_POLICY_REUSE};
  const auto rounded = [&](const std::string& name, const blend_profile* used) {
    blend_store_options o;
    EXPECT_EQ(blend_store_options_init(&o, sizeof o), BLEND_OK);
    o.kv_dtype = BLEND_DTYPE_F32;
    o.codec = BLEND_CODEC_RANS;
    blend_store* raw = nullptr;
    EXPECT_EQ(blend_store_open(&raw, ctx_.get(), dir_.file(name).c_str(), &o, nullptr), BLEND_OK);
    const Store store(raw);
    if (used != nullptr) {
      EXPECT_EQ(blend_store_set_codec_profile(raw, used, nullptr), BLEND_OK);
    }
    EXPECT_TRUE(fuse(model_, store, prompts_[0], how));
    EXPECT_EQ(blend_store_flush(raw, nullptr), BLEND_OK);
    return logits(fuse(model_, store, prompts_[0], how));
  };
  const Store exact_store = open_store(ctx_, dir_.file("exact"));
  const auto exact = logits(fuse(model_, exact_store, prompts_[0], how));
  const auto alike = rounded("alike", nullptr);
  EXPECT_EQ(rounded("plain store", plain.get()), alike);
  const double coarse = max_difference(exact, alike);
  EXPECT_GT(coarse, 1e-3);
  EXPECT_LT(max_difference(exact, rounded("fine store", fine.get())) * 8, coarse);
}

}  // namespace
}  // namespace blend::test
