// Chunks made of a seed, and whether a store gives them back byte for byte.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "store/store.h"

namespace blend::test {

inline std::shared_ptr<ChunkRecord> make_record(uint32_t seed,
                                                ChunkShape shape = {2, 8, 16, DType::f16}) {
  auto r = std::make_shared<ChunkRecord>();
  std::mt19937_64 rng(seed);
  r->meta.shape = shape;
  r->meta.fingerprint.fill(0x5a);
  r->meta.n_prefix_tokens = seed % 3;
  r->meta.created_unix_s = 1'700'000'000 + seed;
  for (uint32_t i = 0; i < shape.n_tokens; ++i) {
    r->meta.tokens.push_back(static_cast<int32_t>(rng() % 32000));
  }
  r->meta.tokens[0] = static_cast<int32_t>(seed);
  r->meta.id = chunk_id(r->meta.fingerprint, shape.dtype, {}, "", r->meta.tokens);
  r->data = std::move(AlignedBuffer::allocate(shape.total_bytes()).value());
  for (size_t at = 0; at < r->data.bytes(); at += 8) {
    const uint64_t word = rng();
    std::memcpy(r->data.data() + at, &word, std::min<size_t>(8, r->data.bytes() - at));
  }
  return r;
}

// OK if `source` gives exactly `want`; the source's error; INTERNAL for wrong bytes, which no
// damage may ever cause.
inline Status compare(ChunkSource& source, const ChunkRecord& want) {
  const ChunkMeta& m = source.meta();
  if (m.id != want.meta.id || m.fingerprint != want.meta.fingerprint ||
      !(m.shape == want.meta.shape) || m.n_prefix_tokens != want.meta.n_prefix_tokens ||
      m.created_unix_s != want.meta.created_unix_s || m.tokens != want.meta.tokens ||
      m.impact != want.meta.impact || m.contexts != want.meta.contexts ||
      m.draft != want.meta.draft) {
    return {BLEND_E_INTERNAL, "another description"};
  }
  std::vector<std::byte> layer(m.shape.most_layer_bytes());
  for (uint32_t l = 0; l < m.shape.n_layers; ++l) {
    source.prefetch(l);
    BLEND_RETURN_IF_ERROR(source.read_layer(l, layer.data()));
    if (std::memcmp(layer.data(), want.k(l), m.shape.layer_bytes(l)) != 0) {
      return {BLEND_E_INTERNAL, "wrong bytes"};
    }
  }
  return Status::ok();
}

inline Status compare(ChunkStore& store, const ChunkRecord& want) {
  BLEND_ASSIGN(const auto snapshot, store.snapshot());
  BLEND_ASSIGN(const auto source, snapshot->open(want.meta.id));
  return compare(*source, want);
}

// Stages every layer with `depth` of them under way and compares the rows.
inline Status compare_staged(ChunkSource& source, const ChunkRecord& want, uint32_t depth) {
  const ChunkShape& shape = source.meta().shape;
  std::vector<AlignedBuffer> space;
  for (uint32_t d = 0; d < depth; ++d) {
    space.push_back(std::move(AlignedBuffer::allocate(source.stage_bytes() + 64).value()));
    // What is not promised to the source must stay as it is.
    std::memset(space.back().data(), 0x5c, space.back().bytes());
  }
  // Whatever ends this: no read goes on into space that is gone.
  struct GiveUp {
    ChunkSource& source;
    ~GiveUp() { source.abandon(); }
  };
  const GiveUp give_up{source};
  std::vector<RowRun> rows;
  for (uint32_t l = 0; l < shape.n_layers + depth - 1; ++l) {
    if (l < shape.n_layers) source.start_layer(l, space[l % depth].data());
    if (l + 1 < depth) continue;
    const uint32_t ready = l + 1 - depth;
    std::byte* at = space[ready % depth].data();
    BLEND_RETURN_IF_ERROR(source.finish_layer(ready, at, rows));
    const size_t row_bytes = shape.row_bytes(ready);
    uint32_t next = 0;
    for (const RowRun& run : rows) {
      if (run.first != next || run.n == 0) return {BLEND_E_INTERNAL, "rows out of order"};
      next += run.n;
      if (std::memcmp(run.k, want.k(ready) + run.first * row_bytes, run.n * row_bytes) != 0 ||
          std::memcmp(run.v, want.v(ready) + run.first * row_bytes, run.n * row_bytes) != 0) {
        return {BLEND_E_INTERNAL, "wrong rows"};
      }
    }
    if (next != shape.rows(ready)) return {BLEND_E_INTERNAL, "rows are missing"};
    for (int i = 0; i < 64; ++i) {
      if (at[source.stage_bytes() + i] != std::byte{0x5c}) return {BLEND_E_INTERNAL, "overrun"};
    }
  }
  return Status::ok();
}

// The value of a Result that the test relies on.
template <typename T>
T take(Result<T> result) {
  EXPECT_TRUE(result.is_ok()) << result.status().message();
  return std::move(result.value());
}

// What a log is told; null: nothing is listened to.
using Told = std::function<void(int32_t code, const std::string& message)>;
inline Log log_to(Told told) {
  if (told == nullptr) return Log();
  return Log(BLEND_LOG_INFO, [told = std::move(told)](const LogRecord& record) {
    told(record.code, record.message);
  });
}

inline std::shared_ptr<Store> open_store(const std::string& path, StoreOptions options = {},
                                         Told told = {}) {
  auto store = Store::open(path, options, log_to(std::move(told)));
  EXPECT_TRUE(store.is_ok()) << store.status().message();
  return store.is_ok() ? store.value() : nullptr;
}

#define EXPECT_OK(expr)                                                       \
  do {                                                                        \
    const ::blend::Status expect_ok_ = (expr);                                \
    EXPECT_TRUE(expect_ok_.is_ok()) << #expr << ": " << expect_ok_.message(); \
  } while (false)
#define EXPECT_CODE(want, expr)                                     \
  do {                                                              \
    const ::blend::Status expect_code_ = (expr);                    \
    EXPECT_EQ(want, expect_code_.code()) << expect_code_.message(); \
    EXPECT_FALSE(expect_code_.message().empty());                   \
  } while (false)

}  // namespace blend::test
