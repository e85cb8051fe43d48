#include "engine/lora_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "model/tensor_table.h"

namespace blend {
namespace {

// Ranks are padded with zeros: a device wants rows of 16 bytes of bf16.
constexpr size_t kRankStep = 8;

TensorView view_of_rows(std::string name, const std::vector<float>& values, size_t cols) {
  TensorView view;
  view.name = std::move(name);
  view.shape = {static_cast<int64_t>(values.size() / cols), static_cast<int64_t>(cols)};
  view.data = reinterpret_cast<const std::byte*>(values.data());
  return view;
}

}  // namespace

Result<LoraSet> LoraSet::open(const ModelSource& source, std::span<const LoraOptions> options) {
  LoraSet set;
  for (const LoraOptions& o : options) {
    if (!std::isfinite(o.scale)) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "LoRA adapter '%s': the scale %g is not finite",
                        o.path.c_str(), o.scale);
    }
    Result<LoraAdapter> opened = source.open_lora(o.path);
    if (!opened.is_ok()) return opened.status().with_context("LoRA adapter '" + o.path + "'");
    set.infos_.push_back({o, static_cast<uint32_t>(opened->largest_rank()),
                          static_cast<uint32_t>(opened->matrices.size()), opened->digest});
    set.adapters_.push_back({std::move(*opened), o.scale});
  }
  std::sort(set.adapters_.begin(), set.adapters_.end(), [](const Adapter& a, const Adapter& b) {
    return a.content.digest != b.content.digest ? a.content.digest < b.content.digest
                                                : a.scale < b.scale;
  });
  return set;
}

Sha256 LoraSet::fingerprint(const Sha256& base) const {
  if (empty()) return base;
  Sha256Hasher hasher;
  hasher.field(to_hex(base)).field("lora").field(static_cast<uint64_t>(adapters_.size()));
  for (const Adapter& a : adapters_) {
    hasher.field(a.content.digest.data(), a.content.digest.size());
    hasher.field(std::bit_cast<uint64_t>(a.scale));
  }
  return hasher.finish();
}

bool LoraSet::adds_to(const ModelConfig& config, uint32_t layer,
                      std::initializer_list<TensorRole> roles) const {
  return !parts_of(config, layer, roles).empty();
}

std::vector<LoraSet::Part> LoraSet::parts_of(const ModelConfig& config, uint32_t layer,
                                             std::initializer_list<TensorRole> roles) const {
  std::vector<Part> parts;
  int64_t first_row = 0;
  for (const TensorRole role : roles) {
    for (const Adapter& a : adapters_) {
      for (const LoraMatrix& m : a.content.matrices) {
        if (m.layer == layer && m.role == role) parts.push_back({&m, a.scale, first_row});
      }
    }
    first_row += tensor_shape(role, config, layer)[0];
  }
  return parts;
}

Result<std::unique_ptr<LoraWeights>> LoraSet::load(Backend& backend, const ModelConfig& config,
                                                   uint32_t layer,
                                                   std::initializer_list<TensorRole> roles) const {
  const std::vector<Part> parts = parts_of(config, layer, roles);
  if (parts.empty()) return std::unique_ptr<LoraWeights>();
  size_t rank = 0, out = 0, in = 0;
  for (const TensorRole role : roles) {
    const std::vector<int64_t> shape = tensor_shape(role, config, layer);
    out += static_cast<size_t>(shape[0]);
    in = static_cast<size_t>(shape[1]);
  }
  for (const Part& p : parts) rank += p.matrix->rank;
  rank = (rank + kRankStep - 1) / kRankStep * kRankStep;
  std::vector<float> down(rank * in), up(out * rank);
  size_t column = 0;
  for (const Part& p : parts) {
    const LoraMatrix& m = *p.matrix;
    std::copy(m.down.begin(), m.down.end(), down.begin() + static_cast<int64_t>(column * in));
    const double factor = m.factor * p.scale;
    for (size_t i = 0; i < m.up.size(); ++i) {
      const size_t row = static_cast<size_t>(p.first_row) + i / m.rank;
      up[row * rank + column + i % m.rank] =
          static_cast<float>(factor * static_cast<double>(m.up[i]));
    }
    column += m.rank;
  }
  auto weights = std::make_unique<LoraWeights>();
  weights->rank = static_cast<uint32_t>(rank);
  const std::string what = "LoRA of layer " + std::to_string(layer);
  const TensorView down_view = view_of_rows(what + ", down", down, in),
                   up_view = view_of_rows(what + ", up, scaled", up, rank);
  const TensorView* const downs[] = {&down_view};
  const TensorView* const ups[] = {&up_view};
  BLEND_ASSIGN(weights->down, backend.load_matrix(downs, WeightForm::packed));
  BLEND_ASSIGN(weights->up, backend.load_matrix(ups, WeightForm::packed));
  return weights;
}

Result<std::unique_ptr<LoraWeights>> LoraSet::load_embedding(Backend& backend,
                                                             const ModelConfig& config) const {
  const std::vector<Part> parts = parts_of(config, 0, {TensorRole::embedding});
  if (parts.empty()) return std::unique_ptr<LoraWeights>();
  const size_t n_vocab = config.n_vocab, width = config.d_model;
  size_t rank = 0;
  for (const Part& p : parts) rank += p.matrix->rank;
  rank = (rank + kRankStep - 1) / kRankStep * kRankStep;
  auto weights = std::make_unique<LoraWeights>();
  weights->rank = static_cast<uint32_t>(rank);
  weights->table.resize(n_vocab * rank);
  std::vector<float> up(width * rank);
  size_t column = 0;
  const auto put = [&](const std::vector<float>& from, size_t n, double factor, float* to) {
    const size_t of = from.size() / n;
    for (size_t i = 0; i < from.size(); ++i) {
      to[i / of * rank + column + i % of] =
          static_cast<float>(factor * static_cast<double>(from[i]));
    }
  };
  for (const Part& p : parts) {
    put(p.matrix->down, n_vocab, 1, weights->table.data());
    put(p.matrix->up, width, p.matrix->factor * p.scale, up.data());
    column += p.matrix->rank;
  }
  const TensorView table_view = view_of_rows("LoRA of the embedding", weights->table, rank),
                   up_view = view_of_rows("LoRA of the embedding, up, scaled", up, rank);
  BLEND_ASSIGN(weights->down, backend.load_table(table_view, false));
  const TensorView* const ups[] = {&up_view};
  BLEND_ASSIGN(weights->up, backend.load_matrix(ups, WeightForm::packed));
  if (backend.device_memory() != nullptr) weights->table = {};
  return weights;
}

}  // namespace blend
