#include "costly_codec.h"

#include "table.h"

namespace blend_cli {

std::optional<std::string> costly_codec_text(const CodecCost& cost) {
  if (!(cost.rounding > cost.fuse)) return std::nullopt;
  const std::string instead = cost.cheaper.empty() ? "zstd, which is lossless"
                                                   : cost.cheaper + ", or zstd, which is lossless";
  return format(
      "codec %s costs more than the fuse itself: it adds a KL of %s where %s leaves %s; "
      "take %s",
      cost.codec.c_str(), kl_text(cost.rounding).c_str(), cost.way.c_str(),
      kl_text(cost.fuse).c_str(), instead.c_str());
}

}  // namespace blend_cli
