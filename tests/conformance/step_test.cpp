// The step API: a host that runs the model itself gets what blend_fuse computes on the same store,
// and no order of calls, damage or early end gets it anything else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "conformance/expect.h"
#include "conformance/random_prompt.h"
#include "conformance/step_host.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

class Step : public testing::Test {
 protected:
  explicit Step(uint32_t n_layers = 5)
      : path_(write_random_model({.n_layers = n_layers}, dir_.file("model.gguf"))),
        reference_(path_) {
    loaded_ = open_model(ctx_, path_);
    blend_model_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(blend_model_get_info(loaded_.get(), &info, nullptr), BLEND_OK);
    described_ = described_model(ctx_, describe(reference_.config(), info.fingerprint));
    store_ = open_store(ctx_, dir_.file("store"));
    SplitMix rng(11);
    const auto tokens = [&](size_t n) {
      return random_tokens(rng, reference_.config().n_vocab, n);
    };
    const std::vector<int32_t> twice = tokens(19);
    prompt_ = {{BLEND_SEGMENT_PREFIX, tokens(7)},  {BLEND_SEGMENT_CHUNK, tokens(24)},
               {BLEND_SEGMENT_CHUNK, twice},       {BLEND_SEGMENT_TEXT, tokens(3)},
               {BLEND_SEGMENT_CHUNK, twice},       {BLEND_SEGMENT_CHUNK, tokens(1)},
               {BLEND_SEGMENT_QUESTION, tokens(6)}};
    precompute_all(loaded_, store_, prompt_, {});
  }

  // COMPUTE, because a described model takes nothing else.
  static FuseCase hkvd(double ratio = 0.2) {
    return {.policy = BLEND_POLICY_HKVD, .ratio = ratio, .on_miss = BLEND_MISS_COMPUTE};
  }

  // Runs the layerwise fuse to its end and compares everything with blend_fuse.
  void expect_like_fuse(const Model& model, const FuseCase& how, const StepOptions& options = {}) {
    SCOPED_TRACE(testing::Message() << how);
    const Fusion fusion = fuse(loaded_, store_, prompt_, how);
    const Layerwise layerwise = make_layerwise(model, store_, prompt_, how);
    ASSERT_TRUE(fusion && layerwise);
    StepHost host(reference_, options);
    const StepRun run = host.run(layerwise.get());
    ASSERT_EQ(run.outcome.code, BLEND_OK) << run.outcome.message;
    EXPECT_LE(max_difference(logits(fusion), run.logits), kLogitTolerance);
    EXPECT_EQ(selected(layerwise), selected(fusion));
    EXPECT_LE(max_difference(deviation(layerwise), deviation(fusion)), 1e-4);

    const blend_fusion_report p = info(layerwise), f = info(fusion);
    EXPECT_EQ(p.n_rows, f.n_rows);
    EXPECT_EQ(p.n_rows_exact, f.n_rows_exact);
    EXPECT_EQ(p.n_rows_reused, f.n_rows_reused);
    EXPECT_EQ(p.n_rows_selected, f.n_rows_selected);
    EXPECT_EQ(p.n_rows_always, f.n_rows_always);
    EXPECT_EQ(p.n_hits, f.n_hits);
    EXPECT_EQ(p.bytes_loaded, f.bytes_loaded);
    EXPECT_EQ(p.bytes_shared, f.bytes_shared);
    EXPECT_EQ(p.policy, f.policy);
    EXPECT_EQ(p.flags, f.flags);
    EXPECT_GT(p.ttft_ns, 0u);
    EXPECT_LE(p.compute_ns, p.ttft_ns);
    for (uint32_t l = 0; l < reference_.config().n_layers; ++l) {
      EXPECT_EQ(layer_info(layerwise, l).layer, l);
      EXPECT_EQ(layer_info(layerwise, l).rows_kv, layer_info(fusion, l).rows_kv) << "layer " << l;
      // A host that does not ask at the last layer computes all of its rows to the end.
      if (options.select_always || l + 1 < reference_.config().n_layers) {
        EXPECT_EQ(layer_info(layerwise, l).rows_full, layer_info(fusion, l).rows_full)
            << "layer " << l;
      }
      EXPECT_EQ(layer_info(layerwise, l).rows_placed, layer_info(fusion, l).rows_placed)
          << "layer " << l;
    }
    for (size_t s = 0; s < prompt_.size(); ++s) {
      EXPECT_EQ(segment_info(layerwise, s).source, segment_info(fusion, s).source)
          << "segment " << s;
      EXPECT_EQ(segment_info(layerwise, s).n_rows_selected,
                segment_info(fusion, s).n_rows_selected);
      const blend_chunk_id a = segment_info(layerwise, s).id, b = segment_info(fusion, s).id;
      EXPECT_EQ(std::memcmp(&a, &b, sizeof a), 0) << "segment " << s;
    }
  }

  // Flips a bit of every place of the store's file that holds `bytes`.
  void damage(const void* bytes, size_t n) {
    store_.reset();
    const std::string path = dir_.file("store") + "/data.mdb";
    std::ifstream in(path, std::ios::binary);
    std::string data((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const std::string needle(static_cast<const char*>(bytes), n);
    size_t found = 0;
    std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
    for (size_t at = data.find(needle); at != std::string::npos; at = data.find(needle, at + 1)) {
      out.seekp(static_cast<std::streamoff>(at));
      out.put(static_cast<char>(data[at] ^ 1));
      ++found;
    }
    ASSERT_GT(found, 0u) << "the bytes are not in the file";
    out.close();
    store_ = open_store(ctx_, dir_.file("store"));
  }
  // V of one row of segment 2 (which stands in the prompt twice) at layer 3, as it is stored.
  void damage_the_chunk_that_stands_twice() {
    FuseCase how = hkvd();
    how.policy = BLEND_POLICY_REUSE;
    const Layerwise layerwise = make_layerwise(described_, store_, prompt_, how);
    StepHost host(reference_, {.layout = HostLayout::rows_first});
    ASSERT_EQ(host.run(layerwise.get()).outcome.code, BLEND_OK);
    const size_t kv_dim = reference_.config().kv_dim();
    const uint64_t row = segment_info(layerwise, 2).first_row + 5;
    const float* const v = host.cache()[3].v_data().data() + row * kv_dim;
    damage(v, kv_dim * sizeof(float));
  }

  TempDir dir_;
  LogCount log_;
  Ctx ctx_ = make_ctx(2, &log_);
  std::string path_;
  ReferenceModel reference_;
  Model loaded_, described_;
  Store store_;
  Prompt prompt_;
};

TEST_F(Step, SaysWhatCameFromTheStoresMemory) {
  blend_store_options options;
  ASSERT_EQ(blend_store_options_init(&options, sizeof options), BLEND_OK);
  options.kv_dtype = BLEND_DTYPE_F32;
  options.ram_bytes = 1 << 20;
  blend_store* opened = nullptr;
  store_.reset();
  ASSERT_EQ(blend_store_open(&opened, ctx_.get(), dir_.file("store").c_str(), &options, nullptr),
            BLEND_OK);
  store_.reset(opened);
  for (const bool again : {false, true}) {
    const Layerwise layerwise = make_layerwise(described_, store_, prompt_, hkvd());
    ASSERT_TRUE(layerwise);
    StepHost host(reference_, {});
    ASSERT_EQ(host.run(layerwise.get()).outcome.code, BLEND_OK);
    const blend_fusion_report i = info(layerwise);
    EXPECT_GT(i.bytes_loaded, 0u);
    EXPECT_EQ(i.bytes_from_memory, again ? i.bytes_loaded : 0u);
    EXPECT_EQ(i.n_rows_from_memory, again ? 7 + i.n_rows_reused : 0u) << "with the prefix";
  }
}

TEST_F(Step, EveryPolicyThatNeedsNoEngineDoesAsBlendFuseDoes) {
  std::vector<FuseCase> cases;
  for (const double ratio : {0.0, 0.15, 0.5, 1.0}) cases.push_back(hkvd(ratio));
  for (const uint32_t metric : {BLEND_METRIC_K, BLEND_METRIC_KV}) {
    cases.push_back(hkvd());
    cases.back().metric = metric;
  }
  cases.push_back(hkvd());
  cases.back().norm = BLEND_NORM_L1;
  cases.back().relative = 1;
  for (const uint32_t policy : {BLEND_POLICY_FULL, BLEND_POLICY_REUSE, BLEND_POLICY_FIRST_K,
                                BLEND_POLICY_RANDOM, BLEND_POLICY_CALLBACK}) {
    cases.push_back(hkvd());
    cases.back().policy = policy;
    cases.back().seed = 3;
  }
  cases[cases.size() - 1].score = [](uint32_t row, double deviation) {
    return row % 3 == 0 ? deviation : 0.0;
  };
  cases.push_back(hkvd());
  cases.back().policy = BLEND_POLICY_UNION;
  cases.back().terms = {{BLEND_POLICY_HKVD, 2.0}, {BLEND_POLICY_FIRST_K, 1.0}};
  for (const FuseCase& how : cases) {
    expect_like_fuse(loaded_, how);
    expect_like_fuse(described_, how);
  }
}

// The host gives what the question attends to: the rows and the answer are those of the engine's
// own probe, in every layout, with and without fetching ahead.
TEST_F(Step, TheQuestionChoosesBeforeLayer0) {
  const size_t n_asked = prompt_.back().tokens.size();
  for (const uint32_t policy : {BLEND_POLICY_PROBE, BLEND_POLICY_CASCADE}) {
    for (const double ratio : {0.0, 0.1, 0.4, 1.0}) {
      FuseCase how = hkvd(ratio);
      how.policy = policy;
      expect_like_fuse(loaded_, how, {.n_asked = n_asked});
      expect_like_fuse(described_, how, {.fetch_ahead = true, .n_asked = n_asked});
    }
  }
  FuseCase how = hkvd();
  how.policy = BLEND_POLICY_CASCADE;
  how.check_layer = 3;
  expect_like_fuse(described_, how, {.n_asked = n_asked});
  how.check_layer = 1;
  expect_like_fuse(described_, how,
                   {.layout = HostLayout::rows_first,
                    .target_flags = BLEND_KV_VIEW_UNROTATED,
                    .n_asked = n_asked});
  how.policy = BLEND_POLICY_UNION;
  how.terms = {{BLEND_POLICY_CASCADE, 2.0}, {BLEND_POLICY_FIRST_K, 1.0}};
  expect_like_fuse(described_, how, {.n_asked = n_asked});
}

// Where there are layers that are not asked: of seven 1 to 5 are.
class StepOfSevenLayers : public Step {
 protected:
  StepOfSevenLayers() : Step(7) {}
};

// ATTENTION by the same call, after the last of the middle layers.
TEST_F(StepOfSevenLayers, TheQuestionChoosesByTheMiddleLayers) {
  const size_t n_asked = prompt_.back().tokens.size();
  for (const double ratio : {0.0, 0.1, 0.4, 1.0}) {
    FuseCase how = hkvd(ratio);
    how.policy = BLEND_POLICY_ATTENTION;
    how.correction = BLEND_CORRECTION_OFF;  // a layerwise fuse shifts no chunks
    expect_like_fuse(loaded_, how, {.n_asked = n_asked});
    expect_like_fuse(described_, how, {.fetch_ahead = true, .n_asked = n_asked});
  }
  FuseCase how = hkvd(0.3);
  how.policy = BLEND_POLICY_ATTENTION;
  how.correction = BLEND_CORRECTION_OFF;
  how.check_layers = {{0, 0.5}, {1, 0.3}, {3, 0.1}};  // rows leave before the last layer asked
  expect_like_fuse(described_, how, {.n_asked = n_asked});
  expect_like_fuse(described_, how, {.fetch_ahead = true, .n_asked = n_asked});
  how.check_layers.clear();
  how.policy = BLEND_POLICY_UNION;
  how.terms = {{BLEND_POLICY_ATTENTION, 2.0}, {BLEND_POLICY_FIRST_K, 1.0}};
  expect_like_fuse(described_, how, {.n_asked = n_asked});
}

TEST_F(Step, TheProbeHasItsTurnAndItsAttentionIsChecked) {
  FuseCase how = hkvd();
  how.policy = BLEND_POLICY_CASCADE;
  const Layerwise layerwise = make_layerwise(described_, store_, prompt_, how);
  const ModelConfig& c = reference_.config();
  const size_t n_rows = flatten(prompt_).size();
  std::vector<HostLayer> cache(c.n_layers, HostLayer(c, n_rows, HostLayout::rows_first, 0.0f));
  std::vector<float> attention(n_rows, 0.01f);
  const uint32_t* rows = nullptr;
  size_t n = 0;
  const auto probe = [&](size_t n_values) {
    blend_error* error = nullptr;
    const int32_t code =
        blend_layerwise_probe(layerwise.get(), attention.data(), n_values, &rows, &n, &error);
    return outcome(code, error);
  };
  Outcome o = probe(n_rows);
  EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(o.message.find("due now is blend_layerwise_fetch_kv of layer 0"), std::string::npos)
      << o.message;
  const std::vector<uint32_t> asked = rows_of(layerwise);
  EXPECT_EQ(asked.size(), 9u) << "text and question: no row of a chunk yet";
  for (uint32_t l = 0; l < 2; ++l) {
    const blend_kv_view view = cache[l].view();
    ASSERT_EQ(blend_layerwise_fetch_kv(layerwise.get(), l, &view, nullptr), BLEND_OK);
    ASSERT_EQ(blend_layerwise_synchronize(layerwise.get(), l, nullptr), BLEND_OK);
    blend_error* error = nullptr;
    const int32_t code = blend_layerwise_commit(layerwise.get(), l, &error);
    o = outcome(code, error);
    EXPECT_EQ(o.code, l == 0 ? BLEND_OK : BLEND_E_INVALID_ARGUMENT);
  }
  EXPECT_NE(o.message.find("due now is blend_layerwise_probe"), std::string::npos) << o.message;
  EXPECT_NE(probe(n_rows - 1).message.find("each gets one"), std::string::npos);
  attention[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(probe(n_rows).message.find("attention[5]"), std::string::npos);
  attention[5] = -1;
  EXPECT_EQ(probe(n_rows).code, BLEND_E_INVALID_ARGUMENT);
  attention[5] = 0.5f;
  ASSERT_EQ(probe(n_rows).code, BLEND_OK);
  EXPECT_GT(n, asked.size());
  EXPECT_EQ(rows_of(layerwise), (std::vector<uint32_t>(rows, rows + n)));
  EXPECT_NE(probe(n_rows).message.find("due now is blend_layerwise_synchronize of layer 0"),
            std::string::npos);
  // From the start once more: the question again.
  ASSERT_EQ(blend_layerwise_restart(layerwise.get(), nullptr), BLEND_OK);
  EXPECT_EQ(rows_of(layerwise), asked);
}

TEST_F(Step, SeveralCheckLayersAndTheLastOne) {
  FuseCase how = hkvd();
  how.check_layers = {{1, 0.5}, {2, 0.3}, {4, 0.1}};
  expect_like_fuse(described_, how);
  how.check_layers = {};
  how.check_layer = 4;
  expect_like_fuse(described_, how, {.check_layer = 4});
  how.policy = BLEND_POLICY_FIRST_K;
  how.check_layers = {{0, 0.4}, {3, 0.1}};
  expect_like_fuse(described_, how);
}

// Nothing is loaded before the check: what is fetched ahead must wait for the choice all the same.
TEST_F(Step, ACheckBeforeTheFirstLoadedLayer) {
  prompt_[0].kind = BLEND_SEGMENT_TEXT;
  FuseCase how = hkvd();
  how.policy = BLEND_POLICY_FIRST_K;
  how.check_layers = {{2, 0.3}};
  expect_like_fuse(described_, how, {.fetch_ahead = true});
}

TEST_F(Step, RatioOneIsFullPrefill) {
  const Layerwise layerwise = make_layerwise(described_, store_, prompt_, hkvd(1.0));
  StepHost host(reference_, {});
  const StepRun run = host.run(layerwise.get());
  ASSERT_EQ(run.outcome.code, BLEND_OK) << run.outcome.message;
  const std::vector<double> full = reference_.prefill(flatten(prompt_)).logits.back();
  for (size_t i = 0; i < full.size(); ++i) EXPECT_NEAR(run.logits[i], full[i], 1e-4);
}

TEST_F(Step, LayoutsRotationAndFetchingAheadChangeNothing) {
  for (const HostLayout layout : {HostLayout::rows_first, HostLayout::heads_first}) {
    for (const uint32_t flags : {0u, BLEND_KV_VIEW_UNROTATED}) {
      FuseCase how = hkvd();
      how.metric = BLEND_METRIC_KV;  // K is read back too
      expect_like_fuse(described_, how, {layout, flags, BLEND_KV_VIEW_UNROTATED - flags, false});
      expect_like_fuse(described_, how, {layout, flags, flags, true});
    }
  }
  expect_like_fuse(described_, hkvd(), {.select_always = false});
}

TEST_F(Step, RowsOfTheHostAreLeftAlone) {
  const FuseCase how = hkvd(0.3);
  const Layerwise layerwise = make_layerwise(described_, store_, prompt_, how);
  const std::vector<uint32_t> first = rows_of(layerwise);
  const ModelConfig& c = reference_.config();
  const size_t n_rows = flatten(prompt_).size();
  std::vector<HostLayer> cache(c.n_layers, HostLayer(c, n_rows, HostLayout::rows_first, 7.0f));
  const float mark = 7.0f;
  HostLayer fresh(c, first.size(), HostLayout::rows_first, mark);
  std::vector<uint32_t> rows = first;
  for (uint32_t l = 0; l < c.n_layers; ++l) {
    const blend_kv_view target = cache[l].view(), view = fresh.view();
    ASSERT_EQ(blend_layerwise_fetch_kv(layerwise.get(), l, &target, nullptr), BLEND_OK);
    ASSERT_EQ(blend_layerwise_synchronize(layerwise.get(), l, nullptr), BLEND_OK);
    for (uint32_t row = 0, at = 0; row < n_rows; ++row) {
      const bool mine = at < rows.size() && rows[at] == row;
      if (mine) ++at;
      const bool untouched =
          cache[l].k(row) == std::vector<double>(c.kv_dim(), static_cast<double>(mark));
      EXPECT_EQ(untouched, mine || (l == 0 && row >= 7)) << "layer " << l << ", row " << row;
    }
    const uint32_t* next = nullptr;
    size_t n = 0;
    ASSERT_EQ(blend_layerwise_select(layerwise.get(), l, &view, &next, &n, nullptr), BLEND_OK);
    rows.assign(next, next + n);
    EXPECT_EQ(rows.back(), n_rows - 1) << "the last row is always kept";
    EXPECT_EQ(rows_of(layerwise), rows);
    ASSERT_EQ(blend_layerwise_commit(layerwise.get(), l, nullptr), BLEND_OK);
  }
  EXPECT_EQ(rows.size(), 1u) << "behind the last layer only the last row is needed";
}

TEST_F(Step, BuffersOfHalfPrecisionGetRoundedRows) {
  FuseCase how = hkvd();
  how.policy = BLEND_POLICY_REUSE;
  const Layerwise wide = make_layerwise(described_, store_, prompt_, how);
  const Layerwise narrow = make_layerwise(described_, store_, prompt_, how);
  const ModelConfig& c = reference_.config();
  const size_t n = flatten(prompt_).size() * c.kv_dim();
  HostLayer f32(c, n / c.kv_dim(), HostLayout::rows_first);
  std::vector<uint16_t> k(n), v(n);
  const blend_kv_view a = f32.view();
  blend_kv_view b = f32.view();
  b.dtype = BLEND_DTYPE_BF16;
  b.k = k.data();
  b.v = v.data();
  ASSERT_EQ(blend_layerwise_fetch_kv(wide.get(), 0, &a, nullptr), BLEND_OK);
  ASSERT_EQ(blend_layerwise_fetch_kv(narrow.get(), 0, &b, nullptr), BLEND_OK);
  ASSERT_EQ(blend_layerwise_synchronize(wide.get(), 0, nullptr), BLEND_OK);
  ASSERT_EQ(blend_layerwise_synchronize(narrow.get(), 0, nullptr), BLEND_OK);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t bits = uint32_t{k[i]} << 16;
    float got;
    std::memcpy(&got, &bits, sizeof got);
    ASSERT_EQ(static_cast<double>(got),
              round_to(static_cast<double>(f32.k_data()[i]), DType::bf16));
  }
}

TEST_F(Step, AMissIsComputedPrecomputedOrAnError) {
  SplitMix rng(77);
  prompt_.insert(prompt_.begin() + 2,
                 {BLEND_SEGMENT_CHUNK, random_tokens(rng, reference_.config().n_vocab, 13)});
  expect_like_fuse(described_, hkvd());
  expect_like_fuse(loaded_, hkvd());
  FuseCase how = hkvd();
  how.on_miss = BLEND_MISS_FAIL;
  const TriedLayerwise failed = try_layerwise(described_, store_, prompt_, how);
  EXPECT_EQ(failed.outcome.code, BLEND_E_NOT_FOUND);
  EXPECT_NE(failed.outcome.message.find("segment 2"), std::string::npos) << failed.outcome.message;

  how.on_miss = BLEND_MISS_PRECOMPUTE;
  const TriedLayerwise refused = try_layerwise(described_, store_, prompt_, how);
  EXPECT_EQ(refused.outcome.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(refused.outcome.message.find("BLEND_MISS_COMPUTE"), std::string::npos);
  const Layerwise layerwise = make_layerwise(loaded_, store_, prompt_, how);
  EXPECT_EQ(segment_info(layerwise, 2).source, BLEND_SOURCE_PRECOMPUTED);
  ASSERT_EQ(blend_store_flush(store_.get(), nullptr), BLEND_OK);
  expect_like_fuse(loaded_, how);
}

TEST_F(Step, DamageIsAMissAfterARestart) {
  damage_the_chunk_that_stands_twice();
  for (const bool precompute : {false, true}) {
    FuseCase how = hkvd();
    if (precompute) how.on_miss = BLEND_MISS_PRECOMPUTE;
    const Model& model = precompute ? loaded_ : described_;
    log_.n = 0;
    const Layerwise layerwise = make_layerwise(model, store_, prompt_, how);
    StepHost host(reference_, {});
    StepRun run = host.run(layerwise.get());
    ASSERT_EQ(run.outcome.code, BLEND_E_CORRUPT);
    EXPECT_NE(run.outcome.message.find("blend_layerwise_restart"), std::string::npos)
        << run.outcome.message;
    const Outcome again = host.run(layerwise.get()).outcome;
    EXPECT_EQ(again.code, BLEND_E_INVALID_ARGUMENT);
    EXPECT_NE(again.message.find("due now is blend_layerwise_restart"), std::string::npos)
        << again.message;
    ASSERT_EQ(blend_layerwise_restart(layerwise.get(), nullptr), BLEND_OK);
    EXPECT_EQ(log_.n, 1) << "one chunk, wherever it stands";
    run = host.run(layerwise.get());
    ASSERT_EQ(run.outcome.code, BLEND_OK) << run.outcome.message;
    const uint32_t source = precompute ? BLEND_SOURCE_PRECOMPUTED : BLEND_SOURCE_COMPUTED;
    EXPECT_EQ(segment_info(layerwise, 2).source, source);
    EXPECT_EQ(segment_info(layerwise, 4).source, source);
    EXPECT_EQ(info(layerwise).n_misses, 2u);
    const Fusion fusion = fuse(loaded_, store_, prompt_, how);
    EXPECT_LE(max_difference(logits(fusion), run.logits), kLogitTolerance);
    EXPECT_EQ(selected(layerwise), selected(fusion));
  }
}

TEST_F(Step, DamageUnderMissFailEndsTheLayerwiseFuse) {
  damage_the_chunk_that_stands_twice();
  FuseCase how = hkvd();
  how.on_miss = BLEND_MISS_FAIL;
  const Layerwise layerwise = make_layerwise(described_, store_, prompt_, how);
  StepHost host(reference_, {});
  ASSERT_EQ(host.run(layerwise.get()).outcome.code, BLEND_E_CORRUPT);
  EXPECT_EQ(blend_layerwise_restart(layerwise.get(), nullptr), BLEND_E_NOT_FOUND);
  blend_error* error = nullptr;
  const int32_t code = blend_layerwise_restart(layerwise.get(), &error);
  const Outcome o = outcome(code, error);
  EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(o.message.find("due now is blend_layerwise_close"), std::string::npos) << o.message;
}

TEST_F(Step, RestartBeginsAnewAtAnyPoint) {
  const FuseCase how = hkvd();
  const Layerwise layerwise = make_layerwise(described_, store_, prompt_, how);
  StepHost host(reference_, {});
  for (const int stop : {0, 1, 2, 3, 4, 6, 9, 14}) {
    host.run(layerwise.get(), [&](int call) { return call < stop; });
    ASSERT_EQ(blend_layerwise_restart(layerwise.get(), nullptr), BLEND_OK) << stop;
  }
  const StepRun run = host.run(layerwise.get());
  ASSERT_EQ(run.outcome.code, BLEND_OK) << run.outcome.message;
  const Fusion fusion = fuse(loaded_, store_, prompt_, how);
  EXPECT_LE(max_difference(logits(fusion), run.logits), kLogitTolerance);
  blend_error* error = nullptr;
  const int32_t code = blend_layerwise_restart(layerwise.get(), &error);
  EXPECT_EQ(outcome(code, error).code, BLEND_E_INVALID_ARGUMENT)
      << "the layerwise fuse is finished";
}

TEST_F(Step, AnotherOrderIsRefusedWithTheCallThatIsDue) {
  const Layerwise layerwise = make_layerwise(described_, store_, prompt_, hkvd());
  const ModelConfig& c = reference_.config();
  const size_t n_rows = flatten(prompt_).size();
  std::vector<HostLayer> cache(c.n_layers, HostLayer(c, n_rows, HostLayout::rows_first));
  HostLayer fresh(c, n_rows, HostLayout::rows_first);
  const blend_kv_view target = cache[0].view(), view = fresh.view();
  const uint32_t* rows = nullptr;
  size_t n = 0;
  const auto fetch = [&](uint32_t l, blend_error** e) {
    return blend_layerwise_fetch_kv(layerwise.get(), l, &target, e);
  };
  const auto sync = [&](uint32_t l, blend_error** e) {
    return blend_layerwise_synchronize(layerwise.get(), l, e);
  };
  const auto select = [&](uint32_t l, blend_error** e) {
    return blend_layerwise_select(layerwise.get(), l, &view, &rows, &n, e);
  };
  const auto commit = [&](uint32_t l, blend_error** e) {
    return blend_layerwise_commit(layerwise.get(), l, e);
  };
  const auto refused = [&](const auto& call, uint32_t layer, const std::string& due) {
    blend_error* error = nullptr;
    const int32_t code = call(layer, &error);
    const Outcome o = outcome(code, error);
    EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT) << due;
    EXPECT_NE(o.message.find("due now is " + due), std::string::npos) << o.message;
  };
  const std::string f = "blend_layerwise_fetch_kv of layer ",
                    y = "blend_layerwise_synchronize of layer ",
                    s = "blend_layerwise_select of layer ", m = "blend_layerwise_commit of layer ";
  refused(sync, 0, f + "0");
  refused(select, 0, f + "0");
  refused(commit, 0, f + "0");
  refused(fetch, 1, f + "0");
  ASSERT_EQ(fetch(0, nullptr), BLEND_OK);
  refused(fetch, 0, y + "0");
  refused(select, 0, y + "0");
  refused(commit, 0, y + "0");
  refused(sync, 1, y + "0");
  ASSERT_EQ(sync(0, nullptr), BLEND_OK);
  ASSERT_EQ(sync(0, nullptr), BLEND_OK) << "waiting again does no harm";
  refused(commit, 1, m + "0");
  ASSERT_EQ(select(0, nullptr), BLEND_OK);
  refused(select, 0, m + "0");
  ASSERT_EQ(commit(0, nullptr), BLEND_OK);
  refused(commit, 0, f + "1");
  ASSERT_EQ(fetch(1, nullptr), BLEND_OK);
  ASSERT_EQ(fetch(2, nullptr), BLEND_OK);
  ASSERT_EQ(sync(1, nullptr), BLEND_OK);
  refused(sync, 2, s + "1");
  refused(commit, 1, s + "1");  // the check layer
  blend_error* error = nullptr;
  const int32_t code = blend_layerwise_select(layerwise.get(), 1, nullptr, &rows, &n, &error);
  const Outcome o = outcome(code, error);
  EXPECT_EQ(o.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_NE(o.message.find("fresh"), std::string::npos) << o.message;
  ASSERT_EQ(select(1, nullptr), BLEND_OK);
  ASSERT_EQ(commit(1, nullptr), BLEND_OK);
  refused(select, 2, y + "2");
  refused(fetch, 2, y + "2");
  ASSERT_EQ(sync(2, nullptr), BLEND_OK);
  ASSERT_EQ(commit(2, nullptr), BLEND_OK);
  for (uint32_t l = 3; l < c.n_layers; ++l) {
    ASSERT_EQ(fetch(l, nullptr), BLEND_OK);
    ASSERT_EQ(sync(l, nullptr), BLEND_OK);
    ASSERT_EQ(blend_layerwise_select(layerwise.get(), l, nullptr, &rows, &n, nullptr), BLEND_OK);
    ASSERT_EQ(commit(l, nullptr), BLEND_OK);
  }
  refused(fetch, c.n_layers, "blend_layerwise_close");
  refused(commit, c.n_layers, "blend_layerwise_close");
}

TEST_F(Step, ClosingAtAnyPointIsClean) {
  for (const bool ahead : {false, true}) {
    StepHost host(reference_, {.fetch_ahead = ahead});
    for (int stop = 0; stop <= 20; ++stop) {
      Layerwise layerwise = make_layerwise(described_, store_, prompt_, hkvd());
      const StepRun run = host.run(layerwise.get(), [&](int call) { return call < stop; });
      EXPECT_EQ(run.logits.empty(), stop < 20) << "20 calls make a layerwise fuse";
    }
  }
}

TEST_F(Step, TheLayerwiseFuseKeepsWhatItNeedsOfClosedHandles) {
  const Fusion fusion = fuse(loaded_, store_, prompt_, hkvd());
  Layerwise layerwise = make_layerwise(described_, store_, prompt_, hkvd());
  store_.reset();
  described_.reset();
  loaded_.reset();
  ctx_.reset();
  StepHost host(reference_, {});
  const StepRun run = host.run(layerwise.get());
  ASSERT_EQ(run.outcome.code, BLEND_OK) << run.outcome.message;
  EXPECT_LE(max_difference(logits(fusion), run.logits), kLogitTolerance);
}

TEST_F(Step, CancelAndProgress) {
  blend_cancel* raw = nullptr;
  ASSERT_EQ(blend_cancel_create(&raw, nullptr), BLEND_OK);
  const Cancel cancel(raw);
  struct Seen {
    std::vector<uint64_t> done;
    int32_t answer = 0;
    static int32_t on_progress(void* user, uint64_t done, uint64_t total) {
      auto* self = static_cast<Seen*>(user);
      EXPECT_EQ(total, 5u);
      self->done.push_back(done);
      return self->answer;
    }
  } seen;
  const auto set = [&](blend_fuse_options& o) {
    o.cancel = cancel.get();
    o.progress = &Seen::on_progress;
    o.progress_user = &seen;
  };
  const TriedLayerwise p = try_layerwise(described_, store_, prompt_, hkvd(), set);
  ASSERT_TRUE(p.layerwise);
  StepHost host(reference_, {});
  StepRun run = host.run(p.layerwise.get(), [&](int call) {
    if (call == 5) blend_cancel_request(cancel.get());  // before synchronize of layer 1
    return true;
  });
  EXPECT_EQ(run.outcome.code, BLEND_E_CANCELLED);
  EXPECT_EQ(seen.done, std::vector<uint64_t>{1});
  // Nothing is lost: lowered, the layerwise fuse goes on where it was. Here it begins again.
  blend_cancel_reset(cancel.get());
  EXPECT_EQ(blend_layerwise_synchronize(p.layerwise.get(), 1, nullptr), BLEND_OK);
  ASSERT_EQ(blend_layerwise_restart(p.layerwise.get(), nullptr), BLEND_OK);
  run = host.run(p.layerwise.get());
  EXPECT_EQ(run.outcome.code, BLEND_OK);
  EXPECT_EQ(seen.done, (std::vector<uint64_t>{1, 1, 2, 3, 4, 5}));

  const TriedLayerwise q = try_layerwise(described_, store_, prompt_, hkvd(), set);
  seen.answer = 42;
  run = host.run(q.layerwise.get());
  EXPECT_EQ(run.outcome.code, BLEND_E_CALLBACK);
  EXPECT_EQ(run.outcome.detail, 42);
}

TEST_F(Step, ValuesOfTheHostThatAreNotFiniteAreNamed) {
  const Layerwise layerwise = make_layerwise(described_, store_, prompt_, hkvd());
  const ModelConfig& c = reference_.config();
  const std::vector<uint32_t> rows = rows_of(layerwise);
  HostLayer cache(c, flatten(prompt_).size(), HostLayout::rows_first);
  HostLayer fresh(c, rows.size(), HostLayout::rows_first);
  fresh.v_data()[9 * c.kv_dim()] = std::nanf("");
  const blend_kv_view target = cache.view(), view = fresh.view();
  const uint32_t* next = nullptr;
  size_t n = 0;
  for (uint32_t l = 0; l < 2; ++l) {
    ASSERT_EQ(blend_layerwise_fetch_kv(layerwise.get(), l, &target, nullptr), BLEND_OK);
    ASSERT_EQ(blend_layerwise_synchronize(layerwise.get(), l, nullptr), BLEND_OK);
    if (l == 0) {
      ASSERT_EQ(blend_layerwise_commit(layerwise.get(), l, nullptr), BLEND_OK);
    }
  }
  blend_error* error = nullptr;
  const int32_t code = blend_layerwise_select(layerwise.get(), 1, &view, &next, &n, &error);
  const Outcome o = outcome(code, error);
  EXPECT_EQ(o.code, BLEND_E_NUMERIC);
  EXPECT_NE(o.message.find("position " + std::to_string(rows[9])), std::string::npos) << o.message;
  // The host may mend it and go on.
  fresh.v_data()[9 * c.kv_dim()] = 0;
  EXPECT_EQ(blend_layerwise_select(layerwise.get(), 1, &view, &next, &n, nullptr), BLEND_OK);
}

TEST_F(Step, WhatALayerwiseFuseCannotDoIsRefused) {
  FuseCase how = hkvd();
  how.policy = BLEND_POLICY_QUESTION;
  const TriedLayerwise p = try_layerwise(described_, store_, prompt_, how);
  EXPECT_EQ(p.outcome.code, BLEND_E_UNSUPPORTED);
  EXPECT_FALSE(p.layerwise);
  how = hkvd(1.5);
  EXPECT_EQ(try_layerwise(described_, store_, prompt_, how).outcome.code, BLEND_E_INVALID_ARGUMENT);
  how = hkvd();
  how.check_layer = 5;
  EXPECT_EQ(try_layerwise(described_, store_, prompt_, how).outcome.code, BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(try_layerwise(described_, store_, {}, hkvd()).outcome.code, BLEND_E_INVALID_ARGUMENT);
  how.check_layer = 1;
  const Layerwise none = make_layerwise(described_, Store(), prompt_, how);
  EXPECT_EQ(rows_of(none).size(), flatten(prompt_).size()) << "without a store all is computed";
}

}  // namespace
}  // namespace blend::test
