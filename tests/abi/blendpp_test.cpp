// blend.hpp against the library: handles, errors, and exceptions that meet the C boundary.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "blend/blend.hpp"
#include "support/random_model.h"
#include "support/temp_dir.h"

namespace {

struct Surprise : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class BlendppTest : public ::testing::Test {
 protected:
  blendpp::Prompt prompt() const {
    blendpp::Prompt prompt;
    prompt.prefix({1})
        .chunk(model.tokenize("one two three four"))
        .chunk(model.tokenize("five six seven eight"))
        .question(model.tokenize("and then"));
    return prompt;
  }

  blend::test::TempDir dir;
  std::string model_path =
      blend::test::write_random_model(blend::test::RandomModelSpec{}, dir.file("model.gguf"));
  blendpp::Context ctx;
  blendpp::Model model{ctx, model_path};
  blendpp::Store store{ctx, dir.file("store")};
};

static_assert(!std::is_copy_constructible_v<blendpp::Context>);
static_assert(!std::is_copy_constructible_v<blendpp::Model>);
static_assert(!std::is_copy_constructible_v<blendpp::Store>);
static_assert(!std::is_copy_constructible_v<blendpp::Fusion>);
static_assert(!std::is_copy_constructible_v<blendpp::CancelToken>);
static_assert(!std::is_copy_constructible_v<blendpp::Layerwise>);
static_assert(std::is_nothrow_move_constructible_v<blendpp::Fusion>);
static_assert(std::is_nothrow_move_constructible_v<blendpp::Layerwise>);
static_assert(std::is_nothrow_move_assignable_v<blendpp::Store>);

TEST_F(BlendppTest, EmbedsTexts) {
  const std::vector<std::string> texts = {"one two three four", "five six"};
  blendpp::EmbedOptions options;
  options.n_dimensions = 7;
  const blendpp::Embeddings a = model.embed(texts, options);
  ASSERT_EQ(a.width, 7u);
  ASSERT_EQ(a.values.size(), 14u);
  std::vector<blendpp::Tokens> tokens;
  for (size_t i = 0; i < texts.size(); ++i) {
    tokens.push_back(model.tokenize(texts[i], BLEND_TOKENIZE_BOS));
    EXPECT_EQ(a.n_tokens[i], tokens[i].size());
  }
  EXPECT_EQ(model.embed_tokens(tokens, options).values, a.values);
  EXPECT_EQ(a.of(1)[6], a.values[13]);
  options.on_progress = [](uint64_t, uint64_t) -> bool { throw Surprise("in progress"); };
  EXPECT_THROW(model.embed(texts, options), Surprise);
  options.on_progress = {};
  options.n_dimensions = model.info().d_model + 1;
  EXPECT_THROW(model.embed(texts, options), blendpp::Error);
}

TEST_F(BlendppTest, FusesDocumentsAndAQuestion) {
  const std::vector<std::string> documents = {"one two three four", " five six\n"};
  blendpp::TextOptions texts;
  texts.system = "be brief";
  blendpp::CorpusOptions corpus;
  size_t records = 0;
  corpus.on_record = [&](const blend_corpus_record&) { return ++records > 0; };
  EXPECT_TRUE(model.precompute_texts(store, documents, texts, corpus));
  EXPECT_EQ(records, 2u);
  EXPECT_FALSE(model.precompute_texts(store, documents, texts));
  corpus.on_record = [](const blend_corpus_record&) -> bool { throw Surprise("in a record"); };
  EXPECT_THROW(model.precompute_texts(store, documents, texts, corpus), Surprise);

  blendpp::FuseOptions options;
  options.on_miss = BLEND_MISS_FAIL;
  size_t layers = 0;
  options.on_progress = [&](uint64_t, uint64_t) { return ++layers > 0; };
  const blendpp::Fusion fusion(model, &store, documents, "and then", texts, options);
  EXPECT_EQ(fusion.info().n_hits, 3u);
  EXPECT_GT(layers, 0u);
  const blendpp::Chat chat = blendpp::render_texts(model, documents, "and then", texts);
  EXPECT_EQ(fusion.info().n_rows, chat.prompt.n_tokens());
  EXPECT_EQ(chat.text, "be brief\none two three four\nfive six\nQuestion: and then\nAnswer:");
  const blendpp::TemplateInfo read = model.template_info("{{ tools }}{{ messages[0].content }}");
  EXPECT_TRUE(read.reads_tools == 1 && read.reads_system == 1 && read.reads_documents == 0);
  EXPECT_STREQ(read.call_arguments, "arguments");
  EXPECT_THROW(model.template_info(), blendpp::Error);  // it has no template
  blendpp::CallReaderOptions calls;
  EXPECT_THROW(blendpp::CallReader(model, calls), blendpp::Error);
  calls.template_source = "{{ tools }}{{ messages[0].content }}<tool_call>";
  blendpp::CallReader reader(model, calls);
  EXPECT_EQ(reader.add(-1, "Well. <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}"),
            "Well.");
  EXPECT_EQ(reader.end(false), "");
  ASSERT_EQ(reader.calls().size(), 1u);
  EXPECT_STREQ(reader.call(0).name, "f");
  EXPECT_STREQ(reader.call(0).arguments, "{\"a\": 1}");
  EXPECT_EQ(reader.call(0).is_cut, 0u);
  EXPECT_THROW(reader.call(1), blendpp::Error);
  EXPECT_EQ(blendpp::Fusion(model, nullptr, {"one", "two"}, "and then").report().n_segments, 4u);

  texts.template_source = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}";
  const std::vector<blendpp::ChatMessage> turns = {
      {"user", "a"}, {"assistant", "b"}, {"user", "c"}};
  const blendpp::Fusion told(model, nullptr, turns, documents, texts);
  EXPECT_EQ(told.info().n_misses, 2u);
  try {
    const blendpp::Fusion none(model, nullptr, {"one", std::string("two\0three", 9)}, "and then");
    FAIL();
  } catch (const blendpp::Error& error) {
    EXPECT_EQ(error.code(), BLEND_E_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("document 1 has a NUL"), std::string::npos);
  }
}

TEST_F(BlendppTest, PrecomputesFusesAndGenerates) {
  const blendpp::Tokens chunk = model.tokenize("one two three four");
  const blendpp::Tokens head = prompt().head();
  blendpp::PrecomputeOptions after_head;
  after_head.chunk_prefix = head.data();
  after_head.n_chunk_prefix = head.size();
  const blendpp::Precomputed first = model.precompute(store, chunk, after_head);
  const blendpp::Precomputed again = model.precompute(store, chunk, after_head);
  EXPECT_FALSE(first.existed);
  EXPECT_TRUE(again.existed);
  EXPECT_EQ(first.id, again.id);
  EXPECT_EQ(blendpp::ChunkId::from_hex(first.id.hex()), first.id);

  blendpp::Fusion fusion(model, &store, prompt());
  EXPECT_EQ(fusion.report().n_rows, prompt().n_tokens());
  EXPECT_EQ(fusion.report().n_hits, 1u);
  EXPECT_EQ(fusion.logits().size(), model.info().n_vocab);
  EXPECT_EQ(fusion.segment(1).source, BLEND_SOURCE_STORE);
  EXPECT_EQ(fusion.layer(0).layer, 0u);
  EXPECT_EQ(fusion.deviation().size(), prompt().n_tokens());
  EXPECT_EQ(fusion.selected().size(), fusion.report().n_rows_selected);

  blendpp::GenerateOptions options;
  options.max_tokens = 5;
  options.ignore_eos = 1;
  size_t calls = 0;
  const blendpp::Generated generated =
      fusion.generate(options, [&](int32_t, std::string_view) { return ++calls > 0; });
  EXPECT_EQ(generated.n_tokens, 5u);
  EXPECT_EQ(calls, 5u);
  EXPECT_FALSE(generated.by_callback);
}

TEST_F(BlendppTest, ABatchGivesFusionsAndErrors) {
  blendpp::FuseOptions bad;
  bad.ratio = 2;
  blendpp::Batch batch;
  batch.add(prompt()).add(prompt(), bad).add(prompt());
  const auto results = batch.fuse(model, &store);
  ASSERT_EQ(results.size(), 3u);
  ASSERT_TRUE(results[0].fusion && results[2].fusion && results[1].error);
  EXPECT_FALSE(results[1].fusion || results[0].error);
  EXPECT_EQ(results[1].error->code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_EQ(results[2].fusion->info().bytes_loaded, 0u) << "the first prompt's serves both";
  EXPECT_EQ(results[2].fusion->logits()[0], results[0].fusion->logits()[0]);

  blendpp::FuseOptions throwing;
  throwing.on_progress = [](uint64_t, uint64_t) -> bool { throw Surprise("from a batch"); };
  EXPECT_THROW(blendpp::Batch().add(prompt(), throwing).fuse(model, &store), Surprise);
  EXPECT_TRUE(blendpp::Batch().fuse(model, &store).empty());
}

TEST_F(BlendppTest, ThePromptHeadIsWhatStandsBeforeTheFirstChunk) {
  const blendpp::Prompt whole = prompt();
  EXPECT_EQ(whole.head(), (blendpp::Tokens{1}));
  blendpp::Prompt without;
  without.prefix({1}).question({2, 3});
  EXPECT_TRUE(without.head().empty());
}

TEST_F(BlendppTest, ACorpusTellsItsRecordsAndTheirExceptionComesBack) {
  std::vector<blendpp::CorpusChunk> chunks;
  for (const char* text : {"one two three four", "five six seven eight"}) {
    chunks.push_back({model.tokenize(text), std::string("label"), {}});
  }
  const blendpp::Tokens head = prompt().head();
  std::vector<blend_corpus_record> told;
  blendpp::CorpusOptions options;
  options.chunk_prefix = head.data();
  options.n_chunk_prefix = head.size();
  options.on_record = [&told](const blend_corpus_record& record) {
    told.push_back(record);
    return true;
  };
  EXPECT_TRUE(model.precompute_corpus(store, chunks, options));
  EXPECT_FALSE(model.precompute_corpus(store, chunks, options));  // all of it was there
  ASSERT_EQ(told.size(), 4u);
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].index, i % 2);
    EXPECT_EQ(told[i].existed, i / 2);
    EXPECT_EQ(blendpp::ChunkId(told[i].id), blendpp::ChunkId(told[i % 2].id));
  }
  blendpp::Fusion fusion(model, &store, prompt());
  EXPECT_EQ(fusion.report().n_hits, 2u);
  EXPECT_EQ(fusion.segment(1).record, BLEND_RECORD_EXACT);

  options.on_record = [](const blend_corpus_record&) -> bool { throw Surprise("of a record"); };
  EXPECT_THROW(model.precompute_corpus(store, chunks, options), Surprise);
  options.on_record = [](const blend_corpus_record&) { return false; };
  EXPECT_THROW(model.precompute_corpus(store, chunks, options), blendpp::Error);
}

TEST_F(BlendppTest, TextSurvivesTokenizeAndDetokenize) {
  const std::string text = "a quick \xC3\xA9t\xC3\xA9";
  EXPECT_EQ(model.detokenize(model.tokenize(text)), text);
}

TEST_F(BlendppTest, ErrorsCarryCodeAndSentence) {
  try {
    const blendpp::Model missing(ctx, dir.file("absent.gguf"));
    FAIL() << "a model that is not there was opened";
  } catch (const blendpp::Error& error) {
    EXPECT_EQ(error.code(), BLEND_E_NOT_FOUND);
    EXPECT_STREQ(error.name(), "BLEND_E_NOT_FOUND");
    EXPECT_NE(std::string(error.what()).find("absent.gguf"), std::string::npos) << error.what();
  }
}

TEST_F(BlendppTest, ExceptionOfAProgressCallbackComesBackFromTheCall) {
  blendpp::FuseOptions options;
  options.on_progress = [](uint64_t, uint64_t) -> bool { throw Surprise("from progress"); };
  try {
    const blendpp::Fusion fusion(model, &store, prompt(), options);
    FAIL() << "the exception was lost";
  } catch (const Surprise& surprise) {
    EXPECT_STREQ(surprise.what(), "from progress");
  }
}

TEST_F(BlendppTest, CalibrateProfileAndVerify) {
  std::vector<blendpp::Prompt> samples;
  for (const char* last : {"three", "four", "five", "six"}) {
    blendpp::Prompt sample;
    sample.chunk(model.tokenize("one two and so on")).chunk(model.tokenize("seven eight nine"));
    sample.question(model.tokenize(last));
    samples.push_back(sample);
  }
  blendpp::CalibrateOptions options;
  options.max_kl = 100;
  options.min_top1 = 0;
  options.score_tokens = 1;
  size_t n_lines = 0, n_attention = 0;
  options.on_measurement = [&](const blend_measurement& line) {
    n_lines += line.n_positions == 2 ? 1 : 0;
    n_attention += line.policy == BLEND_POLICY_ATTENTION ? 1 : 0;
    return true;
  };
  const std::string path = dir.file("made.profile");
  EXPECT_TRUE(blendpp::calibrate(model, samples, path, options));
  EXPECT_EQ(n_lines, 36u);  // two prefixes, six ratios; attention, hkvd plain and corrected
  EXPECT_GT(n_attention, 0u);
  EXPECT_LT(n_attention, n_lines);
  const blendpp::Profile profile(model, path);
  EXPECT_EQ(profile.info().n_measurements, 36u);
  EXPECT_EQ(profile.measurement(0).ratio, 0);
  EXPECT_GT(profile.drift(2).first, 0);
  EXPECT_EQ(profile.chunk_prefix().size(), profile.info().n_chunk_prefix);
  blendpp::VerifyOptions verify;
  verify.score_tokens = 1;
  EXPECT_EQ(blendpp::verify(model, profile, samples, verify).trusted, 1u);
  EXPECT_TRUE(profile.layer_steps().empty());  // four samples say nothing of them
  EXPECT_FALSE(profile.codec_cost(BLEND_CODEC_ZSTD));
  EXPECT_EQ(profile.codec_cost(BLEND_CODEC_INT8).has_value(), profile.info().ratio < 1);
  store.set_codec_profile(profile);
  blendpp::FuseOptions fuse;
  profile.apply(fuse);
  EXPECT_EQ(fuse.profile, profile.get());
  const blendpp::Fusion fusion(model, &store, samples[0], fuse);
  EXPECT_EQ(fusion.report().flags & (BLEND_FUSION_UNCALIBRATED | BLEND_FUSION_UNTRUSTED), 0u);
  options.on_measurement = [](const blend_measurement&) -> bool { throw Surprise("line"); };
  EXPECT_THROW(blendpp::calibrate(model, samples, path, options), Surprise);
}

TEST_F(BlendppTest, ExceptionOfAListCallbackComesBackFromTheCall) {
  (void)model.precompute(store, model.tokenize("one two"));
  EXPECT_THROW(
      store.list(false,
                 [](const blend_chunk_info&, const char*) -> bool { throw Surprise("list"); }),
      Surprise);
}

TEST_F(BlendppTest, ChunksAreFoundByWhatTheyAreCalled) {
  blendpp::PrecomputeOptions options;
  options.label = "a.md#1";
  options.tags = "lang=en";
  const blendpp::ChunkId id = model.precompute(store, model.tokenize("one two"), options).id;
  options.label = "b.md#1";
  options.tenant = "acme";
  (void)model.precompute(store, model.tokenize("one two"), options);
  blendpp::FilterOptions filter;
  filter.tags = "lang=*";
  std::string seen;
  const auto note = [&](const blend_chunk_info& info, const char*) {
    seen += std::string(info.label) + "|" + info.tags + ";";
    return true;
  };
  filter.tenant = "";
  store.list(filter, false, note);
  EXPECT_EQ(seen, "a.md#1|lang=en;");
  seen.clear();
  filter.tenant.reset();
  filter.label = "b.md";
  store.list(filter, true, note);
  EXPECT_EQ(seen, "b.md#1|lang=en;");
  store.set_label(id, "c.md#1", "");
  EXPECT_THROW(store.set_label(id, "c.md#1", nullptr, "acme"), blendpp::Error);
  seen.clear();
  filter.label = "c.md";
  filter.tags = nullptr;
  const auto refuse = [](const blend_chunk_info&, const char*) -> bool { throw Surprise("no"); };
  EXPECT_THROW(store.remove_matching(filter, refuse), Surprise);
  EXPECT_EQ(store.remove_matching(filter, note), 1u);
  EXPECT_EQ(seen, "c.md#1|;");
  EXPECT_THROW(store.remove_matching(blendpp::FilterOptions()), blendpp::Error);
  filter = blendpp::FilterOptions();
  filter.tenant = "acme";
  EXPECT_THROW(store.remove_matching(filter), blendpp::Error);
  filter.label = "*";
  EXPECT_EQ(store.remove_matching(filter), 1u);
}

TEST_F(BlendppTest, ExceptionOfATokenCallbackComesBackAndTheFusionGoesOn) {
  blendpp::Fusion fusion(model, &store, prompt());
  blendpp::GenerateOptions options;
  options.max_tokens = 4;
  options.ignore_eos = 1;
  EXPECT_THROW(
      fusion.generate(options, [](int32_t, std::string_view) -> bool { throw Surprise("token"); }),
      Surprise);
  EXPECT_EQ(fusion.generate(options, nullptr).n_tokens, 4u);
}

TEST_F(BlendppTest, ScoresDecideAndTheirExceptionComesBack) {
  blendpp::FuseOptions options;
  options.policy = BLEND_POLICY_CALLBACK;
  options.on_miss = BLEND_MISS_PRECOMPUTE;
  options.ratio = 0.01;  // one row
  uint32_t wanted = 0;
  options.on_score = [&](uint32_t layer, blendpp::Span<const uint32_t> rows,
                         blendpp::Span<const float> deviation, blendpp::Span<float> scores) {
    EXPECT_EQ(layer, 1u);
    EXPECT_EQ(rows.size(), deviation.size());
    for (float& score : scores) score = 0;
    scores[2] = 1;
    wanted = rows[2];
    return true;
  };
  const blendpp::Fusion fusion(model, &store, prompt(), options);
  ASSERT_EQ(fusion.selected().size(), 1u);
  EXPECT_EQ(fusion.selected()[0], wanted);

  options.on_score = [](uint32_t, blendpp::Span<const uint32_t>, blendpp::Span<const float>,
                        blendpp::Span<float>) -> bool { throw Surprise("from score"); };
  EXPECT_THROW(blendpp::Fusion(model, &store, prompt(), options), Surprise);
}

TEST_F(BlendppTest, DefaultCheckLayersMakeASchedule) {
  const std::vector<blend_check_layer> checks = model.default_check_layers(0.5, 1, 8);
  ASSERT_EQ(checks.size(), 2u);  // of a model of four layers
  blendpp::FuseOptions options;
  options.selection.check_layers = checks.data();
  options.selection.n_check_layers = checks.size();
  EXPECT_EQ(blendpp::Fusion(model, &store, prompt(), options).report().n_check_layers, 2u);
}

TEST_F(BlendppTest, ProgressThatReturnsFalseStopsTheCall) {
  blendpp::FuseOptions options;
  options.on_progress = [](uint64_t, uint64_t) { return false; };
  try {
    const blendpp::Fusion fusion(model, &store, prompt(), options);
    FAIL() << "the call went on";
  } catch (const blendpp::Error& error) {
    EXPECT_EQ(error.code(), BLEND_E_CALLBACK);
    EXPECT_EQ(error.detail(), 1);
  }
}

TEST_F(BlendppTest, TokenCallbackThatReturnsFalseEndsTheGeneration) {
  blendpp::Fusion fusion(model, &store, prompt());
  blendpp::GenerateOptions options;
  options.ignore_eos = 1;
  size_t calls = 0;
  const blendpp::Generated generated =
      fusion.generate(options, [&](int32_t, std::string_view) { return ++calls < 3; });
  EXPECT_TRUE(generated.by_callback);
  EXPECT_EQ(calls, 3u);
}

TEST_F(BlendppTest, ABatchOfGenerationsGivesAccountsAndErrors) {
  blendpp::Fusion alone(model, &store, prompt());
  blendpp::GenerateOptions options;
  options.max_tokens = 4;
  options.ignore_eos = 1;
  blendpp::Tokens want;
  alone.generate(options, [&](int32_t token, std::string_view) {
    want.push_back(token);
    return true;
  });

  std::vector<std::unique_ptr<blendpp::Fusion>> fusions;
  std::vector<blendpp::Tokens> got(3);
  std::vector<blendpp::Fusion::Request> requests(3);
  for (size_t i = 0; i < 3; ++i) {
    fusions.push_back(std::make_unique<blendpp::Fusion>(model, &store, prompt()));
    requests[i].fusion = fusions[i].get();
    requests[i].options = options;
    requests[i].fn = [&got, i](int32_t token, std::string_view) {
      got[i].push_back(token);
      return i != 1 || got[i].size() < 2;
    };
  }
  requests[2].options.top_p = 9;
  const auto outcomes = blendpp::Fusion::generate_batch(requests);
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_EQ(got[0], want);
  EXPECT_EQ(outcomes[0].generated.n_tokens, 4u);
  EXPECT_EQ(outcomes[0].error, nullptr);
  EXPECT_TRUE(outcomes[1].generated.by_callback);
  EXPECT_EQ(outcomes[1].generated.n_tokens, 2u);
  EXPECT_EQ(outcomes[1].error, nullptr);
  ASSERT_NE(outcomes[2].error, nullptr);
  EXPECT_EQ(outcomes[2].error->code(), BLEND_E_INVALID_ARGUMENT);
  EXPECT_TRUE(blendpp::Fusion::generate_batch({}).empty());

  requests.resize(1);
  requests[0].fn = [](int32_t, std::string_view) -> bool { throw Surprise("token"); };
  EXPECT_THROW(blendpp::Fusion::generate_batch(requests), Surprise);
}

TEST_F(BlendppTest, LogitsAndLogprobsAreToldAndTheirExceptionsComeBack) {
  blendpp::GenerateOptions options;
  options.max_tokens = 3;
  options.ignore_eos = 1;
  options.top_logprobs = 2;
  int32_t forced = 270;
  blendpp::Tokens told, got;
  options.on_logits = [&](blendpp::Span<float> logits) {
    logits[static_cast<size_t>(forced++)] = 1e6f;
    return true;
  };
  options.on_logprobs = [&](blendpp::Span<const blend_logprob> found) {
    EXPECT_EQ(found.size(), 3u);
    told.push_back(found[0].token);
    return true;
  };
  blendpp::Fusion fusion(model, &store, prompt());
  fusion.generate(options, [&](int32_t token, std::string_view) {
    got.push_back(token);
    return true;
  });
  EXPECT_EQ(got, (blendpp::Tokens{270, 271, 272}));
  EXPECT_EQ(told, got);
  options.on_logits = [](blendpp::Span<float>) -> bool { throw Surprise("logits"); };
  EXPECT_THROW(fusion.generate(options, nullptr), Surprise);
  options.on_logits = nullptr;
  options.on_logprobs = [](blendpp::Span<const blend_logprob>) -> bool {
    throw Surprise("logprobs");
  };
  EXPECT_THROW(fusion.generate(options, nullptr), Surprise);
}

TEST_F(BlendppTest, AConversationIsSavedRestoredAndExtended) {
  blendpp::Fusion fusion(model, &store, prompt());
  const blendpp::ChunkId id = fusion.save(store);
  const blendpp::ChunkId theirs = fusion.save(store, "tenant");
  EXPECT_NE(id, theirs);
  EXPECT_THROW(blendpp::Fusion::restore(model, store, theirs), blendpp::Error);
  EXPECT_THROW(blendpp::Fusion::restore(model, store, id, "tenant"), blendpp::Error);
  const blendpp::Fusion own = blendpp::Fusion::restore(model, store, theirs, "tenant");
  EXPECT_EQ(own.tokens().size(), fusion.tokens().size());
  size_t n = 0;
  blendpp::FilterOptions of_tenant;
  of_tenant.tenant = "tenant";
  store.list(of_tenant, false, [&](const blend_chunk_info&, const char*) {
    ++n;
    return true;
  });
  EXPECT_EQ(n, 1u);
  EXPECT_THROW(store.remove(theirs, "other"), blendpp::Error);
  store.remove(theirs, "tenant");
  blendpp::Fusion back = blendpp::Fusion::restore(model, store, id);
  EXPECT_EQ(back.tokens().size(), fusion.tokens().size());
  EXPECT_NE(back.info().flags & BLEND_FUSION_RESTORED, 0u);
  blendpp::Prompt turn;
  turn.chunk(model.tokenize("one two three four")).question(model.tokenize("and then"));
  back.extend(&store, turn);
  EXPECT_EQ(back.tokens().size(), fusion.tokens().size() + turn.n_tokens());
  EXPECT_EQ(back.report().n_rows_resident, fusion.tokens().size());
  EXPECT_THROW(blendpp::Fusion::restore(model, store, blendpp::ChunkId()), blendpp::Error);
  EXPECT_THROW(back.extend(&store, blendpp::Prompt()), blendpp::Error);
}

TEST_F(BlendppTest, RowsAreReplacedAndErased) {
  blendpp::Fusion fusion(model, &store, prompt());
  const blendpp::Span<const int32_t> before = fusion.tokens();
  blendpp::Tokens want(before.begin(), before.end());
  fusion.replace(1, 2, {300, 301, 302});
  want.erase(want.begin() + 1, want.begin() + 3);
  want.insert(want.begin() + 1, {300, 301, 302});
  EXPECT_EQ(blendpp::Tokens(fusion.tokens().begin(), fusion.tokens().end()), want);
  fusion.erase(0, 4);
  want.erase(want.begin(), want.begin() + 4);
  EXPECT_EQ(blendpp::Tokens(fusion.tokens().begin(), fusion.tokens().end()), want);
  EXPECT_NE(fusion.report().flags & BLEND_FUSION_EDITED, 0u);
  EXPECT_THROW(fusion.erase(0, want.size()), blendpp::Error);
}

TEST_F(BlendppTest, CancelTokenStopsAndMayBeUsedAgain) {
  const blendpp::CancelToken token;
  blendpp::FuseOptions options;
  options.cancel = token.get();
  token.request();
  try {
    const blendpp::Fusion fusion(model, &store, prompt(), options);
    FAIL() << "a cancelled call went on";
  } catch (const blendpp::Error& error) {
    EXPECT_EQ(error.code(), BLEND_E_CANCELLED);
  }
  token.reset();
  EXPECT_EQ(blendpp::Fusion(model, &store, prompt(), options).report().n_segments, 4u);
}

TEST_F(BlendppTest, AHostsOwnModelIsFusedLayerByLayer) {
  blendpp::ModelDescription description;
  description.n_layers = 2;
  description.n_heads = description.n_kv_heads = 1;
  description.head_dim = 4;
  description.n_vocab = 320;
  description.context_length = 64;
  description.name = "mine";
  const blendpp::Model mine(ctx, description);
  EXPECT_THROW(mine.tokenize("x"), blendpp::Error);

  // A chunk of three rows, then the prompt "10 | chunk | 11": the host computes rows 0 and 4.
  const blendpp::Tokens chunk = {5, 6, 7};
  EXPECT_FALSE(mine.find_chunk(store, chunk));
  std::vector<float> k(2 * 3 * 4, 1.0f), v(2 * 3 * 4, 2.0f);
  std::vector<blendpp::KvView> layers(2);
  for (size_t l = 0; l < 2; ++l) {
    layers[l].flags = BLEND_KV_VIEW_UNROTATED;
    layers[l].k = k.data() + l * 12;
    layers[l].v = v.data() + l * 12;
  }
  const blendpp::ChunkId id = mine.put_chunk(store, chunk, layers, 0);
  blendpp::ChunkId found;
  EXPECT_TRUE(mine.find_chunk(store, chunk, {}, &found));
  EXPECT_EQ(found, id);

  blendpp::Prompt prompt;
  prompt.text({10}).chunk(chunk).question({11});
  blendpp::FuseOptions options;
  options.on_miss = BLEND_MISS_FAIL;
  options.policy = BLEND_POLICY_CALLBACK;
  options.ratio = 0.3;
  int scored = 0;
  options.on_score = [&](uint32_t layer, blendpp::Span<const uint32_t> rows,
                         blendpp::Span<const float>, blendpp::Span<float> scores) {
    EXPECT_EQ(layer, 1u);
    if (++scored == 1) throw Surprise("score");
    for (size_t i = 0; i < rows.size(); ++i) scores[i] = static_cast<float>(rows[i]);
    return true;
  };
  uint64_t committed = 0;
  options.on_progress = [&](uint64_t done, uint64_t) {
    if (done == 2 && committed == 1) {
      committed = 2;
      throw Surprise("commit");
    }
    committed = done;
    return true;
  };
  blendpp::Layerwise layerwise(mine, &store, prompt, options);
  EXPECT_EQ(layerwise.tokens().size(), 5u);
  EXPECT_EQ(layerwise.rows().size(), 5u) << "up to the check layer";
  EXPECT_THROW(layerwise.synchronize(0), blendpp::Error) << "fetch is due";
  std::vector<float> cache_k(5 * 4), cache_v(5 * 4);
  blendpp::KvView cache;
  cache.k = cache_k.data();
  cache.v = cache_v.data();
  for (uint32_t l = 0; l < 2; ++l) {
    layerwise.fetch_kv(l, cache);
    layerwise.synchronize(l);
    if (l == 1) {
      EXPECT_THROW(layerwise.select(l, &cache), Surprise);
      EXPECT_EQ(layerwise.select(l, &cache).size(), 1u) << "the last layer: the last row";
      EXPECT_THROW(layerwise.commit(l), Surprise);
    }
    layerwise.commit(l);
  }
  EXPECT_EQ(committed, 2u);
  ASSERT_EQ(layerwise.selected().size(), 1u);
  EXPECT_EQ(layerwise.selected()[0], 3u) << "the score was the row";
  EXPECT_EQ(layerwise.deviation().size(), 5u);
  EXPECT_EQ(layerwise.report().n_rows_selected, 1u);
  EXPECT_EQ(layerwise.segment(1).source, BLEND_SOURCE_STORE);
  EXPECT_EQ(layerwise.layer(1).rows_kv, 5u);
  EXPECT_THROW(layerwise.restart(), blendpp::Error) << "the layerwise fuse is finished";
}

TEST_F(BlendppTest, HandlesMayGoInAnyOrder) {
  std::vector<std::string> told;
  blendpp::ContextOptions with_log;
  with_log.log_level = BLEND_LOG_DEBUG;
  with_log.on_log = [&](const blend_log_record& record) {
    told.emplace_back(blend_code_name(record.code));
    throw Surprise("nobody is there to catch it");
  };
  auto own_ctx = std::make_unique<blendpp::Context>(with_log);
  auto own_store = std::make_unique<blendpp::Store>(*own_ctx, dir.file("other"));
  auto own_model = std::make_unique<blendpp::Model>(*own_ctx, model_path);
  blendpp::Fusion fusion(*own_model, own_store.get(), prompt());
  own_ctx.reset();
  own_store.reset();
  own_model.reset();
  blendpp::GenerateOptions options;
  options.max_tokens = 3;
  options.ignore_eos = 1;
  EXPECT_EQ(fusion.generate(options, nullptr).n_tokens, 3u);
  blendpp::Fusion moved = std::move(fusion);
  EXPECT_EQ(moved.report().n_segments, 4u);
  for (const char* name :
       {"BLEND_EVENT_STORE_OPENED", "BLEND_EVENT_MODEL_OPENED", "BLEND_EVENT_FUSED"}) {
    EXPECT_NE(std::find(told.begin(), told.end(), name), told.end()) << name;
  }
}

}  // namespace
