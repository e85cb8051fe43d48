#include "capi/log.h"

#include <vector>

#include "base/utf8_stream.h"
#include "fusion/request/policy_registry.h"

namespace blend::capi {
namespace {

// A record as C reads it; its texts are UTF-8, as file names need not be.
class HostRecord {
 public:
  explicit HostRecord(const LogRecord& record) : message_(valid_utf8(record.message)) {
    texts_.reserve(record.fields.size());  // the fields point at them
    fields_.reserve(record.fields.size());
    for (const LogRecord::Field& field : record.fields) fields_.push_back(shown(field));
    out_.struct_size = sizeof out_;
    out_.level = record.level;
    out_.code = record.code;
    out_.n_fields = static_cast<uint32_t>(fields_.size());
    out_.time_unix_ns = static_cast<uint64_t>(
        std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count());
    out_.component = record.component;
    out_.message = message_.c_str();
    out_.fields = fields_.data();
  }
  HostRecord(const HostRecord&) = delete;
  HostRecord& operator=(const HostRecord&) = delete;

  const blend_log_record& get() const { return out_; }

 private:
  blend_log_field shown(const LogRecord::Field& field) {
    blend_log_field out{};
    out.key = field.key;
    out.text = texts_.emplace_back(valid_utf8(field.text)).c_str();
    out.integer = field.integer;
    out.number = field.number;
    out.type = field.type;
    return out;
  }

  const std::string message_;
  std::vector<std::string> texts_;
  std::vector<blend_log_field> fields_;
  blend_log_record out_{};
};

}  // namespace

Result<Log> read_log(const blend_ctx_options& options) {
  if (options.log_level > BLEND_LOG_DEBUG) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "log_level %u is not one of 0 .. %u",
                      options.log_level, BLEND_LOG_DEBUG);
  }
  if (options.log == nullptr) return Log();
  const uint32_t level =
      options.log_level == BLEND_LOG_DEFAULT ? BLEND_LOG_INFO : options.log_level;
  return Log(level, [fn = options.log, user = options.log_user](const LogRecord& record) {
    const HostRecord shown(record);
    fn(user, &shown.get());
  });
}

void tell_opened(const Log& log, const Model& model, const std::string& path,
                 std::chrono::steady_clock::time_point begin) {
  log.write(BLEND_LOG_INFO, BLEND_EVENT_MODEL_OPENED, "model", [&](LogRecord& record) {
    const ModelConfig& c = model.config();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    const std::string weights = c.weight_blocks == BlockType::none
                                    ? dtype_name(c.weight_dtype)
                                    : block_type_name(c.weight_blocks);
    record.message = "model '" + path + "' was opened";
    record.add("path", path);
    record.add("architecture", c.architecture);
    record.add("parameters", model.n_parameters());
    record.add("weights", weights);
    record.add("weight_bytes", model.weight_bytes());
    record.add("layers", c.n_layers);
    record.add("context_length", model.context_length());
    record.add("seconds", took.count());
  });
}

void tell_opened(const Log& log, Store& store, const std::string& path,
                 const StoreOptions& options) noexcept {
  log.write(BLEND_LOG_INFO, BLEND_EVENT_STORE_OPENED, "store", [&](LogRecord& record) {
    record.message = "store '" + path + "' was opened";
    record.add("path", path);
    if (auto stat = store.stat(); stat.is_ok()) {
      record.add("chunks", stat->n_chunks);
      record.add("bytes", stat->stored_bytes);
    }
    record.add("quota_bytes", options.quota_bytes);
    record.add("read_only", options.read_only);
    record.add("remote", store.remote() != nullptr);
  });
}

void tell_fused(const Log& log, const Fused& fused) {
  log.write(BLEND_LOG_DEBUG, BLEND_EVENT_FUSED, "fuse", [&](LogRecord& record) {
    const blend_fusion_report& info = fused.info;
    record.message = "a prompt was fused";
    if (const PolicyEntry* const policy = find_policy(info.policy)) {
      record.add("policy", policy->name);
    }
    record.add("ratio", info.ratio);
    record.add("rows", info.n_rows);
    record.add("reused", info.n_rows_reused);
    record.add("recomputed", info.n_rows_selected);
    record.add("hits", info.n_hits);
    record.add("misses", info.n_misses);
    record.add("ms", static_cast<double>(info.ttft_ns) / 1e6);
  });
}

void tell_untrusted(const Log& log, const std::string& path) {
  log.write(BLEND_LOG_WARNING, BLEND_EVENT_UNTRUSTED, "profile", [&](LogRecord& record) {
    record.message =
        "profile '" + path + "' trusts no ratio: none that was measured kept the limits";
    record.add("path", path);
  });
}

}  // namespace blend::capi
