// Attention of rows to a KV cache, and the mass of it, against their scalar references.
#include "cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/buffer.h"
#include "cpu/attention_mass.h"
#include "cpu/attention_tempered.h"
#include "unit/kernels/kernels_case.h"

namespace blend::kernels {
namespace {

struct AttentionCase {
  size_t rows, group, head_dim, slots;
};

TEST_P(Kernels, Attention) {
  std::vector<AttentionCase> cases = {{1, 1, 8, 32},    {1, 4, 64, 1024}, {7, 4, 64, 544},
                                      {24, 4, 64, 768}, {5, 8, 128, 288}, {96, 1, 10, 320},
                                      {3, 2, 80, 512},  {9, 3, 2, 544},   {13, 1, 126, 256}};
  for (int round = 0; round < 25; ++round) {
    cases.push_back({number(1, 40), number(1, 8), 2 * number(1, 64), 32 * number(1, 20)});
  }
  for (const AttentionCase& a : cases) {
    const size_t v_stride = round_up(a.head_dim, 16), cols = a.group * a.head_dim;
    std::vector<uint32_t> pos(a.rows);
    for (uint32_t& p : pos) p = static_cast<uint32_t>(number(0, a.slots - 1));
    if (a.rows > 2) pos[0] = 0;
    std::sort(pos.begin(), pos.end());
    auto q = normal(a.rows * cols, 2.0f);
    auto keys = AlignedBuffer::allocate(a.slots * a.head_dim * 4);
    auto values = AlignedBuffer::allocate(a.slots * v_stride * 4);
    auto scratch =
        AlignedBuffer::allocate(attention_scratch_floats(a.rows, a.group, a.head_dim) * 4);
    float *k = keys->as<float>(), *v = values->as<float>();
    // Poison what no row may see, and the padding: a leak of any kind shows as NaN.
    for (size_t s = 0; s < a.slots; ++s) {
      const bool seen = s <= pos.back();
      for (size_t e = 0; e < a.head_dim; ++e) {
        k[s / 16 * 16 * a.head_dim + e * 16 + s % 16] = seen ? normal(1)[0] : std::nanf("");
      }
      for (size_t e = 0; e < v_stride; ++e) {
        v[s * v_stride + e] = seen && e < a.head_dim ? normal(1)[0] : std::nanf("");
      }
    }
    AttentionBlock block{
        q.data(),   cols,       nullptr,
        cols,       pos.data(), a.rows,
        a.group,    k,          v,
        a.head_dim, v_stride,   static_cast<float>(1 / std::sqrt(static_cast<double>(a.head_dim)))};
    if (number(0, 1) == 1) block.window = static_cast<uint32_t>(number(1, a.slots));
    if (number(0, 2) == 2) block.softcap = 1.0f + static_cast<float>(number(0, 40));
    const std::vector<float> sinks = normal(a.group, 3.0f);
    if (number(0, 1) == 1) block.sinks = sinks.data();
    // Latent rows: the last elements of a key are its value.
    if (a.head_dim > 2 && number(0, 2) == 2) block.values_from = number(1, a.head_dim - 1);
    // Keys before every row's window are masked whatever they hold, unless they are values too.
    for (size_t s = 0; s < block.first_key(pos[0]) && block.values_from == 0; ++s) {
      for (size_t e = 0; e < a.head_dim; ++e) {
        k[s / 16 * 16 * a.head_dim + e * 16 + s % 16] = std::nanf("");
      }
    }
    block.dtype = kCacheTypes[number(0, 2)];
    const AlignedBuffer kept_k = cached(k, a.slots * a.head_dim, block.dtype);
    const AlignedBuffer kept_v = cached(v, a.slots * v_stride, block.dtype);
    block.k = kept_k.data();
    block.v = block.values_from == 0 ? kept_v.data() : nullptr;
    std::vector<float> want = q;  // what stands before values stays
    block.out = want.data();
    attention_ref(block);
    block.out = q.data();  // in place
    attention(block, scratch->as<float>());
    SCOPED_TRACE(testing::Message()
                 << a.rows << " rows, group " << a.group << ", head_dim " << a.head_dim
                 << ", slots " << a.slots << ", window " << block.window << ", softcap "
                 << block.softcap << (block.sinks == nullptr ? "" : ", sinks") << ", values from "
                 << block.values_from << ", " << dtype_name(block.dtype));
    ASSERT_NO_FATAL_FAILURE(expect_close(q, want, block.softcap != 0 ? 1e-5 : 3e-6));
  }
}

TEST_P(Kernels, AttentionKeepsPoison) {
  // A NaN in a key that a row sees must reach the row's output: it may not vanish in the softmax.
  const size_t head_dim = 16, slots = 64;
  auto keys = AlignedBuffer::allocate(slots * head_dim * 4);
  auto values = AlignedBuffer::allocate(slots * head_dim * 4);
  auto scratch = AlignedBuffer::allocate(attention_scratch_floats(2, 1, head_dim) * 4);
  std::fill_n(keys->as<float>(), slots * head_dim, 0.5f);
  std::fill_n(values->as<float>(), slots * head_dim, 1.0f);
  keys->as<float>()[2 * 16 * head_dim + 3] = std::nanf("");  // slot 35
  std::vector<float> q(2 * head_dim, 1.0f), out(2 * head_dim);
  const std::vector<uint32_t> pos = {34, 35};
  for (const DType dtype : kCacheTypes) {
    const AlignedBuffer k = cached(keys->as<float>(), slots * head_dim, dtype);
    const AlignedBuffer v = cached(values->as<float>(), slots * head_dim, dtype);
    AttentionBlock block{q.data(), head_dim, out.data(), head_dim, pos.data(), 2,
                         1,        k.data(), v.data(),   head_dim, head_dim,   0.25f};
    block.dtype = dtype;
    attention(block, scratch->as<float>());
    EXPECT_FLOAT_EQ(out[0], 1.0f);
    EXPECT_TRUE(std::isnan(out[head_dim]));
  }
}

// One far below the scores leaves no trace, to the bit; one far above them takes all.
TEST_P(Kernels, AttentionWithSinksFarOff) {
  const size_t head_dim = 16, slots = 600, group = 2;
  auto keys = AlignedBuffer::allocate(round_up(slots, 32) * head_dim * 4);
  auto values = AlignedBuffer::allocate(round_up(slots, 32) * head_dim * 4);
  auto scratch = AlignedBuffer::allocate(attention_scratch_floats(2, group, head_dim) * 4);
  for (AlignedBuffer* buffer : {&*keys, &*values}) {
    const std::vector<float> some = normal(round_up(slots, 32) * head_dim);
    std::copy(some.begin(), some.end(), buffer->as<float>());
  }
  const std::vector<float> q = normal(2 * group * head_dim);
  const std::vector<uint32_t> pos = {290, 599};
  const auto run = [&](const float* sinks) {
    std::vector<float> out(q.size());
    AttentionBlock block{
        q.data(), group * head_dim,  out.data(),          group * head_dim, pos.data(), 2,
        group,    keys->as<float>(), values->as<float>(), head_dim,         head_dim,   0.25f};
    block.sinks = sinks;
    attention(block, scratch->as<float>());
    return out;
  };
  const std::vector<float> far = {-1e30f, 1e30f}, plain = run(nullptr), got = run(far.data());
  for (size_t i = 0; i < got.size(); ++i) {
    const bool above = i / head_dim % group == 1;
    ASSERT_EQ(got[i], above ? 0.0f : plain[i]) << i;
  }
}

TEST_P(Kernels, AttentionMass) {
  for (int round = 0; round < 40; ++round) {
    const size_t rows = number(1, 14), head_dim = 2 * number(1, 64), slots = 32 * number(1, 20);
    const size_t stride = head_dim * number(1, 3);
    std::vector<uint32_t> pos(rows);
    for (uint32_t& p : pos) p = static_cast<uint32_t>(number(0, slots - 1));
    std::sort(pos.begin(), pos.end());
    const auto q = normal(rows * stride, 2.0f);
    auto keys = AlignedBuffer::allocate(slots * head_dim * 4);
    // Poison what no row may see: a leak shows as NaN.
    for (size_t s = 0; s < slots; ++s) {
      for (size_t e = 0; e < head_dim; ++e) {
        keys->as<float>()[s / 16 * 16 * head_dim + e * 16 + s % 16] =
            s <= pos.back() ? normal(1)[0] : std::nanf("");
      }
    }
    AttentionMassBlock block{q.data(),
                             stride,
                             pos.data(),
                             rows,
                             keys->as<float>(),
                             head_dim,
                             static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)))};
    if (round % 2 == 1) block.window = static_cast<uint32_t>(number(1, slots));
    if (round % 3 == 2) block.softcap = 1.0f + static_cast<float>(number(0, 40));
    const std::vector<float> sink = normal(1, 3.0f);
    if (round % 5 > 2) block.sink = sink.data();
    block.dtype = kCacheTypes[number(0, 2)];
    const AlignedBuffer kept = cached(keys->as<float>(), slots * head_dim, block.dtype);
    block.k = kept.data();
    auto mass = AlignedBuffer::allocate(attention_mass_floats(pos.back()) * 4);
    auto scratch = AlignedBuffer::allocate(attention_mass_scratch_floats(pos.back()) * 4);
    std::fill_n(mass->as<float>(), attention_mass_floats(pos.back()), 0.25f);  // it is added to
    std::vector<float> want(pos.back() + 1, 0.25f);
    attention_mass(block, mass->as<float>(), scratch->as<float>());
    attention_mass_ref(block, want.data());
    const std::vector<float> got(mass->as<float>(), mass->as<float>() + want.size());
    SCOPED_TRACE(testing::Message() << rows << " rows, head_dim " << head_dim << ", " << slots);
    ASSERT_NO_FATAL_FAILURE(expect_close(got, want, block.softcap != 0 ? 1e-5 : 3e-6));
  }
}

TEST_P(Kernels, AttentionMassKeepsPoison) {
  const size_t head_dim = 16, slots = 64;
  auto keys = AlignedBuffer::allocate(slots * head_dim * 4);
  std::fill_n(keys->as<float>(), slots * head_dim, 0.5f);
  keys->as<float>()[2 * 16 * head_dim + 3] = std::nanf("");  // slot 35
  const std::vector<float> q(2 * head_dim, 1.0f);
  for (const uint32_t last : {34u, 35u}) {
    const std::vector<uint32_t> pos = {3, last};
    auto mass = AlignedBuffer::allocate(attention_mass_floats(last) * 4);
    auto scratch = AlignedBuffer::allocate(attention_mass_scratch_floats(last) * 4);
    std::fill_n(mass->as<float>(), attention_mass_floats(last), 0.0f);
    attention_mass({q.data(), head_dim, pos.data(), 2, keys->as<float>(), head_dim, 0.25f},
                   mass->as<float>(), scratch->as<float>());
    EXPECT_EQ(std::isnan(mass->as<float>()[0]), last == 35);
  }
}

TEST_P(Kernels, AttentionTempered) {
  for (int round = 0; round < 60; ++round) {
    const size_t rows = number(1, 14), head_dim = 2 * number(1, 64), slots = 32 * number(1, 20);
    const size_t stride = head_dim * number(1, 3), v_stride = round_up(head_dim, 16);
    std::vector<uint32_t> pos(rows);
    for (uint32_t& p : pos) p = static_cast<uint32_t>(number(0, slots - 1));
    std::sort(pos.begin(), pos.end());
    // All of one kind, of the other, or of both.
    std::vector<uint8_t> tempered(pos.back() + 1, round % 7 == 0 ? 1 : 0);
    for (uint8_t& t : tempered) {
      if (round % 7 > 1) t = number(0, 2) == 0 ? static_cast<uint8_t>(number(1, 255)) : 0;
    }
    const auto q = normal(rows * stride, 2.0f);
    auto keys = AlignedBuffer::allocate(slots * head_dim * 4);
    auto values = AlignedBuffer::allocate(slots * v_stride * 4);
    for (size_t s = 0; s < slots; ++s) {
      const bool seen = s <= pos.back();  // a leak of any other shows as NaN
      for (size_t e = 0; e < head_dim; ++e) {
        keys->as<float>()[s / 16 * 16 * head_dim + e * 16 + s % 16] =
            seen ? normal(1)[0] : std::nanf("");
      }
      for (size_t e = 0; e < v_stride; ++e) {
        values->as<float>()[s * v_stride + e] = seen ? normal(1)[0] : std::nanf("");
      }
    }
    TemperedBlock block;
    std::vector<float> got = q, want = q, got_mass(rows), want_mass(rows);
    block.q = block.out = got.data();
    block.stride = stride;
    block.pos = pos.data();
    block.n_rows = rows;
    block.dtype = kCacheTypes[number(0, 2)];
    const AlignedBuffer kept_k = cached(keys->as<float>(), slots * head_dim, block.dtype);
    const AlignedBuffer kept_v = cached(values->as<float>(), slots * v_stride, block.dtype);
    block.k = kept_k.data();
    block.v = kept_v.data();
    block.head_dim = head_dim;
    block.v_stride = v_stride;
    block.tempered = tempered.data();
    block.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
    block.temperature = round % 3 == 0 ? 1.0f : 0.7f;
    block.sum_scale = round % 5 == 0 ? 1.0f : 0.8f;
    if (round % 6 > 2) block.window = static_cast<uint32_t>(number(1, slots));
    const std::vector<float> sink = normal(1, 3.0f);
    if (round % 4 > 1) block.sink = sink.data();
    if (head_dim > 2 && round % 5 > 2) {  // latent rows
      block.values_from = number(1, head_dim - 1);
      block.v = nullptr;
    }
    block.mass = got_mass.data();
    auto scratch =
        AlignedBuffer::allocate(attention_tempered_scratch_floats(pos.back(), head_dim) * 4);
    attention_tempered(block, scratch->as<float>());
    block.q = block.out = want.data();
    block.mass = want_mass.data();
    attention_tempered_ref(block);
    SCOPED_TRACE(testing::Message() << "round " << round << ", " << rows << " rows, head_dim "
                                    << head_dim << ", " << slots);
    ASSERT_NO_FATAL_FAILURE(expect_close(got, want, 2e-5));
    ASSERT_NO_FATAL_FAILURE(expect_close(got_mass, want_mass, 1e-5));
  }
}

TEST_P(Kernels, AttentionTemperedKeepsPoison) {
  const size_t head_dim = 16, slots = 64;
  auto keys = AlignedBuffer::allocate(slots * head_dim * 4);
  auto values = AlignedBuffer::allocate(slots * head_dim * 4);
  std::fill_n(keys->as<float>(), slots * head_dim, 0.5f);
  std::fill_n(values->as<float>(), slots * head_dim, 1.0f);
  keys->as<float>()[2 * 16 * head_dim + 3] = std::nanf("");  // slot 35
  for (const uint8_t kind : {0, 1}) {
    std::vector<uint8_t> tempered(64, 0);
    tempered[1] = 1;
    tempered[35] = kind;
    std::vector<float> q(2 * head_dim, 1.0f);
    const std::vector<uint32_t> pos = {34, 35};
    TemperedBlock block;
    block.q = block.out = q.data();
    block.stride = block.head_dim = block.v_stride = head_dim;
    block.pos = pos.data();
    block.n_rows = 2;
    block.k = keys->as<float>();
    block.v = values->as<float>();
    block.tempered = tempered.data();
    auto scratch = AlignedBuffer::allocate(attention_tempered_scratch_floats(35, head_dim) * 4);
    attention_tempered(block, scratch->as<float>());
    EXPECT_FLOAT_EQ(q[0], 1.0f);
    EXPECT_TRUE(std::isnan(q[head_dim])) << int{kind};
  }
}

}  // namespace
}  // namespace blend::kernels
