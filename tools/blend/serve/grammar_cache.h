// GrammarCache: the grammars of recent requests, compiled once for all that ask for the same.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "blend/blend.hpp"

namespace blend_cli::serve {

// Thread-safe.
class GrammarCache {
 public:
  explicit GrammarCache(const blendpp::Model& model) : model_(model) {}

  // language: BLEND_GRAMMAR_*. Compiled outside the lock. Throws HttpError (400: the schema cannot
  // be used) and blendpp::Error. `cancel` may be null.
  std::shared_ptr<const blendpp::Grammar> get(uint32_t language, const std::string& text,
                                              const blend_cancel* cancel);

 private:
  static constexpr size_t kMost = 64;
  static constexpr size_t kMostBytes = size_t{4} << 20;  // of their texts

  struct Entry {
    uint32_t language;
    std::string text;
    std::shared_ptr<const blendpp::Grammar> grammar;
  };

  const blendpp::Model& model_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // guarded by mutex_; the latest used first
  size_t n_bytes_ = 0;        // guarded by mutex_
};

}  // namespace blend_cli::serve
