// Comparisons of a fusion with the reference, shared by the property tests.
#pragma once

#include "conformance/abi.h"

namespace blend::test {

// max |logit difference| that a fusion on an f32 store may have from the reference.
inline constexpr double kLogitTolerance = 1e-4;

// The options of the reference that match those of the call.
ReferenceFuseOptions reference_options(const FuseCase& how, DType kv_dtype);

// Compares everything that a fusion tells about itself, and its logits, with the reference: rows,
// flags and counts of every segment and layer, deviations and the selected rows. Returns the
// reference's fusion. Where two deviations are too close for f32 to order, the reference recomputes
// the rows that the library chose.
ReferenceFusion expect_like_reference(const ReferenceModel& reference, const Fusion& fusion,
                                      const Prompt& prompt, const FuseCase& how,
                                      DType kv_dtype = DType::f32,
                                      double tolerance = kLogitTolerance);

}  // namespace blend::test
