// oneDNN's matmul primitives by shape, kept for the next call.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <tuple>

namespace blend::cpu {

// How weights lie in memory, W [out = n, in = k].
enum class WeightLayout : uint8_t {
  rows,         // f32 [n, k]
  panels,       // f32, panels of 64 outputs: oneDNN's BA16a64b; only with AVX-512
  int8_panels,  // s8, panels of 64 outputs and 4 inputs: oneDNN's BA16a64b4a; only with VNNI
};
dnnl::memory::desc weights_desc(int64_t k, int64_t n, WeightLayout layout);

// A product of m rows, single-threaded: x [m, k] and y [m, n] row-major; f32 both, or u8 and s32
// where the weights are int8.
struct MatmulKey {
  int64_t m = 0, k = 0, n = 0;
  WeightLayout layout = WeightLayout::rows;
  bool accumulate = false;  // y += product
  bool operator<(const MatmulKey& o) const {
    return std::tie(m, k, n, layout, accumulate) < std::tie(o.m, o.k, o.n, o.layout, o.accumulate);
  }
};

struct Matmul {
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul matmul;
  size_t scratch_bytes = 0;
};

// Thread-safe. The least recently used are dropped. A primitive takes 0.05-0.1 ms to create; a
// prompt of a new length needs about two a weight shape, so every row count is its own primitive
// rather than padded rows.
class MatmulCache {
 public:
  MatmulCache() : engine_(dnnl::engine::kind::cpu, 0) {}

  const dnnl::engine& engine() const { return engine_; }
  // Throws dnnl::error, also where this machine has no such product. To be called inside
  // guarded().
  std::shared_ptr<const Matmul> get(const MatmulKey& key);

 private:
  static constexpr size_t kMost = 512;
  using Lru = std::list<std::pair<MatmulKey, std::shared_ptr<const Matmul>>>;

  dnnl::engine engine_;
  std::mutex mutex_;
  Lru lru_;
  std::map<MatmulKey, Lru::iterator> index_;
};

// One product; x, w, y and scratch (scratch_bytes) as the key says.
void run_matmul(const Matmul& m, const dnnl::engine& engine, dnnl::stream& stream, const void* x,
                const void* w, void* y, void* scratch);

}  // namespace blend::cpu
