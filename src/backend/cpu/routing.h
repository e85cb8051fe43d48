// Which experts a row goes through, and with what weights.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace blend::cpu {

// scores: the router's logits of one row, [experts.count]; become its scores. bias: added for
// the choice, [experts.count], or null. chosen: [experts.used] ascending; of equal scores the
// first expert's wins, and of equal groups the first. weights: theirs.
void choose_experts(const Experts& experts, float* scores, const float* bias, uint32_t* chosen,
                    float* weights);

// The rows of a prompt sorted by expert: those of one are neighbours, in their own order.
struct SortedRows {
  uint32_t* first;  // [n_experts + 1]: the first place of each expert
  uint32_t* row;    // [n_rows * n_used]: of each place
  uint32_t* place;  // [n_rows * n_used]: of each row and choice
};
// chosen: [n_rows * n_used].
void sort_by_expert(const uint32_t* chosen, uint32_t n_rows, uint32_t n_used, uint32_t n_experts,
                    const SortedRows& out);

}  // namespace blend::cpu
