#include "model/key_head_rows.h"

#include <cstring>

#include "model/tensor_table.h"

namespace blend {

Result<TensorView> KeyHeadRows::by_role(const TensorView& whole, FusedTensor which,
                                        const RowMixer& mixer) {
  if (const auto made = made_.find(whole.name); made != made_.end()) return made->second;
  const int64_t values = mixer.v_heads / mixer.k_heads, k = mixer.k_dim, v = values * mixer.v_dim;
  // Rows of a key head, part by part.
  const std::vector<int64_t> parts =
      which == FusedTensor::delta_ba ? std::vector{values, values} : std::vector{k, k, v, v};
  int64_t of_head = 0;
  for (const int64_t n : parts) of_head += n;
  const int64_t heads = mixer.k_heads;
  if (whole.shape.size() != 2 || whole.shape[0] != heads * of_head || whole.shape[1] < 1) {
    return make_error(BLEND_E_FORMAT,
                      "tensor '%s' has the shape %s; %lld key heads of %lld rows each belong there",
                      whole.name.c_str(), shape_text(whole.shape).c_str(),
                      static_cast<long long>(heads), static_cast<long long>(of_head));
  }
  BLEND_ASSIGN(AlignedBuffer rows, AlignedBuffer::allocate(whole.bytes()));
  const size_t row_bytes = whole.row_bytes();
  std::byte* to = rows.data();
  int64_t begin = 0;
  for (const int64_t n : parts) {
    const size_t bytes = static_cast<size_t>(n) * row_bytes;
    for (int64_t head = 0; head < heads; ++head, to += bytes) {
      std::memcpy(to, whole.row(head * of_head + begin), bytes);
    }
    begin += n;
  }
  TensorView out = whole;
  memory_.push_back(std::move(rows));
  out.data = memory_.back().data();
  made_.emplace(whole.name, out);
  return out;
}

}  // namespace blend
