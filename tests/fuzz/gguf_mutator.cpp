// Changes a GGUF file as one: numbers where the format has numbers, texts with their lengths, whole
// entries gone, doubled or changed places with their count.
#include <algorithm>

#include "fuzz/fields.h"

namespace {

using blend::fuzz::Field;
using blend::fuzz::Rng;

struct Entry {
  size_t begin, end;
  bool is_tensor;
};

// Where things lie, as far as the bytes can be followed.
struct Layout {
  std::vector<Field> numbers;
  std::vector<Field> texts;  // of their lengths; the bytes follow
  std::vector<Entry> entries;
};

constexpr size_t kTensorsAt = 8, kPairsAt = 16, kEntriesAt = 24;
constexpr uint32_t kString = 8, kArray = 9;

size_t width_of(uint32_t type) {
  static constexpr size_t kWidth[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < sizeof kWidth / sizeof *kWidth ? kWidth[type] : 0;
}

class Walk {
 public:
  explicit Walk(const std::string& bytes) : bytes_(bytes) {}

  Layout run() {
    const uint64_t n_tensors = peek(kTensorsAt, 8), n_pairs = peek(kPairsAt, 8);
    for (size_t at : {size_t{4}, kTensorsAt, kPairsAt}) {
      out_.numbers.push_back({at, at == 4 ? size_t{4} : size_t{8}});
    }
    at_ = kEntriesAt;
    for (uint64_t i = 0; i < n_pairs && ok_; ++i) entry(false);
    for (uint64_t i = 0; i < n_tensors && ok_; ++i) entry(true);
    return std::move(out_);
  }

 private:
  uint64_t peek(size_t at, size_t width) {
    uint64_t value = 0;
    if (at + width <= bytes_.size()) std::memcpy(&value, bytes_.data() + at, width);
    return value;
  }
  uint64_t number(size_t width) {
    if (width > bytes_.size() - at_) {
      ok_ = false;
      return 0;
    }
    out_.numbers.push_back({at_, width});
    at_ += width;
    return peek(at_ - width, width);
  }
  void text() {
    const uint64_t n = number(8);
    if (!ok_ || n > bytes_.size() - at_) {
      ok_ = false;
      return;
    }
    out_.texts.push_back(out_.numbers.back());
    at_ += n;
  }
  void value(uint32_t type) {
    if (type == kString) {
      text();
    } else if (type == kArray) {
      const auto of = static_cast<uint32_t>(number(4));
      const uint64_t n = number(8);
      for (uint64_t i = 0; i < n && ok_ && of != kArray; ++i) value(of);
    } else if (const size_t width = width_of(type); width != 0) {
      number(width);
    } else {
      ok_ = false;
    }
  }
  void entry(bool is_tensor) {
    const size_t begin = at_;
    text();
    if (is_tensor) {
      const uint64_t n_dims = number(4);
      for (uint64_t i = 0; i < n_dims && ok_; ++i) number(8);
      number(4);
      number(8);
    } else {
      value(static_cast<uint32_t>(number(4)));
    }
    if (ok_) out_.entries.push_back({begin, at_, is_tensor});
  }

  const std::string& bytes_;
  Layout out_;
  size_t at_ = 0;
  bool ok_ = true;
};

void change_text(std::string& bytes, const Field& length, Rng& rng) {
  uint64_t n = 0;
  std::memcpy(&n, bytes.data() + length.at, length.width);
  const size_t begin = length.at + length.width;
  const std::string text = blend::fuzz::changed_part(bytes.substr(begin, n), rng() % 16);
  bytes.replace(begin, n, text);
  n = text.size();
  std::memcpy(bytes.data() + length.at, &n, length.width);
}

// With the count, mostly.
void change_entries(std::string& bytes, const Layout& layout, Rng& rng) {
  const Entry& e = layout.entries[rng() % layout.entries.size()];
  const Entry& other = layout.entries[rng() % layout.entries.size()];
  const std::string one = bytes.substr(e.begin, e.end - e.begin);
  uint64_t count = 0;
  char* const counted = bytes.data() + (e.is_tensor ? kTensorsAt : kPairsAt);
  std::memcpy(&count, counted, sizeof count);
  const auto how = rng() % 3;
  if (rng() % 8 != 0) count += how == 0 ? ~0ull : how == 1 ? 1 : 0;
  std::memcpy(counted, &count, sizeof count);
  if (how == 0) {
    bytes.erase(e.begin, one.size());
  } else if (how == 1) {
    bytes.insert(e.begin, one);
  } else if (other.begin > e.begin) {
    bytes.insert(other.end, one);
    bytes.erase(e.begin, one.size());
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  Rng rng(seed);
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size < kEntriesAt || rng() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (auto changes = 1 + rng() % 3; changes > 0; --changes) {
    const Layout layout = Walk(bytes).run();
    const auto how = rng() % 8;
    if (how == 0 && !layout.entries.empty()) {
      change_entries(bytes, layout, rng);
    } else if (how < 3 && !layout.texts.empty()) {
      change_text(bytes, layout.texts[rng() % layout.texts.size()], rng);
    } else {
      blend::fuzz::change_number(bytes, layout.numbers[rng() % layout.numbers.size()], rng);
    }
  }
  return blend::fuzz::give(bytes, data, max_size);
}
