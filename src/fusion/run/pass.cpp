#include "fusion/run/pass.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "fusion/correct/places.h"
#include "fusion/load/stored_rows.h"

namespace blend {

Pass::Pass(const std::shared_ptr<const Model>& model, const Prompt& prompt,
           const FuseOptions& options, const ResolvedFuse& fuse, LayerSession& session,
           const Stopwatch& clock, Fused& out)
    : model_(model),
      prompt_(prompt),
      options_(options),
      fuse_(fuse),
      session_(session),
      clock_(clock),
      out_(out),
      n_layers_(model->config().n_kept()) {}

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
  session_.start(out_.sequence->capacity());
  tempered_ = out_.sequence->tempered();
  if (fuse_.tempers) tempered_.set(options_.ape_temperature, options_.ape_scale);
  temper_from(0);

  if (session_.asking()) asked_.assign(n_rows, 0.0f);
  BLEND_RETURN_IF_ERROR(embed(0));
  out_.info.prepare_ns += clock_.now_ns() - begin;
  return Status::ok();
}

Status Pass::embed(size_t n_known) {
  const std::vector<uint32_t>& rows = session_.rows();
  const auto n = static_cast<uint32_t>(rows.size());
  const std::unique_ptr<Forward> before = std::move(forward_);  // x_ is its
  BLEND_ASSIGN(forward_, Forward::create(*model_, n));
  forward_->temper(&tempered_);
  const Tensor x = forward_->x(n);
  const auto n_old = static_cast<int64_t>(n_known);
  if (n_known > 0) {
    std::vector<uint32_t> places(n_known);
    std::iota(places.begin(), places.end(), 0u);
    BLEND_RETURN_IF_ERROR(forward_->take(*before, x_, places.data(), x.slice(0, n_old)));
  }
  x_ = x;
  std::vector<int32_t> tokens;
  tokens.reserve(n - n_known);
  for (size_t i = n_known; i < n; ++i) tokens.push_back(prompt_.tokens[rows[i]]);
  return forward_->embed(tokens.data(), x_.slice(n_old, n - n_old));
}

// ---- One layer

Status Pass::layer(uint32_t layer, const Watch& watch) {
  // A probe takes the session back to layer 0.
  while (session_.layer() <= layer) BLEND_RETURN_IF_ERROR(step(watch));
  return Status::ok();
}

Status Pass::step(const Watch& watch) {
  const uint32_t layer = session_.layer();
  session_.begin_layer();
  BLEND_RETURN_IF_ERROR(hold_stored());
  // Fresh K, V first: what they need is here already, and the reader gains the time.
  BLEND_RETURN_IF_ERROR(compute_kv(watch));
  BLEND_RETURN_IF_ERROR(place());
  BLEND_RETURN_IF_ERROR(shift());
  session_.placed();
  if (session_.due() == LayerStep::probe) return probe(watch);
  // The rows that a check layer leaves out keep the fresh K, V they have there.
  if (session_.due() == LayerStep::choose) BLEND_RETURN_IF_ERROR(choose(watch));
  if (staged_ != nullptr && staged_layer_ == layer) {
    BLEND_ASSIGN(std::unique_ptr<Fence> fence, model_->backend().fence());
    feed_->release(layer, std::move(fence));
    staged_ = nullptr;
  }
  if (layer + 1 == n_layers_) {
    const std::vector<uint32_t> before = session_.rows();
    session_.leave_last_row();
    BLEND_RETURN_IF_ERROR(narrow(before));
  }
  BLEND_RETURN_IF_ERROR(finish_layer(watch));
  session_.finish_layer();
  return Status::ok();
}

Status Pass::compute_kv(const Watch& watch) {
  const uint32_t layer = session_.layer();
  KvCache& cache = out_.sequence->cache();
  const Ropes& ropes = out_.sequence->ropes();
  const uint32_t* const slots = rows().data();
  kv_ = forward_->kv(layer, static_cast<uint32_t>(rows().size()));
  if (session_.all_go_on()) {
    return forward_->compute_qkv(layer, cache, ropes, x(), slots, kv_, watch);
  }
  BLEND_RETURN_IF_ERROR(forward_->compute_kv(layer, x(), kv_, watch));
  return model_->backend().write_kv(cache, layer, ropes.keys(layer), kv_, slots);
}

Status Pass::acquire() {
  const uint32_t layer = session_.layer();
  const uint64_t begin = clock_.now_ns();
  auto acquired = feed_->acquire(layer);
  session_.add_wait(clock_.now_ns() - begin);
  if (!acquired.is_ok()) return acquired.status();
  staged_ = *acquired;
  staged_layer_ = layer;
  return Status::ok();
}

Status Pass::place() {
  const uint32_t layer = session_.layer();
  if (session_.is_placed() || !feed_->has(layer)) return Status::ok();
  const bool corrects = session_.corrector() != nullptr && session_.corrector()->is_due(layer);
  // The last layer that was asked is in place as it is stored, and is held.
  if (staged_ != nullptr && !corrects) return Status::ok();
  if (staged_ == nullptr) BLEND_RETURN_IF_ERROR(acquire());
  const uint64_t begin = clock_.now_ns();
  Placement placement;
  placement.load = staged_->load;
  const std::vector<StoredRun> runs = stored_runs(prompt_, feed_->segments(), *staged_);
  const Correction* correction = nullptr;
  if (corrects) {
    BLEND_ASSIGN(correction, correct());
    placement.add_correction(*session_.corrector(), clock_.now_ns() - begin);
  }
  const std::vector<uint8_t>& computed = session_.computed();
  BLEND_RETURN_IF_ERROR(model_->backend().fusion().scatter(out_.sequence->cache(), layer,
                                                           out_.sequence->ropes().keys(layer), runs,
                                                           computed.data(), correction));
  placement.rows_placed = rows_to_place(runs, computed);
  placement.place_ns = clock_.now_ns() - begin;
  session_.add_placement(placement);
  return Status::ok();
}

Result<const Correction*> Pass::correct() {
  const auto stored_of = [&](std::span<const uint32_t> rows) {
    return stored_runs_among(prompt_, feed_->segments(), *staged_, rows);
  };
  const std::vector<uint32_t>& rows = session_.rows();
  const std::vector<StoredRun> known = stored_of(rows);
  return session_.corrector()->at(session_.layer(), {kv_, known, rows}, stored_of);
}

Status Pass::plan_shift() {
  // Latent rows are K and V at once, of which RoPE turns a part.
  if (!fuse_.shifts || model_->config().latent.any()) return Status::ok();
  std::vector<ShiftedChunk> chunks;
  for (const PromptSegment& s : prompt_.segments) {
    if (s.stale()) chunks.push_back({.first = s.first_row, .n_rows = s.n_rows});
  }
  BLEND_ASSIGN(
      shift_, ChunkShift::create(model_->backend(), model_->config(), chunks, session_.computed()));
  return Status::ok();
}

bool Pass::shifts(uint32_t layer) const {
  return shift_.has_value() && shift_->is_due(layer) && feed_->has(layer);
}

Status Pass::hold_stored() {
  const uint32_t layer = session_.layer();
  if (!session_.is_placed() || !shifts(layer)) return Status::ok();
  const uint64_t begin = clock_.now_ns();
  Sequence& sequence = *out_.sequence;
  BLEND_RETURN_IF_ERROR(shift_->hold_stored(layer, sequence.cache(), sequence.ropes().keys(layer)));
  session_.add_shift(clock_.now_ns() - begin);
  return Status::ok();
}

Status Pass::shift() {
  const uint32_t layer = session_.layer();
  if (!shifts(layer)) return Status::ok();
  const uint64_t begin = clock_.now_ns();
  if (session_.is_placed()) {
    BLEND_RETURN_IF_ERROR(shift_->measure_held(layer, kv_, rows()));
  } else {
    const std::vector<StoredRun> stored =
        stored_runs_among(prompt_, feed_->segments(), *staged_, shift_->moved());
    BLEND_RETURN_IF_ERROR(shift_->measure(layer, kv_, rows(), stored));
  }
  Sequence& sequence = *out_.sequence;
  BLEND_RETURN_IF_ERROR(shift_->shift(layer, sequence.cache(), sequence.ropes().keys(layer)));
  session_.set_shifted(shift_->n_rows());
  session_.add_shift(clock_.now_ns() - begin);
  return Status::ok();
}

Status Pass::finish_layer(const Watch& watch) {
  const uint32_t layer = session_.layer();
  if (session_.asking() && session_.asked().has(layer)) return finish_asked_layer(watch);
  return forward_->finish_layer(layer, out_.sequence->cache(), out_.sequence->ropes(), x(),
                                rows().data(), watch);
}

// ---- The probe

Status Pass::finish_asked_layer(const Watch& watch) {
  const uint32_t layer = session_.layer();
  std::vector<float> attention(prompt_.n_rows());
  BLEND_RETURN_IF_ERROR(forward_->finish_layer(
      layer, out_.sequence->cache(), layer, out_.sequence->ropes(), x_, rows().data(), watch,
      {static_cast<uint32_t>(first_asking()), attention.data()}));
  add_attention(attention);
  return Status::ok();
}

void Pass::add_attention(std::span<const float> attention) {
  std::transform(attention.begin(), attention.end(), asked_.begin(), asked_.begin(), std::plus<>());
}

Status Pass::probe(const Watch& watch) {
  const uint64_t begin = clock_.now_ns();
  const uint32_t last = session_.layer();
  BLEND_ASSIGN(const std::vector<float> attention, weigh_by_question(watch));
  add_attention(attention);
  const auto n_asked = static_cast<float>(session_.asked().size());
  for (float& mean : asked_) mean /= n_asked;
  const std::vector<uint32_t> before = session_.rows();
  BLEND_RETURN_IF_ERROR(session_.probe(asked_));
  BLEND_RETURN_IF_ERROR(plan_shift());
  session_.add_select(last, clock_.now_ns() - begin);
  temper_from(0);
  // The rows before the first that was chosen see what they saw, and are what they were. That saves
  // nothing worth having where layer 1 was asked, and the last bits of a row may differ with the
  // rows beside it.
  const std::vector<uint32_t>& rows = session_.rows();
  const auto differ = std::mismatch(before.begin(), before.end(), rows.begin(), rows.end());
  session_.keep_known(last > 1 ? static_cast<size_t>(differ.first - before.begin()) : 0);
  return embed(session_.n_known());
}

// ---- A check layer

Result<std::vector<float>> Pass::weigh_by_question(const Watch& watch) {
  const std::span<const uint32_t> asking = session_.asking_rows();
  const Tensor x =
      x_.slice(static_cast<int64_t>(first_asking()), static_cast<int64_t>(asking.size()));
  std::vector<float> attention(prompt_.n_rows(), 0.0f);
  BLEND_RETURN_IF_ERROR(forward_->attention_mass(session_.layer(), out_.sequence->cache(),
                                                 out_.sequence->ropes(), x, asking.data(),
                                                 attention.data(), watch));
  return attention;
}

Status Pass::choose(const Watch& watch) {
  const uint64_t begin = clock_.now_ns();
  const uint32_t layer = session_.layer();
  const std::vector<uint32_t> before = session_.rows();
  std::vector<StoredRun> runs;
  if (staged_ != nullptr && staged_layer_ == layer) {
    runs = stored_runs_among(prompt_, feed_->segments(), *staged_, before);
  }
  std::vector<float> attention;
  if (session_.weighs_by_question()) {
    BLEND_ASSIGN(attention, weigh_by_question(watch));
  }
  BLEND_RETURN_IF_ERROR(session_.choose(kv_, runs, attention));
  BLEND_RETURN_IF_ERROR(narrow(before));
  BLEND_RETURN_IF_ERROR(plan_shift());
  temper_from(layer + 1);
  session_.add_select(layer, clock_.now_ns() - begin);
  return Status::ok();
}

Status Pass::narrow(const std::vector<uint32_t>& before) {
  const std::vector<uint32_t>& rows = session_.rows();
  if (rows.size() == before.size()) return Status::ok();
  BLEND_ASSIGN(const std::vector<uint32_t> places, places_among(rows, before));  // inside x_
  const Tensor kept = x_.slice(0, static_cast<int64_t>(rows.size()));
  BLEND_RETURN_IF_ERROR(forward_->take(*forward_, x_, places.data(), kept));
  x_ = kept;
  return Status::ok();
}

void Pass::temper_from(uint32_t layer) {
  // The question asks over rows as they are stored.
  if (!fuse_.tempers || layer == n_layers_ || session_.asking()) return;
  const std::vector<uint8_t>& computed = session_.computed();
  for (const PromptSegment& s : prompt_.segments) {
    for (uint32_t row = s.first_row; s.stale() && row < s.first_row + s.n_rows; ++row) {
      if (computed[row] == 0) tempered_.add(row, layer);
    }
  }
}

// ---- After the layers

Status Pass::finish() {
  const uint64_t begin = clock_.now_ns();
  logits_.resize(model_->config().n_vocab);
  const Sequence& sequence = *out_.sequence;
  BLEND_RETURN_IF_ERROR(forward_->finish_sharing(out_.sequence->cache(), Forward::Holds::all_layers,
                                                 sequence.ropes(), x_, rows().data(), {}));
  BLEND_RETURN_IF_ERROR(forward_->logits(x_, logits_.data()));
  out_.info.n_rows_tempered = tempered_.n_rows() - out_.sequence->tempered().n_rows();
  out_.info.compute_ns += clock_.now_ns() - begin;
  return Status::ok();
}

void Pass::commit() {
  out_.sequence->set_filled(prompt_.tokens, std::move(logits_), std::move(tempered_));
}

}  // namespace blend
