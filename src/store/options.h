// What a store is opened with.
#pragma once

#include <cstdint>

#include "store/codec/codec.h"
#include "store/evict/policy.h"
#include "store/ram/host_memory.h"
#include "store/read/page_reader.h"

namespace blend {

inline constexpr uint64_t kUsualVariants = 16;
inline constexpr uint64_t kAllVariants = ~uint64_t{0};  // no bound

struct StoreOptions {
  uint64_t quota_bytes = 16ull << 30;
  uint64_t queue_bytes = 256ull << 20;
  bool read_only = false;
  bool create = true;
  bool group = false;         // new files are open to the owner's group
  Codec codec = Codec::none;  // of records that do not name one
  double codec_step = 1;      // EncodeOptions::step
  ReadMode read_mode = ReadMode::best;
  Eviction eviction = Eviction::lru;
  uint64_t ttl_s = 0;                       // 0: chunks do not expire
  uint64_t tenant_quota_bytes = 0;          // of every tenant but the empty one; 0: none
  uint64_t most_variants = kUsualVariants;  // of one text, besides its plain record
  uint64_t ram_bytes = 0;                   // layers kept in host memory; 0: none
  HostMemory host_memory;                   // for them, where a device reads them directly
};

}  // namespace blend
