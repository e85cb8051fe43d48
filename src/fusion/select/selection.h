// Selection: which rows of a prompt are computed at which layer (CacheBlend 4.2 and 4.3).
//
// It holds the rows, the check layers and the choice. LayerSession asks it at every layer whether
// rows are chosen there, and goes on with those that are left.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "fusion/policy/policy.h"
#include "fusion/prompt/prompt.h"
#include "fusion/request/asked_layers.h"
#include "fusion/request/options.h"
#include "fusion/request/resolved_fuse.h"
#include "fusion/select/rows.h"

namespace blend {

// Used by one thread at a time. The backend must outlive it, and from begin() on the prompt.
class Selection {
 public:
  // What the fuse chooses rows by, and how deviations are measured.
  Selection(Backend& backend, ResolvedFuse fuse, const DeviationRule& rule)
      : backend_(backend), n_layers_(fuse.n_layers), rule_(rule), fuse_(std::move(fuse)) {}

  // ---- Before the prompt's rows are known
  const Needs& needs() const { return fuse_.needs; }
  const Schedule& schedule() const { return fuse_.schedule; }  // empty: full, reuse, ape

  // ---- From here on it is about one prompt; begins again after a chunk was replaced
  // Chooses what is chosen before layer 0. INVALID_ARGUMENT when the policy lacks something of the
  // prompt. asking: whether the question is asked where its answer would change nothing too, since
  // the budget is none of the candidates or all of them.
  enum class Asking : uint8_t { where_it_matters, always };
  Status begin(const Prompt& prompt, Asking asking = Asking::where_it_matters);
  // What the policy and the drift maps measure by begins here: the first layer whose stored K, V of
  // rows that are not exact are asked for.
  uint32_t first_stored_layer() const;
  // Rows that are computed at each layer, as far as it is known; [n_layers].
  std::vector<uint64_t> expected_rows() const;
  // Whether the drift maps of the fuse belong here: they begin at the first check layer.
  bool corrects() const { return corrects_; }
  // Whether those of stored rows do: the first choice is before layer 0, and all candidates have
  // the statistics that these maps read.
  bool corrects_left() const { return corrects_left_; }

  const Rows& rows() const { return rows_; }
  // Computed at the layer at hand, ascending.
  const std::vector<uint32_t>& active() const { return active_; }
  // [n], 1: the row is active.
  std::vector<uint8_t> computed(size_t n) const;
  // The last layer that active() holds for as far as it is decided now.
  uint32_t decided_upto() const;

  // ---- The probe
  // Whether the rows that layer 0 is computed for are still to be chosen, by what the question's
  // rows attend to over the stored rows, mean over asked(). Until then active() has no row of a
  // chunk, and choose() is given that attention.
  bool probes() const { return is_left(0) && next_check_ == 0 && needs().probe() && !unasked_; }
  // Where a policy that probes asks the question.
  LayerRange asked() const { return fuse_.asked(); }

  // ---- A check layer
  bool chooses_at(uint32_t layer) const;
  // Deviations of the active rows that are stored, by row of the prompt: [n_rows]. kv: fresh K | V
  // of active(); runs: the stored rows among them (stored_rows_among()).
  Result<std::vector<float>> measure(Tensor kv, std::span<const StoredRun> runs) const;
  // The rows that go on. Both spans are empty unless needed. After a failure all is as before.
  Status choose(std::span<const float> deviation, std::span<const float> question_attention);
  // After the last layer only the last row's output is read.
  void leave_last_row();

  // ---- The account
  // Candidates that the last choice let through, ascending; none before the first.
  const std::vector<uint32_t>& selected() const { return selected_; }
  // As the first check layer that measures saw them; [n_rows], 0 for rows that it did not see.
  const std::vector<float>& deviation() const { return deviation_; }

 private:
  Status check_prompt() const;
  bool is_left(size_t check) const { return choosing_ && check < schedule().size(); }

  Backend& backend_;
  const uint32_t n_layers_;
  const DeviationRule rule_;
  const ResolvedFuse fuse_;

  const Prompt* prompt_ = nullptr;
  Rows rows_;
  bool choosing_ = false;  // there are rows to choose among
  bool corrects_ = false;
  bool corrects_left_ = false;
  bool unasked_ = false;   // the policy would ask, and has none or all of the candidates to choose
  size_t next_check_ = 0;  // index into schedule()
  std::vector<uint32_t> undecided_;  // candidates that are still computed, ascending
  std::vector<uint32_t> active_;
  std::vector<uint32_t> selected_;
  std::vector<float> deviation_;
  bool measured_ = false;     // deviation_
  std::vector<float> probe_;  // [n_rows]; empty: not probed
};

}  // namespace blend
