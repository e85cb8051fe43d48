// SafetensorsReader: the tensor table of a .safetensors file: eight bytes with the length of the
// JSON header is, the header, and the tensors' bytes.
//
// The file is never trusted: tensors must lie inside it, adjacent, with as many bytes as their
// shape and type take. Parsing takes time and memory in proportion to the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace blend {

struct SafetensorsTensor {
  std::string name;
  std::string dtype;           // "F32", "BF16", ...
  std::vector<int64_t> shape;  // row-major; elements() does not overflow
  uint64_t offset = 0;         // of the data, from the start of the file
  uint64_t bytes = 0;
};

// Immutable after parse; safe for concurrent use. Refers to nothing of the file. Move-only; tensors
// keep their addresses.
class SafetensorsReader {
 public:
  SafetensorsReader(SafetensorsReader&&) = default;
  SafetensorsReader& operator=(SafetensorsReader&&) = default;
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;
  // The largest header the format's own implementation reads.
  static constexpr uint64_t kMaxHeader = 100'000'000;

  // FORMAT names the byte or the tensor.
  static Result<SafetensorsReader> parse(std::span<const std::byte> file);

  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  const SafetensorsTensor* tensor(std::string_view name) const;

 private:
  SafetensorsReader() = default;
  Status check_places(uint64_t data_begin, uint64_t data_bytes) const;

  std::vector<SafetensorsTensor> tensors_;  // in the header's order
  std::unordered_map<std::string_view, size_t> index_;
};

}  // namespace blend
