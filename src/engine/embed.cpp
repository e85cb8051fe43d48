#include "engine/embed.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "engine/forward.h"

namespace blend {
namespace {

Pooling pooling_of(const Model& model, const EmbedOptions& options) {
  if (options.pooling != Pooling::unsaid) return options.pooling;
  const Pooling own = model.config().pooling;
  return own == Pooling::unsaid ? Pooling::mean : own;
}

// The texts of one call. Used by one thread.
class TextEmbedder {
 public:
  TextEmbedder(const Model& model, const EmbedOptions& options, uint32_t width, const Watch& watch)
      : model_(model),
        pooling_(pooling_of(model, options)),
        normalize_(options.normalize),
        width_(width),
        watch_(watch),
        block_(model.backend().traits().block_rows) {}

  // Whether a text of n_tokens can be computed with those that were added.
  bool has_room(size_t n_tokens) const {
    // Layers that share K and V need those of all of a text's rows at the end.
    const bool shares = model_.config().n_kept() < model_.config().n_layers;
    return texts_.empty() || (!shares && tokens_.size() + n_tokens <= block_);
  }
  // out: [width], written by compute().
  void add(size_t number, std::span<const int32_t> tokens, float* out) {
    texts_.push_back(
        {number, static_cast<uint32_t>(tokens_.size()), static_cast<uint32_t>(tokens.size()), out});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  // Embeds the texts that were added, which are then forgotten.
  Status compute();

 private:
  struct Text {
    size_t number;
    uint32_t first, n_rows;  // in x
    float* out;
  };

  Status reserve();
  Status compute_layer(uint32_t layer, Tensor x, Tensor kv, const uint32_t* pos);
  Status pool(const Text& text, Tensor x);
  void pass_through_dense(double scale);

  const Model& model_;
  const Pooling pooling_;
  const bool normalize_;
  const uint32_t width_;
  const Watch& watch_;
  const size_t block_;  // rows of texts that are computed together
  std::vector<Text> texts_;
  std::vector<int32_t> tokens_;  // of all texts_
  uint32_t rows_ = 0;            // that there is room for
  uint32_t slots_ = 0;
  std::unique_ptr<Forward> forward_;
  std::shared_ptr<const Ropes> ropes_;
  std::unique_ptr<KvCache> cache_;  // one layer of each kind
  std::vector<float> hidden_;       // [rows of a block, d_model]
  std::vector<double> sum_;         // [width_], or [d_model] where matrices follow
};

Status TextEmbedder::reserve() {
  const auto rows = static_cast<uint32_t>(tokens_.size());
  uint32_t slots = 0;
  for (const Text& text : texts_) slots = std::max(slots, text.n_rows);
  if (rows > rows_) {
    forward_.reset();  // frees it before the second one is made
    BLEND_ASSIGN(forward_, Forward::create(model_, rows));
    rows_ = rows;
  }
  if (slots > slots_) {
    cache_.reset();
    BLEND_ASSIGN(ropes_, model_.ropes(slots));
    BLEND_ASSIGN(cache_, model_.backend().make_kv_cache(model_.config().one_of_each(), slots));
    slots_ = slots;
  }
  return Status::ok();
}

Status TextEmbedder::compute_layer(uint32_t layer, Tensor x, Tensor kv, const uint32_t* pos) {
  BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x, kv, watch_));
  const uint32_t stage = model_.config().kind_of(layer);
  const auto place = [&](size_t i) {
    const Text& text = texts_[i];
    return model_.backend().write_kv(*cache_, stage, ropes_->keys(layer),
                                     kv.slice(text.first, text.n_rows), pos + text.first);
  };
  std::vector<Forward::Part> parts;
  for (const Text& text : texts_) parts.push_back({text.first, text.n_rows, {}});
  return forward_->finish_parts(layer, *cache_, stage, *ropes_, x, pos, parts, place, watch_);
}

Status TextEmbedder::pool(const Text& text, Tensor x) {
  const auto d_model = static_cast<size_t>(model_.config().d_model);
  Tensor rows = x.slice(text.first, text.n_rows);
  if (pooling_ == Pooling::first) rows = rows.slice(0, 1);
  if (pooling_ == Pooling::last) rows = rows.slice(rows.rows - 1, 1);
  sum_.assign(model_.dense().empty() ? width_ : d_model, 0.0);
  const auto block = static_cast<int64_t>(block_);
  for (int64_t at = 0; at < rows.rows; at += block) {
    BLEND_RETURN_IF_ERROR(watch_.check());
    const int64_t n = std::min(block, rows.rows - at);
    hidden_.resize(static_cast<size_t>(n) * d_model);
    BLEND_RETURN_IF_ERROR(forward_->hidden_states(rows.slice(at, n), hidden_.data()));
    for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
      const float* const from = hidden_.data() + row * d_model;
      for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += from[i];
    }
  }
  double scale = 1.0 / static_cast<double>(rows.rows);
  if (!model_.dense().empty()) {
    pass_through_dense(scale);
    scale = 1;
  }
  double squares = 0;
  for (size_t i = 0; i < width_; ++i) squares += sum_[i] * sum_[i];
  if (!std::isfinite(squares)) {
    return make_error(BLEND_E_NUMERIC,
                      "text %zu: its hidden states are not finite: the activations overflowed",
                      text.number);
  }
  if (normalize_ && squares > 0) scale = 1.0 / std::sqrt(squares);
  for (size_t i = 0; i < width_; ++i) text.out[i] = static_cast<float>(sum_[i] * scale);
  return Status::ok();
}

void TextEmbedder::pass_through_dense(double scale) {
  for (double& value : sum_) value *= scale;
  std::vector<double> next;
  for (const Model::Dense& dense : model_.dense()) {
    next.assign(dense.out, 0.0);
    model_.runtime().pool().parallel_for(dense.out, 64, [&](size_t begin, size_t end, uint32_t) {
      for (size_t i = begin; i < end; ++i) {
        const float* const row = dense.rows.data() + i * dense.in;
        for (size_t j = 0; j < dense.in; ++j) next[i] += static_cast<double>(row[j]) * sum_[j];
      }
    });
    sum_.swap(next);
  }
}

Status TextEmbedder::compute() {
  if (texts_.empty()) return Status::ok();
  BLEND_RETURN_IF_ERROR(reserve());
  std::vector<uint32_t> pos(tokens_.size());
  for (const Text& text : texts_) {
    const auto first = pos.begin() + text.first;
    std::iota(first, first + text.n_rows, 0u);
  }
  const auto rows = static_cast<uint32_t>(tokens_.size());
  const Tensor x = forward_->x(rows);
  BLEND_RETURN_IF_ERROR(forward_->embed(tokens_.data(), x));
  for (uint32_t layer = 0; layer < model_.config().n_kept(); ++layer) {
    BLEND_RETURN_IF_ERROR(watch_.check());
    BLEND_RETURN_IF_ERROR(compute_layer(layer, x, forward_->kv(layer, rows), pos.data()));
  }
  BLEND_RETURN_IF_ERROR(forward_->finish_sharing(*cache_, Forward::Holds::one_of_each, *ropes_, x,
                                                 pos.data(), watch_));
  for (const Text& text : texts_) BLEND_RETURN_IF_ERROR(pool(text, x));
  texts_.clear();
  tokens_.clear();
  return Status::ok();
}

}  // namespace

Result<uint32_t> embedding_width(const Model& model, const EmbedOptions& options) {
  const uint32_t all = model.config().d_model;
  if (options.n_dimensions > all) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "n_dimensions %u is more than the %u of this model's vectors",
                      options.n_dimensions, all);
  }
  if (pooling_of(model, options) == Pooling::other) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "the model's file asks for a pooling that libblend does not know: name one");
  }
  return options.n_dimensions == 0 ? all : options.n_dimensions;
}

Status embed_texts(const Model& model, size_t n_texts, const NextTokens& next,
                   const EmbedOptions& options, float* out, const Watch& watch) {
  BLEND_ASSIGN(const uint32_t width, embedding_width(model, options));
  BLEND_ASSIGN(const auto waited_for, model.runtime().begin_call());  // idle work makes way
  TextEmbedder embedder(model, options, width, watch);
  for (size_t i = 0; i < n_texts; ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
    BLEND_ASSIGN(const std::vector<int32_t> tokens, next(i));
    if (!embedder.has_room(tokens.size())) {
      BLEND_RETURN_IF_ERROR(embedder.compute());
      BLEND_RETURN_IF_ERROR(watch.report(i, n_texts));
    }
    embedder.add(i, tokens, out + i * width);
  }
  BLEND_RETURN_IF_ERROR(embedder.compute());
  return watch.report(n_texts, n_texts);
}

}  // namespace blend
