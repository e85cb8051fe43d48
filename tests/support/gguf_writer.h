// GgufWriter: GGUF files made in tests, sound ones and, by patching what bytes() returns, broken
// ones. Written after the published format, independently of src/model's reader.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace blend::test {

// ggml's tensor types, as the file numbers them.
inline constexpr uint32_t kGgmlF32 = 0;
inline constexpr uint32_t kGgmlF16 = 1;
inline constexpr uint32_t kGgmlQ8_0 = 8;
inline constexpr uint32_t kGgmlQ4_K = 12;
inline constexpr uint32_t kGgmlBF16 = 30;

// GGUF's value types.
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

// Not thread-safe. Keys and tensors are written in the order they were added; adding a key or a
// tensor again replaces it (add_raw_key and add_raw_tensor never do: for duplicates).
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3) : version_(version) {}

  GgufWriter& u32(const std::string& key, uint32_t value);
  GgufWriter& i32(const std::string& key, int32_t value);
  GgufWriter& u64(const std::string& key, uint64_t value);
  GgufWriter& f32(const std::string& key, float value);
  GgufWriter& boolean(const std::string& key, bool value);
  GgufWriter& string(const std::string& key, const std::string& value);
  GgufWriter& strings(const std::string& key, const std::vector<std::string>& values);
  GgufWriter& f32s(const std::string& key, const std::vector<float>& values);
  GgufWriter& i32s(const std::string& key, const std::vector<int32_t>& values);
  GgufWriter& booleans(const std::string& key, const std::vector<bool>& values);
  // Any value: its type and the bytes that follow the type in the file.
  GgufWriter& value(const std::string& key, uint32_t type, const std::string& payload);
  GgufWriter& erase_key(const std::string& key);

  // `dims` as in the file: fastest first, so a row-major [rows, cols] matrix is {cols, rows}.
  // `make` gives the tensor's bytes; it is called when the file is written, so that a large model
  // need not fit in memory.
  using MakeBytes = std::function<std::string()>;
  GgufWriter& tensor(const std::string& name, uint32_t ggml_type, const std::vector<uint64_t>& dims,
                     uint64_t n_bytes, MakeBytes make);
  GgufWriter& tensor(const std::string& name, uint32_t ggml_type, const std::vector<uint64_t>& dims,
                     const std::string& bytes);
  GgufWriter& erase_tensor(const std::string& name);

  // The same without replacing.
  GgufWriter& add_raw_key(const std::string& key, uint32_t type, const std::string& payload);
  GgufWriter& add_raw_tensor(const std::string& name, uint32_t ggml_type,
                             const std::vector<uint64_t>& dims, uint64_t n_bytes, MakeBytes make);

  // Also writes `general.alignment`. Default 32, without the key.
  GgufWriter& alignment(uint32_t bytes);

  // Everything up to the tensor data, without its padding.
  std::string header() const;
  std::string bytes() const;
  // Streams to a file; throws std::runtime_error when that fails. Returns `path`.
  std::string write(const std::string& path) const;

 private:
  struct Key {
    std::string name;
    uint32_t type;
    std::string payload;
  };
  struct TensorEntry {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> dims;
    uint64_t n_bytes;
    MakeBytes make;
  };

  uint64_t padded(uint64_t n) const { return (n + alignment_ - 1) / alignment_ * alignment_; }
  void stream(const std::function<void(const std::string&)>& sink) const;

  uint32_t version_;
  uint32_t alignment_ = 32;
  std::vector<Key> keys_;
  std::vector<TensorEntry> tensors_;
};

// Little-endian bytes of a number and of a GGUF string (u64 length, bytes).
std::string gguf_bytes(uint32_t value);
std::string gguf_bytes(uint64_t value);
std::string gguf_bytes(float value);
std::string gguf_bytes(const std::string& value);

void write_file(const std::string& path, const std::string& bytes);

}  // namespace blend::test
