#include "capi/error.h"
#include "capi/handles.h"
#include "capi/kv_view.h"
#include "capi/log.h"
#include "capi/structs.h"

extern "C" {

int32_t blend_ctx_options_init(blend_ctx_options* options, size_t struct_size) {
  return blend::capi::init_struct(options, struct_size);
}

int32_t blend_ctx_create(blend_ctx** out, const blend_ctx_options* options, blend_error** err) {
  return blend::capi::guarded(err, [&]() -> blend::Status {
    BLEND_REQUIRE(out);
    *out = nullptr;
    blend_ctx_options o{};
    BLEND_RETURN_IF_ERROR(blend::capi::read_struct(options, o));
    if ((o.flags & ~BLEND_CTX_PIN_THREADS) != 0) {
      return blend::make_error(BLEND_E_INVALID_ARGUMENT, "flags 0x%x: unknown BLEND_CTX_ bits",
                               o.flags);
    }
    const blend::PoolOptions threads{o.n_threads, (o.flags & BLEND_CTX_PIN_THREADS) != 0};
    BLEND_ASSIGN(blend::Log log, blend::capi::read_log(o));
    BLEND_ASSIGN(blend::BackendSpec backend, blend::parse_backend(o.backend));
    if (o.cache_dtype != BLEND_DTYPE_AUTO) {
      BLEND_ASSIGN(backend.cache, blend::capi::read_dtype("cache_dtype", o.cache_dtype));
    }
    auto ctx = std::make_unique<blend_ctx>();
    BLEND_ASSIGN(ctx->runtime,
                 blend::Runtime::create(threads, std::move(log), backend, o.device_bytes));
    *out = ctx.release();
    return blend::Status::ok();
  });
}

const char* blend_ctx_backend(const blend_ctx* ctx) {
  return ctx == nullptr ? "" : ctx->runtime->backend().name();
}

void blend_ctx_close(blend_ctx* ctx) { delete ctx; }

}  // extern "C"
