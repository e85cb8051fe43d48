// TextIndex: which chunks hold the same text, inside a transaction.
//
// Chunks of one text (text_tag()) differ in their prefixes. One database has every chunk, those of
// a text together, the one with the shortest prefix first: that is the plain record, which serves
// every context, and the others are its variants. So a put counts the variants of its text, and an
// eviction finds them, whatever the number of chunks.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "store/chunk/text_tag.h"
#include "store/evict/use_record.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/environment.h"

namespace blend {

// Like Txn: used by one thread, which holds the transaction for as long.
class TextIndex {
 public:
  explicit TextIndex(const Txn& txn) : txn_(&txn) {}

  struct Record {
    Sha256 id{};
    uint32_t n_prefix_tokens = 0;
    uint64_t footprint = 0;
    static Record of(const Manifest& m) {
      return {m.meta.id, m.meta.n_prefix_tokens, m.footprint()};
    }
    bool comes_before(const Record& other) const {
      return std::pair(n_prefix_tokens, id) < std::pair(other.n_prefix_tokens, other.id);
    }
  };

  // Zeros: there are none, or they are damaged. fits: they match these counters; otherwise a build
  // without text index has changed the store, and the index must be built again.
  TextTotals totals() const;
  static bool fits(const TextTotals& totals, const StoreCounters& counters);
  // Records that they belong to these counters.
  Status set_totals(const TextTotals& totals, const StoreCounters& counters);

  // The chunks of a text, plain record first, until `visit` returns false. The index must not
  // change meanwhile.
  Status walk(const TextTag& text, const std::function<bool(const Record&)>& visit) const;
  // A chunk that is not there; one that perhaps is. Both keep `totals`.
  Status add(const TextTag& text, const Record& record, TextTotals& totals);
  Status erase(const TextTag& text, const Record& record, TextTotals& totals);

  // Builds it again for the chunks of `present`. Keeps the hits of `totals`.
  struct Chunk {
    TextTag text{};
    Record record;
  };
  Status rebuild(std::span<const Chunk> present, TextTotals& totals);

 private:
  // The plain record of a text and its first variant, if they exist.
  Result<std::vector<Record>> first_two(const TextTag& text) const;

  const Txn* txn_;
};

}  // namespace blend
