// ChunkWriter: one write transaction's changes to chunks. Their pieces, manifests, the counters and
// the records of their use change together or not at all.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_size_signal.h"
#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/catalog/text_index.h"
#include "store/lmdb/retention/lru_index.h"

namespace blend {

// Used by one thread. Destroyed without commit() it leaves the store as it was.
class ChunkWriter {
 public:
  // Waits for the writer of this or another process. Builds the text index where there is none
  // that is up to date.
  static Result<ChunkWriter> begin(const StoreCommon& common);

  // Removes the manifest and every piece of `id`, whatever the manifest says of their number.
  // `*found`: there was a manifest or a piece. CORRUPT: its pages cannot be freed safely.
  Status erase(const Sha256& id, bool* found);
  // Removes descriptions and pieces whose keys are not ids, so that no id leads to them. Counts the
  // descriptions.
  Status erase_strays(uint64_t* n_descriptions);
  // Writes a chunk that is not there. stream: manifest.stream_bytes() as stored. Fills in
  // use.footprint.
  Status add(const Manifest& manifest, std::span<const std::byte> stream, UseRecord use);
  // The description of a chunk as this transaction sees it. Empty: there is no sound one.
  std::optional<Manifest> find(const Sha256& id) const;
  // Writes the description again, with its name, which must be the only change from find()'s.
  Status rename(const Manifest& manifest);
  // Once, last. The detail of its status is LMDB's code.
  Status commit();

  const StoreCounters& counters() const { return counters_; }
  LruIndex uses() const { return LruIndex(txn_); }
  UseTotals& totals() { return totals_; }  // changes are committed with the rest
  TextIndex texts() const { return TextIndex(txn_); }
  TextTotals& text_totals() { return text_totals_; }  // likewise
  // Counts the chunks again, and rebuilds the indices of use and of texts from the manifests.
  Status rebuild();
  Status rebuild_uses();
  Status rebuild_texts();

 private:
  ChunkWriter(Txn txn, const MapView& view, const StoreCounters& counters, const UseTotals& totals,
              const TextTotals& text_totals)
      : txn_(std::move(txn)),
        view_(view),
        counters_(counters),
        totals_(totals),
        old_totals_(totals),
        text_totals_(text_totals) {}

  Status write_piece(MDB_val key, std::span<const std::byte> bytes);
  // Calls visit for every sound manifest as this transaction leaves it.
  Status for_each(const std::function<void(const Manifest&)>& visit) const;
  // Counts them again, except that of `except`.
  Result<StoreCounters> recount(const Sha256& except) const;
  Status judge_placing();
  Status raise_version();

  FileSizeSignalHeld held_;  // LMDB writes at the commit, and before where much has changed
  Txn txn_;
  MapView view_;
  StoreCounters counters_;
  UseTotals totals_;
  UseTotals old_totals_;
  TextTotals text_totals_;
  std::vector<uint64_t> on_trial_;  // pages placed, and filled on the heap as well
  // Manifests that it has written: until the commit LMDB keeps long ones on the heap, where
  // for_each_manifest() does not look.
  std::vector<Manifest> written_;
};

}  // namespace blend
