// The bits of floating-point numbers sorted into planes that compress and planes that do not.
//
// Exponents of K and V take few values; mantissas and signs are noise. The sign bit and the lowest
// bit of the exponent swap places, which puts the eight bits below the sign into one byte: all of
// the exponent for bf16 and f32, the exponent and three bits of the mantissa for f16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/half.h"

namespace blend::kernels {

// src: [n] of dtype, any alignment; high: [n]; rest: [n * (size of dtype - 1)], the bytes of an
// element next to each other. Every bit comes back, NaNs included. Thread-safe, as all kernels are.
void split_planes(const std::byte* src, DType dtype, size_t n, uint8_t* high, uint8_t* rest);
// The inverse.
void merge_planes(const uint8_t* high, const uint8_t* rest, DType dtype, size_t n, std::byte* out);

// Scalar references.
void split_planes_ref(const std::byte* src, DType dtype, size_t n, uint8_t* high, uint8_t* rest);
void merge_planes_ref(const uint8_t* high, const uint8_t* rest, DType dtype, size_t n,
                      std::byte* out);

}  // namespace blend::kernels
