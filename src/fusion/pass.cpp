#include "fusion/pass.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "fusion/account.h"
#include "fusion/stored_rows.h"

namespace blend {

Pass::Pass(const std::shared_ptr<const Model>& model, const Prompt& prompt,
           const FuseOptions& options, const ResolvedFuse& fuse, Selection& selection,
           const Stopwatch& clock, Fused& out)
    : model_(model),
      prompt_(prompt),
      options_(options),
      fuse_(fuse),
      selection_(selection),
      clock_(clock),
      out_(out),
      n_layers_(model->config().n_layers),
      work_(model->config()) {}

// ---- Before the layers

Status Pass::prepare(LayerFeed::View& feed) {
  const uint64_t begin = clock_.now_ns();
  feed_ = &feed;
  const uint32_t n_rows = prompt_.n_rows();
  const uint32_t room = model_->context_length() - n_rows;
  const uint32_t wanted = n_rows + std::min(options_.reserve_tokens, room);
  if (out_.sequence == nullptr) {
    BLEND_ASSIGN(out_.sequence, Sequence::create(model_, wanted));
  } else {
    BLEND_RETURN_IF_ERROR(out_.sequence->reserve(wanted));
  }
  out_.layers.assign(n_layers_, blend_layer_info{});
  const uint32_t slots = out_.sequence->capacity();
  computed_.assign(slots, 0);
  if (selection_.corrects() || selection_.corrects_left()) {
    const CorrectorMaps maps = {selection_.corrects() ? fuse_.drift : nullptr,
                                selection_.corrects_left() ? fuse_.stored_drift : nullptr};
    corrector_ = std::make_unique<Corrector>(model_->backend(), maps, model_->config().kv_dim(),
                                             slots, fuse_.drift_guarded);
    if (!selection_.probes()) leave_out();
  }
  tempered_ = out_.sequence->tempered();
  if (fuse_.tempers) tempered_.set(options_.ape_temperature, options_.ape_scale);
  mark_computed(0);

  if (selection_.probes()) asked_.assign(n_rows, 0.0f);
  BLEND_RETURN_IF_ERROR(embed(0));
  out_.info.prepare_ns += clock_.now_ns() - begin;
  return Status::ok();
}

Status Pass::embed(size_t n_known) {
  const std::vector<uint32_t>& active = selection_.active();
  const auto n = static_cast<uint32_t>(active.size());
  const std::unique_ptr<Forward> before = std::move(forward_);  // x_ is its
  BLEND_ASSIGN(forward_, Forward::create(*model_, n));
  forward_->temper(&tempered_);
  const Tensor x = forward_->x(n);
  const auto n_old = static_cast<int64_t>(n_known);
  if (n_known > 0) {
    std::vector<uint32_t> places(n_known);
    std::iota(places.begin(), places.end(), 0u);
    BLEND_RETURN_IF_ERROR(model_->backend().gather(x_, places.data(), x.slice(0, n_old)));
  }
  x_ = x;
  std::vector<int32_t> tokens;
  tokens.reserve(n - n_known);
  for (size_t i = n_known; i < n; ++i) tokens.push_back(prompt_.tokens[active[i]]);
  return forward_->embed(tokens.data(), x_.slice(n_old, n - n_old));
}

// ---- One layer

Status Pass::acquire(uint32_t layer, const StagedLayer*& staged, blend_layer_info& account) {
  const uint64_t begin = clock_.now_ns();
  auto acquired = feed_->acquire(layer);
  account.wait_ns += clock_.now_ns() - begin;
  if (!acquired.is_ok()) return acquired.status();
  staged = *acquired;
  account_load(staged->load, account);
  out_.info.n_rows_from_memory = staged->load.memory_rows;
  out_.info.n_rows_from_device = staged->load.device_rows;
  out_.info.bytes_from_device += staged->load.device_bytes;
  return Status::ok();
}

void Pass::leave_out() {
  if (!selection_.corrects_left()) return;
  leave_out_rows(prompt_, selection_.computed(prompt_.n_rows()), *corrector_);
}

Status Pass::place(uint32_t layer, const StagedLayer& staged, Tensor kv,
                   blend_layer_info& account) {
  const uint64_t begin = clock_.now_ns();
  const std::vector<StoredRun> runs = stored_runs(prompt_, feed_->segments(), staged);
  const Correction* correction = nullptr;
  if (corrector_ != nullptr && corrector_->is_due(layer)) {
    const std::vector<uint32_t>& active = selection_.active();
    const auto stored_of = [&](std::span<const uint32_t> rows) {
      return stored_runs_among(prompt_, feed_->segments(), staged, rows);
    };
    const std::vector<StoredRun> known = stored_of(active);
    BLEND_ASSIGN(correction, corrector_->at(layer, {kv, known, active}, stored_of));
    work_.add_correction(corrector_->flops());
    account_drift(*corrector_, account, out_.info);
    out_.info.correct_ns += clock_.now_ns() - begin;
  }
  BLEND_RETURN_IF_ERROR(model_->backend().place(out_.sequence->cache(), layer,
                                                out_.sequence->ropes().keys(layer), runs,
                                                computed_.data(), correction));
  account.rows_placed = rows_to_place(runs, computed_);
  account.place_ns += clock_.now_ns() - begin;
  return Status::ok();
}

Status Pass::compute_kv(uint32_t layer, Tensor x, std::span<const uint32_t> rows, Tensor kv,
                        bool all_go_on, const Watch& watch) {
  KvCache& cache = out_.sequence->cache();
  const Ropes& ropes = out_.sequence->ropes();
  const uint32_t* const slots = rows.data();
  if (all_go_on) return forward_->compute_qkv(layer, cache, ropes, x, slots, kv, watch);
  BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x, kv, watch));
  return model_->backend().write_kv(cache, layer, ropes.keys(layer), kv, slots);
}

Status Pass::layer(uint32_t layer, const Watch& watch) {
  Backend& b = model_->backend();
  KvCache& cache = out_.sequence->cache();
  const Ropes& ropes = out_.sequence->ropes();
  blend_layer_info& account = out_.layers[layer];
  account.layer = layer;
  account.compute_begin_ns = clock_.now_ns();

  // Fresh K, V first: what they need is here already, and the reader gains the time.
  const std::vector<uint32_t>& active = selection_.active();
  Tensor kv = forward_->kv(static_cast<uint32_t>(active.size()));
  const bool asking = selection_.probes() && layer < selection_.asked().last;
  const bool probes = selection_.probes() && layer == selection_.asked().last;
  const bool all_go_on = !selection_.chooses_at(layer) && layer + 1 != n_layers_;
  BLEND_RETURN_IF_ERROR(compute_kv(layer, x_, active, kv, all_go_on && !probes, watch));
  work_.add_kv(active.size());

  const StagedLayer* staged = nullptr;
  if (feed_->has(layer)) {
    BLEND_RETURN_IF_ERROR(acquire(layer, staged, account));
    BLEND_RETURN_IF_ERROR(place(layer, *staged, kv, account));
  }
  if (probes) {
    BLEND_RETURN_IF_ERROR(probe(layer, watch));
    kv = forward_->kv(static_cast<uint32_t>(active.size()));
    BLEND_RETURN_IF_ERROR(compute_kv(layer, x_, active, kv, all_go_on, watch));
    // The rows that were left out stand there as they are stored.
    if (corrector_ != nullptr && corrector_->is_due(layer) && staged != nullptr) {
      BLEND_RETURN_IF_ERROR(place(layer, *staged, kv, account));
    }
  }
  account.rows_kv = active.size();
  // The rows that a check layer leaves out keep the fresh K, V they have there.
  if (selection_.chooses_at(layer)) BLEND_RETURN_IF_ERROR(check(layer, kv, staged, watch));
  if (staged != nullptr) {
    BLEND_ASSIGN(std::unique_ptr<Fence> fence, b.fence());
    feed_->release(layer, std::move(fence));
  }

  if (layer + 1 == n_layers_) {
    const std::vector<uint32_t> before = active;
    selection_.leave_last_row();
    BLEND_RETURN_IF_ERROR(narrow(before));
  }
  if (asking) {
    account.rows_asked = active.size();
    BLEND_RETURN_IF_ERROR(finish_asking(layer, watch));
  } else {
    BLEND_RETURN_IF_ERROR(forward_->finish_layer(layer, cache, ropes, x_, active.data(), watch));
  }
  work_.add_layer(layer, active);
  account.rows_full = active.size();
  account.compute_end_ns = clock_.now_ns();
  return Status::ok();
}

// ---- The probe

Status Pass::finish_asking(uint32_t layer, const Watch& watch) {
  const KvCache& cache = out_.sequence->cache();
  const Ropes& ropes = out_.sequence->ropes();
  const std::vector<uint32_t>& active = selection_.active();
  if (!selection_.asked().has(layer)) {
    return forward_->finish_layer(layer, cache, ropes, x_, active.data(), watch);
  }
  std::vector<float> attention(prompt_.n_rows());
  BLEND_RETURN_IF_ERROR(
      forward_->finish_layer(layer, cache, layer, ropes, x_, active.data(), watch,
                             {static_cast<uint32_t>(first_asking()), attention.data()}));
  work_.add_scores(layer, std::span(active).subspan(first_asking()));
  add_attention(attention);
  return Status::ok();
}

void Pass::add_attention(std::span<const float> attention) {
  std::transform(attention.begin(), attention.end(), asked_.begin(), asked_.begin(), std::plus<>());
}

Status Pass::probe(uint32_t last, const Watch& watch) {
  const uint64_t begin = clock_.now_ns();
  BLEND_ASSIGN(const std::vector<float> attention, weigh_by_question(last, watch));
  add_attention(attention);
  const auto n_asked = static_cast<float>(selection_.asked().size());
  for (float& mean : asked_) mean /= n_asked;
  const std::vector<uint32_t> before = selection_.active();
  BLEND_RETURN_IF_ERROR(selection_.choose({}, asked_));
  out_.info.select_ns += out_.layers[last].select_ns = clock_.now_ns() - begin;
  mark_computed(0);
  if (corrector_ != nullptr) leave_out();
  // The rows before the first that was chosen see what they saw, and are what they were. That saves
  // nothing worth having where layer 1 was asked, and the last bits of a row may differ with the
  // rows beside it.
  const std::vector<uint32_t>& active = selection_.active();
  const auto differ = std::mismatch(before.begin(), before.end(), active.begin(), active.end());
  const auto n_known = last > 1 ? static_cast<size_t>(differ.first - before.begin()) : 0;
  BLEND_RETURN_IF_ERROR(embed(n_known));
  for (uint32_t layer = 0; layer < last; ++layer) {
    BLEND_RETURN_IF_ERROR(layer_again(layer, n_known, watch));
  }
  out_.layers[last].rows_asked = before.size();
  out_.layers[last].rows_placed -= selection_.selected().size();
  work_.add_kv(active.size());
  return Status::ok();
}

Status Pass::layer_again(uint32_t layer, size_t n_known, const Watch& watch) {
  const std::vector<uint32_t>& active = selection_.active();
  const auto first = static_cast<int64_t>(n_known);
  const auto rest = [&] { return std::span(active).subspan(n_known); };
  const auto x = [&] { return x_.slice(first, static_cast<int64_t>(rest().size())); };
  blend_layer_info& account = out_.layers[layer];
  // They were placed, to be asked about.
  account.rows_placed -= selection_.selected().size();
  account.rows_asked -= n_known;
  account.rows_kv = active.size();
  const Tensor kv = forward_->kv(static_cast<uint32_t>(rest().size()));
  const bool chooses = selection_.chooses_at(layer);
  BLEND_RETURN_IF_ERROR(compute_kv(layer, x(), rest(), kv, !chooses, watch));
  work_.add_kv(rest().size());
  if (chooses) BLEND_RETURN_IF_ERROR(check(layer, kv, nullptr, watch));
  BLEND_RETURN_IF_ERROR(forward_->finish_layer(layer, out_.sequence->cache(),
                                               out_.sequence->ropes(), x(), rest().data(), watch));
  work_.add_layer(layer, rest());
  account.rows_full = active.size();
  return Status::ok();
}

// ---- A check layer

Result<std::vector<float>> Pass::weigh_by_question(uint32_t layer, const Watch& watch) {
  const std::vector<uint32_t>& active = selection_.active();
  const size_t first = first_asking();
  std::vector<float> attention(prompt_.n_rows(), 0.0f);
  BLEND_RETURN_IF_ERROR(forward_->attention_mass(
      layer, out_.sequence->cache(), out_.sequence->ropes(),
      x_.slice(static_cast<int64_t>(first), prompt_.segments.back().n_rows), active.data() + first,
      attention.data(), watch));
  work_.add_attention_mass(layer, std::span(active).subspan(first));
  return attention;
}

Status Pass::check(uint32_t layer, Tensor kv, const StagedLayer* staged, const Watch& watch) {
  const uint64_t begin = clock_.now_ns();
  BLEND_RETURN_IF_ERROR(choose(layer, kv, staged, watch));
  const uint64_t spent = clock_.now_ns() - begin;
  out_.layers[layer].select_ns += spent;
  out_.info.select_ns += spent;
  return Status::ok();
}

Status Pass::choose(uint32_t layer, Tensor kv, const StagedLayer* staged, const Watch& watch) {
  const std::vector<uint32_t> before = selection_.active();
  std::vector<StoredRun> runs;
  if (staged != nullptr) runs = stored_runs_among(prompt_, feed_->segments(), *staged, before);
  if (corrector_ != nullptr && corrector_->measures_at(layer)) {
    BLEND_RETURN_IF_ERROR(corrector_->measure({kv, runs, before}));
  }
  std::vector<float> deviation, attention;
  if (selection_.needs().deviation) {
    BLEND_ASSIGN(deviation, selection_.measure(kv, runs));
  }
  if (selection_.needs().question_attention) {
    BLEND_ASSIGN(attention, weigh_by_question(layer, watch));
  }
  BLEND_RETURN_IF_ERROR(selection_.choose(deviation, attention));
  BLEND_RETURN_IF_ERROR(narrow(before));
  mark_computed(layer + 1);
  return corrector_ == nullptr ? Status::ok() : corrector_->keep(computed_);
}

Status Pass::narrow(const std::vector<uint32_t>& before) {
  const std::vector<uint32_t>& active = selection_.active();
  if (active.size() == before.size()) return Status::ok();
  std::vector<uint32_t> places;  // of the active rows inside x_
  places.reserve(active.size());
  size_t at = 0;
  for (const uint32_t row : active) {
    while (before[at] != row) ++at;
    places.push_back(static_cast<uint32_t>(at));
  }
  const Tensor kept = x_.slice(0, static_cast<int64_t>(active.size()));
  BLEND_RETURN_IF_ERROR(model_->backend().gather(x_, places.data(), kept));
  x_ = kept;
  return Status::ok();
}

void Pass::mark_computed(uint32_t layer) {
  computed_ = selection_.computed(computed_.size());
  // The question asks over rows as they are stored.
  if (!fuse_.tempers || layer == n_layers_ || selection_.probes()) return;
  for (const PromptSegment& s : prompt_.segments) {
    for (uint32_t row = s.first_row; s.stale() && row < s.first_row + s.n_rows; ++row) {
      if (computed_[row] == 0) tempered_.add(row, layer);
    }
  }
}

// ---- Behind the layers

Status Pass::finish() {
  const uint64_t begin = clock_.now_ns();
  logits_.resize(model_->config().n_vocab);
  BLEND_RETURN_IF_ERROR(forward_->logits(x_, logits_.data()));
  work_.add_logits();
  out_.info.flops = work_.flops();
  out_.info.n_rows_tempered = tempered_.n_rows() - out_.sequence->tempered().n_rows();
  out_.selected = selection_.selected();
  out_.deviation = selection_.deviation();
  out_.info.compute_ns += clock_.now_ns() - begin;
  return Status::ok();
}

void Pass::commit() {
  out_.sequence->set_filled(prompt_.tokens, std::move(logits_), std::move(tempered_));
}

}  // namespace blend
