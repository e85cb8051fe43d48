// FidelityBook: the results of checked answers (control/fidelity.h), by model, policy, kind of
// record and length of the prompt. They are notes of the store, to which all processes that have it
// open write.
#pragma once

#include <chrono>
#include <compare>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/threads/guarded.h"
#include "control/fidelity.h"
#include "store/notes.h"

namespace blend {

enum class RecordUse : uint32_t;

struct FidelityKey {
  Sha256 fingerprint{};        // of the model
  uint32_t policy = 0;         // BLEND_POLICY_*
  uint32_t record = 0;         // RecordUse: the worst of the prompt
  uint32_t short_prompts = 0;  // 1: fewer than kUsualRows reused rows

  FidelityKey() = default;
  // Short prompts agree more often at the same rung, so their checks must not lower the ratio of
  // long ones. n_rows: reused ones of the prompt.
  FidelityKey(const Sha256& of_model, uint32_t by_policy, RecordUse worst, uint64_t n_rows);

  auto operator<=>(const FidelityKey&) const = default;  // NOLINT(modernize-use-nullptr): its own
  std::string note_name() const;
  // The rung of kLadder at which fuses of this kind begin, before their first check.
  uint32_t first_rung() const;
};

// Thread-safe.
class FidelityBook {
 public:
  // `notes` null: everything stays in memory. read_only: nothing is written to the notes.
  FidelityBook(std::shared_ptr<StoreNotes> notes, bool read_only)
      : notes_(std::move(notes)), writes_(notes_ != nullptr && !read_only) {}

  // Reads the checks of a model that other processes have written to the store, unless it did so a
  // moment ago. The caller must hold no snapshot of the store: this may wait until the store's file
  // is enlarged, which snapshots prevent.
  void look(const Sha256& fingerprint) { (void)refresh(&fingerprint); }
  // The ratio with which fuses of this kind keep `target`, as of the last look(). From now on
  // checks move it.
  double ratio(const FidelityKey& key, double target);
  // Adds a check of an answer that was fused at `ratio`. If it cannot be written to the store, the
  // book keeps it in memory.
  void observe(const FidelityKey& key, double ratio, const CheckedAnswer& answer);
  // Number of checks at this ratio, as of the last look().
  uint64_t n_checks(const FidelityKey& key, double ratio);
  // All records by key, of the model `fingerprint`; null: of all models.
  Result<std::vector<std::pair<FidelityKey, FidelityRecord>>> all(const Sha256* fingerprint);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    FidelityRecord record;
    bool own = false;  // has checks that could not be written
  };
  // Reads the store's notes on a model, or on all, unless that was done a moment ago.
  Status refresh(const Sha256* fingerprint);
  void take(const std::vector<Note>& notes);

  const std::shared_ptr<StoreNotes> notes_;
  const bool writes_;

  Mutex mutex_;
  std::map<FidelityKey, Entry> entries_ BLEND_GUARDED_BY(mutex_);
  std::map<Sha256, Clock::time_point> read_at_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
