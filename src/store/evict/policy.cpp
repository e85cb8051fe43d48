#include "store/evict/policy.h"

#include <utility>

namespace blend {
namespace {

class Lru : public EvictionPolicy {
 public:
  bool renewed_by_use() const override { return true; }
  bool spares(const UseRecord&) const override { return false; }
  std::optional<Need> need(const Sha256&) const override { return std::nullopt; }
};

class Fifo final : public Lru {
 public:
  bool renewed_by_use() const override { return false; }
};

class Reuse final : public Lru {
 public:
  // The first hit is in the stamp already.
  bool spares(const UseRecord& record) const override { return record.uses > 1; }
};

class Hinted final : public EvictionPolicy {
 public:
  Hinted(std::shared_ptr<const EvictionPolicy> base, NeedMap needs)
      : base_(std::move(base)), needs_(std::move(needs)) {}
  bool renewed_by_use() const override { return base_->renewed_by_use(); }
  bool spares(const UseRecord& record) const override { return base_->spares(record); }
  std::optional<Need> need(const Sha256& id) const override {
    const auto found = needs_.find(id);
    if (found == needs_.end()) return base_->need(id);
    return found->second;
  }

 private:
  const std::shared_ptr<const EvictionPolicy> base_;
  const NeedMap needs_;
};

}  // namespace

std::shared_ptr<const EvictionPolicy> make_policy(Eviction kind) {
  switch (kind) {
    case Eviction::fifo:
      return std::make_shared<Fifo>();
    case Eviction::reuse:
      return std::make_shared<Reuse>();
    case Eviction::lru:
    case Eviction::never:  // nothing is evicted, but use is recorded for later opens
      break;
  }
  return std::make_shared<Lru>();
}

std::shared_ptr<const EvictionPolicy> make_hinted_policy(std::shared_ptr<const EvictionPolicy> base,
                                                         NeedMap needs) {
  return std::make_shared<Hinted>(std::move(base), std::move(needs));
}

}  // namespace blend
