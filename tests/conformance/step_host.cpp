#include "conformance/step_host.h"

#include <algorithm>
#include <limits>

namespace blend::test {

bool StepHost::call(StepRun& run, const std::function<int32_t(blend_error**)>& fn) {
  if (before_ && !before_(calls_++)) return false;
  blend_error* error = nullptr;
  const int32_t code = fn(&error);
  run.outcome = outcome(code, error);
  return code == BLEND_OK;
}

bool StepHost::fetch(blend_layerwise* layerwise, uint32_t layer, StepRun& run) {
  if (layer < n_fetched_) return true;  // before the probe
  n_fetched_ = layer + 1;
  const blend_kv_view view = cache_[layer].view(options_.target_flags);
  return call(
      run, [&](blend_error** e) { return blend_layerwise_fetch_kv(layerwise, layer, &view, e); });
}

void StepHost::begin_rows(const uint32_t* rows, size_t n) {
  rows_.assign(rows, rows + n);
  x_.clear();
  for (const uint32_t row : rows_) x_.push_back(reference_.embed(tokens_[row]));
}

StepRun StepHost::run(blend_layerwise* layerwise, const std::function<bool(int)>& before) {
  StepRun run;
  before_ = before;
  calls_ = 0;
  n_fetched_ = 0;
  const ModelConfig& c = reference_.config();
  const int32_t* tokens = nullptr;
  EXPECT_EQ(blend_layerwise_get_tokens(layerwise, &tokens, &n_rows_, nullptr), BLEND_OK);
  tokens_.assign(tokens, tokens + n_rows_);
  const uint32_t* rows = nullptr;
  size_t n = 0;
  EXPECT_EQ(blend_layerwise_get_rows(layerwise, &rows, &n, nullptr), BLEND_OK);
  begin_rows(rows, n);
  // A row that nobody writes shows as NaN.
  cache_.assign(c.n_layers,
                HostLayer(c, n_rows_, options_.layout, std::numeric_limits<float>::quiet_NaN()));
  for (uint32_t l = 0; options_.fetch_ahead && l < c.n_layers; ++l) {
    if (!fetch(layerwise, l, run)) return run;
  }
  if (options_.n_asked > 0 && !probe(layerwise, run)) return run;
  for (uint32_t l = 0; l < c.n_layers; ++l) {
    if (!layer(layerwise, l, run)) return run;
  }
  run.logits = reference_.logits(x_.back());
  run.final_rows = rows_;
  return run;
}

bool StepHost::begin_layer(blend_layerwise* layerwise, uint32_t l, StepRun& run, HostLayer& fresh) {
  const size_t kv_dim = reference_.config().kv_dim();
  if (!options_.fetch_ahead && !fetch(layerwise, l, run)) return false;
  std::vector<double> k(n_rows_ * kv_dim), v(n_rows_ * kv_dim);
  for (size_t i = 0; i < rows_.size(); ++i) {
    std::vector<double> row_k, row_v;
    reference_.project_kv(l, x_[i], row_k, row_v);
    std::copy(row_k.begin(), row_k.end(), k.data() + rows_[i] * kv_dim);
    std::copy(row_v.begin(), row_v.end(), v.data() + rows_[i] * kv_dim);
  }
  const std::vector<double> rotated = reference_.rotate_rows(l, k);
  const auto as = [&](uint32_t flags) -> const std::vector<double>& {
    return (flags & BLEND_KV_VIEW_UNROTATED) != 0 ? k : rotated;
  };
  for (size_t i = 0; i < rows_.size(); ++i) {
    const size_t at = rows_[i] * kv_dim;
    cache_[l].set(rows_[i], as(options_.target_flags).data() + at, v.data() + at);
    fresh.set(i, as(options_.fresh_flags).data() + at, v.data() + at);
  }
  return call(run, [&](blend_error** e) { return blend_layerwise_synchronize(layerwise, l, e); });
}

void StepHost::read_cache(uint32_t l, std::vector<double>& k, std::vector<double>& v) {
  for (size_t row = 0; row < n_rows_; ++row) {
    const std::vector<double> row_k = cache_[l].k(row), row_v = cache_[l].v(row);
    k.insert(k.end(), row_k.begin(), row_k.end());
    v.insert(v.end(), row_v.begin(), row_v.end());
  }
  if ((options_.target_flags & BLEND_KV_VIEW_UNROTATED) != 0) k = reference_.rotate_rows(l, k);
}

void StepHost::attend(uint32_t l) {
  std::vector<double> k, v;
  read_cache(l, k, v);
  for (size_t i = 0; i < rows_.size(); ++i) {
    reference_.attend_and_feed(l, rows_[i], tokens_[rows_[i]], k, v, x_[i]);
  }
}

bool StepHost::probe(blend_layerwise* layerwise, StepRun& run) {
  blend_fusion_report said{};
  said.struct_size = sizeof said;
  EXPECT_EQ(blend_layerwise_get_report(layerwise, &said, nullptr), BLEND_OK);
  const uint32_t first = said.first_asked_layer, last = said.last_asked_layer;
  const double parts = static_cast<double>(options_.n_asked) * (last - first + 1);
  std::vector<float> attention(n_rows_, 0.0f);
  for (uint32_t l = 0; l <= last; ++l) {
    HostLayer fresh(reference_.config(), rows_.size(), options_.layout);
    if (!begin_layer(layerwise, l, run, fresh)) return false;
    std::vector<double> k, v;
    read_cache(l, k, v);
    for (size_t i = rows_.size() - options_.n_asked; l >= first && i < rows_.size(); ++i) {
      const std::vector<double> of_row = reference_.attention(l, rows_[i], k, v, x_[i]);
      for (size_t j = 0; j < of_row.size() && j < n_rows_; ++j) {
        attention[j] += static_cast<float>(of_row[j] / parts);
      }
    }
    if (l == last) break;
    attend(l);
    if (!call(run, [&](blend_error** e) { return blend_layerwise_commit(layerwise, l, e); }))
      return false;
  }
  const uint32_t* rows = nullptr;
  size_t n = 0;
  if (!call(run, [&](blend_error** e) {
        return blend_layerwise_probe(layerwise, attention.data(), n_rows_, &rows, &n, e);
      })) {
    return false;
  }
  begin_rows(rows, n);
  return true;
}

bool StepHost::layer(blend_layerwise* layerwise, uint32_t l, StepRun& run) {
  HostLayer fresh(reference_.config(), rows_.size(), options_.layout);
  if (!begin_layer(layerwise, l, run, fresh)) return false;
  if (options_.select_always || l == options_.check_layer) {
    const blend_kv_view view = fresh.view(options_.fresh_flags);
    const uint32_t* rows = nullptr;
    size_t n = 0;
    if (!call(run, [&](blend_error** e) {
          return blend_layerwise_select(layerwise, l, &view, &rows, &n, e);
        })) {
      return false;
    }
    std::vector<std::vector<double>> kept;
    for (size_t i = 0, at = 0; i < n; ++i) {
      while (at < rows_.size() && rows_[at] != rows[i]) ++at;
      if (at == rows_.size()) {
        ADD_FAILURE() << "row " << rows[i] << " was not computed at layer " << l;
        return false;
      }
      kept.push_back(x_[at]);
    }
    x_ = std::move(kept);
    rows_.assign(rows, rows + n);
  }
  attend(l);
  return call(run, [&](blend_error** e) { return blend_layerwise_commit(layerwise, l, e); });
}

TriedLayerwise try_layerwise(const Model& model, const Store& store, const Prompt& prompt,
                             const FuseCase& how,
                             const std::function<void(blend_fuse_options&)>& change) {
  const std::vector<blend_segment> segments = segments_of(prompt);
  blend_fuse_options options = options_of(how);
  if (change) change(options);
  blend_layerwise* layerwise = nullptr;
  blend_error* error = nullptr;
  const int32_t code = blend_layerwise_create(&layerwise, model.get(), store.get(), segments.data(),
                                              segments.size(), &options, &error);
  return {outcome(code, error), Layerwise(layerwise)};
}

Layerwise make_layerwise(const Model& model, const Store& store, const Prompt& prompt,
                         const FuseCase& how) {
  TriedLayerwise p = try_layerwise(model, store, prompt, how);
  EXPECT_EQ(p.outcome.code, BLEND_OK) << p.outcome.message;
  return std::move(p.layerwise);
}

std::vector<uint32_t> rows_of(const Layerwise& layerwise) {
  const uint32_t* rows = nullptr;
  size_t n = 0;
  EXPECT_EQ(blend_layerwise_get_rows(layerwise.get(), &rows, &n, nullptr), BLEND_OK);
  return {rows, rows + n};
}

std::vector<uint32_t> selected(const Layerwise& layerwise) {
  const uint32_t* rows = nullptr;
  size_t n = 0;
  EXPECT_EQ(blend_layerwise_get_selected(layerwise.get(), &rows, &n, nullptr), BLEND_OK);
  return {rows, rows + n};
}

std::vector<float> deviation(const Layerwise& layerwise) {
  const float* data = nullptr;
  size_t n = 0;
  EXPECT_EQ(blend_layerwise_get_deviation(layerwise.get(), &data, &n, nullptr), BLEND_OK);
  return {data, data + n};
}

blend_fusion_report info(const Layerwise& layerwise) {
  blend_fusion_report i{};
  i.struct_size = sizeof i;
  EXPECT_EQ(blend_layerwise_get_report(layerwise.get(), &i, nullptr), BLEND_OK);
  return i;
}

blend_layer_info layer_info(const Layerwise& layerwise, uint32_t layer) {
  blend_layer_info i{};
  i.struct_size = sizeof i;
  EXPECT_EQ(blend_layerwise_get_layer(layerwise.get(), layer, &i, nullptr), BLEND_OK);
  return i;
}

blend_segment_info segment_info(const Layerwise& layerwise, size_t segment) {
  blend_segment_info i{};
  i.struct_size = sizeof i;
  EXPECT_EQ(blend_layerwise_get_segment(layerwise.get(), segment, &i, nullptr), BLEND_OK);
  return i;
}

}  // namespace blend::test
