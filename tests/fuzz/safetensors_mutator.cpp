// Changes a safetensors file as one: the numbers, names and words of its JSON, with the length that
// stands before it.
#include <algorithm>
#include <cctype>

#include "fuzz/fields.h"

namespace {

using blend::fuzz::Rng;

constexpr size_t kLength = 8;

// [begin, end) of a run of digits, or of what stands between quotes; empty: there is none.
std::pair<size_t, size_t> some_token(const std::string& json, bool digits, Rng& rng) {
  const auto belongs = [&](char c) {
    return digits ? std::isdigit(static_cast<unsigned char>(c)) != 0 : c != '"';
  };
  std::vector<std::pair<size_t, size_t>> found;
  for (size_t at = 0; at < json.size(); ++at) {
    if (digits ? !belongs(json[at]) : json[at] != '"') continue;
    const size_t begin = digits ? at : at + 1;
    size_t end = begin;
    while (end < json.size() && belongs(json[end])) ++end;
    found.emplace_back(begin, end);
    at = end;
  }
  return found.empty() ? std::pair<size_t, size_t>{0, 0} : found[rng() % found.size()];
}

std::string some_word(Rng& rng) {
  static constexpr const char* kWords[] = {"F32",   "F16",          "BF16",         "F64",
                                           "U8",    "BOOL",         "I64",          "dtype",
                                           "shape", "data_offsets", "__metadata__", ""};
  return kWords[rng() % (sizeof kWords / sizeof *kWords)];
}

void change_json(std::string& json, Rng& rng) {
  const auto how = rng() % 8;
  if (how < 4) {
    const auto [begin, end] = some_token(json, true, rng);
    const uint64_t now =
        std::strtoull(json.substr(begin, std::min<size_t>(end - begin, 19)).c_str(), nullptr, 10);
    const uint64_t next = rng() % 2 != 0 ? blend::fuzz::odd_number(rng) : now + rng() % 9 - 4;
    json.replace(begin, end - begin, std::to_string(next));
  } else if (how < 6) {
    const auto [begin, end] = some_token(json, false, rng);
    json.replace(begin, end - begin, some_word(rng));
  } else {
    json = blend::fuzz::changed_part(json, rng() % 64);
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  Rng rng(seed);
  uint64_t n = 0;
  if (size >= kLength) std::memcpy(&n, data, kLength);
  if (size < kLength || n > size - kLength || rng() % 8 == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::string json = bytes.substr(kLength, n), rest = bytes.substr(kLength + n);
  for (auto changes = 1 + rng() % 3; changes > 0; --changes) change_json(json, rng);
  if (rng() % 8 == 0) rest.resize(rng() % 256);
  n = json.size() + (rng() % 16 == 0 ? rng() % 64 : 0);
  std::string out(reinterpret_cast<const char*>(&n), kLength);
  out.append(json).append(rest);
  return blend::fuzz::give(out, data, max_size);
}
