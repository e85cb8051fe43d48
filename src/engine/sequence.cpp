#include "engine/sequence.h"

#include <algorithm>
#include <numeric>

namespace blend {

Result<std::unique_ptr<Sequence>> Sequence::create(std::shared_ptr<const Model> model,
                                                   uint32_t capacity) {
  std::unique_ptr<Sequence> s(new Sequence());
  s->model_ = std::move(model);
  BLEND_ASSIGN(s->cache_, s->model_->backend().make_kv_cache(s->model_->config(), capacity));
  BLEND_ASSIGN(s->ropes_, s->model_->ropes(capacity));
  s->tokens_.reserve(capacity);
  return s;
}

Status Sequence::reserve(uint32_t capacity) {
  if (capacity <= this->capacity()) return Status::ok();
  BLEND_ASSIGN(std::unique_ptr<KvCache> grown,
               model_->backend().make_kv_cache(model_->config(), capacity));
  BLEND_ASSIGN(std::shared_ptr<const Ropes> ropes, model_->ropes(capacity));
  tokens_.reserve(capacity);
  BLEND_RETURN_IF_ERROR(copy_rows(*grown, *ropes));
  recorded_.reset();  // it writes to the old one
  cache_ = std::move(grown);
  ropes_ = std::move(ropes);
  return Status::ok();
}

Result<std::unique_ptr<Sequence>> Sequence::fork() {
  BLEND_RETURN_IF_ERROR(model_->runtime().check_fork());
  std::unique_ptr<Sequence> other(new Sequence());
  other->model_ = model_;
  other->ropes_ = ropes_;
  other->may_record_ = may_record_;
  other->tokens_.reserve(capacity());
  other->set_filled(tokens_, logits_, tempered_);
  BLEND_ASSIGN(other->cache_, cache_->fork(n_rows()));
  if (other->cache_ != nullptr) return other;
  BLEND_ASSIGN(other->cache_, model_->backend().make_kv_cache(model_->config(), capacity()));
  BLEND_RETURN_IF_ERROR(copy_rows(*other->cache_, *ropes_));
  return other;
}

Status Sequence::copy_rows(KvCache& to, const Ropes& ropes) const {
  for (uint32_t layer = 0; layer < model_->config().n_kept(); ++layer) {
    const RowMove all{layer, 0, layer, 0, n_rows(), 0};
    BLEND_RETURN_IF_ERROR(model_->backend().move_rows(*cache_, to, ropes.keys(layer), all));
  }
  return Status::ok();
}

void Sequence::set_filled(const std::vector<int32_t>& tokens, std::vector<float> logits,
                          TemperedRows tempered) {
  tokens_.assign(tokens.begin(), tokens.end());
  logits_ = std::move(logits);
  tempered_ = std::move(tempered);
}

Status Sequence::check_room(size_t n) const {
  if (n <= room()) return Status::ok();
  return make_error(BLEND_E_CONTEXT_LENGTH,
                    "%zu more tokens do not fit: %u of %u rows are used; fuse with more "
                    "reserve_tokens",
                    n, n_rows(), capacity());
}

Status Sequence::append(std::span<const int32_t> tokens, const Watch& watch,
                        SharedSteps::Member* member) {
  if (tokens.size() == 1) {
    Append one{this, tokens[0], watch, member, Status::ok()};
    append_each({&one, 1});
    return std::move(one.status);
  }
  BLEND_RETURN_IF_ERROR(check_room(tokens.size()));
  if (tokens.empty()) return Status::ok();
  BLEND_ASSIGN(const auto waited_for, model_->runtime().begin_call());
  std::vector<float> fresh(model_->config().n_vocab);
  const auto rows = static_cast<uint32_t>(tokens.size());
  BLEND_ASSIGN(const auto forward, Forward::create(*model_, rows));
  forward->temper(&tempered_);
  std::vector<uint32_t> pos(rows);
  std::iota(pos.begin(), pos.end(), n_rows());
  BLEND_RETURN_IF_ERROR(issue(*forward, tokens, pos.data(), watch));
  BLEND_RETURN_IF_ERROR(forward->read_logits(fresh.data()));
  logits_ = std::move(fresh);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  return Status::ok();
}

bool Sequence::take_ahead(int32_t token) {
  if (!has_ahead(token)) {
    ahead_.clear();
    return false;
  }
  logits_ = std::move(ahead_.front().logits);
  tokens_.push_back(token);  // there is room
  ahead_.pop_front();
  return true;
}

void Sequence::append_each(std::span<Append> appends) {
  if (appends.empty()) return;
  try {
    append_together(appends);
  } catch (const std::bad_alloc&) {
    // Nothing has been appended. Each may find enough memory by itself.
    if (appends.size() == 1) {
      appends[0].status = Status::out_of_memory();
      return;
    }
    for (Append& a : appends) append_each({&a, 1});
  }
}

// Throws only before it has changed anything.
void Sequence::append_together(std::span<Append> appends) {
  const Model& model = appends[0].sequence->model();
  const auto waited_for = model.runtime().begin_call();
  if (!waited_for.is_ok()) {
    for (Append& a : appends) a.status = waited_for.status();
    return;
  }
  const size_t n_vocab = model.config().n_vocab;
  std::vector<std::vector<float>> fresh(appends.size());
  std::vector<std::vector<Ahead>> ahead(appends.size());
  std::vector<bool> there(appends.size(), false);
  std::vector<SharedSteps::Request> shared;
  std::vector<size_t> owner;  // of each in `shared`
  shared.reserve(appends.size());
  owner.reserve(appends.size());
  const auto begin = [&](size_t i) {
    Append& a = appends[i];
    BLEND_RETURN_IF_ERROR(a.sequence->check_room(1));
    there[i] = a.sequence->take_ahead(a.token);
    if (there[i]) return Status::ok();
    fresh[i].resize(n_vocab);
    // A progress callback is called on its own thread.
    if (model.steps() == nullptr || a.watch.progress || a.sequence->scans_) {
      return a.sequence->step(a.token, a.watch, fresh[i].data());
    }
    SharedSteps::Request request;
    request.sequence = a.sequence;
    request.token = a.token;
    request.cancel = a.watch.cancel;
    request.member = a.member;
    request.logits = fresh[i].data();
    request.ahead = a.ahead.first(std::min<size_t>(a.ahead.size(), a.sequence->room() - 1));
    for (const int32_t token : request.ahead) {
      ahead[i].push_back({token, std::vector<float>(n_vocab)});
      request.ahead_logits.push_back(ahead[i].back().logits.data());
    }
    shared.push_back(std::move(request));
    owner.push_back(i);
    return Status::ok();
  };
  const auto or_out_of_memory = [](auto&& call) noexcept {
    try {
      return call();
    } catch (const std::bad_alloc&) {
      return Status::out_of_memory();
    }
  };
  for (size_t i = 0; i < appends.size(); ++i) {
    appends[i].status = or_out_of_memory([&] { return begin(i); });
  }
  if (!shared.empty()) model.steps()->run(shared);
  for (size_t k = 0; k < shared.size(); ++k) {
    Append& a = appends[owner[k]];
    a.status = std::move(shared[k].status);
    if (!shared[k].alone) continue;
    a.status = or_out_of_memory(
        [&] { return a.sequence->step(a.token, a.watch, fresh[owner[k]].data()); });
  }
  const bool scans = model.config().mixer.scans();
  for (size_t i = 0; i < appends.size(); ++i) {
    if (there[i]) continue;
    Sequence& sequence = *appends[i].sequence;
    sequence.scans_ = scans && !appends[i].status.is_ok();
    if (!appends[i].status.is_ok()) continue;
    sequence.logits_ = std::move(fresh[i]);
    sequence.tokens_.push_back(appends[i].token);  // there is room
  }
  for (size_t k = 0; k < shared.size(); ++k) {
    Append& a = appends[owner[k]];
    if (!a.status.is_ok()) continue;
    // Without memory to keep them, these tokens are computed when they are appended.
    (void)or_out_of_memory([&] {
      for (size_t n = 0; n < shared[k].n_ahead; ++n) {
        a.sequence->ahead_.push_back(std::move(ahead[owner[k]][n]));
      }
      return Status::ok();
    });
  }
}

Status Sequence::issue(Forward& forward, std::span<const int32_t> tokens, const uint32_t* pos,
                       const Watch& watch) const {
  const auto rows = static_cast<uint32_t>(tokens.size());
  const uint32_t n_layers = model_->config().n_kept();
  const uint32_t* row_pos = pos;
  Tensor x = forward.x(rows);
  BLEND_RETURN_IF_ERROR(forward.embed(tokens.data(), x));
  for (uint32_t layer = 0; layer < n_layers; ++layer) {
    BLEND_RETURN_IF_ERROR(watch.report(layer, n_layers));
    const Tensor kv = forward.kv(layer, rows);
    const bool narrows = layer + 1 == n_layers && rows > 1;  // only the last row's output is read
    if (narrows) {
      BLEND_RETURN_IF_ERROR(forward.compute_kv(layer, x, kv, watch));
      BLEND_RETURN_IF_ERROR(
          model_->backend().write_kv(*cache_, layer, ropes_->keys(layer), kv, pos));
    } else {
      BLEND_RETURN_IF_ERROR(forward.compute_qkv(layer, *cache_, *ropes_, x, pos, kv, watch));
    }
    if (narrows) {
      x = x.slice(rows - 1, 1);
      row_pos += rows - 1;
    }
    BLEND_RETURN_IF_ERROR(forward.finish_layer(layer, *cache_, *ropes_, x, row_pos, watch));
  }
  BLEND_RETURN_IF_ERROR(
      forward.finish_sharing(*cache_, Forward::Holds::all_layers, *ropes_, x, row_pos, watch));
  return forward.project_logits(x);
}

Status Sequence::step(int32_t token, const Watch& watch, float* logits) {
  if (step_ == nullptr) {
    BLEND_ASSIGN(step_, Forward::create_for_steps(*model_, 1));
  }
  return step(*step_, token, watch, logits);
}

Status Sequence::step(Forward& scratch, int32_t token, const Watch& watch, float* logits) {
  scratch.temper(&tempered_);
  const Status status = step(scratch, token, watch);
  scratch.temper(nullptr);
  BLEND_RETURN_IF_ERROR(status);
  return scratch.read_logits(logits);
}

Status Sequence::step(Forward& scratch, int32_t token, const Watch& watch) {
  const StepInput input{token, n_rows()};
  const auto issue_it = [&](const Watch& seen) {
    return issue(scratch, {&input.token, 1}, &input.pos, seen);
  };
  RecordOps* const records = model_->backend().record_ops();
  if (records == nullptr || !may_record() || !stepped_) {
    stepped_ = true;
    return issue_it(watch);
  }
  if (recorded_ == nullptr || recorded_in_ != &scratch || !recorded_->covers(input.pos)) {
    recorded_.reset();
    recorded_ = records->record(input, [&] { return issue_it({}); });
    recorded_in_ = &scratch;
    may_record_ = recorded_ != nullptr;
  }
  if (recorded_ == nullptr) return issue_it(watch);
  BLEND_RETURN_IF_ERROR(watch.report(0, model_->config().n_kept()));
  return recorded_->run(input);
}

}  // namespace blend
