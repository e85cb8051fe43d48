// How a chunk lies in a remote tier (docs/remote.md, "What lies there"): its stream in segments,
// each under a key of its own, and a manifest, written last, that names them all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/chunk/description.h"
#include "store/remote/encryptor.h"
#include "store/remote/options.h"

namespace blend {

// Neither less nor more is taken for a manifest, or asked of a server.
inline constexpr size_t kMostManifestBytes = 64u << 20;

struct RemoteRecord {
  StoredLayout layout;
  uint64_t version = 0;             // of the bytes: segments of another are not this record's
  uint32_t segment_bytes = 0;       // of each but the last
  std::vector<uint64_t> checksums;  // [n_segments] XXH3-64 of the segment's bytes of the stream

  uint32_t n_segments() const { return static_cast<uint32_t>(checksums.size()); }
  uint64_t begin_of(uint32_t segment) const { return uint64_t{segment} * segment_bytes; }
  uint64_t bytes_of(uint32_t segment) const {
    return std::min<uint64_t>(segment_bytes, layout.stream_bytes() - begin_of(segment));
  }
};
uint32_t count_segments(uint64_t stream_bytes, uint32_t segment_bytes);

std::string encode_record(const RemoteRecord& record);
// CORRUPT: damaged, foreign, or not of `id`. UNSUPPORTED: a version or codec of another release.
Result<RemoteRecord> decode_record(std::span<const std::byte> bytes, const Sha256& id);
// The id that a record says it is of, unchecked.
Result<Sha256> id_of_record(std::span<const std::byte> bytes);

// Names of keys. Thread-safe.
class RemoteKeys {
 public:
  // encryptor: null, ids are seen.
  RemoteKeys(std::string space, const Encryptor* encryptor);
  // Of all keys of this space, and of this seal key.
  const std::string& prefix() const { return prefix_; }
  std::string manifest(const Sha256& id) const;
  std::string segment(const Sha256& id, uint64_t version, uint32_t index) const;
  bool is_manifest(std::string_view key) const;

 private:
  const Encryptor* const encryptor_;
  std::string prefix_;
};

}  // namespace blend
