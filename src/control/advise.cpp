#include "control/advise.h"

#include <algorithm>

namespace blend {

Advice advise(const FuseShape& shape, double ratio, double prefill_s,
              std::span<const Storage> storages) {
  Advice out;
  out.recompute_s = compute_seconds(shape, ratio, prefill_s);
  for (const Storage& storage : storages) {
    StorageAdvice a;
    a.load_s = storage.latency_s + static_cast<double>(shape.load_bytes) / storage.bytes_per_s;
    a.hidden_ratio = hidden_ratio(shape, prefill_s, a.load_s);
    a.ratio = choose_ratio(ratio, a.hidden_ratio);
    a.total_s = std::max(a.load_s, out.recompute_s);
    a.cost_per_hour = static_cast<double>(shape.load_bytes) * 1e-9 * storage.cost_per_gb_hour;
    a.hides = a.load_s <= out.recompute_s * (1.0 + 1e-9);
    a.slower_than_prefill = a.load_s > prefill_s;
    out.storages.push_back(a);
    if (!a.hides) continue;
    const size_t i = out.storages.size() - 1;
    const auto better = [&](size_t j) {
      if (storage.cost_per_gb_hour != storages[j].cost_per_gb_hour) {
        return storage.cost_per_gb_hour < storages[j].cost_per_gb_hour;
      }
      return storage.bytes_per_s > storages[j].bytes_per_s;
    };
    if (!out.cheapest || better(*out.cheapest)) out.cheapest = i;
  }
  return out;
}

}  // namespace blend
