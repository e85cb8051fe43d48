#include "support/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace blend::test {
namespace {

template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 255));
  return bytes;
}

constexpr uint32_t type_number(GgufType type) { return static_cast<uint32_t>(type); }

std::string array_head(GgufType element, size_t n) {
  return gguf_bytes(type_number(element)) + gguf_bytes(static_cast<uint64_t>(n));
}

}  // namespace

std::string gguf_bytes(uint32_t value) { return little_endian(value); }
std::string gguf_bytes(uint64_t value) { return little_endian(value); }
std::string gguf_bytes(float value) { return little_endian(std::bit_cast<uint32_t>(value)); }
std::string gguf_bytes(const std::string& value) {
  return little_endian(static_cast<uint64_t>(value.size())) + value;
}

GgufWriter& GgufWriter::value(const std::string& key, uint32_t type, const std::string& payload) {
  for (Key& k : keys_) {
    if (k.name == key) {
      k.type = type;
      k.payload = payload;
      return *this;
    }
  }
  return add_raw_key(key, type, payload);
}

GgufWriter& GgufWriter::add_raw_key(const std::string& key, uint32_t type,
                                    const std::string& payload) {
  keys_.push_back({key, type, payload});
  return *this;
}

GgufWriter& GgufWriter::erase_key(const std::string& key) {
  std::erase_if(keys_, [&](const Key& k) { return k.name == key; });
  return *this;
}

GgufWriter& GgufWriter::u32(const std::string& key, uint32_t v) {
  return value(key, type_number(GgufType::u32), gguf_bytes(v));
}
GgufWriter& GgufWriter::i32(const std::string& key, int32_t v) {
  return value(key, type_number(GgufType::i32), gguf_bytes(static_cast<uint32_t>(v)));
}
GgufWriter& GgufWriter::u64(const std::string& key, uint64_t v) {
  return value(key, type_number(GgufType::u64), gguf_bytes(v));
}
GgufWriter& GgufWriter::f32(const std::string& key, float v) {
  return value(key, type_number(GgufType::f32), gguf_bytes(v));
}
GgufWriter& GgufWriter::boolean(const std::string& key, bool v) {
  return value(key, type_number(GgufType::boolean), std::string(1, v ? '\1' : '\0'));
}
GgufWriter& GgufWriter::string(const std::string& key, const std::string& v) {
  return value(key, type_number(GgufType::string), gguf_bytes(v));
}

GgufWriter& GgufWriter::strings(const std::string& key, const std::vector<std::string>& values) {
  std::string payload = array_head(GgufType::string, values.size());
  for (const std::string& v : values) payload += gguf_bytes(v);
  return value(key, type_number(GgufType::array), payload);
}

GgufWriter& GgufWriter::f32s(const std::string& key, const std::vector<float>& values) {
  std::string payload = array_head(GgufType::f32, values.size());
  for (const float v : values) payload += gguf_bytes(v);
  return value(key, type_number(GgufType::array), payload);
}

GgufWriter& GgufWriter::i32s(const std::string& key, const std::vector<int32_t>& values) {
  std::string payload = array_head(GgufType::i32, values.size());
  for (const int32_t v : values) payload += gguf_bytes(static_cast<uint32_t>(v));
  return value(key, type_number(GgufType::array), payload);
}

GgufWriter& GgufWriter::booleans(const std::string& key, const std::vector<bool>& values) {
  std::string payload = array_head(GgufType::boolean, values.size());
  for (const bool v : values) payload += v ? '\1' : '\0';
  return value(key, type_number(GgufType::array), payload);
}

GgufWriter& GgufWriter::tensor(const std::string& name, uint32_t ggml_type,
                               const std::vector<uint64_t>& dims, uint64_t n_bytes,
                               MakeBytes make) {
  for (TensorEntry& t : tensors_) {
    if (t.name == name) {
      t = {name, ggml_type, dims, n_bytes, std::move(make)};
      return *this;
    }
  }
  return add_raw_tensor(name, ggml_type, dims, n_bytes, std::move(make));
}

GgufWriter& GgufWriter::tensor(const std::string& name, uint32_t ggml_type,
                               const std::vector<uint64_t>& dims, const std::string& bytes) {
  return tensor(name, ggml_type, dims, bytes.size(), [bytes] { return bytes; });
}

GgufWriter& GgufWriter::add_raw_tensor(const std::string& name, uint32_t ggml_type,
                                       const std::vector<uint64_t>& dims, uint64_t n_bytes,
                                       MakeBytes make) {
  tensors_.push_back({name, ggml_type, dims, n_bytes, std::move(make)});
  return *this;
}

GgufWriter& GgufWriter::erase_tensor(const std::string& name) {
  std::erase_if(tensors_, [&](const TensorEntry& t) { return t.name == name; });
  return *this;
}

GgufWriter& GgufWriter::alignment(uint32_t bytes) {
  alignment_ = bytes;
  return u32("general.alignment", bytes);
}

std::string GgufWriter::header() const {
  std::string out = "GGUF" + gguf_bytes(version_);
  out += gguf_bytes(static_cast<uint64_t>(tensors_.size()));
  out += gguf_bytes(static_cast<uint64_t>(keys_.size()));
  for (const Key& k : keys_) out += gguf_bytes(k.name) + gguf_bytes(k.type) + k.payload;
  uint64_t offset = 0;
  for (const TensorEntry& t : tensors_) {
    out += gguf_bytes(t.name) + gguf_bytes(static_cast<uint32_t>(t.dims.size()));
    for (const uint64_t d : t.dims) out += gguf_bytes(d);
    out += gguf_bytes(t.type) + gguf_bytes(offset);
    offset = padded(offset + t.n_bytes);
  }
  return out;
}

void GgufWriter::stream(const std::function<void(const std::string&)>& sink) const {
  const auto pad = [&](uint64_t n) { sink(std::string(padded(n) - n, '\0')); };
  const std::string head = header();
  sink(head);
  pad(head.size());
  for (const TensorEntry& t : tensors_) {
    const std::string data = t.make();
    if (data.size() != t.n_bytes) throw std::logic_error("tensor " + t.name + ": wrong byte count");
    sink(data);
    pad(data.size());
  }
}

std::string GgufWriter::bytes() const {
  std::string out;
  stream([&](const std::string& part) { out += part; });
  return out;
}

std::string GgufWriter::write(const std::string& path) const {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  stream([&](const std::string& part) {
    file.write(part.data(), static_cast<std::streamsize>(part.size()));
  });
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
  return path;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

}  // namespace blend::test
