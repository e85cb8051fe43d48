// RemoteLink: what a store asks of its remote tier. Chunks that are put are uploaded in the
// background; chunks that have come are written to the disk; a snapshot asks the tier for what the
// disk does not have. A build without the tier has no other part of this folder (absent.cpp).
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "base/log.h"
#include "store/chunk/stored_chunks.h"
#include "store/chunk_store.h"
#include "store/remote/options.h"
#include "store/store_admin.h"

namespace blend {

// Thread-safe. Must not be destroyed in a forked child (the threads are not there): leak it.
class RemoteLink : public RemoteAdmin {
 public:
  // INVALID_ARGUMENT, UNSUPPORTED. A server that is down is no error.
  static Result<std::unique_ptr<RemoteLink>> create(const RemoteOptions& remote, bool read_only,
                                                    Log log);
  // The disk, which must outlive it. Once, before any other call.
  virtual void serve(StoredChunks& disk) = 0;

  // Looks up in the tier what the snapshot does not have.
  virtual std::unique_ptr<StoreSnapshot> above(std::unique_ptr<StoreSnapshot> below) = 0;
  // Brings a chunk to the disk; waits for it.
  virtual Status bring(const Sha256& id) = 0;
  virtual void upload_later(const Sha256& id) noexcept = 0;
  // Waits until all that was put is uploaded, or that has taken too long, and until what has come
  // is on the disk.
  virtual void flush() = 0;
  // A new hint: reading ahead for older ones ends. Its number.
  virtual uint64_t begin_hint() = 0;
  // Brings to the disk what only the tier has of `ids`, in the background; then calls `came`, if
  // any came and no later hint replaced this one.
  using Came = std::function<void(std::span<const Sha256> ids)>;
  virtual void hint(uint64_t number, std::span<const Sha256> ids, Came came) = 0;
  virtual void fill(RemoteStat& stat) const = 0;
  // Uploads as far as there is time, and ends its threads. The last call.
  virtual void close() = 0;
};

}  // namespace blend
