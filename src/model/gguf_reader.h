// GgufReader: the key-values and the tensor table of a GGUF v2 or v3 file (little-endian).
//
// The file is never trusted: every read is checked against the end, every count against the bytes
// that are left, so that parsing takes time and memory in proportion to the file, whatever it says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace blend {

// The numbers are the file's.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// ggml's numbers of the types of single elements that libblend computes with. Those of blocks:
// formats/weight_blocks.h.
inline constexpr uint32_t kGgmlF32 = 0;
inline constexpr uint32_t kGgmlF16 = 1;
inline constexpr uint32_t kGgmlBF16 = 30;

// "Q4_K" for 12; "type 99" for a number this table does not know.
std::string ggml_type_name(uint32_t type);

struct GgufTensor {
  std::string name;
  uint32_t type = 0;
  std::vector<uint64_t> dims;  // as in the file, fastest first; 1 to 4, none of them 0
  uint64_t offset = 0;         // of the data, from the start of the file
  uint64_t bytes = 0;          // inside the file; 0 where the type's size is not known
};

// Immutable after parse; safe for concurrent use. Refers to the bytes it was parsed from.
class GgufReader {
 public:
  // FORMAT names the byte offset or the key or tensor; UNSUPPORTED: another version or byte order.
  static Result<GgufReader> parse(std::span<const std::byte> file);

  // True if the file begins as a GGUF file does (of either byte order).
  static bool has_magic(std::span<const std::byte> file);

  bool has(std::string_view key) const { return find(key) != nullptr; }
  bool is_array(std::string_view key) const {
    const Value* const v = find(key);
    return v != nullptr && v->type == GgufType::array;
  }
  // The key's value, or nullopt where it is absent. FORMAT (or UNSUPPORTED for an array where one
  // number is expected) names the key. Integers of any width are accepted where they fit.
  Result<std::optional<uint32_t>> get_u32(std::string_view key) const;
  Result<std::optional<double>> get_float(std::string_view key) const;
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string>> get_string(std::string_view key) const;
  Result<std::optional<std::vector<std::string>>> get_strings(std::string_view key) const;
  Result<std::optional<std::vector<float>>> get_floats(std::string_view key) const;
  // Truth values are 0 and 1.
  Result<std::optional<std::vector<int32_t>>> get_ints(std::string_view key) const;

  std::span<const std::byte> file() const { return file_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* tensor(std::string_view name) const;

 private:
  struct Value {
    GgufType type = GgufType::u8;
    GgufType element = GgufType::u8;  // of an array
    uint64_t count = 1;               // of an array
    uint64_t begin = 0;               // payload in the file: [begin, end)
    uint64_t end = 0;
  };
  class Cursor;
  // Strings as keys of the maps are copies: the file may change under the mapping.
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  template <typename T>
  using Map = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  explicit GgufReader(std::span<const std::byte> file) : file_(file) {}
  Status read_keys(Cursor& in, uint64_t n);
  Status read_value(Cursor& in, Value& value) const;
  Status skip_array(Cursor& in, int depth, Value* top) const;
  Result<uint64_t> read_alignment() const;
  Status read_tensors(Cursor& in, uint64_t n);
  Status read_tensor(Cursor& in, GgufTensor& tensor) const;
  Status place_tensors(uint64_t data_begin, uint64_t alignment);
  const Value* find(std::string_view key) const;
  Result<const Value*> find_array(std::string_view key, const char* what) const;

  std::span<const std::byte> file_;
  Map<Value> values_;
  std::vector<GgufTensor> tensors_;
  Map<size_t> tensor_index_;
};

}  // namespace blend
