#include "model/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace blend {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they stand");

constexpr uint64_t kMaxKeyBytes = 65535;  // the format's own limit
constexpr uint32_t kMaxDims = 4;          // ggml's limit
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;
// Least bytes of an entry: a count that promises more entries than fit is false.
constexpr uint64_t kMinKeyBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;

// Bytes of a scalar; 0 for string and array.
constexpr uint64_t scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      return 0;
  }
  return 0;
}

struct GgmlType {
  uint32_t number;
  const char* name;
  uint32_t block;  // elements
  uint32_t bytes;  // of a block
};
// Sizes of types that libblend cannot compute with are here so that such tensors are checked too.
constexpr GgmlType kGgmlTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};

const GgmlType* find_ggml_type(uint32_t number) {
  for (const GgmlType& t : kGgmlTypes) {
    if (t.number == number) return &t;
  }
  return nullptr;
}

// For messages: file contents may be anything.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out.push_back(c >= ' ' && c < 127 ? c : '?');
  if (text.size() > 80) out += "...";
  return out;
}

template <typename T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// A list instead of one number has a value per layer, which some families have.
Status wrong_type(std::string_view key, GgufType type, const char* expected) {
  if (type == GgufType::array) {
    return make_error(BLEND_E_UNSUPPORTED, "key '%s' is an array; libblend needs %s for all layers",
                      printable(key).c_str(), expected);
  }
  return make_error(BLEND_E_FORMAT, "key '%s' should be %s", printable(key).c_str(), expected);
}

// An integer of any width as a signed 64-bit one; nullopt: not an integer, or above 2^63.
std::optional<int64_t> as_integer(GgufType type, const std::byte* p) {
  switch (type) {
    case GgufType::u8:
      return load<uint8_t>(p);
    case GgufType::i8:
      return load<int8_t>(p);
    case GgufType::u16:
      return load<uint16_t>(p);
    case GgufType::i16:
      return load<int16_t>(p);
    case GgufType::u32:
      return load<uint32_t>(p);
    case GgufType::i32:
      return load<int32_t>(p);
    case GgufType::i64:
      return load<int64_t>(p);
    case GgufType::u64: {
      const auto v = load<uint64_t>(p);
      if (v <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return static_cast<int64_t>(v);
      }
      return std::nullopt;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

std::string ggml_type_name(uint32_t type) {
  const GgmlType* t = find_ggml_type(type);
  return t != nullptr ? t->name : "type " + std::to_string(type);
}

// A checked position in the file.
class GgufReader::Cursor {
 public:
  Cursor(std::span<const std::byte> file, uint64_t position) : file_(file), position_(position) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_.size() - position_; }

  Status skip(uint64_t n, const char* what) {
    if (n > left()) {
      return make_error(BLEND_E_FORMAT,
                        "%s at byte %llu needs %llu bytes and the file ends after %llu: it is "
                        "truncated or damaged",
                        what, static_cast<unsigned long long>(position_),
                        static_cast<unsigned long long>(n),
                        static_cast<unsigned long long>(left()));
    }
    position_ += n;
    return Status::ok();
  }
  template <typename T>
  Result<T> number(const char* what) {
    const uint64_t at = position_;
    BLEND_RETURN_IF_ERROR(skip(sizeof(T), what));
    return load<T>(file_.data() + at);
  }
  Result<std::string> string(const char* what, uint64_t max_bytes) {
    BLEND_ASSIGN(const uint64_t n, number<uint64_t>(what));
    if (n > max_bytes) {
      return make_error(
          BLEND_E_FORMAT, "%s at byte %llu claims %llu bytes; at most %llu make sense", what,
          static_cast<unsigned long long>(position_ - 8), static_cast<unsigned long long>(n),
          static_cast<unsigned long long>(max_bytes));
    }
    const uint64_t at = position_;
    BLEND_RETURN_IF_ERROR(skip(n, what));
    return std::string(reinterpret_cast<const char*>(file_.data() + at), static_cast<size_t>(n));
  }

 private:
  std::span<const std::byte> file_;
  uint64_t position_;
};

bool GgufReader::has_magic(std::span<const std::byte> file) {
  return file.size() >= 4 &&
         (std::memcmp(file.data(), "GGUF", 4) == 0 || std::memcmp(file.data(), "FUGG", 4) == 0);
}

Result<GgufReader> GgufReader::parse(std::span<const std::byte> file) {
  if (!has_magic(file)) {
    return make_error(BLEND_E_FORMAT, "it does not begin with 'GGUF', so it is not a GGUF file");
  }
  Cursor in(file, 4);
  BLEND_ASSIGN(const uint32_t version, in.number<uint32_t>("the version"));
  // A big-endian file has its small version number in the high bytes.
  if (static_cast<char>(file[0]) == 'F' || (version != 0 && (version & 0xffffu) == 0)) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "it is a big-endian GGUF file; convert the model to a little-endian one");
  }
  if (version != 2 && version != 3) {
    return make_error(
        BLEND_E_UNSUPPORTED,
        "it is GGUF version %u; libblend reads versions 2 and 3, so convert the model "
        "again",
        version);
  }
  BLEND_ASSIGN(const uint64_t n_tensors, in.number<uint64_t>("the tensor count"));
  BLEND_ASSIGN(const uint64_t n_keys, in.number<uint64_t>("the key count"));
  if (n_keys > in.left() / kMinKeyBytes || n_tensors > in.left() / kMinTensorBytes) {
    return make_error(
        BLEND_E_FORMAT,
        "the header at byte 8 promises %llu tensors and %llu keys, more than fit into "
        "the %llu bytes that follow: it is truncated or damaged",
        static_cast<unsigned long long>(n_tensors), static_cast<unsigned long long>(n_keys),
        static_cast<unsigned long long>(in.left()));
  }
  GgufReader reader(file);
  BLEND_RETURN_IF_ERROR(reader.read_keys(in, n_keys));
  BLEND_ASSIGN(const uint64_t alignment, reader.read_alignment());
  BLEND_RETURN_IF_ERROR(reader.read_tensors(in, n_tensors));
  BLEND_RETURN_IF_ERROR(reader.place_tensors(in.position(), alignment));
  return reader;
}

Status GgufReader::read_keys(Cursor& in, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t at = in.position();
    BLEND_ASSIGN(std::string key, in.string("a key", kMaxKeyBytes));
    if (key.empty()) {
      return make_error(BLEND_E_FORMAT, "the key at byte %llu has no name",
                        static_cast<unsigned long long>(at));
    }
    Value value;
    BLEND_RETURN_IF_ERROR(read_value(in, value).with_context("key '" + printable(key) + "'"));
    if (!values_.emplace(key, value).second) {
      return make_error(BLEND_E_FORMAT, "key '%s' at byte %llu occurs twice",
                        printable(key).c_str(), static_cast<unsigned long long>(at));
    }
  }
  return Status::ok();
}

Status GgufReader::read_value(Cursor& in, Value& value) const {
  const uint64_t at = in.position();
  BLEND_ASSIGN(const uint32_t type, in.number<uint32_t>("a value's type"));
  if (type > static_cast<uint32_t>(GgufType::f64)) {
    return make_error(BLEND_E_FORMAT, "unknown value type %u at byte %llu", type,
                      static_cast<unsigned long long>(at));
  }
  value.type = static_cast<GgufType>(type);
  value.begin = in.position();
  if (value.type == GgufType::array) {
    BLEND_RETURN_IF_ERROR(skip_array(in, 1, &value));
  } else if (value.type == GgufType::string) {
    BLEND_ASSIGN(const uint64_t n, in.number<uint64_t>("a string's length"));
    value.begin = in.position();
    BLEND_RETURN_IF_ERROR(in.skip(n, "a string"));
  } else {
    BLEND_RETURN_IF_ERROR(in.skip(scalar_bytes(value.type), "a value"));
    if (value.type == GgufType::boolean && load<uint8_t>(file_.data() + value.begin) > 1) {
      return make_error(BLEND_E_FORMAT, "the truth value at byte %llu is neither 0 nor 1",
                        static_cast<unsigned long long>(value.begin));
    }
  }
  value.end = in.position();
  return Status::ok();
}

// `top` receives the element type, count and payload of the outermost array.
Status GgufReader::skip_array(Cursor& in, int depth, Value* top) const {
  if (depth > kMaxArrayDepth) {
    return make_error(BLEND_E_FORMAT, "arrays nested deeper than %d at byte %llu", kMaxArrayDepth,
                      static_cast<unsigned long long>(in.position()));
  }
  const uint64_t at = in.position();
  BLEND_ASSIGN(const uint32_t type, in.number<uint32_t>("an array's type"));
  BLEND_ASSIGN(const uint64_t count, in.number<uint64_t>("an array's length"));
  if (type > static_cast<uint32_t>(GgufType::f64)) {
    return make_error(BLEND_E_FORMAT, "unknown element type %u at byte %llu", type,
                      static_cast<unsigned long long>(at));
  }
  const auto element = static_cast<GgufType>(type);
  const uint64_t least = element == GgufType::array    ? 12
                         : element == GgufType::string ? 8
                                                       : scalar_bytes(element);
  if (count > in.left() / least) {
    return make_error(BLEND_E_FORMAT,
                      "the array at byte %llu claims %llu elements, more than fit into the %llu "
                      "bytes that follow: it is truncated or damaged",
                      static_cast<unsigned long long>(at), static_cast<unsigned long long>(count),
                      static_cast<unsigned long long>(in.left()));
  }
  if (top != nullptr) {
    top->element = element;
    top->count = count;
    top->begin = in.position();
  }
  if (element == GgufType::array) {
    for (uint64_t i = 0; i < count; ++i) {
      BLEND_RETURN_IF_ERROR(skip_array(in, depth + 1, nullptr));
    }
  } else if (element == GgufType::string) {
    for (uint64_t i = 0; i < count; ++i) {
      BLEND_ASSIGN(const uint64_t n, in.number<uint64_t>("a string's length"));
      BLEND_RETURN_IF_ERROR(in.skip(n, "a string"));
    }
  } else {
    BLEND_RETURN_IF_ERROR(in.skip(count * least, "an array"));
  }
  return Status::ok();
}

Result<uint64_t> GgufReader::read_alignment() const {
  BLEND_ASSIGN(const std::optional<uint32_t> alignment, get_u32("general.alignment"));
  if (!alignment) return kDefaultAlignment;
  if (!std::has_single_bit(*alignment) || *alignment > kMaxAlignment) {
    return make_error(BLEND_E_FORMAT,
                      "key 'general.alignment' is %u; it must be a power of two up to %llu",
                      *alignment, static_cast<unsigned long long>(kMaxAlignment));
  }
  return uint64_t{*alignment};
}

Status GgufReader::read_tensors(Cursor& in, uint64_t n) {
  if (n > in.left() / kMinTensorBytes) {
    return make_error(BLEND_E_FORMAT,
                      "the tensor table at byte %llu should have %llu entries, more than fit into "
                      "the %llu bytes that follow: it is truncated or damaged",
                      static_cast<unsigned long long>(in.position()),
                      static_cast<unsigned long long>(n),
                      static_cast<unsigned long long>(in.left()));
  }
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t at = in.position();
    GgufTensor tensor;
    BLEND_ASSIGN(tensor.name, in.string("a tensor's name", kMaxKeyBytes));
    BLEND_RETURN_IF_ERROR(
        read_tensor(in, tensor).with_context("tensor '" + printable(tensor.name) + "'"));
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      return make_error(BLEND_E_FORMAT, "tensor '%s' at byte %llu occurs twice",
                        printable(tensor.name).c_str(), static_cast<unsigned long long>(at));
    }
    tensors_.push_back(std::move(tensor));
  }
  return Status::ok();
}

Status GgufReader::read_tensor(Cursor& in, GgufTensor& tensor) const {
  BLEND_ASSIGN(const uint32_t n_dims, in.number<uint32_t>("the number of dimensions"));
  if (n_dims == 0 || n_dims > kMaxDims) {
    return make_error(BLEND_E_FORMAT, "it claims %u dimensions at byte %llu; 1 to %u are possible",
                      n_dims, static_cast<unsigned long long>(in.position() - 4), kMaxDims);
  }
  uint64_t elements = 1;
  bool overflow = false;
  for (uint32_t d = 0; d < n_dims; ++d) {
    BLEND_ASSIGN(const uint64_t dim, in.number<uint64_t>("a dimension"));
    if (dim == 0) return make_error(BLEND_E_FORMAT, "dimension %u of it is 0", d);
    // Below 2^63: shapes are signed elsewhere.
    overflow = overflow || __builtin_mul_overflow(elements, dim, &elements) || elements >> 63 != 0;
    tensor.dims.push_back(dim);
  }
  BLEND_ASSIGN(tensor.type, in.number<uint32_t>("an element type"));
  BLEND_ASSIGN(tensor.offset, in.number<uint64_t>("a data offset"));
  const GgmlType* type = find_ggml_type(tensor.type);
  if (type != nullptr) {
    if (tensor.dims[0] % type->block != 0) {
      return make_error(BLEND_E_FORMAT,
                        "its rows of %llu elements are not a multiple of %s's block, %u",
                        static_cast<unsigned long long>(tensor.dims[0]), type->name, type->block);
    }
    overflow = overflow ||
               __builtin_mul_overflow(elements / type->block, uint64_t{type->bytes}, &tensor.bytes);
  }
  if (overflow) return make_error(BLEND_E_FORMAT, "its size overflows 64 bits");
  return Status::ok();
}

// Converts offsets into the data section to offsets into the file, all checked; tensors must not
// overlap (writers lay them out one after the other, so an overlap is a damaged offset).
Status GgufReader::place_tensors(uint64_t data_begin, uint64_t alignment) {
  if (tensors_.empty()) return Status::ok();
  const uint64_t file_bytes = file_.size();
  const uint64_t padding = (alignment - data_begin % alignment) % alignment;
  // Cannot wrap: data_begin is inside a mapped file and the padding is below 2^20.
  const uint64_t begin = data_begin + padding;
  std::vector<const GgufTensor*> order;
  order.reserve(tensors_.size());
  for (GgufTensor& t : tensors_) {
    if (t.offset % alignment != 0) {
      return make_error(
          BLEND_E_FORMAT,
          "tensor '%s': its data offset %llu is not a multiple of the alignment, %llu",
          printable(t.name).c_str(), static_cast<unsigned long long>(t.offset),
          static_cast<unsigned long long>(alignment));
    }
    if (begin > file_bytes || t.offset > file_bytes - begin ||
        t.bytes > file_bytes - begin - t.offset) {
      return make_error(BLEND_E_FORMAT,
                        "tensor '%s': its %llu bytes at offset %llu of the data end after the file "
                        "of %llu bytes: it is truncated or damaged",
                        printable(t.name).c_str(), static_cast<unsigned long long>(t.bytes),
                        static_cast<unsigned long long>(t.offset),
                        static_cast<unsigned long long>(file_bytes));
    }
    t.offset += begin;
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->offset + order[i - 1]->bytes > order[i]->offset) {
      return make_error(BLEND_E_FORMAT, "tensors '%s' and '%s' overlap at byte %llu",
                        printable(order[i - 1]->name).c_str(), printable(order[i]->name).c_str(),
                        static_cast<unsigned long long>(order[i]->offset));
    }
  }
  return Status::ok();
}

const GgufReader::Value* GgufReader::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

const GgufTensor* GgufReader::tensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Result<std::optional<uint32_t>> GgufReader::get_u32(std::string_view key) const {
  const Value* v = find(key);
  if (v == nullptr) return std::optional<uint32_t>();
  const std::optional<int64_t> n = as_integer(v->type, file_.data() + v->begin);
  if (!n && v->type == GgufType::array) return wrong_type(key, v->type, "one number");
  if (!n || *n < 0 || *n > std::numeric_limits<uint32_t>::max()) {
    return make_error(BLEND_E_FORMAT, "key '%s' should be a whole number from 0 to 2^32-1",
                      printable(key).c_str());
  }
  return std::optional<uint32_t>(static_cast<uint32_t>(*n));
}

Result<std::optional<double>> GgufReader::get_float(std::string_view key) const {
  const Value* v = find(key);
  if (v == nullptr) return std::optional<double>();
  const std::byte* p = file_.data() + v->begin;
  if (v->type == GgufType::f32) return std::optional<double>(load<float>(p));
  if (v->type == GgufType::f64) return std::optional<double>(load<double>(p));
  if (const std::optional<int64_t> n = as_integer(v->type, p)) {
    return std::optional<double>(static_cast<double>(*n));
  }
  return wrong_type(key, v->type, "one number");
}

Result<std::optional<bool>> GgufReader::get_bool(std::string_view key) const {
  const Value* v = find(key);
  if (v == nullptr) return std::optional<bool>();
  if (v->type != GgufType::boolean) return wrong_type(key, v->type, "a truth value");
  return std::optional<bool>(load<uint8_t>(file_.data() + v->begin) != 0);
}

Result<std::optional<std::string>> GgufReader::get_string(std::string_view key) const {
  const Value* v = find(key);
  if (v == nullptr) return std::optional<std::string>();
  if (v->type != GgufType::string) return wrong_type(key, v->type, "a text");
  return std::optional<std::string>(
      std::string(reinterpret_cast<const char*>(file_.data() + v->begin),
                  static_cast<size_t>(v->end - v->begin)));
}

Result<const GgufReader::Value*> GgufReader::find_array(std::string_view key,
                                                        const char* what) const {
  const Value* v = find(key);
  if (v != nullptr && v->type != GgufType::array) {
    return make_error(BLEND_E_FORMAT, "key '%s' should be an array of %s", printable(key).c_str(),
                      what);
  }
  return v;
}

Result<std::optional<std::vector<std::string>>> GgufReader::get_strings(
    std::string_view key) const {
  using Strings = std::vector<std::string>;
  BLEND_ASSIGN(const Value* v, find_array(key, "texts"));
  if (v == nullptr) return std::optional<Strings>();
  if (v->element != GgufType::string) {
    return make_error(BLEND_E_FORMAT, "key '%s' should be an array of texts",
                      printable(key).c_str());
  }
  Strings strings;
  strings.reserve(static_cast<size_t>(v->count));
  // Checked again: the lengths are read from the mapping a second time.
  Cursor in(file_.first(static_cast<size_t>(v->end)), v->begin);
  for (uint64_t i = 0; i < v->count; ++i) {
    BLEND_ASSIGN(std::string s, in.string("a text", in.left()));
    strings.push_back(std::move(s));
  }
  return std::optional<Strings>(std::move(strings));
}

Result<std::optional<std::vector<float>>> GgufReader::get_floats(std::string_view key) const {
  using Floats = std::vector<float>;
  BLEND_ASSIGN(const Value* v, find_array(key, "floats"));
  if (v == nullptr) return std::optional<Floats>();
  if (v->element != GgufType::f32) {
    return make_error(BLEND_E_FORMAT, "key '%s' should be an array of 32-bit floats",
                      printable(key).c_str());
  }
  Floats floats(static_cast<size_t>(v->count));
  if (!floats.empty()) std::memcpy(floats.data(), file_.data() + v->begin, floats.size() * 4);
  return std::optional<Floats>(std::move(floats));
}

Result<std::optional<std::vector<int32_t>>> GgufReader::get_ints(std::string_view key) const {
  using Ints = std::vector<int32_t>;
  BLEND_ASSIGN(const Value* v, find_array(key, "whole numbers"));
  if (v == nullptr) return std::optional<Ints>();
  Ints ints;
  ints.reserve(static_cast<size_t>(v->count));
  const GgufType element = v->element == GgufType::boolean ? GgufType::u8 : v->element;
  const uint64_t width = scalar_bytes(element);
  for (uint64_t i = 0; i < v->count; ++i) {
    const std::optional<int64_t> n =
        width == 0 ? std::nullopt : as_integer(element, file_.data() + v->begin + i * width);
    if (!n || *n < std::numeric_limits<int32_t>::min() ||
        *n > std::numeric_limits<int32_t>::max()) {
      return make_error(BLEND_E_FORMAT, "key '%s' should be an array of 32-bit whole numbers",
                        printable(key).c_str());
    }
    ints.push_back(static_cast<int32_t>(*n));
  }
  return std::optional<Ints>(std::move(ints));
}

}  // namespace blend
