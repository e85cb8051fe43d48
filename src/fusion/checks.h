// Checks: at which layers a fuse chooses rows, and whether its options go together. What Pass (the
// built-in engine) and StepPlan (the host's) have in common before the first layer.
#pragma once

#include "fusion/options.h"
#include "fusion/policy/policy.h"

namespace blend {

// What does not depend on the prompt. INVALID_ARGUMENT names the option.
Status check_options(bool has_store, const FuseOptions& options);

// Where `policy` chooses: the schedule as given, or one check. A policy that measures nothing
// chooses before layer 0 unless a schedule says otherwise, so that the rows it leaves out cost
// nothing (as EPIC does). One layer has nothing to choose for: its K, V depend on no other row.
// policy null (full, reuse): an empty schedule.
Result<Schedule> checks_of(const SelectionPolicy* policy, const FuseOptions& options,
                           uint32_t n_layers);

// Whether the drift maps that the options ask for belong to this schedule. INVALID_ARGUMENT only
// where they are required.
Status check_drift(const FuseOptions& options, const Schedule& checks);

// The first layer whose stored K, V of rows that are not exact are asked for. policy null: nothing
// is left to choose.
uint32_t first_stored_layer(const SelectionPolicy* policy, const Schedule& checks);

}  // namespace blend
