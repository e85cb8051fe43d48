// RecordOps: a step of one row that is recorded once and then run again for other tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.h"

namespace blend {

// Host memory that a step of one row reads, which changes from run to run.
struct StepInput {
  int32_t token = 0;
  uint32_t pos = 0;
};

// A recorded step of one row, to be run for other tokens and positions without issuing its
// operations again. Used by one thread at a time; the objects that its operations work on must
// outlive it.
class RecordedStep {
 public:
  virtual ~RecordedStep() = default;
  // Whether the recording does for this position what issuing the step would do.
  virtual bool covers(uint32_t pos) const = 0;
  // Issues the step; covers(input.pos).
  virtual Status run(const StepInput& input) = 0;
};

// Part of a backend, and thread-safe as it is.
class RecordOps {
 public:
  virtual ~RecordOps() = default;
  // Records the operations that `issue` issues for one row, without running them: of host memory
  // they read only &input.token and &input.pos, they wait for no result and make nothing that
  // outlives them. Null: not possible here; nothing has happened.
  virtual std::unique_ptr<RecordedStep> record(const StepInput& input,
                                               const std::function<Status()>& issue) = 0;
};

}  // namespace blend
