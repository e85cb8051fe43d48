// Says when a codec costs more than the fuse itself.
#pragma once

#include <optional>
#include <string>

namespace blend_cli {

// What rounding chunks adds to one way of fusing, beside what that way leaves by itself. Both are
// mean KLs of next-token distributions, in nats.
struct CodecCost {
  std::string codec;
  std::string way;      // of fusing, as "attention at ratio 0.15"
  double rounding = 0;  // KL(fused from exact chunks || from rounded ones)
  double fuse = 0;      // KL(full prefill || fused from exact chunks)
  std::string cheaper;  // a codec that rounds less than the fuse costs; empty: none is known
};

// One sentence with both figures and the way out; nothing where the fuse costs as much or more.
std::optional<std::string> costly_codec_text(const CodecCost& cost);

}  // namespace blend_cli
