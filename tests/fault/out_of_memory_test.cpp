// Fails the Nth allocation of each long call, for N = 1, 2, ... until the call makes fewer: each
// time a code and no crash, nothing leaked, and the call succeeds afterwards.
#include <gtest/gtest.h>

#include <functional>

#include "conformance/abi.h"
#include "conformance/random_prompt.h"
#include "fault/failing_malloc.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

class OutOfMemory : public testing::TestWithParam<bool> {
 protected:
  OutOfMemory() {
    RandomModelSpec spec;
    spec.n_layers = 2;
    spec.n_vocab = 300;
    path_ = write_random_model(spec, dir_.file("model.gguf"));
    SplitMix rng(3);
    for (int i = 0; i < 3; ++i) {
      prompt_.push_back({BLEND_SEGMENT_CHUNK, random_tokens(rng, spec.n_vocab, 9), false});
    }
    prompt_.push_back({BLEND_SEGMENT_QUESTION, random_tokens(rng, spec.n_vocab, 4), false});
  }

  // `call` must free what it made.
  void sweep(const std::function<int32_t(blend_error**)>& call) {
    blend_error* error = nullptr;
    ASSERT_GE(call(&error), 0) << blend_error_message(error);  // warms what is kept
    const int64_t before = live_blocks();
    int failures = 0;
    uint64_t step = 1;
    for (uint64_t n = 1;; n += step) {
      int32_t code = 0;
      bool fired = false;
      error = nullptr;
      {
        const FailingMalloc failing(n, GetParam());
        code = call(&error);
        fired = failing.fired();
      }
      if (code < 0) {
        ++failures;
        EXPECT_NE(error, nullptr) << "allocation " << n << ": no error object";
        EXPECT_EQ(code, BLEND_E_OUT_OF_MEMORY)
            << "allocation " << n << ": " << blend_code_name(code) << ": "
            << blend_error_message(error);
      }
      blend_error_free(error);
      if (!fired) break;
      if (HasFailure()) return;
      step = 1 + n / 100;  // densely where calls begin, sparsely through long loops
    }
    EXPECT_GT(failures, 3);
    error = nullptr;
    EXPECT_GE(call(&error), 0) << "after the last failure: " << blend_error_message(error);
    // A leak would show once a round, or every few.
    EXPECT_LE(live_blocks() - before, failures / 10 + 20);
  }

  void fuse_and_decode(uint32_t weights);

  TempDir dir_;
  std::string path_;
  Prompt prompt_;
};

TEST_P(OutOfMemory, ContextCreate) {
  sweep([](blend_error** error) {
    blend_ctx* ctx = nullptr;
    const int32_t code = blend_ctx_create(&ctx, nullptr, error);
    blend_ctx_close(ctx);
    return code;
  });
}

TEST_P(OutOfMemory, ModelOpen) {
  const Ctx ctx = make_ctx(2);
  for (const uint32_t weights : {BLEND_WEIGHTS_PACKED, BLEND_WEIGHTS_INT8}) {
    blend_model_options options{};
    options.struct_size = sizeof options;
    options.weights = weights;
    sweep([&](blend_error** error) {
      blend_model* model = nullptr;
      const int32_t code = blend_model_open(&model, ctx.get(), path_.c_str(), &options, error);
      blend_model_close(model);
      return code;
    });
  }
}

TEST_P(OutOfMemory, StoreOpen) {
  const Ctx ctx = make_ctx(2);
  const std::string path = dir_.file("store");
  sweep([&](blend_error** error) {
    blend_store* store = nullptr;
    const int32_t code = blend_store_open(&store, ctx.get(), path.c_str(), nullptr, error);
    blend_store_close(store);
    return code;
  });
}

TEST_P(OutOfMemory, Precompute) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  const Store store = open_store(ctx, dir_.file("store"));
  const std::vector<int32_t>& tokens = prompt_[0].tokens;
  blend_chunk_id id;
  precompute(model, store, tokens, {}, &id);
  sweep([&](blend_error** error) {
    (void)blend_store_remove(store.get(), &id, nullptr, nullptr);
    return blend_precompute(model.get(), store.get(), tokens.data(), tokens.size(), nullptr,
                            nullptr, error);
  });
}

TEST_P(OutOfMemory, FuseAndDecode) { fuse_and_decode(BLEND_WEIGHTS_PACKED); }
TEST_P(OutOfMemory, FuseAndDecodeInBytes) { fuse_and_decode(BLEND_WEIGHTS_INT8); }

void OutOfMemory::fuse_and_decode(uint32_t weights) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_, weights);
  const Store store = open_store(ctx, dir_.file("store"));
  precompute_all(model, store, prompt_, {});
  const std::vector<float> want = [&] {
    const Fusion f =
        fuse(model, store, prompt_, {.policy = BLEND_POLICY_AUTO, .ratio = BLEND_RATIO_FIDELITY});
    decode(f, {5, 6});
    return logits(f);
  }();
  // By the default, which would be seen if want of memory changed what it takes; but for records
  // that are made meanwhile.
  blend_fuse_options options;
  ASSERT_EQ(blend_fuse_options_init(&options, sizeof options), BLEND_OK);
  options.on_miss = BLEND_MISS_FAIL;
  std::vector<blend_segment> segments(prompt_.size());
  for (size_t i = 0; i < prompt_.size(); ++i) {
    segments[i] = blend_segment{}, segments[i].struct_size = sizeof segments[i];
    segments[i].kind = prompt_[i].kind;
    segments[i].tokens = prompt_[i].tokens.data();
    segments[i].n_tokens = prompt_[i].tokens.size();
  }
  std::vector<float> got(want.size());
  sweep([&](blend_error** error) {
    blend_fusion* fusion = nullptr;
    int32_t code = blend_fuse(&fusion, model.get(), store.get(), segments.data(), segments.size(),
                              &options, error);
    const int32_t more[2] = {5, 6};
    if (code >= 0) code = blend_fusion_decode(fusion, more, 2, nullptr, error);
    if (code >= 0) {
      const float* data = nullptr;
      size_t n = 0;
      if (blend_fusion_get_logits(fusion, &data, &n, nullptr) == BLEND_OK && n == got.size()) {
        std::copy(data, data + n, got.begin());
      }
    }
    blend_fusion_close(fusion);
    return code;
  });
  EXPECT_EQ(got, want) << "a failed allocation changed an answer";
}

// A deferred prefill is stored, refused or an error of the flush, and never waited for in vain.
TEST_P(OutOfMemory, MissesLeftForLater) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  const Store store = open_store(ctx, dir_.file("store"));
  const std::vector<blend_segment> segments = segments_of(prompt_);
  const FuseCase how{.on_miss = BLEND_MISS_COMPUTE_STORE};
  const blend_fuse_options options = options_of(how);
  const std::vector<float> want = logits(fuse(model, store, prompt_, {}));
  std::vector<blend_chunk_id> ids(3);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(precompute(model, store, prompt_[i].tokens, {}, &ids[i]), BLEND_EXISTS);
  }
  sweep([&](blend_error** error) {
    for (const blend_chunk_id& id : ids)
      (void)blend_store_remove(store.get(), &id, nullptr, nullptr);
    blend_fusion* fusion = nullptr;
    const int32_t code = blend_fuse(&fusion, model.get(), store.get(), segments.data(),
                                    segments.size(), &options, error);
    blend_fusion_close(fusion);
    const int32_t flushed = blend_store_flush(store.get(), code >= 0 ? error : nullptr);
    return code < 0 ? code : flushed;
  });
  EXPECT_EQ(logits(fuse(model, store, prompt_, {.on_miss = BLEND_MISS_FAIL})), want);
}

TEST_P(OutOfMemory, Edit) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  const Fusion f = fuse(model, Store(), {{BLEND_SEGMENT_TEXT, flatten(prompt_), false}},
                        {.policy = BLEND_POLICY_FULL});
  ASSERT_TRUE(f);
  const std::vector<int32_t> tokens = tokens_of(f);
  const std::vector<float> want = logits(f);
  const std::vector<int32_t> put = {9, 10, 11};
  bool inserted = false;  // a call that fails in between leaves what it did so far
  sweep([&](blend_error** error) {
    if (!inserted) {
      const int32_t code =
          blend_fusion_replace(f.get(), 3, 0, put.data(), put.size(), nullptr, error);
      if (code < 0) return code;
      inserted = true;
    }
    const int32_t code = blend_fusion_erase(f.get(), 3, put.size(), nullptr, error);
    if (code >= 0) inserted = false;
    return code;
  });
  EXPECT_EQ(tokens_of(f), tokens);
  EXPECT_LE(max_difference(logits(f), want), 2e-4) << "a failed allocation left rows half moved";
}

TEST_P(OutOfMemory, Embed) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  const blend_text texts[] = {{"the cat sat", 11}, {"a dog", 5}};
  std::vector<float> want(size_t{2} * RandomModelSpec().d_model), got(want.size());
  blend_error* error = nullptr;
  ASSERT_EQ(
      blend_model_embed(model.get(), texts, 2, nullptr, want.data(), want.size(), nullptr, &error),
      BLEND_OK);
  sweep([&](blend_error** err) {
    return blend_model_embed(model.get(), texts, 2, nullptr, got.data(), got.size(), nullptr, err);
  });
  EXPECT_EQ(got, want) << "a failed allocation changed a vector";
}

TEST_P(OutOfMemory, PutKvAndLayerwise) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  const Store store = open_store(ctx, dir_.file("store"));
  // Zeros are K and V as good as any: 2 layers of the largest number of rows.
  constexpr size_t kFloats = 64 * 32;
  std::vector<float> k(kFloats), v(kFloats);
  blend_kv_view views[2];
  for (blend_kv_view& view : views) {
    view = blend_kv_view{}, view.struct_size = sizeof view;
    view.k = k.data();
    view.v = v.data();
  }
  const std::vector<blend_segment> segments = segments_of(prompt_);
  const FuseCase how{.on_miss = BLEND_MISS_FAIL};
  const blend_fuse_options options = options_of(how);
  precompute_all(model, store, prompt_, {});
  sweep([&](blend_error** error) {
    const std::vector<int32_t>& chunk = prompt_[1].tokens;
    int32_t code = blend_chunk_put(model.get(), store.get(), chunk.data(), chunk.size(), views, 2,
                                   0, nullptr, nullptr, error);
    if (code < 0) return code;
    blend_layerwise* layerwise = nullptr;
    code = blend_layerwise_create(&layerwise, model.get(), store.get(), segments.data(),
                                  segments.size(), &options, error);
    if (code >= 0) code = blend_layerwise_restart(layerwise, error);
    for (uint32_t l = 0; l < 2 && code >= 0; ++l) {
      const uint32_t* rows = nullptr;
      size_t n = 0;
      code = blend_layerwise_fetch_kv(layerwise, l, &views[l], error);
      if (code >= 0) code = blend_layerwise_synchronize(layerwise, l, error);
      if (code >= 0) code = blend_layerwise_select(layerwise, l, &views[l], &rows, &n, error);
      if (code >= 0) code = blend_layerwise_commit(layerwise, l, error);
    }
    blend_layerwise_close(layerwise);
    return code;
  });
}

// A store whose quota holds two chunks: every put evicts, and copies and files of it are made.
TEST_P(OutOfMemory, StoreThatEvicts) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  blend_store_options options;
  ASSERT_EQ(blend_store_options_init(&options, sizeof options), BLEND_OK);
  options.quota_bytes = 56 << 10;
  options.ram_bytes = 24 << 10;  // what is read ahead stays, as far as this goes
  blend_store* raw = nullptr;
  ASSERT_EQ(blend_store_open(&raw, ctx.get(), dir_.file("small").c_str(), &options, nullptr),
            BLEND_OK);
  const Store store(raw);
  constexpr size_t kFloats = 64 * 32;
  std::vector<float> k(kFloats), v(kFloats);
  blend_kv_view views[2];
  for (blend_kv_view& view : views) {
    view = blend_kv_view{}, view.struct_size = sizeof view;
    view.k = k.data();
    view.v = v.data();
  }
  const std::string file = dir_.file("chunks");
  int32_t next = 3;
  std::vector<int32_t> tokens(40, 3);
  sweep([&](blend_error** error) {
    tokens[0] = next = 3 + next % 250;
    blend_chunk_id id;
    int32_t code = blend_chunk_put(model.get(), store.get(), tokens.data(), tokens.size(), views, 2,
                                   0, nullptr, &id, error);
    if (code >= 0) code = blend_store_prefetch(store.get(), &id, 1, error);
    if (code >= 0) code = blend_store_prefetch(store.get(), nullptr, 0, error);
    uint64_t n = 0;
    if (code >= 0) code = blend_store_export(store.get(), file.c_str(), nullptr, &n, error);
    if (code >= 0) code = blend_store_import(store.get(), file.c_str(), nullptr, &n, error);
    return code;
  });
  blend_store_report stat{};
  stat.struct_size = sizeof stat;
  ASSERT_EQ(blend_store_get_report(store.get(), &stat, nullptr), BLEND_OK);
  EXPECT_GT(stat.evicted_chunks, 10u);
  EXPECT_LE(stat.stored_bytes, stat.quota_bytes);
  EXPECT_EQ(blend_store_repair(store.get(), nullptr, nullptr, nullptr, nullptr), BLEND_OK);
}

TEST_P(OutOfMemory, Compact) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  const std::string path = dir_.file("store");
  precompute_all(model, open_store(ctx, path), prompt_, {});
  sweep([&](blend_error** error) {
    return blend_store_compact(path.c_str(), nullptr, nullptr, error);
  });
  precompute_all(model, open_store(ctx, path), prompt_, {});
}

// What was added before stays, so the same piece may be added again.
TEST_P(OutOfMemory, CallReader) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  blend_call_reader_options options{};
  options.struct_size = sizeof options;
  options.template_source = "{{ messages[0].content }}{{ tools }}<tool_call>";
  options.tools = R"([{"type": "function", "function": {"name": "a_function_of_a_long_name"}}])";
  static constexpr std::string_view kPieces[] = {
      "Text before it, which is longer than what a string holds in itself. <tool_call>",
      R"({"name": "a_function_of_a_long_name", "arguments": {"town": "Wien", "days": [1, 2]}})",
      "</tool_call> and after it"};
  blend_error* none = nullptr;
  blend_call_reader* reader = nullptr;
  if (blend_call_reader_open(&reader, model.get(), &options, &none) == BLEND_E_UNSUPPORTED) {
    blend_error_free(none);
    GTEST_SKIP() << "this build has no templates";
  }
  blend_call_reader_close(reader);
  sweep([&](blend_error** error) {
    blend_call_reader* opened = nullptr;
    const int32_t code = blend_call_reader_open(&opened, model.get(), &options, error);
    blend_call_reader_close(opened);
    return code;
  });
  size_t failures = 0;
  bool fired = true;
  for (uint64_t n = 1; fired; ++n) {
    ASSERT_EQ(blend_call_reader_open(&reader, model.get(), &options, nullptr), BLEND_OK);
    std::string shown;
    shown.reserve(1000);
    size_t next = 0;
    const auto go_on = [&] {
      for (; next < std::size(kPieces); ++next) {
        const char* text = nullptr;
        size_t n_bytes = 0;
        const int32_t code = blend_call_reader_add(reader, -1, kPieces[next].data(),
                                                   kPieces[next].size(), &text, &n_bytes, nullptr);
        if (code < 0) return code;
        shown.append(text, n_bytes);
      }
      return BLEND_OK;
    };
    int32_t code = BLEND_OK;
    {
      const FailingMalloc failing(n, GetParam());
      code = go_on();
      fired = failing.fired();
    }
    if (code < 0) {
      ++failures;
      EXPECT_EQ(code, BLEND_E_OUT_OF_MEMORY);
      EXPECT_EQ(go_on(), BLEND_OK);
    }
    EXPECT_EQ(shown,
              "Text before it, which is longer than what a string holds in itself. and after it");
    size_t n_calls = 0;
    EXPECT_EQ(blend_call_reader_get_n_calls(reader, &n_calls, nullptr), BLEND_OK);
    EXPECT_EQ(n_calls, 1u) << "allocation " << n;
    blend_call_reader_close(reader);
  }
  EXPECT_GT(failures, 10u);
}

TEST_P(OutOfMemory, Grammar) {
  const Ctx ctx = make_ctx(2);
  const Model model = open_model(ctx, path_);
  const Fusion parent = fuse(model, Store(), {prompt_.back()}, {.policy = BLEND_POLICY_FULL});
  blend_grammar_options options{};
  options.struct_size = sizeof options;
  options.language = BLEND_GRAMMAR_JSON_SCHEMA;
  options.text =
      R"({"type":"object","properties":{"a":{"enum":["b","c"]},"d":{"type":"string","maxLength":9}},
          "required":["a"]})";
  blend_generate_options generate{};
  ASSERT_EQ(blend_generate_options_init(&generate, sizeof generate), BLEND_OK);
  generate.max_tokens = 30;
  blend_grammar* whole = nullptr;
  blend_error* none = nullptr;
  const int32_t opened = blend_grammar_open(&whole, model.get(), &options, &none);
  if (opened == BLEND_E_UNSUPPORTED) {
    blend_error_free(none);
    GTEST_SKIP() << "this build has no grammars";
  }
  ASSERT_EQ(opened, BLEND_OK);
  sweep([&](blend_error** error) {
    blend_grammar* grammar = nullptr;
    const int32_t code = blend_grammar_open(&grammar, model.get(), &options, error);
    blend_grammar_close(grammar);
    return code;
  });
  // The same of a call of a function.
  blend_grammar_options call = options;
  call.language = BLEND_GRAMMAR_CALL;
  call.template_source = "{{ messages[0].content }}";
  call.text = R"([{"name": "a_function_of_a_long_name", "parameters": {"properties": {
      "town": {"$ref": "#/$defs/a_part_of_a_long_name"}},
      "$defs": {"a_part_of_a_long_name": {"type": "boolean"}}}}])";
  sweep([&](blend_error** error) {
    blend_grammar* grammar = nullptr;
    const int32_t code = blend_grammar_open(&grammar, model.get(), &call, error);
    blend_grammar_close(grammar);
    return code;
  });
  generate.grammar = whole;
  sweep([&](blend_error** error) {
    blend_fusion* fork = nullptr;
    int32_t code = blend_fusion_fork(&fork, parent.get(), error);
    if (code < 0) return code;
    code = blend_fusion_generate(fork, &generate, nullptr, nullptr, nullptr, error);
    blend_fusion_close(fork);
    return code;
  });
  blend_grammar_close(whole);
}

// false: the Nth allocation fails and later ones succeed; true: none succeeds any more.
INSTANTIATE_TEST_SUITE_P(Nth, OutOfMemory, testing::Bool(),
                         [](const auto& which) { return which.param ? "AndAllLater" : "Alone"; });

}  // namespace
}  // namespace blend::test
