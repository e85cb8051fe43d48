// oneDNN alone, as a peer where it is installed: one matmul primitive with weights packed in its
// own way, on its own threads.
#pragma once

#ifdef BLEND_BENCH_ONEDNN
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <vector>
#endif

#include <cstdint>

namespace blend::bench {

#ifdef BLEND_BENCH_ONEDNN
inline constexpr bool kHasLibrary = true;

inline void set_library_threads(uint32_t n) { omp_set_num_threads(static_cast<int>(n)); }

// Types of a product's operands.
struct GemmTypes {
  dnnl::memory::data_type x, w, y;
};
constexpr GemmTypes kFloats = {dnnl::memory::data_type::f32, dnnl::memory::data_type::f32,
                               dnnl::memory::data_type::f32};
constexpr GemmTypes kBytes = {dnnl::memory::data_type::u8, dnnl::memory::data_type::s8,
                              dnnl::memory::data_type::s32};
constexpr GemmTypes kBytesToFloats = {dnnl::memory::data_type::u8, dnnl::memory::data_type::s8,
                                      dnnl::memory::data_type::f32};

// One shape's primitive. Not thread-safe; set_library_threads() says on how many threads it runs.
class LibraryGemm {
 public:
  // x [m, k], w [n, k], y [m, n]. x and y must outlive it.
  LibraryGemm(const GemmTypes& types, int64_t m, int64_t k, int64_t n, void* x, void* w, void* y)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    using dnnl::memory;
    const dnnl::matmul::desc desc({{m, k}, types.x, memory::dims{k, 1}},
                                  {{k, n}, types.w, memory::format_tag::any},
                                  {{m, n}, types.y, memory::dims{n, 1}});
    dnnl::primitive_attr attributes;
    if (types.x == memory::data_type::u8 && types.y == memory::data_type::f32) {
      attributes.set_output_scales(1 << 1, std::vector<float>(static_cast<size_t>(n), 1e-3f));
    }
    const dnnl::matmul::primitive_desc pd(desc, attributes, engine_);
    matmul_ = dnnl::matmul(pd);
    memory plain({{k, n}, types.w, memory::dims{1, k}}, engine_, w);
    memory packed(pd.weights_desc(), engine_);
    dnnl::reorder(plain, packed).execute(stream_, plain, packed);
    stream_.wait();
    args_ = {{DNNL_ARG_SRC, memory(pd.src_desc(), engine_, x)},
             {DNNL_ARG_WEIGHTS, packed},
             {DNNL_ARG_DST, memory(pd.dst_desc(), engine_, y)}};
  }
  void run() {
    matmul_.execute(stream_, args_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> args_;
};

// The same for f32 activations: its own reorder converts them to bytes, with one scale for
// all of them, and a column of y has a scale. (Ours finds a scale and a zero for each row.)
class LibraryInt8OfFloats {
 public:
  LibraryInt8OfFloats(int64_t m, int64_t k, int64_t n, void* x, void* w, void* y)
      : engine_(dnnl::engine::kind::cpu, 0),
        stream_(engine_),
        bytes_(static_cast<size_t>(m * k)),
        product_(kBytesToFloats, m, k, n, bytes_.data(), w, y) {
    using dnnl::memory;
    dnnl::primitive_attr attributes;
    attributes.set_output_scales(0, {255.0f});
    from_ = memory({{m, k}, memory::data_type::f32, memory::dims{k, 1}}, engine_, x);
    to_ = memory({{m, k}, memory::data_type::u8, memory::dims{k, 1}}, engine_, bytes_.data());
    reorder_ = dnnl::reorder(from_, to_, attributes);
  }
  void run() {
    reorder_.execute(stream_, from_, to_);
    stream_.wait();
    product_.run();
  }

 private:
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<uint8_t> bytes_;
  dnnl::memory from_, to_;
  dnnl::reorder reorder_;
  LibraryGemm product_;
};

#else
inline constexpr bool kHasLibrary = false;

inline void set_library_threads(uint32_t /*n*/) {}
struct GemmTypes {};
constexpr GemmTypes kFloats, kBytes;

struct LibraryGemm {
  LibraryGemm(const GemmTypes&, int64_t, int64_t, int64_t, void*, void*, void*) {}
  void run() {}
};
struct LibraryInt8OfFloats {
  LibraryInt8OfFloats(int64_t, int64_t, int64_t, void*, void*, void*) {}
  void run() {}
};
#endif

}  // namespace blend::bench
