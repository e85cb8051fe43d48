// Keys of a GGUF that describe a mixture of experts.
#pragma once

#include "model/config.h"
#include "model/gguf_reader.h"

namespace blend {

// Properties of an architecture's experts that its keys do not state, as llama.cpp reads the same
// files.
struct GgufExperts {
  bool allowed = false;
  bool required = false;    // else a file without a count of experts is a dense model
  bool normalised = false;  // where the file does not say
  bool sigmoid = false;     // likewise
  // The shared ones' result has a weight of its own. They are as wide as the feed-forward where the
  // file does not say.
  bool shared_weighed = false;
  bool beside_dense = false;
  // A bias for the choice says that scores are by sigmoid, where the file does not. By softmax a
  // group is as good as its best expert.
  bool deepseek2 = false;
};

// The experts of a model of `config`, whose other members are known; none where the file has none.
// FORMAT names the key that makes no sense, UNSUPPORTED one that asks for another routing.
Result<Experts> read_gguf_experts(const GgufReader& gguf, const GgufExperts& family,
                                  const ModelConfig& config);

}  // namespace blend
