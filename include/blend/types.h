/*
 * types.h - codes, errors, cancellation, callbacks and small types that all other headers use.
 */
#ifndef BLEND_TYPES_H
#define BLEND_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BLEND_API __attribute__((visibility("default")))
#else
#define BLEND_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Codes ------------------------------------------------------------------------------- */

#define BLEND_OK 0
#define BLEND_EXISTS 1  /* the chunk, or the measurement, was there already: nothing was computed */
#define BLEND_STOPPED 2 /* a stop token, a stop text or the grammar's end ended the generation,
                           not max_tokens */
#define BLEND_BELOW_LIMITS 3 /* done, but the limits of quality were not kept: by no measured ratio
                                (blend_calibrate), or not by the profile's (blend_verify) */
#define BLEND_PARTIAL 4 /* a batch: some requests failed, the others are done */
#define BLEND_PENDING 6 /* blend_store_wait: the time ran out before the write was done */

#define BLEND_E_INVALID_ARGUMENT (-10) /* an argument is null, out of range or contradictory */
#define BLEND_E_INVALID_STRUCT (-11)   /* struct_size too small, or unknown members set */
#define BLEND_E_BUFFER_TOO_SMALL (-12) /* the size that is needed was written to the size output */
#define BLEND_E_CONTEXT_LENGTH (-14)   /* the prompt or the generation outgrows the context */
#define BLEND_E_NOT_FOUND (-20)        /* no such file, chunk, token, ... */
#define BLEND_E_FORMAT (-22)           /* a file is not what it claims to be, or is truncated */
#define BLEND_E_UNSUPPORTED (-24)      /* a well-formed file asks for what libblend does not do; or
                                          a call, for what this build of it leaves out */
#define BLEND_E_MISMATCH (-26)         /* a chunk or store of another model, dtype or version */
#define BLEND_E_CORRUPT (-28)          /* stored bytes fail their checksum */
#define BLEND_E_IO (-30)               /* the system refused; blend_error_detail() is the errno */
#define BLEND_E_FULL (-32)             /* the store's quota or the disk is exhausted */
#define BLEND_E_READ_ONLY (-34)        /* a write was asked of a store opened read-only */
#define BLEND_E_NO_DEVICE (-36)        /* the backend needs a library, driver or GPU that is not
                                          here */
#define BLEND_E_BUSY (-38)             /* another process or handle has it open */
#define BLEND_E_OUT_OF_MEMORY (-40)
#define BLEND_E_CANCELLED (-42) /* blend_cancel_request() was called */
#define BLEND_E_CALLBACK (-44)  /* a callback returned non-zero; the value is the detail */
#define BLEND_E_FORKED (-46)    /* the handle was made before fork(); make a new one in the child */
#define BLEND_E_NUMERIC (-48)   /* NaN or infinity in the weights, activations or KV */
#define BLEND_E_UNTRUSTED (-49) /* the profile did not measure that such a fuse keeps its limits
                                   (BLEND_ON_UNTRUSTED_FAIL) */
#define BLEND_E_INTERNAL (-50)  /* a bug in libblend: please report the message */

/* ---- Version and errors ------------------------------------------------------------------ */

/* "major.minor.patch" of the library that is loaded (not of this header). Never freed. */
BLEND_API const char *blend_version(void);

typedef struct blend_error blend_error;

/* The BLEND_E_* code; BLEND_OK when `error` is NULL. */
BLEND_API int32_t blend_error_code(const blend_error *error);
/* One sentence, UTF-8, that names the problem and the remedy; "" when `error` is NULL. Valid until
 * blend_error_free. */
BLEND_API const char *blend_error_message(const blend_error *error);
/* The errno, the callback's value, or 0; see the codes. */
BLEND_API int64_t blend_error_detail(const blend_error *error);
BLEND_API void blend_error_free(blend_error *error);
/* "BLEND_E_NOT_FOUND" for -20; "BLEND_E_?" for a value this library does not know. Never freed. */
BLEND_API const char *blend_code_name(int32_t code);

/* ---- Cancellation ------------------------------------------------------------------------ */

/* A flag that stops the calls to which it was passed. Any thread, or a signal handler, may raise
 * it. One flag may serve several calls, and must outlive them. */
typedef struct blend_cancel blend_cancel;

BLEND_API int32_t blend_cancel_create(blend_cancel **out, blend_error **err);
/* Raises the flag. Async-signal-safe, any thread. Calls that hold it return BLEND_E_CANCELLED
 * soon, most of them within about one layer's compute time. */
BLEND_API void blend_cancel_request(const blend_cancel *cancel);
/* Lowers the flag, so that it may be used again. */
BLEND_API void blend_cancel_reset(const blend_cancel *cancel);
BLEND_API void blend_cancel_free(blend_cancel *cancel);

/* ---- Callbacks --------------------------------------------------------------------------- */

/* Progress of long work: `done` of `total` units (layers, chunks or bytes, as the call says). */
typedef int32_t (*blend_progress_fn)(void *user, uint64_t done, uint64_t total);

/* ---- Small types ------------------------------------------------------------------------- */

#define BLEND_DTYPE_AUTO 0u /* the member's own comment says which */
#define BLEND_DTYPE_F32 1u
#define BLEND_DTYPE_F16 2u
#define BLEND_DTYPE_BF16 3u

/* The identity of a stored chunk: SHA-256 over model fingerprint, KV dtype, chunk prefix, tenant,
 * token ids and kind of record (plain or contextual). A plain value that will not grow. */
typedef struct blend_chunk_id {
  uint8_t bytes[32];
} blend_chunk_id;

/* 64 lower-case hexadecimal digits and a NUL into `hex` (65 bytes). */
BLEND_API void blend_chunk_id_to_hex(const blend_chunk_id *id, char *hex);
/* Errors: INVALID_ARGUMENT (not 64 hexadecimal digits). */
BLEND_API int32_t blend_chunk_id_from_hex(blend_chunk_id *id, const char *hex, blend_error **err);

/* Bytes, not NUL-terminated. A plain pair that will not grow. */
typedef struct blend_text {
  const char *bytes;
  size_t n_bytes;
} blend_text;

#ifdef __cplusplus
}
#endif

#endif /* BLEND_TYPES_H */
