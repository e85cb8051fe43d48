#include "grammar_cache.h"

#include <algorithm>

#include "request.h"

namespace blend_cli::serve {

std::shared_ptr<GrammarCache::Entry> GrammarCache::entry(const Asked& asked) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& e) { return e->asked == asked; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.push_front(std::make_shared<Entry>(asked));
    if (entries_.size() > kMost) entries_.pop_back();
  }
  return entries_.front();
}

std::shared_ptr<const blendpp::Grammar> GrammarCache::get(const Asked& asked, const char* member,
                                                          const blend_cancel* cancel) {
  const std::shared_ptr<Entry> entry = this->entry(asked);
  const std::lock_guard<std::mutex> lock(entry->mutex);  // others that ask for the same wait
  if (entry->grammar != nullptr) return entry->grammar;
  try {
    blendpp::GrammarOptions options;
    options.language = asked.language;
    options.text = asked.text.c_str();
    options.template_source = asked.template_source.c_str();
    options.function = asked.function.c_str();
    options.cancel = cancel;
    entry->grammar = std::make_shared<blendpp::Grammar>(model_, options);
  } catch (const blendpp::Error& error) {
    // Only a build without grammars refuses any JSON object.
    const bool of_schema =
        asked.language != BLEND_GRAMMAR_JSON && error.code() == BLEND_E_UNSUPPORTED;
    if (!of_schema && error.code() != BLEND_E_INVALID_ARGUMENT) throw;
    throw HttpError(400, error.what(), {}, member);
  }
  return entry->grammar;
}

}  // namespace blend_cli::serve
