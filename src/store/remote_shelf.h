// RemoteShelf: what an operator does with the chunks of a store's remote tier (`blend store push`,
// `pull`, `verify --remote`, `rm --remote`).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/status.h"

namespace blend {

struct RemoteSpeed {
  double bytes_per_s = 0;  // > 0; all connections together
  double latency_s = 0;    // of a look-up
};

// Thread-safe. Errors of the server are IO.
class RemoteShelf {
 public:
  virtual ~RemoteShelf() = default;
  virtual Status check() = 0;  // whether every server answers
  // All chunks there, as far as this store's seal key shows them. `problem`: a key without chunk.
  using Problem = std::function<void(const std::string& key, const Status& why)>;
  virtual Result<std::vector<Sha256>> list(const Problem& problem) = 0;
  // Each says in *existed when there was nothing to do. NOT_FOUND, CORRUPT.
  virtual Status push(const Sha256& id, bool* existed) = 0;
  virtual Status pull(const Sha256& id, bool* existed) = 0;
  virtual Status verify(const Sha256& id) = 0;  // reads every byte. NOT_FOUND, CORRUPT
  virtual Status remove(const Sha256& id) = 0;  // NOT_FOUND; the store's own chunk stays
  // Reads some chunks. NOT_FOUND: there is none that can be read.
  virtual Result<RemoteSpeed> measure() = 0;
};

}  // namespace blend
