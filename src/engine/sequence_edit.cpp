// Sequence::replace: takes rows out of the middle, or inserts some, without computing later ones.
#include <algorithm>
#include <numeric>

#include "engine/sequence.h"

namespace blend {
namespace {

// The rows of an edit, by where they were and where they go:
//
//   before   0 .. first | old: n_old  | tail ...... last
//   after    0 .. first | new: n_new  | tail ...... last     each row of the tail rotated by `turn`
//
// `active` are the rows that are computed: the new ones, and the last.
struct Edit {
  uint32_t first = 0;
  uint32_t n_old = 0;
  uint32_t n_new = 0;
  uint32_t n_tail = 0;  // later rows that keep their K, V: all but the last
  bool last_again = false;
  std::vector<uint32_t> active;  // positions, ascending

  uint32_t n_rows() const { return active.back() + 1; }
  int32_t turn() const { return static_cast<int32_t>(n_new) - static_cast<int32_t>(n_old); }
  RowMove tail(uint32_t src_layer, uint32_t dst_layer) const {
    return {src_layer, first + n_old, dst_layer, first + n_new, n_tail, turn()};
  }
};

// first + n_old <= n_rows, at least one row is left.
Edit plan_edit(uint32_t n_rows, uint32_t first, uint32_t n_old, uint32_t n_new) {
  Edit e;
  e.first = first;
  e.n_old = n_old;
  e.n_new = n_new;
  const uint32_t n_behind = n_rows - first - n_old;
  e.n_tail = n_behind > 0 ? n_behind - 1 : 0;
  e.last_again = n_behind > 0 || n_new == 0;
  e.active.resize(n_new);
  std::iota(e.active.begin(), e.active.end(), first);
  if (e.last_again) e.active.push_back(first + n_new + n_behind - 1);
  return e;
}

// Computes the active rows on a copy of one layer at a time, so that the cache itself is touched
// only once nothing can fail any more. Used by one call.
class Rewrite {
 public:
  // `tempered`: of the rows after the edit.
  Rewrite(const Model& model, const Ropes& ropes, KvCache& cache, const Edit& edit,
          TemperedRows& tempered)
      : model_(model), ropes_(ropes), cache_(cache), edit_(edit), tempered_(tempered) {}

  // tokens: [active]; logits: [n_vocab] of the last of them.
  Status compute(const int32_t* tokens, float* logits, const Watch& watch) {
    const uint32_t n_layers = model_.config().n_kept();
    const auto n_active = static_cast<uint32_t>(edit_.active.size());
    BLEND_ASSIGN(stage_,
                 model_.backend().make_kv_cache(model_.config().one_of_each(), edit_.n_rows()));
    BLEND_ASSIGN(fresh_, model_.backend().make_kv_cache(model_.config(), n_active));
    BLEND_ASSIGN(const auto forward, Forward::create(model_, n_active));
    forward->temper(&tempered_);
    Tensor x = forward->x(n_active);
    BLEND_RETURN_IF_ERROR(forward->embed(tokens, x));
    const uint32_t* pos = edit_.active.data();
    for (uint32_t layer = 0; layer < n_layers; ++layer) {
      BLEND_RETURN_IF_ERROR(watch.report(layer, n_layers));
      const Tensor kv = forward->kv(layer, n_active);
      BLEND_RETURN_IF_ERROR(forward->compute_kv(layer, x, kv, watch));
      BLEND_RETURN_IF_ERROR(stage_layer(layer, kv));
      if (layer + 1 == n_layers) {  // only the last row's output is read
        x = x.slice(n_active - 1, 1);
        pos += n_active - 1;
      }
      BLEND_RETURN_IF_ERROR(
          forward->finish_layer(layer, *stage_, stage_of(layer), ropes_, x, pos, watch, {}));
    }
    BLEND_RETURN_IF_ERROR(
        forward->finish_sharing(*stage_, Forward::Holds::one_of_each, ropes_, x, pos, watch));
    return forward->logits(x, logits);
  }

  // Every slot was checked by compute(), and moves fail for nothing else.
  Status commit() {
    Backend& b = model_.backend();
    for (uint32_t layer = 0; layer < model_.config().n_kept(); ++layer) {
      const RopeTable& rope = ropes_.keys(layer);
      BLEND_RETURN_IF_ERROR(b.move_rows(cache_, cache_, rope, edit_.tail(layer, layer)));
      const RowMove fresh{layer, 0, layer, edit_.first, edit_.n_new, 0};
      BLEND_RETURN_IF_ERROR(b.move_rows(*fresh_, cache_, rope, fresh));
      if (!edit_.last_again) continue;
      const RowMove last{layer, edit_.n_new, layer, edit_.active.back(), 1, 0};
      BLEND_RETURN_IF_ERROR(b.move_rows(*fresh_, cache_, rope, last));
    }
    return Status::ok();
  }

 private:
  uint32_t stage_of(uint32_t layer) const { return model_.config().kind_of(layer); }
  // The layer after the edit, in stage_; its fresh rows also in fresh_. kv: [active, 2 * kv_dim].
  Status stage_layer(uint32_t layer, Tensor kv) {
    Backend& b = model_.backend();
    const RopeTable& rope = ropes_.keys(layer);
    const uint32_t stage = stage_of(layer);
    const RowMove before{layer, 0, stage, 0, edit_.first, 0};
    BLEND_RETURN_IF_ERROR(b.move_rows(cache_, *stage_, rope, before));
    BLEND_RETURN_IF_ERROR(b.move_rows(cache_, *stage_, rope, edit_.tail(layer, stage)));
    BLEND_RETURN_IF_ERROR(b.write_kv(*stage_, stage, rope, kv, edit_.active.data()));
    const RowMove fresh{stage, edit_.first, layer, 0, edit_.n_new, 0};
    BLEND_RETURN_IF_ERROR(b.move_rows(*stage_, *fresh_, rope, fresh));
    if (!edit_.last_again) return Status::ok();
    const RowMove last{stage, edit_.active.back(), layer, edit_.n_new, 1, 0};
    return b.move_rows(*stage_, *fresh_, rope, last);
  }

  const Model& model_;
  const Ropes& ropes_;
  KvCache& cache_;
  const Edit& edit_;
  TemperedRows& tempered_;
  std::unique_ptr<KvCache> stage_;  // one layer of each kind, [n_rows after the edit]
  std::unique_ptr<KvCache> fresh_;  // all layers, [active]
};

}  // namespace

Status Sequence::replace(uint64_t first, uint64_t n_old, std::span<const int32_t> tokens,
                         const Watch& watch) {
  const uint64_t rows = n_rows();
  if (first > rows || n_old > rows - first) {
    return make_error(
        BLEND_E_INVALID_ARGUMENT, "rows %llu to %llu are not all there: the fusion has %llu",
        static_cast<unsigned long long>(first), static_cast<unsigned long long>(first) + n_old,
        static_cast<unsigned long long>(rows));
  }
  if (n_old == 0 && tokens.empty()) return Status::ok();
  if (n_old == 0 && first == rows) return append(tokens, watch);
  if (n_old == rows && tokens.empty()) {
    return {BLEND_E_INVALID_ARGUMENT,
            "at least one row must be left: a fusion without rows has no logits"};
  }
  if (tokens.size() > capacity() - (rows - n_old)) {
    return make_error(BLEND_E_CONTEXT_LENGTH,
                      "%zu tokens in the place of %llu do not fit: %llu of %u rows are used; fuse "
                      "with more reserve_tokens",
                      tokens.size(), static_cast<unsigned long long>(n_old),
                      static_cast<unsigned long long>(rows), capacity());
  }
  BLEND_ASSIGN(const auto waited_for, model_->runtime().begin_call());
  const Edit edit = plan_edit(n_rows(), static_cast<uint32_t>(first), static_cast<uint32_t>(n_old),
                              static_cast<uint32_t>(tokens.size()));
  std::vector<int32_t> after;
  after.reserve(capacity());
  const auto at = tokens_.begin() + static_cast<int64_t>(first);
  after.insert(after.end(), tokens_.begin(), at);
  after.insert(after.end(), tokens.begin(), tokens.end());
  after.insert(after.end(), at + static_cast<int64_t>(n_old), tokens_.end());
  std::vector<int32_t> computed(tokens.begin(), tokens.end());
  if (edit.last_again) computed.push_back(after.back());

  std::vector<float> logits(model_->config().n_vocab);
  TemperedRows tempered = tempered_;
  tempered.replace(first, n_old, tokens.size());
  Rewrite rewrite(*model_, *ropes_, *cache_, edit, tempered);
  BLEND_RETURN_IF_ERROR(rewrite.compute(computed.data(), logits.data(), watch));
  scans_ = model_->config().mixer.scans();
  BLEND_RETURN_IF_ERROR(rewrite.commit());
  tokens_ = std::move(after);
  logits_ = std::move(logits);
  tempered_ = std::move(tempered);
  return Status::ok();
}

}  // namespace blend
