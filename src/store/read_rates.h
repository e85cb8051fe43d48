// ReadRates: how fast the layers of chunks come, by where they lie and by how they are stored.
//
// A layer's time is that of the reader as a whole: finding, reading, checking, decoding, and what
// the place takes before its first byte. So what a layer will take follows from one number, and
// from no guess about how it comes together.
#pragma once

#include <array>

#include "base/rate_meter.h"
#include "store/codec/codec.h"

namespace blend {

// Thread-safe.
class ReadRates {
 public:
  // `bytes`: of whole layers as they are decoded; `ns`: of the reader's own time.
  void add(Origin origin, Codec codec, uint64_t bytes, uint64_t ns) {
    if (RateMeter* const meter = meter_of(origin, codec)) meter->add(bytes, ns);
  }
  // Of everything that one fuse read.
  void add_all(uint64_t bytes, uint64_t ns) { all_.add(bytes, ns); }

  // Decoded bytes a second; 0: nothing was read from there yet. Of a server and a device nothing is
  // known here.
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
