#pragma once

#include "backend/stream_ops.h"
#include "base/threads/thread_pool.h"

namespace blend::cpu {

class CpuStreamOps final : public StreamOps {
 public:
  explicit CpuStreamOps(ThreadPool& pool) : pool_(pool) {}
  Status predict(const Weight& coefficients, Tensor scores, const StreamRows& rows) override;
  Status correct(const Weight& coefficients, Tensor scores, Tensor before,
                 const StreamRows& rows) override;
  Status match(Tensor x, Tensor y) override;
  Status weigh(Tensor x, const Weight& weight, Tensor out) override;

 private:
  ThreadPool& pool_;
};

}  // namespace blend::cpu
