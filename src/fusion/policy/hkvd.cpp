// hkvd: the rows whose fresh K, V lie furthest from their stored ones (CacheBlend 4.2). Which of K
// and V, and in which norm, is the fuse's rule of deviation.
#include "fusion/policy/policy.h"

namespace blend {
namespace {

class Hkvd final : public RankingPolicy {
 public:
  Needs needs() const override { return {.deviation = true}; }

 private:
  Status score(const CheckPoint& at, std::span<const uint32_t> candidates,
               std::span<float> scores) const override {
    for (size_t i = 0; i < candidates.size(); ++i) scores[i] = at.deviation[candidates[i]];
    return Status::ok();
  }
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_hkvd() { return std::make_unique<Hkvd>(); }

}  // namespace blend
