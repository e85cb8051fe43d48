// The rows of a step that several sequences share: each is at a slot of a cache of its own. They
// are a launch's arguments, of which there may be 4 KiB: no layer waits for a table, and nothing
// has to be kept for the step.
#pragma once

#include "cuda/kv_rows.h"

namespace blend::kernels::cuda {

struct StepRows {
  static constexpr uint32_t kMost = 32;
  struct Row {
    uint16_t* k = nullptr;           // of the layer: [n_kv_heads][slots][stride]; V follows it
    const float* q_turns = nullptr;  // RopeView::table of Q
    const float* k_turns = nullptr;  // and of K
    uint32_t slots = 0;
    uint32_t pos = 0;
    uint32_t row = 0;    // of the tensors
    uint32_t begin = 0;  // attention: parts of the keys of the rows before it
  };
  Row row[kMost];
  uint32_t n = 0;
  uint32_t n_parts = 0;  // of all rows
  KvView shape;          // of every cache, except k, v and slots

  bool full() const { return n == kMost; }
  // Its keys are cut into `parts`.
  void add(Row r, uint32_t parts = 0) {
    r.begin = n_parts;
    row[n++] = r;
    n_parts += parts;
  }
  __host__ __device__ KvView cache(uint32_t i) const {
    KvView view = shape;
    view.k = row[i].k;
    view.slots = row[i].slots;
    view.v = view.k + view.at(view.n_kv_heads, 0);
    return view;
  }
  __host__ __device__ uint32_t parts(uint32_t i) const {
    return (i + 1 < n ? row[i + 1].begin : n_parts) - row[i].begin;
  }
};

}  // namespace blend::kernels::cuda
