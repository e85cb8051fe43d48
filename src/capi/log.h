// The log's records as the host gets them, and those of the calls of the C ABI.
#pragma once

#include <chrono>
#include <string>

#include "base/log.h"
#include "capi/error.h"
#include "engine/model.h"
#include "fusion/run/fuse.h"
#include "store/store.h"

namespace blend::capi {

// INVALID_ARGUMENT: log_level is no BLEND_LOG_ value.
Result<Log> read_log(const blend_ctx_options& options);

void tell_opened(const Log& log, const Model& model, const std::string& path,
                 std::chrono::steady_clock::time_point begin);
void tell_opened(const Log& log, Store& store, const std::string& path,
                 const StoreOptions& options) noexcept;
void tell_fused(const Log& log, const Fused& fused);
void tell_untrusted(const Log& log, const std::string& path);

}  // namespace blend::capi
