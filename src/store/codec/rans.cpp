// Codec rans: whole multiples of a quantization scale, entropy-coded.
//
// K and V have one scale each for a layer, finer for K: an error of K goes through a softmax. A row
// that its chunk's rows attend to much has a finer one (row_shifts.h): its error is read more
// often. The decoder itself finds what CacheGen (Liu et al., SIGCOMM '24) sends as tables and
// anchors: means and sizes follow each channel (cpu/rans_model.h), so short chunks pay nothing
// for them.
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "base/wire.h"
#include "cpu/quantize.h"
#include "cpu/rans_model.h"
#include "cpu/rans_rows.h"
#include "store/codec/codec.h"
#include "store/codec/row_shifts.h"
#include "store/codec/steps.h"

namespace blend {
namespace {

// Of the root mean square of what lies around the channels' means (docs/research/2026-11-codecs.md
// has what others cost).
constexpr double kStepK = 0.3;
constexpr double kStepV = 0.8;
// Keeps a row's scale within f32.
constexpr float kMostStep = 0x1p124f;
constexpr float kLeastStep = 0x1p-120f;

constexpr size_t kRansBlock = 64 << 10;   // elements whose states are kept together, or one row
constexpr size_t kManyStates = 16 << 10;  // elements from which on there are 32 states, not 8
constexpr size_t kPlaneHeader = 8;
constexpr uint8_t kHasShifts = 1;
constexpr size_t kMostPayload = 4;  // of an element: a word and an escape
// The most probable number has 1021 of 1024 slots: it costs a state at least a 240th of a bit, and
// a state begins with 16. So at most this many elements need no word, whatever the bytes claim.
constexpr size_t kMostOfAWord = 4096;

struct Blocks {
  size_t rows;  // of all but the last
  size_t number;
  size_t states;
  explicit Blocks(const PlaneShape& s)
      : rows(std::max<size_t>(1, s.kv_dim == 0 ? 1 : kRansBlock / s.kv_dim)),
        number((s.n_tokens + rows - 1) / rows),
        states(std::min<size_t>(rows, s.n_tokens) * s.kv_dim < kManyStates ? 8
                                                                           : kernels::kRansStates) {
  }
  size_t head() const { return 4 + 4 * states; }  // the number of escapes, and the states
  size_t least_words(size_t elements) const {
    return std::max(elements / kMostOfAWord, states) - states;
  }
};

size_t shifts_bytes(const PlaneShape& s) { return (s.n_tokens + 7) / 8 * 2; }

// The largest code whose size is not above `size`, in sixteenths.
uint8_t size_code(double size) {
  uint32_t code = 0;
  while (code + 1 < kernels::kRansSizeCodes && kernels::rans_size(code + 1) <= size) ++code;
  return static_cast<uint8_t>(code);
}

// Statistics of a plane, needed before encoding it.
struct Statistics {
  double spread = 0;   // root mean square around the channels' means
  double largest = 0;  // magnitude
  double first = 0;    // mean magnitude of the first row
  double change = 0;   // mean magnitude of the differences from row to row
};

class RansCodec final : public PlaneCodec {
 public:
  uint64_t least_bytes(const PlaneShape& shape) const override {
    const Blocks blocks(shape);
    if (blocks.number == 0) return kPlaneHeader;
    const size_t cols = shape.kv_dim;
    const size_t last = shape.n_tokens - (blocks.number - 1) * blocks.rows;
    return heads(blocks) + 2 * ((blocks.number - 1) * blocks.least_words(blocks.rows * cols) +
                                blocks.least_words(last * cols));
  }
  uint64_t most_bytes(const PlaneShape& shape) const override {
    return heads(Blocks(shape)) + shifts_bytes(shape) + kMostPayload * shape.elements();
  }

  Result<size_t> encode(PlaneKind kind, const PlaneShape& shape, const std::byte* rows,
                        std::byte* out, CodecScratch& scratch,
                        const EncodeOptions& options) const override {
    BLEND_ASSIGN(const Statistics s, look_at(shape, rows, scratch));
    const bool shifted = options.row_shifts.size() == shape.n_tokens && shape.n_tokens > 0;
    const double finest = shifted ? 1.0 / (1 << kUsualShift) : 1.0;
    double step = s.spread * (kind == PlaneKind::k ? kStepK : kStepV) * options.step * finest;
    step = std::max(step, s.largest / kernels::kRansMost);
    const auto rounded = static_cast<float>(std::min<double>(step, kMostStep));
    return put_plane(shape, rows, rounded < kLeastStep ? 0 : rounded, s,
                     shifted ? options.row_shifts : std::span<const uint8_t>(), out, scratch);
  }

  Result<size_t> decode(PlaneKind, const PlaneShape& shape, std::span<const std::byte> in,
                        std::byte* rows, CodecScratch& scratch) const override {
    ByteReader header(in);
    const auto step = std::bit_cast<float>(header.get<uint32_t>());
    const auto first = header.get<uint8_t>();
    const auto usual = header.get<uint8_t>();
    const auto flags = header.get<uint8_t>();
    const auto zero = header.get<uint8_t>();
    const size_t shifts = (flags & kHasShifts) != 0 ? shifts_bytes(shape) : 0;
    if (!header.ok() || header.remaining() < shifts) return ends_too_soon();
    if (!(step >= 0 && step <= kMostStep) || first >= kernels::kRansSizeCodes ||
        usual >= kernels::kRansSizeCodes || flags > kHasShifts || zero != 0) {
      return corrupt_layer("the header of a coded plane is invalid");
    }
    const size_t cols = shape.kv_dim;
    int32_t* const mean = scratch.ints(0, cols);
    int32_t* const size = scratch.ints(1, cols);
    auto* const numbers = reinterpret_cast<int16_t*>(scratch.ints(2, (cols + 1) / 2));
    std::fill_n(mean, cols, 0);
    std::fill_n(size, cols, kernels::rans_size(first));
    const std::byte* const shift_at = in.data() + kPlaneHeader;
    std::span<const std::byte> left = in.subspan(kPlaneHeader + shifts);
    const Blocks blocks(shape);
    for (size_t t = 0; t < shape.n_tokens; t += blocks.rows) {
      kernels::RansReader reader;
      BLEND_RETURN_IF_ERROR(open_block(left, blocks, reader));
      const size_t end = std::min<size_t>(shape.n_tokens, t + blocks.rows);
      for (size_t row = t; row < end; ++row) {
        const uint32_t shift =
            shifts == 0 ? 0 : static_cast<uint32_t>(shift_at[row / 4] >> (row % 4 * 2)) & 3;
        if (!kernels::rans_decode_row(reader, row, shift, cols, mean, size, numbers)) {
          return ends_too_soon();
        }
        if (row == 0) std::fill_n(size, cols, kernels::rans_size(usual));
        kernels::dequantize16(numbers, cols, step * static_cast<float>(1u << shift), shape.dtype,
                              rows + row * cols * shape.element_bytes());
      }
      const bool whole = std::all_of(reader.states, reader.states + blocks.states,
                                     [](uint32_t x) { return x == kernels::kRansFirst; });
      if (!whole || reader.escapes != reader.escapes_end) {
        return corrupt_layer("a coded block does not end where its rows do");
      }
      left = left.subspan(
          static_cast<size_t>(reinterpret_cast<const std::byte*>(reader.words) - left.data()));
    }
    return in.size() - left.size();
  }

 private:
  static uint64_t heads(const Blocks& blocks) {
    return kPlaneHeader + blocks.number * blocks.head();
  }
  static Status ends_too_soon() { return corrupt_layer("a coded plane ends too soon"); }

  // The block's escapes, its states, and then its words, of unknown number.
  static Status open_block(std::span<const std::byte> in, const Blocks& blocks,
                           kernels::RansReader& reader) {
    ByteReader head(in);
    const auto n_escapes = head.get<uint32_t>();
    reader.n_states = blocks.states;
    bool sound = true;
    for (size_t i = 0; i < blocks.states; ++i) {
      reader.states[i] = head.get<uint32_t>();
      sound = sound && reader.states[i] >= kernels::kRansFirst;
    }
    if (!head.ok() || head.remaining() / 2 < n_escapes) return ends_too_soon();
    if (!sound) return corrupt_layer("the state of a coded block is invalid");
    reader.escapes = reinterpret_cast<const uint8_t*>(in.data()) + blocks.head();
    reader.escapes_end = reader.escapes + 2 * size_t{n_escapes};
    reader.words = reader.escapes_end;
    reader.words_end = reinterpret_cast<const uint8_t*>(in.data()) + in.size();
    return Status::ok();
  }

  static Result<Statistics> look_at(const PlaneShape& shape, const std::byte* rows,
                                    CodecScratch& scratch) {
    const size_t cols = shape.kv_dim;
    float* const x = scratch.floats(0, cols);
    float* const before = scratch.floats(1, cols);
    double* const sum = scratch.doubles(2 * cols);
    double* const squares = sum + cols;
    std::fill_n(sum, 2 * cols, 0.0);
    Statistics s;
    for (size_t t = 0; t < shape.n_tokens; ++t) {
      BLEND_RETURN_IF_ERROR(load_rows(shape, rows, t, 1, x));
      for (size_t c = 0; c < cols; ++c) {
        const double value = x[c];
        sum[c] += value;
        squares[c] += value * value;
        s.largest = std::max(s.largest, std::abs(value));
        (t == 0 ? s.first : s.change) += std::abs(t == 0 ? value : value - before[c]);
        before[c] = x[c];
      }
    }
    if (shape.elements() == 0) return s;
    for (size_t c = 0; c < cols; ++c) {
      s.spread += std::max(0.0, squares[c] - sum[c] * sum[c] / shape.n_tokens);
    }
    s.spread = std::sqrt(s.spread / static_cast<double>(shape.elements()));
    s.first /= static_cast<double>(cols);
    // Rows differ from each other by the root of two more than from their mean.
    s.change /= std::max(1.0, static_cast<double>(shape.elements() - cols)) * std::sqrt(2.0);
    // One row, or rows that are all the same: a scale by their size.
    const double least = s.largest / 1024;
    s.spread = std::max(s.spread, shape.n_tokens == 1 ? s.first : least);
    return s;
  }

  // Without a function call for each: 2^23 has no room for halves.
  static int32_t nearest(float x) {
    constexpr float kMost = kernels::kRansMost;
    constexpr float kNoHalves = 0x1.8p23f;
    return static_cast<int32_t>(std::clamp(x, -kMost, kMost) + kNoHalves - kNoHalves);
  }

  // Returns the bytes written.
  static size_t put_plane(const PlaneShape& shape, const std::byte* rows, float step,
                          const Statistics& s, std::span<const uint8_t> shifts, std::byte* out,
                          CodecScratch& scratch) {
    const size_t cols = shape.kv_dim;
    const double sixteenths = step > 0 ? 16 / static_cast<double>(step) : 0;
    const uint8_t first = size_code(s.first * sixteenths);
    const uint8_t usual = size_code(s.change * sixteenths);
    std::byte* to = out;
    const auto put = [&]<typename T>(T value) {
      std::memcpy(to, &value, sizeof value);
      to += sizeof value;
    };
    put(std::bit_cast<uint32_t>(step));
    put(first);
    put(usual);
    put(static_cast<uint8_t>(shifts.empty() ? 0 : kHasShifts));
    put(uint8_t{0});
    if (!shifts.empty()) {
      std::fill_n(to, shifts_bytes(shape), std::byte{0});
      for (size_t t = 0; t < shape.n_tokens; ++t) {
        to[t / 4] |= static_cast<std::byte>((shifts[t] & 3) << (t % 4 * 2));
      }
      to += shifts_bytes(shape);
    }
    int32_t* const mean = scratch.ints(0, cols);
    int32_t* const size = scratch.ints(1, cols);
    int32_t* const numbers = scratch.ints(2, cols);
    std::fill_n(mean, cols, 0);
    std::fill_n(size, cols, kernels::rans_size(first));
    const Blocks blocks(shape);
    for (size_t t = 0; t < shape.n_tokens; t += blocks.rows) {
      const size_t n = std::min<size_t>(blocks.rows, shape.n_tokens - t);
      auto& codes = scratch.codes();
      auto& escapes = scratch.halves(0);
      codes.resize(n * cols);
      escapes.clear();
      for (size_t row = t; row < t + n; ++row) {
        const uint32_t shift = shifts.empty() ? 0 : shifts[row] & 3;
        const float inverse = step > 0 ? 1 / (step * static_cast<float>(1u << shift)) : 0;
        float* const x = scratch.floats(0, cols);
        kernels::decode(rows + row * cols * shape.element_bytes(), shape.dtype, cols, x);
        for (size_t c = 0; c < cols; ++c) numbers[c] = nearest(x[c] * inverse);
        kernels::RansCode* const row_codes = codes.data() + (row - t) * cols;
        kernels::rans_code_row(numbers, row, shift, cols, mean, size, row_codes);
        for (size_t c = 0; c < cols; ++c) {
          if (row_codes[c].escapes) escapes.push_back(static_cast<uint16_t>(numbers[c]));
        }
        if (row == 0) std::fill_n(size, cols, kernels::rans_size(usual));
      }
      // Backwards, as a decoder reads forwards; at most one word a number.
      auto& words = scratch.halves(1);
      words.resize(n * cols);
      std::array<uint32_t, kernels::kRansStates> states;
      states.fill(kernels::kRansFirst);
      const uint16_t* const last = words.data() + words.size();
      uint16_t* word = words.data() + words.size();
      for (size_t row = n; row > 0; --row) {
        word = kernels::rans_put_row(codes.data() + (row - 1) * cols, cols, blocks.states,
                                     states.data(), word);
      }
      put(static_cast<uint32_t>(escapes.size()));
      for (size_t i = 0; i < blocks.states; ++i) put(states[i]);
      for (const uint16_t h : escapes) put(h);
      for (; word != last; ++word) put(*word);
    }
    return static_cast<size_t>(to - out);
  }
};

}  // namespace

const PlaneCodec& rans_codec() {
  static const RansCodec kCodec{};
  return kCodec;
}

}  // namespace blend
