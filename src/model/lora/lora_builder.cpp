#include "model/lora/lora_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "model/tensor_table.h"

namespace blend {
namespace {

// Names of directories' families that differ from those of GGUF files.
struct FamilyName {
  std::string_view directory, gguf;
};
constexpr FamilyName kFamilyNames[] = {
    {"mistral", "llama"},
    {"mixtral", "llama"},
    {"gemma3_text", "gemma3"},
    {"gemma3n_text", "gemma3n"},
    {"gemma4_text", "gemma4"},
    {"granitemoehybrid", "granite"},
    {"granitemoeshared", "granitemoe"},
    {"olmo3", "olmo2"},
    {"ministral3", "mistral3"},
    {"hunyuan_v1_dense", "hunyuan-dense"},
    {"qwen2_moe", "qwen2moe"},
    {"qwen3_moe", "qwen3moe"},
    {"ernie4_5_moe", "ernie4_5-moe"},
    {"gpt_oss", "gpt-oss"},
    {"glm4_moe", "glm4moe"},
    {"lfm2_moe", "lfm2moe"},
};

// Families whose converter to GGUF changes the order of rows of Q and K.
constexpr std::string_view kTurned[] = {"llama",      "smollm3",       "granite",
                                        "granitemoe", "granitehybrid", "mistral3"};

// The row of a head in a GGUF that row `row` of a directory is.
int64_t gguf_row(int64_t row, int64_t rotary) {
  if (row >= rotary) return row;
  const int64_t half = rotary / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

Status decode(const TensorView& view, std::vector<float>& out) {
  out.resize(static_cast<size_t>(view.elements()));
  decode_weights(view.dtype, view.blocks, view.data, out.size(), out.data());
  const auto bad = std::find_if(out.begin(), out.end(), [](float v) { return !std::isfinite(v); });
  if (bad == out.end()) return Status::ok();
  const auto at = bad - out.begin();
  return make_error(BLEND_E_NUMERIC, "tensor '%s' holds %s at [%lld, %lld]: the file is damaged",
                    shown_name(view.name).c_str(), std::isnan(*bad) ? "a NaN" : "an infinity",
                    static_cast<long long>(at / view.cols()),
                    static_cast<long long>(at % view.cols()));
}

// [n, m] of [m, n].
std::vector<float> transposed(const std::vector<float>& rows, size_t m) {
  const size_t n = rows.size() / m;
  std::vector<float> out(rows.size());
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) out[j * m + i] = rows[i * n + j];
  }
  return out;
}

Status wrong_shape(const TensorView& view, const std::vector<int64_t>& wanted) {
  return make_error(BLEND_E_MISMATCH,
                    "tensor '%s' has the shape %s; this model's matrix asks for %s: the adapter "
                    "belongs to another model",
                    shown_name(view.name).c_str(), shape_text(view.shape).c_str(),
                    shape_text(wanted).c_str());
}

}  // namespace

std::string shown_name(std::string_view name) {
  std::string out(name.substr(0, 120));
  for (char& ch : out) ch = ch >= ' ' && ch < 127 ? ch : '?';
  return out;
}

Status no_lora_of(std::string_view tensor, const char* what) {
  return make_error(BLEND_E_UNSUPPORTED, "tensor '%s': libblend computes no LoRA of %s",
                    shown_name(tensor).c_str(), what);
}

std::string_view gguf_architecture(const ModelConfig& config) {
  const std::string_view architecture = config.architecture;
  if (architecture == "granitemoehybrid" && config.experts.count != 0) return "granitemoe";
  for (const FamilyName& name : kFamilyNames) {
    if (name.directory == architecture) return name.gguf;
  }
  return architecture;
}

Status LoraBuilder::check(const std::string& of, const Pair& pair, const LoraTarget& place) const {
  if (!pair.down || !pair.up) {
    return make_error(BLEND_E_FORMAT, "the adapter of '%s' has only one of its two matrices, '%s'",
                      shown_name(of).c_str(),
                      shown_name((pair.down ? pair.down : pair.up)->name).c_str());
  }
  if (place.layer >= config_.n_layers) {
    return make_error(BLEND_E_MISMATCH,
                      "tensor '%s' is of layer %u, and this model has %u: the adapter belongs to "
                      "another model",
                      shown_name(pair.down->name).c_str(), place.layer, config_.n_layers);
  }
  int64_t in = 0, out = 0;
  for (const TensorRole role : place.roles) {
    if (!has_tensor(role, config_, place.layer)) {
      return make_error(BLEND_E_MISMATCH, "tensor '%s' adapts a matrix that layer %u has not",
                        shown_name(pair.down->name).c_str(), place.layer);
    }
    const std::vector<int64_t> shape = tensor_shape(role, config_, place.layer);
    out += shape[0];
    in = shape[1];
  }
  if (place.is_embedding()) std::swap(in, out);  // a token goes in, and a row comes out
  const TensorView &down = *pair.down, &up = *pair.up;
  const bool is_matrix = down.shape.size() == 2;
  const auto rank = is_matrix ? static_cast<int64_t>(place.rank_of(down)) : 1;
  const std::vector<int64_t> wanted =
      place.transposed ? std::vector<int64_t>{in, rank} : std::vector<int64_t>{rank, in};
  if (down.shape != wanted) return wrong_shape(down, wanted);
  if (up.shape.size() != 2 || up.rows() != out) return wrong_shape(up, {out, rank});
  if (rank < 1 || up.cols() != rank) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' has the rank %lld, and '%s' %lld",
                      shown_name(down.name).c_str(), static_cast<long long>(rank),
                      shown_name(up.name).c_str(), static_cast<long long>(up.cols()));
  }
  return Status::ok();
}

Status LoraBuilder::take(const Pair& pair, const LoraTarget& place, double factor) {
  if (!std::isfinite(factor)) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' is multiplied by %g, which is not finite",
                      shown_name(pair.up->name).c_str(), factor);
  }
  std::vector<float> down, up;
  BLEND_RETURN_IF_ERROR(decode(*pair.down, down));
  BLEND_RETURN_IF_ERROR(decode(*pair.up, up));
  const size_t rank = place.rank_of(*pair.down);
  if (place.is_embedding()) {
    if (!place.transposed) down = transposed(down, rank);
    adapter_.matrices.push_back(
        {TensorRole::embedding, place.layer, rank, std::move(down), std::move(up), factor});
    return Status::ok();
  }
  const float* rows = up.data();
  for (const TensorRole role : place.roles) {
    const auto n = static_cast<size_t>(tensor_shape(role, config_, place.layer)[0]) * rank;
    LoraMatrix matrix{role, place.layer, rank, down, {rows, rows + n}, factor};
    rows += n;
    order_rows(matrix);
    adapter_.matrices.push_back(std::move(matrix));
  }
  return Status::ok();
}

void LoraBuilder::order_rows(LoraMatrix& m) const {
  const bool of_heads = m.role == TensorRole::attn_q || m.role == TensorRole::attn_k;
  const auto* const turned =
      std::find(std::begin(kTurned), std::end(kTurned), gguf_architecture(config_));
  if (!of_heads || file_rows_ == model_rows_ || turned == std::end(kTurned)) return;
  const int64_t head = config_.head_dim, rotary = config_.rope.rotary_dim;
  const auto rank = static_cast<int64_t>(m.rank);
  std::vector<float> moved(m.up.size());
  const auto n_rows = static_cast<int64_t>(m.up.size()) / rank;
  for (int64_t row = 0; row < n_rows; ++row) {
    const int64_t gguf = row / head * head + gguf_row(row % head, rotary);
    const int64_t from = model_rows_ == HeadRows::gguf ? row : gguf;
    const int64_t to = model_rows_ == HeadRows::gguf ? gguf : row;
    std::copy_n(m.up.begin() + from * rank, rank, moved.begin() + to * rank);
  }
  m.up = std::move(moved);
}

Result<LoraAdapter> LoraBuilder::seal() {
  if (adapter_.matrices.empty()) {
    return make_error(BLEND_E_FORMAT, "the adapter has no matrices");
  }
  std::stable_sort(adapter_.matrices.begin(), adapter_.matrices.end(),
                   [](const LoraMatrix& a, const LoraMatrix& b) {
                     return a.layer != b.layer ? a.layer < b.layer : a.role < b.role;
                   });
  Sha256Hasher hasher;
  hasher.field("blend lora 1").field(static_cast<uint64_t>(adapter_.matrices.size()));
  for (const LoraMatrix& m : adapter_.matrices) {
    hasher.field(static_cast<uint64_t>(m.role)).field(uint64_t{m.layer});
    hasher.field(static_cast<uint64_t>(m.rank)).field(std::bit_cast<uint64_t>(m.factor));
    hasher.field(m.down.data(), m.down.size() * sizeof(float));
    hasher.field(m.up.data(), m.up.size() * sizeof(float));
  }
  adapter_.digest = hasher.finish();
  return std::move(adapter_);
}

size_t LoraAdapter::largest_rank() const {
  size_t most = 0;
  for (const LoraMatrix& m : matrices) most = std::max(most, m.rank);
  return most;
}

}  // namespace blend
