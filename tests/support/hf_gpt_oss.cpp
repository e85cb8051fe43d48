#include "support/hf_gpt_oss.h"

#include "support/gguf_writer.h"
#include "support/tensor_values.h"

namespace blend::test {
namespace {

// Row i of `roles`, of which there may be two that alternate.
struct ExpertRows {
  std::vector<const TensorView*> parts;

  int64_t count() const { return static_cast<int64_t>(parts.size()) * parts[0]->shape[0]; }
  const std::byte* row(int64_t i) const {
    const auto n = static_cast<int64_t>(parts.size());
    return parts[static_cast<size_t>(i % n)]->row(i / n);
  }
};

// [count, cols, rows] of f32.
HfRawTensor transposed(const std::string& name, const std::vector<ExpertRows>& experts) {
  const TensorView& one = *experts[0].parts[0];
  const int64_t rows = experts[0].count(), cols = one.cols();
  HfRawTensor out{name, "F32", {static_cast<int64_t>(experts.size()), cols, rows}, {}};
  for (const ExpertRows& expert : experts) {
    std::vector<float> values(static_cast<size_t>(rows * cols));
    for (int64_t i = 0; i < rows; ++i) {
      decode_weights(one.dtype, one.blocks, expert.row(i), static_cast<size_t>(cols),
                     &values[static_cast<size_t>(i * cols)]);
    }
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t i = 0; i < rows; ++i) {
        out.bytes += gguf_bytes(values[static_cast<size_t>(i * cols + c)]);
      }
    }
  }
  return out;
}

// Blocks of MXFP4 whose bytes hold two neighbours, and their scales.
void add_blocks(const std::string& name, const std::vector<ExpertRows>& experts,
                std::vector<HfRawTensor>& out) {
  const int64_t rows = experts[0].count(), per_row = experts[0].parts[0]->cols() / 32;
  const auto n = static_cast<int64_t>(experts.size());
  HfRawTensor blocks{name + "_blocks", "U8", {n, rows, per_row, 16}, {}};
  HfRawTensor scales{name + "_scales", "U8", {n, rows, per_row}, {}};
  for (const ExpertRows& expert : experts) {
    for (int64_t i = 0; i < rows; ++i) {
      const std::byte* block = expert.row(i);
      for (int64_t b = 0; b < per_row; ++b, block += 17) {
        scales.bytes += static_cast<char>(block[0]);
        const auto code = [&](int e) {
          const auto byte = std::to_integer<unsigned>(block[1 + e % 16]);
          return e < 16 ? byte & 15 : byte >> 4;
        };
        for (int e = 0; e < 32; e += 2) {
          blocks.bytes += static_cast<char>(code(e) | code(e + 1) << 4);
        }
      }
    }
  }
  out.push_back(std::move(blocks));
  out.push_back(std::move(scales));
}

void add_plain(const std::string& name, const TensorView& t, std::vector<HfRawTensor>& out) {
  HfRawTensor raw{name, "F32", t.shape, {}};
  for (const float v : values_of(t)) raw.bytes += gguf_bytes(v);
  out.push_back(std::move(raw));
}

}  // namespace

std::vector<HfRawTensor> gpt_oss_feed_forward(const ModelSource& source, uint32_t layer) {
  const Experts& e = source.config().experts;
  std::vector<HfRawTensor> out;
  add_plain("mlp.router.weight", source.tensor(TensorRole::router, layer), out);
  add_plain("mlp.router.bias", source.tensor(TensorRole::router_bias, layer), out);
  std::vector<ExpertRows> gate_up, down;
  for (uint32_t i = 0; i < e.count; ++i) {
    gate_up.push_back({{&source.expert_tensor(TensorRole::expert_gate, layer, i),
                        &source.expert_tensor(TensorRole::expert_up, layer, i)}});
    down.push_back({{&source.expert_tensor(TensorRole::expert_down, layer, i)}});
  }
  for (const auto& [name, experts] : {std::pair("mlp.experts.gate_up_proj", &gate_up),
                                      std::pair("mlp.experts.down_proj", &down)}) {
    if ((*experts)[0].parts[0]->blocks == BlockType::mxfp4) {
      add_blocks(name, *experts, out);
    } else {
      out.push_back(transposed(name, *experts));
    }
  }
  add_plain("mlp.experts.down_proj_bias", source.tensor(TensorRole::expert_down_bias, layer), out);
  HfRawTensor both{"mlp.experts.gate_up_proj_bias", "F32", {e.count, int64_t{2} * e.d_ff}, {}};
  const std::vector<float> gate = values_of(source.tensor(TensorRole::expert_gate_bias, layer)),
                           up = values_of(source.tensor(TensorRole::expert_up_bias, layer));
  for (size_t i = 0; i < gate.size(); ++i) both.bytes += gguf_bytes(gate[i]) + gguf_bytes(up[i]);
  out.push_back(std::move(both));
  return out;
}

}  // namespace blend::test
