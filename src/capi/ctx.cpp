#include "capi/error.h"
#include "capi/handles.h"
#include "capi/structs.h"

namespace {

constexpr uint32_t kMaxThreads = 1024;

blend_ctx_options default_ctx_options() {
  blend_ctx_options o{};
  o.struct_size = sizeof o;
  return o;
}

}  // namespace

extern "C" {

int32_t blend_ctx_options_init(blend_ctx_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size, default_ctx_options());
}

int32_t blend_ctx_create(blend_ctx** out, const blend_ctx_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> blend::Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    blend_ctx_options o = default_ctx_options();
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    if (o.n_threads > kMaxThreads) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT,
                               "n_threads %u is more than %u; 0 takes the CPUs of this process",
                               o.n_threads, kMaxThreads);
    }
    blend::EventSink events;
    if (o.on_event != nullptr) {
      events = [fn = o.on_event, user = o.event_user](int32_t code, const std::string& message) {
        fn(user, code, message.c_str());
      };
    }
    BLEND_ASSIGN(const blend::BackendSpec backend, blend::parse_backend(o.backend));
    auto ctx = std::make_unique<blend_ctx>();
    BLEND_ASSIGN(ctx->runtime,
                 blend::Runtime::create(o.n_threads, std::move(events), backend, o.device_bytes));
    *out = ctx.release();
    return blend::Status::ok();
  });
}

const char* blend_ctx_backend(const blend_ctx* ctx) {
  return ctx == nullptr ? "" : ctx->runtime->backend().name();
}

void blend_ctx_close(blend_ctx* ctx) { delete ctx; }

}  // extern "C"
