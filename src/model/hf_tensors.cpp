#include "model/hf_tensors.h"

#include <cstring>

#include "model/tensor_table.h"

namespace blend {
namespace {

constexpr std::string_view kWeight = ".weight";

Status wrong_shape(const HfTensor& t, const std::vector<int64_t>& wanted) {
  return make_error(BLEND_E_FORMAT, "tensor '%s' has the shape %s; the matrix asks for %s",
                    t.name.c_str(), shape_text(t.shape).c_str(), shape_text(wanted).c_str());
}

Status wrong_type(const HfTensor& t, const char* wanted) {
  return make_error(BLEND_E_UNSUPPORTED, "tensor '%s' is %.20s; libblend reads %s there",
                    t.name.c_str(), t.dtype.c_str(), wanted);
}

Status check(const HfTensor& t, const char* dtype, const std::vector<int64_t>& shape) {
  if (t.dtype != dtype) return wrong_type(t, dtype);
  return t.shape == shape ? Status::ok() : wrong_shape(t, shape);
}

int64_t divided(int64_t n, int64_t by) { return (n + by - 1) / by; }

Result<ScaleGrid> grid_of(const TensorView& view, int64_t rows, int64_t cols) {
  const std::vector<int64_t> wanted = {rows, cols};
  if (view.shape != wanted) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' has the shape %s; the matrix asks for %s",
                      view.name.c_str(), shape_text(view.shape).c_str(),
                      shape_text(wanted).c_str());
  }
  return ScaleGrid{view.data, view.dtype, static_cast<size_t>(cols)};
}

// Where the rows of a matrix come from: gate's, 0, 2, .., before up's where they alternate.
std::vector<uint32_t> order_of(size_t rows, bool alternate) {
  std::vector<uint32_t> order(rows);
  for (size_t i = 0; i < rows; ++i) {
    const size_t from = !alternate ? i : i < rows / 2 ? 2 * i : 2 * (i - rows / 2) + 1;
    order[i] = static_cast<uint32_t>(from);
  }
  return order;
}

}  // namespace

Result<HfTensors> HfTensors::open(const std::string& directory, const HfQuantization& how) {
  HfTensors tensors;
  tensors.how_ = how;
  BLEND_ASSIGN(tensors.weights_, HfWeights::open(directory));
  return tensors;
}

Result<HfTensor> HfTensors::take(const std::string& name) {
  taken_.insert(name);
  return weights_.raw(name);
}

Result<TensorView> HfTensors::take_view(const std::string& name) {
  taken_.insert(name);
  return weights_.view(name);
}

Result<TensorView> HfTensors::keep(const std::string& name, std::vector<int64_t> shape,
                                   OwnedMatrix decoded) {
  TensorView view;
  view.name = name;
  view.dtype = decoded.dtype;
  view.blocks = decoded.blocks;
  view.shape = std::move(shape);
  memory_.push_back(std::move(decoded.data));
  view.data = memory_.back().data();
  made_.emplace(name, view);
  return view;
}

Result<TensorView> HfTensors::view(const std::string& name) {
  if (const auto made = made_.find(name); made != made_.end()) return made->second;
  using Method = HfQuantization::Method;
  if (how_.method == Method::fp8 && weights_.has(name + "_scale_inv")) return fp8(name);
  if (how_.method == Method::packed && name.ends_with(kWeight) && !weights_.has(name)) {
    const std::string stem = name.substr(0, name.size() - kWeight.size());
    if (weights_.has(stem + ".weight_packed")) return packed(stem);
  }
  return take_view(name);
}

Result<TensorView> HfTensors::fp8(const std::string& name) {
  BLEND_ASSIGN(const HfTensor codes, take(name));
  if (codes.shape.size() != 2)
    return make_error(BLEND_E_FORMAT, "tensor '%s' is no matrix", name.c_str());
  BLEND_RETURN_IF_ERROR(check(codes, "F8_E4M3", codes.shape));
  const int64_t rows = codes.shape[0], cols = codes.shape[1];
  BLEND_ASSIGN(const TensorView scales, take_view(name + "_scale_inv"));
  BLEND_ASSIGN(const ScaleGrid grid,
               grid_of(scales, divided(rows, how_.block_rows), divided(cols, how_.block_cols)));
  BLEND_ASSIGN(OwnedMatrix decoded,
               decode_fp8(codes.data, static_cast<size_t>(rows), static_cast<size_t>(cols), grid,
                          how_.block_rows, how_.block_cols, how_.dtype));
  return keep(name, codes.shape, std::move(decoded));
}

Result<TensorView> HfTensors::packed(const std::string& stem) {
  const std::string name = stem + ".weight";
  BLEND_ASSIGN(const HfTensor shape, take(stem + ".weight_shape"));
  BLEND_RETURN_IF_ERROR(check(shape, "I64", {2}));
  int64_t sizes[2];
  std::memcpy(sizes, shape.data, sizeof sizes);
  const int64_t rows = sizes[0], cols = sizes[1];
  if (rows < 1 || cols < 1 || rows > INT32_MAX || cols > INT32_MAX) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' says that a matrix is [%lld, %lld]",
                      shape.name.c_str(), static_cast<long long>(rows),
                      static_cast<long long>(cols));
  }
  BLEND_ASSIGN(const HfTensor codes, take(stem + ".weight_packed"));
  BLEND_RETURN_IF_ERROR(check(codes, "I32", {rows, divided(cols, 32 / how_.bits)}));
  const int64_t group = how_.group == 0 ? cols : how_.group;
  BLEND_ASSIGN(const TensorView scales, take_view(stem + ".weight_scale"));
  BLEND_ASSIGN(const ScaleGrid grid, grid_of(scales, rows, divided(cols, group)));
  BLEND_ASSIGN(OwnedMatrix decoded,
               decode_packed(codes.data, static_cast<size_t>(rows), static_cast<size_t>(cols),
                             how_.bits, grid, static_cast<size_t>(group)));
  return keep(name, {rows, cols}, std::move(decoded));
}

Result<TensorView> HfTensors::experts(const std::string& stem, bool alternate) {
  if (const auto made = made_.find(stem); made != made_.end()) return made->second;
  if (how_.method == HfQuantization::Method::mxfp4) return mxfp4_experts(stem, alternate);
  return plain_experts(stem, alternate);
}

Result<TensorView> HfTensors::mxfp4_experts(const std::string& stem, bool alternate) {
  BLEND_ASSIGN(const HfTensor blocks, take(stem + "_blocks"));
  BLEND_ASSIGN(const HfTensor scales, take(stem + "_scales"));
  if (scales.shape.size() != 3 || (alternate && scales.shape[1] % 2 != 0)) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' is not of matrices of experts",
                      scales.name.c_str());
  }
  const int64_t count = scales.shape[0], rows = scales.shape[1], per_row = scales.shape[2];
  BLEND_RETURN_IF_ERROR(check(scales, "U8", scales.shape));
  BLEND_RETURN_IF_ERROR(check(blocks, "U8", {count, rows, per_row, 16}));
  const size_t n_rows = static_cast<size_t>(rows), n_blocks = static_cast<size_t>(per_row);
  OwnedMatrix out;
  out.blocks = BlockType::mxfp4;
  const size_t of_expert = n_rows * n_blocks;
  const size_t bytes = of_expert * block_bytes(out.blocks);
  BLEND_ASSIGN(out.data, AlignedBuffer::allocate(static_cast<size_t>(count) * bytes));
  const std::vector<uint32_t> order = order_of(n_rows, alternate);
  for (size_t e = 0; e < static_cast<size_t>(count); ++e) {
    repack_mxfp4(blocks.data + e * of_expert * 16, scales.data + e * of_expert, n_blocks,
                 order.data(), n_rows, out.data.data() + e * bytes);
  }
  return keep(stem, {count, rows, per_row * 32}, std::move(out));
}

Result<TensorView> HfTensors::plain_experts(const std::string& stem, bool alternate) {
  BLEND_ASSIGN(const TensorView from, take_view(stem));
  if (from.shape.size() != 3 || (alternate && from.shape[2] % 2 != 0)) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' is not of matrices of experts", stem.c_str());
  }
  const auto count = static_cast<size_t>(from.shape[0]), cols = static_cast<size_t>(from.shape[1]),
             rows = static_cast<size_t>(from.shape[2]);
  const auto size = static_cast<size_t>(dtype_size(from.dtype));
  OwnedMatrix out;
  out.dtype = from.dtype;
  BLEND_ASSIGN(out.data, AlignedBuffer::allocate(count * rows * cols * size));
  const std::vector<uint32_t> order = order_of(rows, alternate);
  std::byte* to = out.data.data();
  for (size_t e = 0; e < count; ++e) {
    const std::byte* const expert = from.data + e * rows * cols * size;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t col = 0; col < cols; ++col, to += size) {
        std::memcpy(to, expert + (col * rows + order[row]) * size, size);
      }
    }
  }
  return keep(stem, {from.shape[0], from.shape[2], from.shape[1]}, std::move(out));
}

Result<TensorView> HfTensors::every_other(const std::string& name, size_t first) {
  const std::string half = name + (first == 0 ? ", even elements" : ", odd elements");
  if (const auto made = made_.find(half); made != made_.end()) return made->second;
  BLEND_ASSIGN(const TensorView from, take_view(name));
  if (from.shape.size() != 2 || from.shape[1] % 2 != 0) {
    return make_error(BLEND_E_FORMAT, "tensor '%s' has the shape %s; rows of pairs belong there",
                      name.c_str(), shape_text(from.shape).c_str());
  }
  const auto n = static_cast<size_t>(from.elements() / 2);
  const auto size = static_cast<size_t>(dtype_size(from.dtype));
  OwnedMatrix out;
  out.dtype = from.dtype;
  BLEND_ASSIGN(out.data, AlignedBuffer::allocate(n * size));
  for (size_t i = 0; i < n; ++i) {
    std::memcpy(out.data.data() + i * size, from.data + (2 * i + first) * size, size);
  }
  return keep(half, {from.shape[0], from.shape[1] / 2}, std::move(out));
}

std::vector<std::string> HfTensors::unused() const {
  std::vector<std::string> names;
  for (std::string& name : weights_.names()) {
    if (!taken_.contains(name)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace blend
