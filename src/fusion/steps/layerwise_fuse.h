// LayerwiseFuse: a fuse whose model is run by the host, layer by layer (CacheBlend section 5:
// fetch_kv, synchronize, prefill_layer).
//
//   fetch(l)        where the layer's K and V go; may run ahead of the layers
//   synchronize(l)  the stored rows are in place
//   select(l)       fresh K, V -> the rows that go on
//   commit(l)       on to the next layer
//
// Where the question chooses, the layers up to the last that it is asked at are begun for its rows
// alone, then probe(), then again for all rows that are computed.
//
// Which step is due, which rows are computed and who chooses them is the same as with the built-in
// engine (Pass): layer_session.h. The plan turns the host's calls into these steps. A step plan is
// what the C ABI calls a plan.
#pragma once

#include <memory>
#include <vector>

#include "base/threads/process.h"
#include "engine/model_description.h"
#include "fusion/prompt/prompt.h"
#include "fusion/request/clock.h"
#include "fusion/run/fuse.h"
#include "fusion/run/layer_session.h"
#include "fusion/steps/step_placer.h"

namespace blend {

// One thread at a time; the getters may run concurrently with each other.
class LayerwiseFuse {
 public:
  // `store` may be null where the options allow it; `access` says how it is used. The job is
  // resolved for a site of steps. Its watch is asked and told during every call.
  static Result<std::unique_ptr<LayerwiseFuse>> create(
      std::shared_ptr<const ModelDescription> model, std::shared_ptr<ChunkStore> store,
      const StoreAccess& access, FuseJob job);
  LayerwiseFuse(const LayerwiseFuse&) = delete;
  LayerwiseFuse& operator=(const LayerwiseFuse&) = delete;
  ~LayerwiseFuse() = default;

  const ModelConfig& config() const { return model_->config(); }
  // In a child of the process that made the plan its threads do not exist: every call is refused,
  // and destruction would wait for them; leak it.
  bool forked() const;

  // Each of these refuses another order with INVALID_ARGUMENT and a sentence that names the call
  // that is due. After CORRUPT, restart() is: the damaged chunk is a miss then.
  Status restart();
  Status fetch(uint32_t layer, const HostKv& target);
  Status synchronize(uint32_t layer);
  // What the question attends to, mean over LayerSession::asked(), due at the last of these layers;
  // on to layer 0. attention: [n_rows].
  Status probe(std::span<const float> attention);
  // fresh: K, V of rows(); null where nothing is measured.
  Status select(uint32_t layer, const HostKv* fresh);
  Status commit(uint32_t layer);

  const std::vector<int32_t>& tokens() const { return prompt_.tokens; }
  const std::vector<uint32_t>& rows() const { return session_->rows(); }
  // The account so far; its sequence is null.
  const Fused& account() const { return out_; }

 private:
  LayerwiseFuse(std::shared_ptr<const ModelDescription> model, std::shared_ptr<ChunkStore> store,
                FuseJob job);

  // Looks the prompt up, and lets it decide what it has a say in.
  Status prepare(const StoreAccess& access);
  // Makes the first choice, starts loading.
  Status begin();
  // The rows that go on from a check layer. fresh: K, V of rows().
  Status choose(const HostKv* fresh);
  // fresh: as the backend computes with it, in `kv` of `buffer`.
  Status read_fresh(const HostKv& fresh, std::unique_ptr<DeviceBuffer>& buffer, Tensor& kv) const;
  // Tells the placer which rows the host computes from now on; again: see
  // StepPlacer::decide_again().
  void decide(bool again = false);
  // Whether the layer at hand is synchronized.
  bool is_placed() const { return session_->due() != LayerStep::place; }
  bool probe_due() const { return session_->due() == LayerStep::probe; }
  bool is_done() const { return session_->due() == LayerStep::done; }
  bool is_dead() const { return dead_ || session_->due() == LayerStep::broken; }
  void refresh_account();
  void finish();

  // OK when `call` of `layer` is the one that is due; otherwise names the one that is.
  Status check_turn(const char* call, uint32_t layer, bool due) const;
  std::string due_call() const;

  const ProcessMark process_;  // that made the plan
  const std::shared_ptr<const ModelDescription> model_;
  const std::shared_ptr<ChunkStore> store_;
  const FuseJob job_;
  ResolvedFuse fuse_;  // the job's, until the prompt says otherwise
  const uint32_t n_layers_;
  const Stopwatch clock_;
  std::unique_ptr<PromptBuilder> builder_;
  Prompt prompt_;
  uint64_t plan_ns_ = 0;
  std::shared_ptr<const Ropes> ropes_;
  bool loads_ = false;  // anything from the store
  Fused out_;

  std::unique_ptr<LayerSession> session_;  // of prompt_, from the last restart on
  uint32_t fetched_ = 0;                   // layers below have their target
  bool selected_ = false;                  // select() was called for the layer at hand
  Status broken_;                          // what a restart must mend
  bool dead_ = false;                      // something broke half-way: only close is left
  std::unique_ptr<StepPlacer> placer_;     // its thread ends before the session's corrector goes
};

}  // namespace blend
