#include "backend/cpu/matrix.h"

#include "backend/cpu/weights.h"
#include "cpu/few_rows.h"

namespace blend::cpu {

Result<StackedParts> StackedParts::of(std::span<const TensorView* const> parts) {
  StackedParts out;
  for (const TensorView* part : parts) {
    if (part->shape.size() != 2 || part->cols() != parts[0]->cols()) {
      return make_error(BLEND_E_INTERNAL, "tensor '%s' cannot be stacked on '%s'",
                        part->name.c_str(), parts[0]->name.c_str());
    }
    out.rows_ += part->rows();
    out.parts_.push_back(*part);
  }
  if (out.rows_ == 0) return make_error(BLEND_E_INTERNAL, "a weight matrix without elements");
  return out;
}

std::pair<const TensorView*, int64_t> StackedParts::part_of(int64_t i) const {
  size_t part = 0;
  for (; i >= parts_[part].rows(); ++part) i -= parts_[part].rows();
  return {&parts_[part], i};
}

Status StackedParts::decode_row(int64_t i, float* row) const {
  const auto [part, part_row] = part_of(i);
  cpu::decode_row(*part, part_row, row);
  const auto k = static_cast<size_t>(cols());
  const size_t bad = kernels::find_not_finite(row, k);
  if (bad == k) return Status::ok();
  return not_finite(*part, static_cast<size_t>(part_row) * k + bad, row[bad]);
}

void MappedMatrix::decode(int64_t first, int64_t n, float* into) const {
  for (int64_t i = 0; i < n; ++i) {
    const auto [part, row] = parts_.part_of(first + i);
    decode_row(*part, row, into + i * in_);
  }
}

int64_t MappedMatrix::kept_rows(int64_t first, kernels::FewRows& product) const {
  const auto [part, row] = parts_.part_of(first);
  product.w = part->row(row);
  product.dtype = part->dtype;
  product.blocks = part->blocks;
  return part->rows() - row;
}

}  // namespace blend::cpu
