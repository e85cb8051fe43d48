// The store's figures as metrics: a list for a host's own system, or the text that Prometheus
// reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "store/store_admin.h"

namespace blend {

struct Metric {
  const char* name;    // "blend_store_chunks"; a counter's ends in _total
  const char* labels;  // "tier=\"ram\"" or ""
  const char* help;
  bool counter;  // otherwise a gauge
  double value;
};

// Metrics of one name are adjacent.
std::vector<Metric> store_metrics(const StoreStat& stat, double read_bytes_per_s);

// The Prometheus text exposition format, version 0.0.4. `store` becomes the label `store` of every
// line, escaped.
std::string prometheus_text(const std::vector<Metric>& metrics, std::string_view store);

}  // namespace blend
