#include "model/latent_rows.h"

#include <cstring>

#include "model/tensor_table.h"

namespace blend {
namespace {

// to: [cols, rows] of from, [rows, cols].
template <class T>
void turn_over(const T* from, int64_t rows, int64_t cols, T* to) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col) to[col * rows + row] = from[row * cols + col];
  }
}

}  // namespace

TensorView LatentRows::keep(TensorView view, int64_t rows, int64_t cols, AlignedBuffer data) {
  view.shape = {rows, cols};
  memory_.push_back(std::move(data));
  view.data = memory_.back().data();
  return view;
}

Result<TensorView> LatentRows::by_role(const TensorView& whole, TensorRole role,
                                       const ModelConfig& config) {
  const Latent& l = config.latent;
  const int64_t n_heads = config.n_heads, rank = l.rank, nope = l.nope, value = l.value;
  BLEND_RETURN_IF_ERROR(check_shape(whole, {n_heads * (nope + value), rank}));
  if (role == TensorRole::latent_v) {
    const size_t of_head = static_cast<size_t>(value) * whole.row_bytes();
    BLEND_ASSIGN(AlignedBuffer rows,
                 AlignedBuffer::allocate(static_cast<size_t>(n_heads) * of_head));
    for (int64_t h = 0; h < n_heads; ++h) {
      std::memcpy(rows.data() + static_cast<size_t>(h) * of_head,
                  whole.row(h * (nope + value) + nope), of_head);
    }
    return keep(whole, n_heads * value, rank, std::move(rows));
  }
  TensorView out = whole;
  if (whole.blocks != BlockType::none) {
    out.blocks = BlockType::none;
    out.dtype = DType::f16;
  }
  const auto of_head = static_cast<size_t>(nope * rank);
  const auto size = static_cast<size_t>(dtype_size(out.dtype));
  BLEND_ASSIGN(AlignedBuffer turned,
               AlignedBuffer::allocate(static_cast<size_t>(n_heads) * of_head * size));
  std::vector<float> decoded(of_head);
  std::vector<uint16_t> halves(of_head);
  for (int64_t h = 0; h < n_heads; ++h) {
    const std::byte* const from = whole.row(h * (nope + value));
    std::byte* const to = turned.data() + static_cast<size_t>(h) * of_head * size;
    if (out.dtype == DType::f32) {
      std::memcpy(decoded.data(), from, of_head * size);
      turn_over(decoded.data(), nope, rank, reinterpret_cast<float*>(to));
      continue;
    }
    if (whole.blocks == BlockType::none) {
      std::memcpy(halves.data(), from, of_head * size);
    } else {
      decode_weights(whole.dtype, whole.blocks, from, of_head, decoded.data());
      for (size_t i = 0; i < of_head; ++i) halves[i] = f32_to_f16(decoded[i]);
    }
    turn_over(halves.data(), nope, rank, reinterpret_cast<uint16_t*>(to));
  }
  return keep(std::move(out), n_heads * rank, nope, std::move(turned));
}

}  // namespace blend
