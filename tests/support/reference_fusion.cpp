#include "support/reference_fusion.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "support/random_model.h"

namespace blend::test {
namespace {

enum class Row : uint8_t {
  always,  // new text, question, misses computed inline
  exact,   // stored after exactly what precedes it here
  reused,  // stored in another context
};

double sized(double x, uint32_t norm) { return norm == BLEND_NORM_L2 ? x * x : std::abs(x); }

double distance(const double* a, const double* b, size_t n, uint32_t norm) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += sized(a[i] - b[i], norm);
  return sum;
}

double size_of(const double* a, size_t n, uint32_t norm) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += sized(a[i], norm);
  return sum;
}

// A row that may be chosen, and what is known of it.
struct Candidate {
  uint32_t row = 0;
  uint32_t place = 0;       // in its chunk
  uint32_t chunk_rows = 0;  // of its chunk
  double deviation = 0;
  double attention = 0;            // the question's
  double outside = 0, inside = 0;  // attention, seen when its chunk was precomputed
  bool measured = false;           // deviation
};

// Seats of a parliament: chunk by chunk, each time to the one whose next row stands earliest in
// proportion to its length (Adams), ties to the earlier chunk. Scores fall seat by seat.
std::vector<double> first_k_scores(const std::vector<Candidate>& candidates) {
  std::vector<double> scores(candidates.size());
  std::vector<uint8_t> seated(candidates.size(), 0);
  for (size_t seat = 0; seat < candidates.size(); ++seat) {
    size_t best = candidates.size();
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (seated[i] != 0) continue;
      if (best == candidates.size() ||
          uint64_t{candidates[i].place} * candidates[best].chunk_rows <
              uint64_t{candidates[best].place} * candidates[i].chunk_rows) {
        best = i;
      }
    }
    seated[best] = 1;
    scores[best] = -static_cast<double>(seat);
  }
  return scores;
}

std::vector<double> scores_of(uint32_t policy, const std::vector<Candidate>& candidates,
                              const ReferenceFuseOptions& options) {
  if (policy == BLEND_POLICY_FIRST_K) return first_k_scores(candidates);
  const auto length = [&](const Candidate& c) {
    return options.norm == BLEND_NORM_L2 ? std::sqrt(c.deviation) : c.deviation;
  };
  std::vector<double> scores;
  for (const Candidate& c : candidates) {
    switch (policy) {
      case BLEND_POLICY_RANDOM:  // the upper 24 bits of a hash of seed and row
        scores.push_back(
            static_cast<double>(SplitMix(SplitMix(options.seed).next() ^ c.row).next() >> 40));
        break;
      case BLEND_POLICY_QUESTION:
        scores.push_back(options.metric < BLEND_METRIC_V_WEIGHED
                             ? c.deviation * c.attention
                             : length(c) * std::sqrt(c.attention * c.inside));
        break;
      case BLEND_POLICY_PROBE:
        scores.push_back(c.outside * std::sqrt(c.attention * c.inside));
        break;
      case BLEND_POLICY_CASCADE:
        scores.push_back((c.measured ? length(c) : c.outside) * std::sqrt(c.attention * c.inside));
        break;
      case BLEND_POLICY_ATTENTION:
        scores.push_back(c.attention);
        break;
      case BLEND_POLICY_CONTEXT_IMPACT:
        scores.push_back(c.outside * c.inside);
        break;
      case BLEND_POLICY_CALLBACK:
        scores.push_back(options.score(c.row, c.deviation));
        break;
      default:
        if (options.metric < BLEND_METRIC_V_WEIGHED) {
          scores.push_back(c.deviation);
        } else {
          const bool squares = options.norm == BLEND_NORM_L2;
          scores.push_back(c.inside * (squares ? std::sqrt(c.deviation) : c.deviation));
        }
    }
  }
  return scores;
}

// Attention is at most 1, so 1 more puts the best four rows of every chunk before all others; fewer
// where the budget does not have four for each.
void raise_best_of_chunks(const std::vector<Candidate>& candidates, size_t budget,
                          std::vector<double>& scores) {
  std::map<uint32_t, std::vector<size_t>> chunks;  // by their first row
  for (size_t i = 0; i < candidates.size(); ++i) {
    chunks[candidates[i].row - candidates[i].place].push_back(i);
  }
  const std::vector<double> plain = scores;
  for (const auto& [first, rows] : chunks) {
    for (const size_t i : rows) {
      size_t better = 0;
      for (const size_t j : rows) better += plain[j] > plain[i] || (plain[j] == plain[i] && j < i);
      if (better < std::min<size_t>(4, budget / chunks.size())) scores[i] += 1;
    }
  }
}

// The top `budget` of the candidates by `policy`: ascending places in `candidates`.
std::vector<size_t> choose(uint32_t policy, const std::vector<Candidate>& candidates, size_t budget,
                           const ReferenceFuseOptions& options, std::vector<double>& scores) {
  scores = scores_of(policy, candidates, options);
  if (policy == BLEND_POLICY_ATTENTION) {
    raise_best_of_chunks(candidates, std::min(budget, candidates.size()), scores);
  }
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), budget));
  std::sort(order.begin(), order.end());
  return order;
}

// Rows that go on, ascending; scores by row where one policy alone decides.
std::vector<uint32_t> choose_rows(std::vector<Candidate> candidates, size_t budget,
                                  const ReferenceFuseOptions& options,
                                  std::vector<double>& row_scores) {
  std::vector<blend_policy_term> terms = options.terms;
  if (options.policy != BLEND_POLICY_UNION) terms = {{options.policy, 1.0}};
  std::erase_if(terms, [](const auto& term) { return term.policy == BLEND_POLICY_APE; });
  budget = std::min(budget, candidates.size());
  double total = 0, sum = 0;
  for (const blend_policy_term& term : terms) total += term.share;
  std::vector<uint32_t> rows;
  for (const blend_policy_term& term : terms) {
    sum += term.share;
    const size_t upto =
        &term == &terms.back()
            ? budget
            : static_cast<size_t>(std::llround(sum / total * static_cast<double>(budget)));
    std::vector<double> scores;
    const std::vector<size_t> picked =
        choose(term.policy, candidates, upto - rows.size(), options, scores);
    if (terms.size() == 1) {
      for (size_t i = 0; i < candidates.size(); ++i) row_scores[candidates[i].row] = scores[i];
    }
    for (auto at = picked.rbegin(); at != picked.rend(); ++at) {
      rows.push_back(candidates[*at].row);
      candidates.erase(candidates.begin() + static_cast<int64_t>(*at));
    }
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

bool has_term(const ReferenceFuseOptions& options, uint32_t policy) {
  if (options.policy != BLEND_POLICY_UNION) return options.policy == policy;
  return std::any_of(options.terms.begin(), options.terms.end(),
                     [&](const auto& term) { return term.policy == policy; });
}

// Whether any policy asks for rows.
bool policy_chooses(const ReferenceFuseOptions& options) {
  const auto asks = [](uint32_t policy) {
    return policy != BLEND_POLICY_FULL && policy != BLEND_POLICY_REUSE &&
           policy != BLEND_POLICY_APE;
  };
  if (options.policy != BLEND_POLICY_UNION) return asks(options.policy);
  return std::any_of(options.terms.begin(), options.terms.end(),
                     [&](const auto& term) { return asks(term.policy); });
}

ReferenceTempering tempering_of(const ReferenceFusion& fusion, uint32_t layer) {
  ReferenceTempering out{fusion.ape_temperature, fusion.ape_scale, {}};
  for (const uint32_t from : fusion.tempered_from) out.rows.push_back(from <= layer ? 1 : 0);
  return out;
}

std::vector<ReferenceTempering> temperings(const ReferenceFusion& fusion, uint32_t n_layers) {
  std::vector<ReferenceTempering> out;
  for (uint32_t l = 0; l < n_layers; ++l) out.push_back(tempering_of(fusion, l));
  return out;
}

bool policy_measures(uint32_t policy) {
  return policy == BLEND_POLICY_HKVD || policy == BLEND_POLICY_QUESTION ||
         policy == BLEND_POLICY_CALLBACK || policy == BLEND_POLICY_CASCADE;
}

// Adds to every row of `plane` that is not in `moved` a weighted mean of what those moved by, all
// of one chunk: rows [first, end), `dim` columns each. Near rows weigh more. kPrior rows that did
// not move are counted in.
void shift_chunk(size_t first, size_t end, size_t dim, const std::vector<size_t>& moved,
                 const std::vector<double>& stored, std::vector<double>& plane) {
  constexpr double kPrior = 8, kReach = 4;
  for (size_t row = first; row < end; ++row) {
    if (std::find(moved.begin(), moved.end(), row) != moved.end()) continue;
    for (size_t e = 0; e < dim; ++e) {
      double weights = kPrior, sum = 0;
      for (const size_t other : moved) {
        const double distance = std::abs(static_cast<double>(row) - static_cast<double>(other));
        const double weight = 1 + (distance <= 16 ? std::exp(-distance / kReach) : 0.0);
        weights += weight;
        sum += weight * (plane[other * dim + e] - stored[other * dim + e]);
      }
      plane[row * dim + e] += sum / weights;
    }
  }
}

bool policy_probes(uint32_t policy) {
  return policy == BLEND_POLICY_PROBE || policy == BLEND_POLICY_CASCADE ||
         policy == BLEND_POLICY_ATTENTION;
}

}  // namespace

bool reference_measures(const ReferenceFuseOptions& options) {
  if (policy_measures(options.policy)) return true;
  for (const blend_policy_term& term : options.terms) {
    if (policy_measures(term.policy)) return true;
  }
  return false;
}

ReferenceFusion reference_fuse(const ReferenceModel& model,
                               const std::vector<ReferenceSegment>& segments,
                               const ReferenceFuseOptions& options) {
  const uint32_t n_layers = model.n_kept();
  const size_t kv_dim = model.kv_dim();
  const bool full = options.policy == BLEND_POLICY_FULL;
  const bool chooses = policy_chooses(options);
  const bool probes =
      policy_probes(options.policy) ||
      std::any_of(options.terms.begin(), options.terms.end(),
                  [](const blend_policy_term& term) { return policy_probes(term.policy); });
  const bool weighs_impact = probes || has_term(options, BLEND_POLICY_CONTEXT_IMPACT) ||
                             options.metric >= BLEND_METRIC_V_WEIGHED;
  const bool measures = reference_measures(options);

  ReferenceFusion out;
  if (chooses) {
    out.checks = options.check_layers;
    if (out.checks.empty()) {
      const uint32_t first = !model.config().mixer.any()
                                 ? options.check_layer
                                 : std::max(options.check_layer, model.dependent_layer());
      out.checks = {{measures ? first : 0, options.ratio}};
      if (has_term(options, BLEND_POLICY_CASCADE)) {
        const double through = std::min(1.0, std::max(0.15, 2 * options.ratio));
        out.checks.insert(out.checks.begin(), {0, through});
      }
    }
  }
  std::vector<int32_t> tokens;
  std::vector<Row> rows;
  std::vector<Candidate> known;                   // [n_rows]; what depends on the prompt alone
  std::vector<std::pair<size_t, size_t>> reused;  // the rows of chunks that are not exact
  size_t question_rows = 0;
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
        stored.k[l].resize(stored.k[l].size() + s.tokens.size() * model.plane_dim(l));
        stored.v[l].resize(stored.v[l].size() + s.tokens.size() * model.plane_dim(l));
      }
    }
    ReferenceModel::Impact impact;
    if (is_stored && weighs_impact) impact = model.context_impact(s.tokens, stored_after);
    for (uint32_t i = 0; i < s.tokens.size(); ++i) {
      known.push_back(
          {static_cast<uint32_t>(known.size()), i, static_cast<uint32_t>(s.tokens.size())});
      if (impact.inside.empty()) continue;
      known.back().outside = impact.outside[i];
      known.back().inside = impact.inside[i];
    }
    if (s.kind == BLEND_SEGMENT_QUESTION) question_rows = s.tokens.size();
    if (is_stored && !exact) reused.emplace_back(tokens.size(), tokens.size() + s.tokens.size());
    tokens.insert(tokens.end(), s.tokens.begin(), s.tokens.end());
    rows.resize(tokens.size(), !is_stored ? Row::always : exact ? Row::exact : Row::reused);
  }

  const size_t n = tokens.size();
  out.n_rows = n;
  out.deviation.assign(n, 0.0);
  out.score.assign(n, 0.0);
  // The rows that go through the layers, and those of them whose fate is open.
  std::vector<uint32_t> active, undecided;
  for (uint32_t i = 0; i < n; ++i) {
    if (rows[i] == Row::always || (chooses && rows[i] == Row::reused)) active.push_back(i);
    if (chooses && rows[i] == Row::reused) undecided.push_back(i);
  }
  out.n_candidates = undecided.size();

  // The candidates that are left are asked about; those that are not chosen leave.
  const auto decide = [&](size_t check, std::vector<Candidate> candidates) {
    out.budget = static_cast<size_t>(
        std::ceil(out.checks[check].ratio * static_cast<double>(out.n_reused) - 1e-9));
    out.selected = choose_rows(std::move(candidates), out.budget, options, out.score);
    if (check + 1 == out.checks.size() && options.forced_selection) {
      out.selected = *options.forced_selection;
    }
    undecided = out.selected;
    out.n_after.push_back(undecided.size());
    std::erase_if(active, [&](uint32_t i) {
      return rows[i] == Row::reused && !std::binary_search(undecided.begin(), undecided.end(), i);
    });
  };
  const auto candidates_now = [&] {
    std::vector<Candidate> candidates;
    for (const uint32_t i : undecided) candidates.push_back(known[i]);
    return candidates;
  };
  // What the question attends to over the stored rows: at layer 1, or the mean over those that are
  // not of the first or the last sixth.
  if (probes) {
    const bool middle = has_term(options, BLEND_POLICY_ATTENTION);
    const uint32_t first_asked = middle ? n_layers / 6 : model.dependent_layer();
    uint32_t end_asked = middle ? n_layers - n_layers / 6 : first_asked + 1;
    // The last layer that is asked attends.
    while (model.config().mixer.has(end_asked - 1)) --end_asked;
    const double parts = static_cast<double>(question_rows) * (end_asked - first_asked);
    std::vector<std::vector<double>> asked(n);
    std::vector<double> k, v;
    for (uint32_t l = 0; l < end_asked; ++l) {
      const size_t dim = model.plane_dim(l);
      k = stored.k[l], v = stored.v[l];
      for (uint32_t i = 0; i < n; ++i) {
        if (rows[i] != Row::always) continue;
        if (l == 0) asked[i] = model.embed(tokens[i]);
        std::vector<double> fresh_k, fresh_v;
        model.project_kv(l, asked[i], fresh_k, fresh_v);
        std::copy(fresh_k.begin(), fresh_k.end(), k.begin() + static_cast<int64_t>(i * dim));
        std::copy(fresh_v.begin(), fresh_v.end(), v.begin() + static_cast<int64_t>(i * dim));
      }
      const std::vector<double> rotated = model.rotate_rows(l, k);
      for (uint32_t i = 0; i < n; ++i) {
        if (rows[i] != Row::always) continue;
        if (l >= first_asked && i >= n - question_rows) {
          const std::vector<double> attention = model.attention(l, i, rotated, v, asked[i]);
          for (uint32_t j = 0; j < std::min<size_t>(n, attention.size()); ++j) {
            known[j].attention += attention[j] / parts;
          }
        }
        if (l + 1 < end_asked) model.attend_and_feed(l, i, tokens[i], rotated, v, asked[i], {});
      }
    }
  }
  size_t next_check = 0;
  if (!out.checks.empty() && out.checks[0].layer == 0) decide(next_check++, candidates_now());

  std::vector<std::vector<double>> x(n);
  for (const uint32_t i : active) x[i] = model.embed(tokens[i]);

  out.kv = stored;
  out.kv.n_rows = n;
  if (has_term(options, BLEND_POLICY_APE)) {
    out.tempered_from.assign(n, UINT32_MAX);
    out.ape_temperature = options.ape_temperature;
    out.ape_scale = options.ape_scale;
  }
  std::map<uint32_t, std::vector<double>> drift_inputs;  // by row
  for (uint32_t l = 0; l < n_layers; ++l) {
    std::vector<double>& k = out.kv.k[l];
    std::vector<double>& v = out.kv.v[l];
    for (const uint32_t i : active) {
      std::vector<double> fresh_k, fresh_v;
      model.project_kv(l, x[i], fresh_k, fresh_v);
      const auto at = static_cast<int64_t>(i * model.plane_dim(l));
      std::copy(fresh_k.begin(), fresh_k.end(), k.begin() + at);
      std::copy(fresh_v.begin(), fresh_v.end(), v.begin() + at);
    }
    out.n_shifted = 0;
    for (const auto& [first, end] : reused) {
      if (!options.shift || !has_term(options, BLEND_POLICY_ATTENTION)) break;
      if (model.config().latent.any()) break;
      std::vector<size_t> moved;
      for (const uint32_t row : active) {
        if (row >= first && row < end) moved.push_back(row);
      }
      if (moved.empty()) continue;
      out.n_shifted += end - first - moved.size();
      if (l == 0 || model.config().mixer.has(l)) continue;
      shift_chunk(first, end, model.plane_dim(l), moved, stored.k[l], k);
      shift_chunk(first, end, model.plane_dim(l), moved, stored.v[l], v);
    }
    // What is stored here stays so in every later layer.
    for (uint32_t i = 0; i < out.tempered_from.size(); ++i) {
      if (rows[i] == Row::reused && !std::binary_search(active.begin(), active.end(), i)) {
        out.tempered_from[i] = std::min(out.tempered_from[i], l);
      }
    }
    out.n_corrected = 0;
    const auto is_active = [&](uint32_t row) {
      return std::binary_search(active.begin(), active.end(), row);
    };
    const auto foretold = [&](const std::vector<double>& x_row, size_t o) {
      const std::vector<double>& map = options.drift->maps[l - options.drift->check_layer - 1];
      double sum = 0;
      for (size_t i = 0; i < x_row.size(); ++i) sum += map[o * x_row.size() + i] * x_row[i];
      return sum;
    };
    std::array<double, 2> both = {0, 0}, own = {0, 0}, share = {1, 1};
    size_t n_judging = 0;
    for (const auto& [row, x_row] : drift_inputs) {
      if (!is_active(row) || !options.drift->guarded) continue;
      ++n_judging;
      for (size_t o = 0; o < 2 * kv_dim; ++o) {
        const size_t half = o < kv_dim ? 0 : 1, at = row * kv_dim + o - half * kv_dim;
        const double y = foretold(x_row, o);
        both[half] += y * (half == 0 ? k[at] - stored.k[l][at] : v[at] - stored.v[l][at]);
        own[half] += y * y;
      }
    }
    for (size_t half = 0; n_judging > 0 && half < 2; ++half) {
      share[half] = own[half] > 0 ? std::clamp(both[half] / own[half], 0.0, 1.0) : 0.0;
    }
    for (const auto& [row, x_row] : drift_inputs) {
      if (is_active(row)) continue;
      for (size_t o = 0; o < 2 * kv_dim; ++o) {
        const double sum = foretold(x_row, o);
        (o < kv_dim ? k[row * kv_dim + o] : v[row * kv_dim + o - kv_dim]) +=
            share[o < kv_dim ? 0 : 1] * sum;
      }
      ++out.n_corrected;
    }
    out.drift_share.push_back(out.n_corrected > 0 ? share : std::array<double, 2>{0, 0});
    if (options.drift && !out.checks.empty() && out.checks[0].layer == l && l > 0 &&
        options.drift->check_layer == l) {
      for (const uint32_t row : undecided) {
        std::vector<double>& x_row = drift_inputs[row];
        for (const auto& [fresh, old] : {std::pair{&k, &stored.k[l]}, {&v, &stored.v[l]}}) {
          for (size_t e = row * kv_dim; e < (row + 1) * kv_dim; ++e) {
            x_row.push_back((*fresh)[e] - (*old)[e]);
          }
        }
        for (const auto* fresh : {&k, &v}) {
          if (!options.drift->fresh) break;
          x_row.insert(x_row.end(), fresh->begin() + static_cast<int64_t>(row * kv_dim),
                       fresh->begin() + static_cast<int64_t>((row + 1) * kv_dim));
        }
        if (options.drift->constant) x_row.push_back(1);
      }
    }
    const std::vector<double> rotated = model.rotate_rows(l, k);
    if (next_check < out.checks.size() && out.checks[next_check].layer == l) {
      std::vector<Candidate> candidates = candidates_now();
      for (Candidate& c : candidates) {
        if (!measures) break;
        double sum = 0, size = 0;
        const size_t dim = model.plane_dim(l), at = c.row * dim;
        if ((options.metric & BLEND_METRIC_V) != 0) {
          sum += distance(&v[at], &stored.v[l][at], dim, options.norm);
          size += size_of(&stored.v[l][at], dim, options.norm);
        }
        if ((options.metric & BLEND_METRIC_K) != 0) {
          sum += distance(&k[at], &stored.k[l][at], dim, options.norm);
          size += size_of(&stored.k[l][at], dim, options.norm);
        }
        c.deviation = options.relative ? sum / size : sum;
        c.measured = true;
        if (next_check == 0 || out.checks[next_check - 1].layer == 0) {
          out.deviation[c.row] = c.deviation;
        }
      }
      for (size_t i = n - question_rows; i < n && !probes; ++i) {
        const std::vector<double> attention = model.attention(l, i, rotated, v, x[i]);
        for (Candidate& c : candidates) {
          c.attention += attention[c.row] / static_cast<double>(question_rows);
        }
      }
      decide(next_check++, std::move(candidates));
    }
    const ReferenceTempering tempering = tempering_of(out, l);
    for (const uint32_t i : active) {
      model.attend_and_feed(l, i, tokens[i], rotated, v, x[i], tempering);
    }
  }
  out.n_tempered =
      static_cast<size_t>(std::count_if(out.tempered_from.begin(), out.tempered_from.end(),
                                        [&](uint32_t from) { return from < n_layers; }));
  if (!active.empty() && active.back() == n - 1) {
    model.finish(n - 1, tokens.back(), out.kv, x[n - 1], temperings(out, n_layers));
    out.logits = model.logits(x[n - 1]);
  }
  return out;
}

void reference_decode(const ReferenceModel& model, ReferenceFusion& fusion,
                      const std::vector<int32_t>& tokens) {
  for (const int32_t token : tokens) {
    const size_t pos = fusion.kv.n_rows;
    std::vector<double> x = model.embed(token);
    for (uint32_t l = 0; l < model.n_kept(); ++l) {
      model.project_kv(l, x, fusion.kv.k[l], fusion.kv.v[l]);
      model.attend_and_feed(l, pos, token, model.rotate_rows(l, fusion.kv.k[l]), fusion.kv.v[l], x,
                            tempering_of(fusion, l));
    }
    model.finish(pos, token, fusion.kv, x, temperings(fusion, model.n_kept()));
    fusion.kv.n_rows = pos + 1;
    fusion.logits = model.logits(x);
  }
}

void reference_replace(const ReferenceModel& model, ReferenceFusion& fusion,
                       std::vector<int32_t>& all, size_t first, size_t n_old,
                       const std::vector<int32_t>& tokens) {
  const uint32_t n_layers = model.n_kept();
  const ReferenceKv before = fusion.kv;
  const auto rows = [&](uint32_t l, const std::vector<double>& plane, size_t from, size_t to) {
    const size_t dim = model.plane_dim(l);
    return std::vector<double>(plane.begin() + static_cast<int64_t>(from * dim),
                               plane.begin() + static_cast<int64_t>(to * dim));
  };
  const auto cut = [&](size_t n) {
    for (uint32_t l = 0; l < n_layers; ++l) {
      fusion.kv.k[l].resize(n * model.plane_dim(l));
      fusion.kv.v[l].resize(n * model.plane_dim(l));
    }
    fusion.kv.n_rows = n;
  };
  cut(first);
  if (!fusion.tempered_from.empty()) {
    fusion.tempered_from.resize(before.n_rows, UINT32_MAX);
    const auto from = fusion.tempered_from.begin() + static_cast<int64_t>(first);
    fusion.tempered_from.insert(
        fusion.tempered_from.erase(from, from + static_cast<int64_t>(n_old)), tokens.size(),
        UINT32_MAX);
  }
  reference_decode(model, fusion, tokens);
  for (uint32_t l = 0; l < n_layers; ++l) {
    const auto k = rows(l, before.k[l], first + n_old, before.n_rows);
    const auto v = rows(l, before.v[l], first + n_old, before.n_rows);
    fusion.kv.k[l].insert(fusion.kv.k[l].end(), k.begin(), k.end());
    fusion.kv.v[l].insert(fusion.kv.v[l].end(), v.begin(), v.end());
  }
  const auto at = all.begin() + static_cast<int64_t>(first);
  all.insert(all.erase(at, at + static_cast<int64_t>(n_old)), tokens.begin(), tokens.end());
  cut(all.size() - 1);
  reference_decode(model, fusion, {all.back()});
}

}  // namespace blend::test
