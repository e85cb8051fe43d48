#include "model/safetensors.h"

#include <algorithm>
#include <limits>

#include "base/json_reader.h"

namespace blend {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr int64_t kMaxOffset = int64_t{1} << 53;  // what JSON's numbers hold
constexpr int64_t kMaxDimension = int64_t{1} << 40;

// Bits of an element; 0 for a type this table does not know.
uint64_t element_bits(std::string_view dtype) {
  struct Type {
    std::string_view name;
    uint64_t bits;
  };
  constexpr Type kTypes[] = {
      {"F64", 64}, {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64}, {"I32", 32},
      {"I16", 16}, {"I8", 8},      {"U64", 64},    {"U32", 32},    {"U16", 16}, {"U8", 8},
      {"BOOL", 8}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4}};
  const auto* const type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                        [&](const Type& t) { return t.name == dtype; });
  return type == std::end(kTypes) ? 0 : type->bits;
}

Result<std::vector<int64_t>> read_shape(const JsonView& entry) {
  BLEND_ASSIGN(const JsonView list, entry.need("shape"));
  BLEND_ASSIGN(const Json::Array* const dims, list.array());
  std::vector<int64_t> shape;
  uint64_t elements = 1;
  for (size_t i = 0; i < dims->size(); ++i) {
    BLEND_ASSIGN(const int64_t dim, list.element(i).integer(0, kMaxDimension));
    shape.push_back(dim);
    // A 0 must not hide an overflow of the other factors.
    const auto factor = static_cast<uint64_t>(std::max<int64_t>(dim, 1));
    if (elements > static_cast<uint64_t>(kMaxDimension) / factor) {
      return list.error(BLEND_E_FORMAT, "more elements than a file can hold");
    }
    elements *= factor;
  }
  return shape;
}

Result<SafetensorsTensor> read_tensor(const std::string& name, const Json& value,
                                      uint64_t data_begin, uint64_t data_bytes) {
  const JsonView entry(value, "tensor '" + name.substr(0, 120) + "'");
  SafetensorsTensor t;
  t.name = name;
  BLEND_ASSIGN(const JsonView dtype, entry.need("dtype"));
  BLEND_ASSIGN(t.dtype, dtype.string());
  BLEND_ASSIGN(t.shape, read_shape(entry));
  BLEND_ASSIGN(const JsonView offsets, entry.need("data_offsets"));
  BLEND_ASSIGN(const Json::Array* const pair, offsets.array());
  if (pair->size() != 2) return offsets.error(BLEND_E_FORMAT, "two offsets are expected");
  BLEND_ASSIGN(const int64_t begin, offsets.element(0).integer(0, kMaxOffset));
  BLEND_ASSIGN(const int64_t end, offsets.element(1).integer(begin, kMaxOffset));
  if (static_cast<uint64_t>(end) > data_bytes) {
    return make_error(BLEND_E_FORMAT,
                      "%s ends at byte %llu of the data, of which the file has %llu: it is "
                      "truncated or damaged",
                      entry.path().c_str(), static_cast<unsigned long long>(end),
                      static_cast<unsigned long long>(data_bytes));
  }
  t.offset = data_begin + static_cast<uint64_t>(begin);
  t.bytes = static_cast<uint64_t>(end - begin);
  const uint64_t bits = element_bits(t.dtype);
  if (bits == 0) {
    return make_error(BLEND_E_UNSUPPORTED, "%s has the type '%.20s', which is not known",
                      entry.path().c_str(), t.dtype.c_str());
  }
  uint64_t elements = 1;
  for (const int64_t dim : t.shape) elements *= static_cast<uint64_t>(dim);
  const uint64_t need = elements * bits;
  if (need != t.bytes * 8) {
    return make_error(BLEND_E_FORMAT, "%s has %llu bytes; %llu elements of %s take %llu bits",
                      entry.path().c_str(), static_cast<unsigned long long>(t.bytes),
                      static_cast<unsigned long long>(elements), t.dtype.c_str(),
                      static_cast<unsigned long long>(need));
  }
  return t;
}

}  // namespace

Result<SafetensorsReader> SafetensorsReader::parse(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) {
    return make_error(BLEND_E_FORMAT, "%zu bytes are too few for a safetensors file", file.size());
  }
  uint64_t header = 0;
  for (size_t i = kLengthBytes; i-- > 0;) header = header << 8 | static_cast<uint64_t>(file[i]);
  const uint64_t rest = file.size() - kLengthBytes;
  if (header > rest || header > kMaxHeader) {
    return make_error(BLEND_E_FORMAT,
                      "the first eight bytes say that the header has %llu bytes; %llu follow, and "
                      "%llu is the most",
                      static_cast<unsigned long long>(header),
                      static_cast<unsigned long long>(rest),
                      static_cast<unsigned long long>(kMaxHeader));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              static_cast<size_t>(header));
  Result<Json> json = Json::parse(text);
  if (!json.is_ok()) return json.status().with_context("the header");
  BLEND_ASSIGN(const Json::Object* const entries, JsonView(*json, "the header").object());

  SafetensorsReader reader;
  reader.tensors_.reserve(entries->size());
  const uint64_t data_begin = kLengthBytes + header;
  const uint64_t data_bytes = file.size() - data_begin;
  for (const auto& [name, value] : *entries) {
    if (name == "__metadata__") continue;
    BLEND_ASSIGN(SafetensorsTensor t, read_tensor(name, value, data_begin, data_bytes));
    reader.tensors_.push_back(std::move(t));
  }
  BLEND_RETURN_IF_ERROR(reader.check_places(data_begin, data_bytes));
  for (size_t i = 0; i < reader.tensors_.size(); ++i) {
    reader.index_.emplace(reader.tensors_[i].name, i);
  }
  return reader;
}

// The format allows neither overlaps nor bytes that belong to no tensor.
Status SafetensorsReader::check_places(uint64_t data_begin, uint64_t data_bytes) const {
  std::vector<const SafetensorsTensor*> order;
  order.reserve(tensors_.size());
  for (const SafetensorsTensor& t : tensors_) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const SafetensorsTensor* a, const SafetensorsTensor* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->bytes < b->bytes;
  });
  uint64_t at = data_begin;
  for (const SafetensorsTensor* t : order) {
    if (t->offset != at) {
      return make_error(BLEND_E_FORMAT,
                        "tensor '%.120s' begins at byte %llu; the one before it ends "
                        "at byte %llu",
                        t->name.c_str(), static_cast<unsigned long long>(t->offset),
                        static_cast<unsigned long long>(at));
    }
    at += t->bytes;
  }
  if (at == data_begin + data_bytes) return Status::ok();
  return make_error(BLEND_E_FORMAT, "the file has %llu bytes after its last tensor",
                    static_cast<unsigned long long>(data_begin + data_bytes - at));
}

const SafetensorsTensor* SafetensorsReader::tensor(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace blend
