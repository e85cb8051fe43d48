#include "grammar_cache.h"

#include <algorithm>

#include "request.h"

namespace blend_cli::serve {

std::shared_ptr<GrammarCache::Entry> GrammarCache::entry(uint32_t language,
                                                         const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) {
    return e->language == language && e->text == text;
  });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.push_front(std::make_shared<Entry>(language, text));
    if (entries_.size() > kMost) entries_.pop_back();
  }
  return entries_.front();
}

std::shared_ptr<const blendpp::Grammar> GrammarCache::get(uint32_t language,
                                                          const std::string& text,
                                                          const char* member,
                                                          const blend_cancel* cancel) {
  const std::shared_ptr<Entry> entry = this->entry(language, text);
  const std::lock_guard<std::mutex> lock(entry->mutex);  // others that ask for the same wait
  if (entry->grammar != nullptr) return entry->grammar;
  try {
    blendpp::GrammarOptions options;
    options.language = language;
    options.text = text.c_str();
    options.cancel = cancel;
    entry->grammar = std::make_shared<blendpp::Grammar>(model_, options);
  } catch (const blendpp::Error& error) {
    // Only a build without grammars refuses any JSON object.
    const bool of_schema = language != BLEND_GRAMMAR_JSON && error.code() == BLEND_E_UNSUPPORTED;
    if (!of_schema && error.code() != BLEND_E_INVALID_ARGUMENT) throw;
    throw HttpError(400, error.what(), {}, member);
  }
  return entry->grammar;
}

}  // namespace blend_cli::serve
