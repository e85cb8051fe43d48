// FidelityBook: what the checks of answers have shown (control/fidelity.h), by model, policy and
// kind of record. Kept as notes of the store, which all processes that have it open write to.
#pragma once

#include <chrono>
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "control/fidelity.h"
#include "store/notes.h"

namespace blend {

struct FidelityKey {
  Sha256 fingerprint{};  // of the model
  uint32_t policy = 0;   // BLEND_POLICY_*
  uint32_t record = 0;   // RecordUse: the worst of the prompt

  auto operator<=>(const FidelityKey&) const = default;  // NOLINT(modernize-use-nullptr): its own
  std::string note_name() const;
  // Of kLadder: where fuses of this kind begin while nothing is known of them.
  uint32_t first_rung() const;
};

// Thread-safe.
class FidelityBook {
 public:
  // `notes` null: it lives in memory. read_only: nothing is written to them.
  FidelityBook(std::shared_ptr<StoreNotes> notes, bool read_only)
      : notes_(std::move(notes)), writes_(notes_ != nullptr && !read_only) {}

  // Looks at the store, unless it did a moment ago, for what other processes have seen of a model.
  // Not with a snapshot of the store in hand: its file could not be enlarged meanwhile, for which
  // this may wait.
  void look(const Sha256& fingerprint) { (void)refresh(&fingerprint); }
  // The ratio for fuses of this kind that are to keep `target`; it is followed from here on. As of
  // the last look.
  double ratio(const FidelityKey& key, double target);
  // Takes a check of an answer that was fused at `ratio`. Where it cannot be written it is
  // remembered as long as the book lives.
  void observe(const FidelityKey& key, double ratio, const CheckedAnswer& answer);
  // How many checks there were at this ratio, as of the last look.
  uint64_t n_checks(const FidelityKey& key, double ratio);
  // All that is known, by key; `fingerprint`: of this model, null: of any.
  Result<std::vector<std::pair<FidelityKey, FidelityRecord>>> all(const Sha256* fingerprint);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    FidelityRecord record;
    bool own = false;  // has what could not be written
  };
  // Reads what the store has of a model, or of all, unless that was done a moment ago.
  Status refresh(const Sha256* fingerprint);
  void take(const std::vector<Note>& notes);

  const std::shared_ptr<StoreNotes> notes_;
  const bool writes_;

  std::mutex mutex_;
  std::map<FidelityKey, Entry> entries_;         // mutex_
  std::map<Sha256, Clock::time_point> read_at_;  // mutex_
};

}  // namespace blend
