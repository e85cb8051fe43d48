// GrammarCache: the grammars of recent requests, compiled once for all that ask for the same.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "blend/blend.hpp"

namespace blend_cli::serve {

// Thread-safe.
class GrammarCache {
 public:
  explicit GrammarCache(const blendpp::Model& model) : model_(model) {}

  // As blend_grammar_options has them.
  struct Asked {
    uint32_t language = BLEND_GRAMMAR_JSON;
    std::string text;
    std::string template_source;
    std::string function;

    bool operator==(const Asked&) const = default;
  };
  // Requests that ask for the same at the same time wait for one compile. Throws HttpError (400:
  // the schema cannot be used; `member` of the request is wrong) and blendpp::Error. `cancel` may
  // be null.
  std::shared_ptr<const blendpp::Grammar> get(const Asked& asked, const char* member,
                                              const blend_cancel* cancel);

 private:
  // Each may hold 512 MiB, if the client that sends its schema wants that.
  static constexpr size_t kMost = 16;

  struct Entry {
    explicit Entry(Asked a) : asked(std::move(a)) {}
    const Asked asked;
    std::mutex mutex;
    std::shared_ptr<const blendpp::Grammar> grammar;  // guarded by mutex; null: not compiled
  };
  std::shared_ptr<Entry> entry(const Asked& asked);

  const blendpp::Model& model_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Entry>> entries_;  // guarded by mutex_; the latest used first
};

}  // namespace blend_cli::serve
