#include "conformance/abi.h"

#include <cmath>
#include <limits>

namespace blend::test {

Outcome outcome(int32_t code, blend_error* error) {
  Outcome o{code, blend_error_detail(error), blend_error_message(error)};
  if (code < 0) {
    EXPECT_NE(error, nullptr) << "a failure without an error object: " << blend_code_name(code);
    EXPECT_EQ(blend_error_code(error), code);
    EXPECT_FALSE(o.message.empty()) << blend_code_name(code);
  } else {
    EXPECT_EQ(error, nullptr);
  }
  blend_error_free(error);
  return o;
}

namespace {
// Some calls cannot fail in a sound program; when one does, the test says so and goes on.
void must(int32_t code, blend_error* error, const char* call) {
  const Outcome o = outcome(code, error);
  EXPECT_GE(o.code, 0) << call << ": " << blend_code_name(o.code) << ": " << o.message;
}
}  // namespace

int32_t LogCount::on_log(void* user, const blend_log_record* record) {
  auto* self = static_cast<LogCount*>(user);
  EXPECT_NE(record->message, nullptr);
  self->last_code = record->code;
  ++self->n;
  return 0;
}

Ctx make_ctx(uint32_t n_threads, LogCount* log, uint32_t cache_dtype) {
  blend_ctx_options options{};
  options.struct_size = sizeof options;
  options.n_threads = n_threads;
  options.cache_dtype = cache_dtype;
  if (log != nullptr) {
    options.log = &LogCount::on_log;
    options.log_user = log;
    options.log_level = BLEND_LOG_WARNING;
  }
  blend_ctx* ctx = nullptr;
  blend_error* error = nullptr;
  must(blend_ctx_create(&ctx, &options, &error), error, "blend_ctx_create");
  if (log != nullptr) log->n = 0;  // a CPU without fast kernels is one
  return Ctx(ctx);
}

Model open_model(const Ctx& ctx, const std::string& path, uint32_t weights) {
  blend_model_options options{};
  options.struct_size = sizeof options;
  options.weights = weights;
  blend_model* model = nullptr;
  blend_error* error = nullptr;
  must(blend_model_open(&model, ctx.get(), path.c_str(), &options, &error), error,
       "blend_model_open");
  return Model(model);
}

Outcome try_open(const Ctx& ctx, const std::string& path, Model* out) {
  blend_model* model = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_model_open(&model, ctx.get(), path.c_str(), nullptr, &error);
  Model owned(model);
  if (out != nullptr) *out = std::move(owned);
  return outcome(code, error);
}

Store open_store(const Ctx& ctx, const std::string& path, uint32_t kv_dtype) {
  blend_store_options options;
  EXPECT_EQ(blend_store_options_init(&options, sizeof options), BLEND_OK);
  options.check_every = UINT32_MAX;  // flags are compared, and that of a check comes and goes
  options.kv_dtype = kv_dtype;
  options.quota_bytes = 256u << 20;
  options.check_every = UINT32_MAX;  // nothing computes beside what is tested
  blend_store* store = nullptr;
  blend_error* error = nullptr;
  must(blend_store_open(&store, ctx.get(), path.c_str(), &options, &error), error,
       "blend_store_open");
  return Store(store);
}

namespace {

int32_t on_score(void* user, uint32_t layer, const uint32_t* rows, const float* deviation, size_t n,
                 float* scores) {
  EXPECT_GT(layer, 0u);
  const auto& score = *static_cast<const ReferenceScore*>(user);
  for (size_t i = 0; i < n; ++i) {
    EXPECT_EQ(scores[i], deviation[i]) << "scores begin as the deviations";
    EXPECT_TRUE(i == 0 || rows[i] > rows[i - 1]) << "rows are ascending";
    scores[i] = static_cast<float>(score(rows[i], static_cast<double>(deviation[i])));
  }
  return 0;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const FuseCase& how) {
  out << "policy " << how.policy << ", ratio " << how.ratio << ", metric " << how.metric
      << ", norm " << how.norm << ", relative " << how.relative << ", seed " << how.seed
      << ", check layers";
  for (const blend_check_layer& c : how.check_layers) out << ' ' << c.layer << ':' << c.ratio;
  if (how.check_layers.empty()) out << ' ' << how.check_layer;
  for (const blend_policy_term& t : how.terms) out << ", term " << t.policy << ':' << t.share;
  return out;
}

std::vector<blend_segment> segments_of(const Prompt& prompt) {
  std::vector<blend_segment> segments(prompt.size());
  for (size_t i = 0; i < prompt.size(); ++i) {
    segments[i] = blend_segment{}, segments[i].struct_size = sizeof segments[i];
    segments[i].kind = prompt[i].kind;
    segments[i].tokens = prompt[i].tokens.data();
    segments[i].n_tokens = prompt[i].tokens.size();
  }
  return segments;
}

blend_fuse_options options_of(const FuseCase& how) {
  blend_fuse_options options;
  EXPECT_EQ(blend_fuse_options_init(&options, sizeof options), BLEND_OK);
  options.policy = how.policy;
  options.ratio = how.ratio;
  options.on_miss = how.on_miss;
  options.reserve_tokens = how.reserve_tokens;
  static constexpr int32_t kNothing = 0;  // NULL is the head of the prompt
  options.chunk_prefix = how.chunk_prefix.empty() ? &kNothing : how.chunk_prefix.data();
  options.n_chunk_prefix = how.chunk_prefix.size();
  options.profile = how.profile;
  options.on_untrusted = how.on_untrusted;
  options.n_threads = how.n_threads;
  blend_selection_options& selection = how.selection;
  EXPECT_EQ(blend_selection_options_init(&selection, sizeof selection), BLEND_OK);
  selection.metric = how.metric;
  selection.check_layer = how.check_layer;
  selection.norm = how.norm;
  selection.relative = how.relative;
  selection.correction = how.correction;
  selection.seed = how.seed;
  selection.check_layers = how.check_layers.data();
  selection.n_check_layers = how.check_layers.size();
  selection.ape_temperature = how.ape_temperature;
  selection.ape_scale = how.ape_scale;
  selection.terms = how.terms.data();
  selection.n_terms = how.terms.size();
  if (how.score) {
    selection.score = &on_score;
    selection.score_user = const_cast<ReferenceScore*>(&how.score);
  }
  options.selection = &selection;
  return options;
}

Fused try_fuse(const Model& model, const Store& store, const Prompt& prompt, const FuseCase& how) {
  const std::vector<blend_segment> segments = segments_of(prompt);
  const blend_fuse_options options = options_of(how);
  blend_fusion* fusion = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_fuse(&fusion, model.get(), store.get(), segments.data(),
                                  segments.size(), &options, &error);
  return {outcome(code, error), Fusion(fusion)};
}

Outcome try_extend(const Fusion& fusion, const Store& store, const Prompt& prompt,
                   const FuseCase& how, const Cancel& cancel) {
  const std::vector<blend_segment> segments = segments_of(prompt);
  blend_fuse_options options = options_of(how);
  options.cancel = cancel.get();
  blend_error* error = nullptr;
  const int32_t code = blend_fusion_extend(fusion.get(), store.get(), segments.data(),
                                           segments.size(), &options, &error);
  return outcome(code, error);
}

Fusion fuse(const Model& model, const Store& store, const Prompt& prompt, const FuseCase& how) {
  Fused f = try_fuse(model, store, prompt, how);
  EXPECT_EQ(f.outcome.code, BLEND_OK)
      << blend_code_name(f.outcome.code) << ": " << f.outcome.message;
  return std::move(f.fusion);
}

int32_t precompute(const Model& model, const Store& store, const std::vector<int32_t>& tokens,
                   const std::vector<int32_t>& prefix, blend_chunk_id* id) {
  blend_precompute_options options{};
  options.struct_size = sizeof options;
  options.chunk_prefix = prefix.data();
  options.n_chunk_prefix = prefix.size();
  blend_error* error = nullptr;
  const int32_t code = blend_precompute(model.get(), store.get(), tokens.data(), tokens.size(),
                                        &options, id, &error);
  must(code, error, "blend_precompute");
  return code;
}

void precompute_all(const Model& model, const Store& store, const Prompt& prompt,
                    const std::vector<int32_t>& chunk_prefix) {
  std::vector<int32_t> before;
  for (const ReferenceSegment& s : prompt) {
    if (s.kind == BLEND_SEGMENT_PREFIX) precompute(model, store, s.tokens, before);
    if (s.kind == BLEND_SEGMENT_CHUNK) precompute(model, store, s.tokens, chunk_prefix);
    before.insert(before.end(), s.tokens.begin(), s.tokens.end());
  }
}

std::vector<float> logits(const Fusion& fusion) {
  if (!fusion) return {};
  const float* data = nullptr;
  size_t n = 0;
  blend_error* error = nullptr;
  must(blend_fusion_get_logits(fusion.get(), &data, &n, &error), error, "blend_fusion_get_logits");
  return {data, data + n};
}

std::vector<float> deviation(const Fusion& fusion) {
  if (!fusion) return {};
  const float* data = nullptr;
  size_t n = 0;
  blend_error* error = nullptr;
  must(blend_fusion_get_deviation(fusion.get(), &data, &n, &error), error,
       "blend_fusion_get_deviation");
  return {data, data + n};
}

std::vector<uint32_t> selected(const Fusion& fusion) {
  if (!fusion) return {};
  const uint32_t* rows = nullptr;
  size_t n = 0;
  blend_error* error = nullptr;
  must(blend_fusion_get_selected(fusion.get(), &rows, &n, &error), error,
       "blend_fusion_get_selected");
  return {rows, rows + n};
}

blend_fusion_report info(const Fusion& fusion) {
  blend_fusion_report i{};
  i.struct_size = sizeof i;
  blend_error* error = nullptr;
  must(blend_fusion_get_report(fusion.get(), &i, &error), error, "blend_fusion_get_report");
  return i;
}

blend_segment_info segment_info(const Fusion& fusion, size_t segment) {
  blend_segment_info i{};
  i.struct_size = sizeof i;
  blend_error* error = nullptr;
  must(blend_fusion_get_segment(fusion.get(), segment, &i, &error), error,
       "blend_fusion_get_segment");
  return i;
}

blend_layer_info layer_info(const Fusion& fusion, uint32_t layer) {
  blend_layer_info i{};
  i.struct_size = sizeof i;
  blend_error* error = nullptr;
  must(blend_fusion_get_layer(fusion.get(), layer, &i, &error), error, "blend_fusion_get_layer");
  return i;
}

void decode(const Fusion& fusion, const std::vector<int32_t>& tokens) {
  blend_error* error = nullptr;
  must(blend_fusion_decode(fusion.get(), tokens.data(), tokens.size(), nullptr, &error), error,
       "blend_fusion_decode");
}

void replace(const Fusion& fusion, uint64_t first, uint64_t n, const std::vector<int32_t>& tokens) {
  blend_error* error = nullptr;
  must(blend_fusion_replace(fusion.get(), first, n, tokens.data(), tokens.size(), nullptr, &error),
       error, "blend_fusion_replace");
}

std::vector<int32_t> tokens_of(const Fusion& fusion) {
  const int32_t* data = nullptr;
  size_t n = 0;
  blend_error* error = nullptr;
  must(blend_fusion_get_tokens(fusion.get(), &data, &n, &error), error, "blend_fusion_get_tokens");
  return {data, data + n};
}

std::vector<int32_t> flatten(const Prompt& prompt) {
  std::vector<int32_t> tokens;
  for (const auto& s : prompt) tokens.insert(tokens.end(), s.tokens.begin(), s.tokens.end());
  return tokens;
}

double max_difference(const std::vector<float>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!std::isfinite(d)) return std::numeric_limits<double>::infinity();
    most = std::max(most, d);
  }
  return most;
}

double max_difference(const std::vector<float>& a, const std::vector<float>& b) {
  return max_difference(a, widen(b));
}

std::vector<double> widen(const std::vector<float>& a) { return {a.begin(), a.end()}; }

}  // namespace blend::test
