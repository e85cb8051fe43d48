// Prompt: a record of a data set as the segments that are fused, the same for `blend eval`,
// `blend calibrate` and `blend verify`.
#pragma once

#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "dataset.h"

namespace blend_cli {

// One question as tokens: the system prefix, the chunks in the order of the record, the question
// put into the template. Each is tokenized by itself.
struct Question {
  const Record* record = nullptr;
  blendpp::Tokens system;
  std::vector<blendpp::Tokens> chunks;
  blendpp::Prompt prompt;
  blendpp::Tokens tokens;  // all of it
};

// `record` is referred to.
Question make_question(const blendpp::Model& model, const Record& record,
                       const blendpp::Tokens& system, const std::string& question_template);

// The question put into the template, tokenized as one text. `special`: control tokens of the
// template are recognized, those in the question are not, and the parts are tokenized by
// themselves.
blendpp::Tokens question_tokens(const blendpp::Model& model, const std::string& question_template,
                                const std::string& question, bool special);

}  // namespace blend_cli
