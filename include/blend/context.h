/*
 * context.h - the compute threads and the device that models, stores and fusions share.
 */
#ifndef BLEND_CONTEXT_H
#define BLEND_CONTEXT_H

#include "blend/log.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Owns the compute threads, which concurrent calls share; one per process is the usual choice. */
typedef struct blend_ctx blend_ctx;

#define BLEND_CTX_PIN_THREADS 1u /* pins each thread that the context starts to one CPU: to those
                                    that the creating thread may run on (sched_getaffinity), in
                                    ascending order. The first CPU is left to the calling threads,
                                    which are not pinned. For a process that has these CPUs to
                                    itself */

typedef struct blend_ctx_options {
  uint32_t struct_size;
  uint32_t flags;       /* BLEND_CTX_* */
  uint32_t n_threads;   /* compute threads, the calling one included; 0 = the CPUs this process may
                           run on (sched_getaffinity). At most 1024. */
  uint32_t cache_dtype; /* BLEND_DTYPE_*: element type of the fused K and V of prompts. AUTO: f32 on
                           a CPU, bf16 on a GPU, where others are UNSUPPORTED. On a CPU F16 and BF16
                           halve their memory and the bytes that a decoded token reads. A value
                           that F16 cannot hold fails the call with NUMERIC; BF16 holds all values
                           with an eighth of the precision. docs/quality.md has figures */
  const char *backend;  /* what computes: "cpu" (also NULL), "cuda" or "cuda:N" (GPU N of the
                           driver, from 0), "auto" (the first usable GPU, else the CPU; `log`
                           is then told why). Copied. */
  uint64_t device_bytes; /* size of a cache in GPU memory for stored chunks, so that a later fuse
                            neither loads nor copies them. The least recently used leave first.
                            Chunks of INT8 and INT4 are kept encoded. 0: none; no effect with
                            "cpu" */
  blend_log_fn log;     /* NULL: nothing is told; blend_store_report still counts */
  void *log_user;
  uint32_t log_level;   /* BLEND_LOG_*: the least important that is told. DEFAULT: INFO */
  uint32_t reserved;    /* 0 */
} blend_ctx_options;

BLEND_API int32_t blend_ctx_options_init(blend_ctx_options *options, size_t struct_size);

/* Starts the threads. For a GPU it also opens the device and libblend_cuda.so (beside libblend.so,
 * on the loader's path, or where the environment variable BLEND_CUDA_MODULE says).
 * `options` may be NULL for the defaults. Errors: INVALID_ARGUMENT (also: more threads to pin than
 * CPUs), INVALID_STRUCT, OUT_OF_MEMORY, IO (the system will not pin a thread), NO_DEVICE (says what
 * is missing: the library, the driver or the device), UNSUPPORTED (a device that is too old). */
BLEND_API int32_t blend_ctx_create(blend_ctx **out, const blend_ctx_options *options,
                                   blend_error **err);
/* A description of what computes, for people to read: "cuda:0 (NAME)"; or "cpu" with the
 * instruction set (AVX-512, AVX2, SSE4, NEON, no SIMD) and, if there is one, the instruction that
 * multiplies 8-bit integers: "cpu (AVX-512, VNNI)", "cpu (NEON, dot product)". A CPU without AVX2
 * or NEON is several times slower; blend_ctx_create tells `log` so, with BLEND_E_UNSUPPORTED.
 * Valid while the context is open; "" when `ctx` is NULL. */
BLEND_API const char *blend_ctx_backend(const blend_ctx *ctx);
BLEND_API void blend_ctx_close(blend_ctx *ctx);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_CONTEXT_H */
