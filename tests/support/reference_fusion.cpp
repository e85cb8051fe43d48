#include "support/reference_fusion.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace blend::test {
namespace {

enum class Row : uint8_t {
  always,  // new text, question, misses computed inline
  exact,   // stored after exactly what precedes it here
  reused,  // stored in another context
};

double squared_distance(const double* a, const double* b, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

}  // namespace

ReferenceFusion reference_fuse(const ReferenceModel& model,
                               const std::vector<ReferenceSegment>& segments,
                               const ReferenceFuseOptions& options) {
  const uint32_t n_layers = model.config().n_layers;
  const size_t kv_dim = model.kv_dim();
  const bool full = options.policy == BLEND_POLICY_FULL;
  const bool measures = options.policy == BLEND_POLICY_HKVD;

  ReferenceFusion out;
  std::vector<int32_t> tokens;
  std::vector<Row> rows;
  ReferenceKv stored;  // [n_rows]; zeros where nothing is stored
  stored.k.resize(n_layers);
  stored.v.resize(n_layers);
  std::map<std::pair<std::vector<int32_t>, std::vector<int32_t>>, ReferenceKv> chunks;

  for (const ReferenceSegment& s : segments) {
    const bool is_prefix = s.kind == BLEND_SEGMENT_PREFIX;
    const bool is_stored =
        (is_prefix || s.kind == BLEND_SEGMENT_CHUNK) && !s.computed && !full && !s.tokens.empty();
    // A system prompt is stored after what precedes it, chunks after the chunk prefix.
    const std::vector<int32_t> stored_after = is_prefix ? tokens : options.chunk_prefix;
    const bool exact = is_stored && tokens == stored_after;
    out.exact.push_back(exact ? 1 : 0);
    if (is_stored) {
      auto [chunk, fresh] = chunks.try_emplace({stored_after, s.tokens});
      if (fresh) chunk->second = model.chunk(s.tokens, stored_after, options.kv_dtype);
      for (uint32_t l = 0; l < n_layers; ++l) {
        const ReferenceKv& kv = chunk->second;
        stored.k[l].insert(stored.k[l].end(), kv.k[l].begin(), kv.k[l].end());
        stored.v[l].insert(stored.v[l].end(), kv.v[l].begin(), kv.v[l].end());
      }
      if (!is_prefix) out.n_reused += s.tokens.size();
      if (exact) out.n_exact += s.tokens.size();
    } else {
      out.n_always += s.tokens.size();
      for (uint32_t l = 0; l < n_layers; ++l) {
        stored.k[l].resize(stored.k[l].size() + s.tokens.size() * kv_dim);
        stored.v[l].resize(stored.v[l].size() + s.tokens.size() * kv_dim);
      }
    }
    tokens.insert(tokens.end(), s.tokens.begin(), s.tokens.end());
    rows.resize(tokens.size(), !is_stored ? Row::always : exact ? Row::exact : Row::reused);
  }

  const size_t n = tokens.size();
  out.n_rows = n;
  out.deviation.assign(n, 0.0);
  // The rows that go through the layers: with a check layer all but the exact ones, up to it.
  std::vector<uint32_t> active;
  for (uint32_t i = 0; i < n; ++i) {
    if (rows[i] == Row::always || (measures && rows[i] == Row::reused)) active.push_back(i);
  }
  std::vector<std::vector<double>> x(n);
  for (const uint32_t i : active) x[i] = model.embed(tokens[i]);

  out.kv = stored;
  out.kv.n_rows = n;
  for (uint32_t l = 0; l < n_layers; ++l) {
    std::vector<double>& k = out.kv.k[l];
    std::vector<double>& v = out.kv.v[l];
    for (const uint32_t i : active) {
      std::vector<double> fresh_k, fresh_v;
      model.project_kv(l, x[i], fresh_k, fresh_v);
      std::copy(fresh_k.begin(), fresh_k.end(), k.begin() + static_cast<int64_t>(i * kv_dim));
      std::copy(fresh_v.begin(), fresh_v.end(), v.begin() + static_cast<int64_t>(i * kv_dim));
    }
    if (measures && l == options.check_layer) {
      std::vector<uint32_t> order;
      for (uint32_t i = 0; i < n; ++i) {
        if (rows[i] != Row::reused) continue;
        order.push_back(i);
        if ((options.metric & BLEND_METRIC_V) != 0) {
          out.deviation[i] += squared_distance(&v[i * kv_dim], &stored.v[l][i * kv_dim], kv_dim);
        }
        if ((options.metric & BLEND_METRIC_K) != 0) {
          out.deviation[i] += squared_distance(&k[i * kv_dim], &stored.k[l][i * kv_dim], kv_dim);
        }
      }
      out.budget =
          static_cast<size_t>(std::ceil(options.ratio * static_cast<double>(out.n_reused)));
      std::stable_sort(order.begin(), order.end(),
                       [&](uint32_t a, uint32_t b) { return out.deviation[a] > out.deviation[b]; });
      order.resize(std::min(order.size(), out.budget));
      std::sort(order.begin(), order.end());
      out.selected = options.forced_selection.value_or(order);
      std::erase_if(active, [&](uint32_t i) {
        return rows[i] == Row::reused &&
               !std::binary_search(out.selected.begin(), out.selected.end(), i);
      });
    }
    const std::vector<double> rotated = model.rotate_rows(k);
    for (const uint32_t i : active) model.attend_and_feed(l, i, rotated, v, x[i]);
  }
  if (!active.empty() && active.back() == n - 1) out.logits = model.logits(x[n - 1]);
  return out;
}

void reference_decode(const ReferenceModel& model, ReferenceFusion& fusion,
                      const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) {
    const size_t pos = fusion.kv.n_rows;
    std::vector<double> x = model.embed(token);
    for (uint32_t l = 0; l < model.config().n_layers; ++l) {
      model.project_kv(l, x, fusion.kv.k[l], fusion.kv.v[l]);
      model.attend_and_feed(l, pos, model.rotate_rows(fusion.kv.k[l]), fusion.kv.v[l], x);
    }
    fusion.kv.n_rows = pos + 1;
    fusion.logits = model.logits(x);
  }
}

void reference_replace(const ReferenceModel& model, ReferenceFusion& fusion,
                       std::vector<int32_t>& all, size_t first, size_t n_old,
                       const std::vector<int32_t>& tokens) {
  const size_t kv_dim = model.kv_dim(), n_layers = model.config().n_layers;
  const ReferenceKv before = fusion.kv;
  const auto rows = [&](const std::vector<double>& plane, size_t from, size_t to) {
    return std::vector<double>(plane.begin() + static_cast<int64_t>(from * kv_dim),
                               plane.begin() + static_cast<int64_t>(to * kv_dim));
  };
  const auto cut = [&](size_t n) {
    for (size_t l = 0; l < n_layers; ++l) {
      fusion.kv.k[l].resize(n * kv_dim);
      fusion.kv.v[l].resize(n * kv_dim);
    }
    fusion.kv.n_rows = n;
  };
  cut(first);
  reference_decode(model, fusion, tokens);
  for (size_t l = 0; l < n_layers; ++l) {
    const auto k = rows(before.k[l], first + n_old, before.n_rows);
    const auto v = rows(before.v[l], first + n_old, before.n_rows);
    fusion.kv.k[l].insert(fusion.kv.k[l].end(), k.begin(), k.end());
    fusion.kv.v[l].insert(fusion.kv.v[l].end(), v.begin(), v.end());
  }
  const auto at = all.begin() + static_cast<int64_t>(first);
  all.insert(all.erase(at, at + static_cast<int64_t>(n_old)), tokens.begin(), tokens.end());
  cut(all.size() - 1);
  reference_decode(model, fusion, {all.back()});
}

}  // namespace blend::test
