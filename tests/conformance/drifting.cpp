#include "conformance/drifting.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "profile/profile.h"

namespace blend::test {
namespace {

double half(double x) { return f16_to_f32(f32_to_f16(static_cast<float>(x))); }

void append_f16(double x, std::vector<std::byte>& out) {
  const uint16_t h = f32_to_f16(static_cast<float>(x));
  const auto* const bytes = reinterpret_cast<const std::byte*>(&h);
  out.insert(out.end(), bytes, bytes + sizeof h);
}

}  // namespace

Profile Drifting::make_profile(uint32_t check_layer, uint32_t rank, double scale,
                               ReferenceDrift& drift, const std::string& file) {
  blend::Profile p;
  blend_model_info info{};
  info.struct_size = sizeof info;
  EXPECT_EQ(blend_model_get_info(model_.get(), &info, nullptr), BLEND_OK);
  std::memcpy(p.fingerprint.data(), info.fingerprint, p.fingerprint.size());
  p.n_layers = info.n_layers;
  p.kv_dim = info.n_kv_heads * info.head_dim;
  p.prefixes = {random_.chunk_prefix};
  p.metric = BLEND_METRIC_V;
  p.check_layer = check_layer;
  p.corrected = p.trusted = true;
  p.ratio = 0.1;
  p.max_kl = 0.02;
  p.min_top1 = 0.9;
  for (const double ratio : {0.0, 0.1, 0.3}) {
    p.table.push_back({0, BLEND_METRIC_V, true, ratio, ratio < 0.1 ? 0.5 : 0.01, 1, 1, 10});
    p.table.back().check_layer = check_layer;
  }
  DriftMaps& maps = p.drift;
  maps.inputs = {rng_.below(2) == 1, rng_.below(2) == 1};
  maps.kv_dim = p.kv_dim;
  maps.first_layer = check_layer + 1;
  maps.n_maps = p.n_layers - check_layer - 1;
  maps.rank = rank;
  maps.explained_k.assign(maps.n_maps, 0.5f);
  maps.explained_v.assign(maps.n_maps, 0.25f);
  drift = {check_layer, maps.inputs.fresh, maps.inputs.constant, {}};
  const size_t out = maps.n_out(), in = maps.n_in(), inner = rank == 0 ? in : rank;
  for (uint32_t l = 0; l < maps.n_maps; ++l) {
    std::vector<double> left(out * inner), right;
    for (double& e : left) e = half(scale * rng_.normal() / std::sqrt(static_cast<double>(inner)));
    for (size_t i = 0; rank > 0 && i < rank * in; ++i) {
      right.push_back(half(rng_.normal() / std::sqrt(static_cast<double>(in))));
    }
    for (const double e : left) append_f16(e, maps.data);
    for (const double e : right) append_f16(e, maps.data);
    if (rank == 0) {
      drift.maps.push_back(left);
      continue;
    }
    std::vector<double>& product = drift.maps.emplace_back(out * in, 0.0);
    for (size_t o = 0; o < out; ++o) {
      for (size_t r = 0; r < rank; ++r) {
        for (size_t i = 0; i < in; ++i) {
          product[o * in + i] += left[o * rank + r] * right[r * in + i];
        }
      }
    }
  }
  EXPECT_TRUE(write_profile(p, dir_.file(file)).is_ok());
  return open_profile(file);
}

}  // namespace blend::test
