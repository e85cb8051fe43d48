#include "log.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "../command.h"
#include "../progress.h"
#include "trace_context.h"

namespace blend_cli::serve {
namespace {

using Fields = ServerLog::Fields;

thread_local const Visit* visit_of_thread = nullptr;

uint64_t unix_ns() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
}

std::string iso_time(uint64_t unix_ns) {
  const auto seconds = static_cast<std::time_t>(unix_ns / 1'000'000'000);
  std::tm t{};
  gmtime_r(&seconds, &t);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", t.tm_year + 1900,
                t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                static_cast<int>(unix_ns / 1'000'000 % 1000));
  return text;
}

const char* level_name(uint32_t level) {
  switch (level) {
    case BLEND_LOG_ERROR:
      return "error";
    case BLEND_LOG_WARNING:
      return "warning";
    case BLEND_LOG_DEBUG:
      return "debug";
    default:
      return "info";
  }
}

// ASCII alone: whatever a client sends, it is one line, and steers no terminal.
std::string quoted(const Fields& value) {
  return value.dump(-1, ' ', true, Fields::error_handler_t::replace);
}

// As it is where that cannot be taken for anything else.
std::string key_value(const Fields& value) {
  if (!value.is_string()) return quoted(value);
  const auto& text = value.get_ref<const std::string&>();
  for (const char c : text) {
    if (!is_plain(c)) return quoted(value);
  }
  return text.empty() ? "\"\"" : text;
}

// A client's word may be as long as a head.
std::string bounded(const std::string& text, size_t most) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

double ms(std::chrono::steady_clock::duration time) {
  const double us = std::chrono::duration<double, std::micro>(time).count();
  return static_cast<double>(static_cast<int64_t>(us)) / 1000;
}

void add_ids(const Visit& visit, Fields& fields) {
  fields["request_id"] = visit.id;
  if (!visit.trace) return;
  fields["trace_id"] = visit.trace->trace_id;
  fields["parent_span_id"] = visit.trace->parent_id;
  fields["trace_flags"] = visit.trace->flags;
}

}  // namespace

ServerLog::ServerLog(LogFormat format, uint32_t level)
    : format_(format), level_(format == LogFormat::notes ? uint32_t{BLEND_LOG_WARNING} : level) {
  if (format == LogFormat::notes) return;
  writer_ = std::make_unique<LineWriter>(STDERR_FILENO, [this](uint64_t n) {
    return line(unix_ns(), BLEND_LOG_WARNING, "server", "lines of the log were dropped",
                {{"lines", n}});
  });
  send_notes_to([this](const std::string& text) { write(BLEND_LOG_WARNING, "server", text); });
}

ServerLog::~ServerLog() {
  if (writer_ != nullptr) send_notes_to({});
}

std::string ServerLog::line(uint64_t at, uint32_t level, const char* component,
                            const std::string& message, const Fields& fields) const {
  if (format_ == LogFormat::json) {
    Fields all = {{"time", iso_time(at)},
                  {"level", level_name(level)},
                  {"component", component},
                  {"message", message}};
    for (const auto& [key, value] : fields.items()) all[key] = value;
    return quoted(all);
  }
  std::string text = "time=" + iso_time(at) + " level=" + level_name(level) +
                     " component=" + component + " msg=" + quoted(Fields(message));
  for (const auto& [key, value] : fields.items()) text += ' ' + key + '=' + key_value(value);
  return text;
}

void ServerLog::write(uint32_t level, const char* component, const std::string& message,
                      const Fields& fields) noexcept {
  if (writer_ == nullptr || level > level_) return;
  try {
    writer_->add(line(unix_ns(), level, component, message, fields));
  } catch (...) {  // NOLINT(bugprone-empty-catch): out of memory; the line is lost
  }
}

void ServerLog::record(const blend_log_record& record) noexcept {
  try {
    if (writer_ == nullptr) return print_record(record);
    Fields fields = {{"code", blend_code_name(record.code)}};
    for (uint32_t i = 0; i < record.n_fields; ++i) {
      const blend_log_field& field = record.fields[i];
      switch (field.type) {
        case BLEND_FIELD_TEXT:
          fields[field.key] = field.text;
          break;
        case BLEND_FIELD_INTEGER:
          fields[field.key] = field.integer;
          break;
        default:
          fields[field.key] = field.number;
      }
    }
    if (visit_of_thread != nullptr) add_ids(*visit_of_thread, fields);
    writer_->add(line(record.time_unix_ns, record.level, record.component, record.message, fields));
  } catch (...) {  // NOLINT(bugprone-empty-catch): as above
  }
}

std::shared_ptr<Visit> ServerLog::visit(const HttpHead* head) {
  auto visit = std::make_shared<Visit>();
  visit->id = request_id_of(head);
  if (writer_ == nullptr) return visit;
  if (head != nullptr) {
    visit->trace = trace_of(*head);
    visit->method = bounded(head->method, 32);
    visit->path = bounded(head->path, 256);
  }
  visit->told = [this](const Visit& v) { tell(v); };
  return visit;
}

void ServerLog::tell(const Visit& visit) noexcept {
  // One that left before its answer has the status that nginx gives it, as in the metrics.
  constexpr int kLeft = 499;
  const int status = visit.whole ? visit.status : kLeft;
  // 501 and 505 are what a client asked for.
  const bool failed = status == 500 || status == 503 || !visit.error.empty();
  const uint32_t level = failed ? BLEND_LOG_ERROR : BLEND_LOG_INFO;
  if (level > level_) return;
  try {
    Fields fields = Fields::object();
    add_ids(visit, fields);
    fields["method"] = visit.method;
    fields["path"] = visit.path;
    fields["status"] = status;
    fields["bytes"] = visit.bytes;
    fields["ms"] = ms(visit.end - visit.begin);
    if (!visit.tenant.empty()) fields["tenant"] = visit.tenant;
    if (visit.taken) fields["queue_ms"] = ms(*visit.taken - visit.begin);
    if (visit.cost) {
      fields["prompt_tokens"] = visit.cost->prompt_tokens;
      fields["completion_tokens"] = visit.cost->completion_tokens;
      fields["cached_tokens"] = visit.cost->cached_tokens;
      fields["recomputed_tokens"] = visit.cost->recomputed_tokens;
      if (visit.cost->ttft_ns != 0) {  // 0: embeddings
        fields["ttft_ms"] = ms(std::chrono::nanoseconds(visit.cost->ttft_ns));
      }
    }
    if (!visit.error.empty()) fields["error"] = bounded(visit.error, 512);
    writer_->add(line(unix_ns(), level, "http", "request", fields));
  } catch (...) {  // NOLINT(bugprone-empty-catch): as above
  }
}

ServerLog::Scope::Scope(const Visit& visit) : before_(visit_of_thread) { visit_of_thread = &visit; }
ServerLog::Scope::~Scope() { visit_of_thread = before_; }

}  // namespace blend_cli::serve
