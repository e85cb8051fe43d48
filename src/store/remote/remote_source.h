// The layers of a chunk on its way from the remote tier.
#pragma once

#include <memory>

#include "store/remote/remote_tier.h"

namespace blend {

// `tier` must outlive it. The transfer begins with the first layer that is asked for.
std::unique_ptr<ChunkSource> make_remote_source(RemoteTier& tier, std::shared_ptr<Arrival> arrival);

// Whether every layer of a stream is what its layout says. CORRUPT.
Status check_stream(const StoredLayout& layout, const AlignedBuffer& stream);

}  // namespace blend
