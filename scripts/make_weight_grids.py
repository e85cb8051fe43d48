#!/usr/bin/env python3
"""Writes kernels/formats/weight_grids.cpp: the code books of ggml's IQ types, packed. gguf-py has them; run
with gguf and numpy installed:

    python3 scripts/make_weight_grids.py > kernels/formats/weight_grids.cpp

An entry is one number of 16 bits: the index into the book's values of each of its elements, the first
lowest, 2 bits each where it has eight elements and 3 where it has four.
"""

import sys

from gguf import quants

BOOKS = [("IQ2_XXS", "kIq2Xxs"), ("IQ2_XS", "kIq2Xs"), ("IQ2_S", "kIq2S"), ("IQ3_XXS", "kIq3Xxs"),
         ("IQ3_S", "kIq3S"), ("IQ1_S", "kIq1S")]
PER_LINE = 12

HEAD = """// Made by scripts/make_weight_grids.py; do not edit.
// clang-format off
#include "formats/weight_grids.h"

#include <array>

namespace blend {
namespace {

// The entries of a book of eight elements, whose values are given: two bits are an index into them.
template <size_t n>
constexpr std::array<uint64_t, n> of_eight(const uint16_t (&packed)[n], const uint8_t (&values)[3]) {
  std::array<uint64_t, n> out{};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < 8; ++j) out[i] |= uint64_t{values[packed[i] >> 2 * j & 3]} << 8 * j;
  }
  return out;
}
// The same of four elements and three bits.
template <size_t n>
constexpr std::array<uint32_t, n> of_four(const uint16_t (&packed)[n], const uint8_t (&values)[8]) {
  std::array<uint32_t, n> out{};
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < 4; ++j) out[i] |= uint32_t{values[packed[i] >> 3 * j & 7]} << 8 * j;
  }
  return out;
}
constexpr std::array<uint64_t, 256> bytes_of_bits() {
  std::array<uint64_t, 256> out{};
  for (size_t i = 0; i < 256; ++i) {
    for (size_t j = 0; j < 8; ++j) out[i] |= (i >> j & 1) * uint64_t{255} << 8 * j;
  }
  return out;
}
constexpr auto kBytesOfBitsTable = bytes_of_bits();
"""


def main():
    out = [HEAD]
    exported = []
    for name, ours in BOOKS:
        book = getattr(quants, name)
        book.init_grid()
        grid = book.grid.reshape(book.grid_shape).astype(int)
        values = [int(v) for v in book.grid_map]
        bits = 2 if grid.shape[1] == 8 else 3
        packed = [sum(values.index(v) << bits * j for j, v in enumerate(row)) for row in grid.tolist()]
        out.append(f"\nconstexpr uint16_t {ours}Packed[] = {{")
        for i in range(0, len(packed), PER_LINE):
            out.append("    " + " ".join(f"0x{p:04x}," for p in packed[i:i + PER_LINE]))
        out.append("};")
        if name == "IQ1_S":
            values = [128 + 8 * v for v in values]
        kind = "uint64_t" if bits == 2 else "uint32_t"
        make = "of_eight" if bits == 2 else "of_four"
        listed = ", ".join(f"0x{v:02x}" for v in values)
        out.append(f"constexpr auto {ours}Book = {make}({ours}Packed, {{{listed}}});")
        exported.append(f"const {kind}* const {ours}Grid = {ours}Book.data();")
    out.append("\n}  // namespace\n")
    out += exported
    out.append("const uint64_t* const kBytesOfBits = kBytesOfBitsTable.data();")
    out.append("\n}  // namespace blend")
    print("\n".join(out))


if __name__ == "__main__":
    sys.exit(main())
