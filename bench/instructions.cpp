// How many instructions do the kernels take? Run by bench/instructions.py under callgrind, which
// counts those inside blend_measured() and writes a file after each; the output names them.
#include <hwy/targets.h>

#include <array>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "bench/measure.h"
#include "bench/peak.h"
#include "cpu/attention.h"
#include "cpu/block_decode.h"
#include "cpu/convert.h"
#include "cpu/few_rows.h"
#include "cpu/kv_layout.h"
#include "cpu/rms_norm.h"
#include "cpu/rope.h"
#include "cpu/scatter_k.h"
#include "cpu/swiglu.h"
#include "support/random_blocks.h"

extern "C" [[gnu::noinline]] void blend_measured(const std::function<void()>& kernel) {
  kernel();
  asm volatile("" ::: "memory");
}

namespace {

using namespace blend;

std::vector<float> normal(size_t n) {
  test::SplitMix random(n);
  std::vector<float> v(n);
  for (float& x : v) x = static_cast<float>(random.normal());
  return v;
}

// The first call resolves symbols and looks at the machine.
void measure(const std::string& name, const std::function<void()>& kernel) {
  kernel();
  std::printf("%s\n", name.c_str());
  blend_measured(kernel);
}

void attention(const char* name, size_t rows, size_t keys, DType dtype = DType::f32) {
  constexpr size_t kGroup = 4, kDim = 64;
  kernels::KvLayout layout{1, kDim, keys};
  const auto fill = [dtype](size_t n) {
    auto buffer = bench::must(AlignedBuffer::allocate(n * sizeof(float)));
    (void)kernels::encode(normal(n).data(), n, dtype, buffer.data());
    return buffer;
  };
  const auto k = fill(layout.k_elements()), v = fill(layout.v_elements());
  const auto q = normal(rows * kGroup * kDim);
  auto out = q;
  std::vector<uint32_t> pos(rows);
  std::iota(pos.begin(), pos.end(), static_cast<uint32_t>(keys - rows));
  auto scratch = bench::must(AlignedBuffer::allocate(
      kernels::attention_scratch_floats(rows, kGroup, kDim) * sizeof(float)));
  kernels::AttentionBlock block;
  block.q = q.data(), block.out = out.data();
  block.q_stride = block.out_stride = kGroup * kDim;
  block.pos = pos.data(), block.n_rows = rows, block.group = kGroup;
  block.k = k.data(), block.v = v.data(), block.dtype = dtype;
  block.head_dim = kDim, block.v_stride = layout.v_stride(), block.scale = 0.125f;
  measure(name, [&] { kernels::attention(block, scratch.as<float>()); });
}

void few_rows(BlockType blocks, DType dtype, size_t m) {
  constexpr size_t k = 1024, n = 16;
  test::SplitMix random(1);
  const std::string w = blocks == BlockType::none
                            ? std::string(n * k * static_cast<size_t>(dtype_size(dtype)), '\x2c')
                            : test::random_blocks(blocks, n * k, 0.1, random);
  const auto x = normal(m * k);
  std::vector<float> y(m * n);
  const kernels::FewRows product{
      x.data(), reinterpret_cast<const std::byte*>(w.data()), y.data(), m, k, n, n, dtype, blocks,
      false};
  const char* const type = blocks == BlockType::none ? dtype_name(dtype) : block_type_name(blocks);
  measure("few_rows " + std::string(type) + " " + std::to_string(m),
          [&] { kernels::few_rows(product); });
}

}  // namespace

int main() {
  // valgrind knows no AVX-512, and does not recognize a form of AVX2's vmovq.
  hwy::DisableTargets(HWY_SSE4 - 1);
  std::printf("%s\n", bench::simd_target());
  attention("attention 24 rows", 24, 512);
  attention("attention 1 row", 1, 512);
  attention("attention 24 rows, f16 cache", 24, 512, DType::f16);
  attention("attention 1 row, f16 cache", 1, 512, DType::f16);
  for (const size_t m : {size_t{1}, size_t{4}}) {
    few_rows(BlockType::none, DType::f32, m);
    few_rows(BlockType::none, DType::f16, m);
    for (auto type = static_cast<uint8_t>(BlockType::q4_0); type < kBlockTypes; ++type) {
      few_rows(static_cast<BlockType>(type), DType::f32, m);
    }
  }
  constexpr size_t kN = 2048, kDim = 64, kHeads = kN / kDim;
  auto x = normal(kN);
  const auto y = normal(kN);
  std::vector<float> out(kN);
  std::vector<std::byte> stored(kN * 2);
  measure("rms_norm", [&] { kernels::rms_norm(x.data(), y.data(), 1e-5f, kN, out.data()); });
  measure("swiglu", [&] { kernels::swiglu(x.data(), y.data(), kN, out.data()); });
  kernels::RopeRow rope;
  rope.n_heads = kHeads, rope.head_dim = rope.rotary_dim = kDim;
  rope.cos = y.data(), rope.sin = y.data() + kDim;
  measure("rope", [&] { kernels::rope(rope, x.data()); });
  measure("encode f16", [&] { (void)kernels::encode(y.data(), kN, DType::f16, stored.data()); });
  measure("decode f16", [&] { kernels::decode(stored.data(), DType::f16, kN, out.data()); });
  test::SplitMix random(1);
  const std::string q4 = test::random_blocks(BlockType::q4_k, kN, 0.1, random);
  measure("decode q4_k", [&] {
    kernels::decode_blocks(BlockType::q4_k, reinterpret_cast<const std::byte*>(q4.data()), kN,
                           out.data());
  });
  std::vector<uint32_t> slots(16);
  std::iota(slots.begin(), slots.end(), 0u);
  const kernels::KvLayout layout{8, kDim, 32};
  const auto rows = normal(slots.size() * 8 * kDim);
  auto k = bench::must(AlignedBuffer::allocate(layout.k_elements() * sizeof(float)));
  measure("scatter_k", [&] {
    (void)kernels::scatter_k(rows.data(), 8 * kDim, slots.data(), slots.size(), layout, DType::f32,
                             k.data());
  });
  return 0;
}
