// The server's log: its requests and what the library tells, a line each on stderr.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "blend/blend.hpp"
#include "line_writer.h"
#include "visit.h"

namespace blend_cli::serve {

enum class LogFormat : uint8_t {
  notes,  // no requests; warnings as all commands print them
  text,   // key=value
  json,   // an object
};

// Thread-safe. What it cannot write it drops; nothing fails by it.
class ServerLog {
 public:
  // `level`: BLEND_LOG_*, the least important that is written; of notes it is WARNING.
  // Notes of the command come here too while it lives.
  ServerLog(LogFormat format, uint32_t level);
  ~ServerLog();
  ServerLog(const ServerLog&) = delete;
  ServerLog& operator=(const ServerLog&) = delete;

  // For blendpp::ContextOptions.
  uint32_t level() const { return level_; }
  void record(const blend_log_record& record) noexcept;

  using Fields = nlohmann::ordered_json;  // an object
  // Nothing where there are only notes.
  void write(uint32_t level, const char* component, const std::string& message,
             const Fields& fields = Fields::object()) noexcept;

  // A visit that is logged when it ends. Throws std::bad_alloc.
  std::shared_ptr<Visit> visit(const HttpHead* head);

  // While one lives, what the library tells on this thread belongs to that visit.
  class Scope {
   public:
    explicit Scope(const Visit& visit);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Visit* before_;
  };

 private:
  std::string line(uint64_t unix_ns, uint32_t level, const char* component,
                   const std::string& message, const Fields& fields) const;
  void tell(const Visit& visit) noexcept;

  const LogFormat format_;
  const uint32_t level_;
  std::unique_ptr<LineWriter> writer_;  // null: LogFormat::notes
};

}  // namespace blend_cli::serve
