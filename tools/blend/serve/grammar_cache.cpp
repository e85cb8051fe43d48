#include "grammar_cache.h"

#include <algorithm>

#include "request.h"

namespace blend_cli::serve {

std::shared_ptr<const blendpp::Grammar> GrammarCache::get(uint32_t language,
                                                          const std::string& text,
                                                          const blend_cancel* cancel) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      return e.language == language && e.text == text;
    });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return found->grammar;
    }
  }
  std::shared_ptr<const blendpp::Grammar> made;
  try {
    blendpp::GrammarOptions options;
    options.language = language;
    options.text = text.c_str();
    options.cancel = cancel;
    made = std::make_shared<blendpp::Grammar>(model_, options);
  } catch (const blendpp::Error& error) {
    // Any JSON object is refused by a build without grammars alone.
    const bool of_schema = language != BLEND_GRAMMAR_JSON && error.code() == BLEND_E_UNSUPPORTED;
    if (!of_schema && error.code() != BLEND_E_INVALID_ARGUMENT) throw;
    throw HttpError(400, error.what(), {}, "response_format");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  entries_.push_front({language, text, made});
  n_bytes_ += text.size();
  while (entries_.size() > 1 && (entries_.size() > kMost || n_bytes_ > kMostBytes)) {
    n_bytes_ -= entries_.back().text.size();
    entries_.pop_back();
  }
  return made;
}

}  // namespace blend_cli::serve
