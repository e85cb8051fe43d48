// What mutators of a format share: numbers that readers get wrong, put where the format has
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace blend::fuzz {

struct Field {
  size_t at;
  size_t width;  // bytes, little endian
};

using Rng = std::minstd_rand;

inline uint64_t odd_number(Rng& rng) {
  const uint64_t near = uint64_t{1} << rng() % 64;
  static constexpr uint64_t kOdd[] = {0, 1, 2, 3, 32, 0x7fffffff, 0xffffffff, ~0ull, ~0ull - 31};
  return rng() % 2 != 0 ? near + rng() % 3 - 1 : kOdd[rng() % (sizeof kOdd / sizeof *kOdd)];
}

inline void change_number(std::string& bytes, const Field& field, Rng& rng) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + field.at, field.width);
  switch (rng() % 4) {
    case 0:
      value = odd_number(rng);
      break;
    case 1:
      value ^= uint64_t{1} << rng() % (8 * field.width);
      break;
    case 2:
      value += 1 + rng() % 8;
      break;
    default:
      value -= 1 + rng() % 8;
      break;
  }
  std::memcpy(bytes.data() + field.at, &value, field.width);
}

// libFuzzer's own changes, to a part alone.
inline std::string changed_part(std::string part, size_t most) {
  const size_t size = part.size();
  part.resize(size + most);
  part.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(part.data()), size, part.size()));
  return part;
}

// Writes back what fits; a mutator's return value.
inline size_t give(const std::string& bytes, uint8_t* data, size_t max_size) {
  const size_t n = std::min(bytes.size(), max_size);
  std::memcpy(data, bytes.data(), n);
  return n;
}

}  // namespace blend::fuzz
