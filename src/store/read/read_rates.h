// ReadRates: how fast layers of chunks are loaded, by origin and codec.
//
// A layer's time is that of the reader as a whole: finding, reading, checking, decoding, and the
// latency before its first byte. So a layer's cost follows from one number, without assumptions
// about its parts.
#pragma once

#include <array>

#include "base/rate_meter.h"
#include "store/codec/codec.h"

namespace blend {

// Thread-safe.
class ReadRates {
 public:
  // `bytes`: of whole layers, decoded; `ns`: of the reader's own time.
  void add(Origin origin, Codec codec, uint64_t bytes, uint64_t ns) {
    if (RateMeter* const meter = meter_of(origin, codec)) meter->add(bytes, ns);
  }
  // Adds all reads of one fuse.
  void add_all(uint64_t bytes, uint64_t ns) { all_.add(bytes, ns); }

  // Decoded bytes a second; 0: nothing was read from there yet. Servers and devices are not
  // measured here.
  double per_second(Origin origin, Codec codec) const {
    const RateMeter* const meter = const_cast<ReadRates*>(this)->meter_of(origin, codec);
    return meter == nullptr ? 0.0 : meter->per_second();
  }
  double per_second() const { return all_.per_second(); }

 private:
  RateMeter* meter_of(Origin origin, Codec codec) {
    if (origin == Origin::memory) return &memory_;  // kept there as it is decoded
    const auto at = static_cast<size_t>(codec);
    return origin == Origin::disk && at < disk_.size() ? &disk_[at] : nullptr;
  }

  RateMeter all_;
  RateMeter memory_;
  std::array<RateMeter, kCodecs> disk_;
};

}  // namespace blend
