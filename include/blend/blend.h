/*
 * blend.h - the C ABI of libblend.
 *
 * libblend keeps the KV caches of text chunks in a store, fuses the caches of any chunks in any
 * order, and recomputes only the rows whose K and V deviate most, so that a prompt made of
 * retrieved chunks gets its first token several times sooner than by full prefill, with the same
 * answer (CacheBlend, Yao et al., EuroSys '25; the storage follows AttentionStore, Gao et al.,
 * ATC '24).
 *
 * THE MODEL OF THIS API
 *   context -> model, store -> precompute (chunk -> store) -> fuse (segments -> fusion) -> generate.
 *   The context owns the compute threads. A model is immutable once open. A store is a directory
 *   that several processes may share. A fusion is one prompt's fused KV cache and the logits of
 *   its last row.
 *
 * RULES THAT HOLD EVERYWHERE
 *   Return values   int32_t: BLEND_OK (0), a positive BLEND_* for "done, and this too", or a
 *                   negative BLEND_E_*. New codes may be added; treat an unknown negative value as
 *                   an error.
 *   Errors          The trailing `blend_error **err` may be NULL. On failure *err receives an
 *                   object that the caller owns (blend_error_free) and may read on any thread. On
 *                   success *err is set to NULL. There is no thread-local last error.
 *   Threads         A function that takes `const blend_x *` may run concurrently with any other
 *                   such function on the same handle. `blend_x *` needs exclusive use, closing
 *                   included: no other call on the handle may be running or come later.
 *   n_threads       Of a call's options: the most of the context's compute threads that the call
 *                   computes with at a time, the calling one included; 0 (default), and more than
 *                   there are: all. Calls compute side by side as long as their threads add up to
 *                   the context's: of 8, two requests may have 4 each, or one 7 and a precompute
 *                   that nobody waits for 1. Others take turns, operation by operation (about a
 *                   millisecond each at most), first come first served. Results are the same bits
 *                   whatever the number. Threads that only read or write are not counted.
 *   Lifetime        Handles may be closed in any order: what a fusion needs of its model, or a
 *                   model of its context, stays alive until the last user is closed. Every close
 *                   and free accepts NULL.
 *   Structs         Options and info structs begin with `struct_size`. Call the matching
 *                   *_init(ptr, sizeof *ptr) first, then set fields. The library reads the members
 *                   it knows and refuses a struct smaller than its first release. Larger options are
 *                   accepted only if the tail it does not know is zero; that of a larger info struct
 *                   is set to zero. Fields are only ever appended.
 *   Callbacks       Run on the thread that made the call unless said otherwise. A non-zero return
 *                   stops the work: the call fails with BLEND_E_CALLBACK and blend_error_detail()
 *                   gives the value back. A callback must not throw and must not close the handle
 *                   it was called for.
 *   Signals         Threads that the library starts have all signals blocked but those that a fault
 *                   raises in the thread itself (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS,
 *                   SIGABRT): a handler runs on a thread of the host, never on ours, SIGPROF's too.
 *                   A call that a handler interrupts goes on; its result is the same. A handler may
 *                   call blend_cancel_request and nothing else of the library.
 *   Tensors         "[a, b, c]" is row-major, last index fastest. "Row" is a token's place in the
 *                   prompt. Times are nanoseconds of a monotonic clock, sizes are bytes.
 *   Host            The library never prints, exits, aborts, changes signal handlers or the
 *                   locale, and has no global state except the registry of open LMDB environments
 *                   that LMDB itself demands (one per process, device and inode).
 */
#ifndef BLEND_BLEND_H
#define BLEND_BLEND_H

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
#define BLEND_EXISTS 1  /* blend_precompute: the chunk was in the store already */
#define BLEND_STOPPED 2 /* blend_generate: ended by a stop token, not by max_tokens */
#define BLEND_UNTRUSTED 3 /* blend_calibrate, blend_verify: done, but the limits were not kept */
#define BLEND_PARTIAL 4 /* blend_fuse_batch: some prompts failed, the others are fused */
#define BLEND_EVICTED 5   /* an event, no error: a chunk left the store to make room, or expired */
#define BLEND_PENDING 6   /* blend_store_wait: the time ran out before the write was done */

#define BLEND_E_INVALID_ARGUMENT (-10) /* an argument is null, out of range or contradictory */
#define BLEND_E_INVALID_STRUCT (-11)   /* struct_size too small, or unknown members set */
#define BLEND_E_BUFFER_TOO_SMALL (-12) /* the size that is needed was written to the size output */
#define BLEND_E_CONTEXT_LENGTH (-14)   /* the prompt or the generation outgrows the context */
#define BLEND_E_NOT_FOUND (-20)        /* no such file, chunk or token */
#define BLEND_E_FORMAT (-22)           /* a file is not what it claims to be, or is truncated */
#define BLEND_E_UNSUPPORTED (-24)      /* a well-formed file asks for what libblend does not do */
#define BLEND_E_MISMATCH (-26)         /* a chunk or store of another model, dtype or version */
#define BLEND_E_CORRUPT (-28)          /* stored bytes fail their checksum */
#define BLEND_E_IO (-30)               /* the system refused; blend_error_detail() is the errno */
#define BLEND_E_FULL (-32)             /* the store's quota or the disk is exhausted */
#define BLEND_E_READ_ONLY (-34)        /* a write was asked of a store opened read-only */
#define BLEND_E_NO_DEVICE (-36)        /* the backend asked for needs a library, driver or GPU that is
                                          not here */
#define BLEND_E_BUSY (-38)             /* somebody else has it open */
#define BLEND_E_OUT_OF_MEMORY (-40)
#define BLEND_E_CANCELLED (-42) /* blend_cancel_request() was called */
#define BLEND_E_CALLBACK (-44)  /* a callback returned non-zero; the value is the detail */
#define BLEND_E_FORKED (-46)    /* the store was opened before fork(); open it in the child */
#define BLEND_E_NUMERIC (-48)   /* NaN or infinity in the weights, activations or KV */
#define BLEND_E_INTERNAL (-50)  /* a bug in libblend: please report the message */

/* ---- Version ----------------------------------------------------------------------------- */

/* "major.minor.patch" of the library that is loaded (not of this header). Never freed. */
BLEND_API const char *blend_version(void);

/* ---- Errors ------------------------------------------------------------------------------ */

typedef struct blend_error blend_error;

/* The BLEND_E_* code; BLEND_OK when `error` is NULL. */
BLEND_API int32_t blend_error_code(const blend_error *error);
/* One sentence that names the thing and the way out, UTF-8; "" when `error` is NULL. Valid until
 * blend_error_free. */
BLEND_API const char *blend_error_message(const blend_error *error);
/* The errno, the callback's value, or 0; see the codes. */
BLEND_API int64_t blend_error_detail(const blend_error *error);
BLEND_API void blend_error_free(blend_error *error);
/* "BLEND_E_NOT_FOUND" for -20; "BLEND_E_?" for a value this library does not know. Never freed. */
BLEND_API const char *blend_code_name(int32_t code);

/* ---- Cancellation ------------------------------------------------------------------------ */

/* A flag that any thread, or a signal handler, may raise to stop a call that was given it. One
 * token may serve several calls. It must outlive them. */
typedef struct blend_cancel blend_cancel;

BLEND_API int32_t blend_cancel_create(blend_cancel **out, blend_error **err);
/* Raises the flag. Async-signal-safe, any thread. Calls that hold it return BLEND_E_CANCELLED
 * within about one layer's compute time. */
BLEND_API void blend_cancel_request(const blend_cancel *cancel);
/* Lowers the flag, so that the token may be used again. */
BLEND_API void blend_cancel_reset(const blend_cancel *cancel);
BLEND_API void blend_cancel_free(blend_cancel *cancel);

/* ---- Callbacks --------------------------------------------------------------------------- */

/* Progress of long work: `done` of `total` units (layers, chunks or bytes, as the call says). */
typedef int32_t (*blend_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Something worth a log line that is not the current call's error: damage found in a store and
 * treated as a miss, a write-back that failed, a CPU that lacks fast kernels; then `code` is a
 * BLEND_E_*. BLEND_EVICTED: a chunk, named in the message, left the store for its quota or its age.
 * Called from any thread, several at once; the return value is ignored. Must not call back into the
 * library. */
typedef int32_t (*blend_event_fn)(void *user, int32_t code, const char *message);

/* ---- Context ----------------------------------------------------------------------------- */

/* Owns the compute threads. Concurrent calls on one context share them fairly, side by side where
 * their options say n_threads; one context per process is the usual choice. */
typedef struct blend_ctx blend_ctx;

#define BLEND_CTX_PIN_THREADS 1u /* each thread that the context starts runs on one CPU of those that
                                    the creating thread may run on (sched_getaffinity), in ascending
                                    order; the first is left to the calling threads, which are not
                                    touched. For a process that has these CPUs to itself */

typedef struct blend_ctx_options {
  uint32_t struct_size;
  uint32_t n_threads; /* compute threads, the calling one included; 0 = the CPUs this process may
                         run on (sched_getaffinity). At most 1024. */
  blend_event_fn on_event; /* NULL: events are only counted (blend_store_stat) */
  void *event_user;
  const char *backend; /* what computes: "cpu" (also NULL, the default), "cuda" or "cuda:N" (the
                          N-th GPU that the driver shows, from 0), "auto" (the first GPU where one
                          can be had, else the CPU, and on_event says why). Copied. */
  uint64_t device_bytes; /* GPU memory for stored chunks that were used, kept from fuse to fuse until
                            others push them out (least recently used first) or the context closes: a
                            fuse neither loads nor copies what is there. Chunks of INT8 and INT4 stay
                            as small there. 0 (default): none; of no effect with "cpu" */
  uint32_t flags;        /* BLEND_CTX_*; default 0 */
  uint32_t cache_dtype;  /* BLEND_KV_*: what the fused K and V of prompts are kept as. BLEND_KV_AUTO (0,
                            the default): f32 on a CPU, bf16 on a GPU, which has no other (UNSUPPORTED).
                            On a CPU F16 halves their memory, and what a decoded token reads of them;
                            each value is rounded once, and again when an edit moves its row. A value
                            that F16 cannot hold fails the call with NUMERIC: BF16 holds all, with an
                            eighth of the precision. "auto" applies it where the CPU is chosen.
                            docs/quality.md has figures */
} blend_ctx_options;

BLEND_API int32_t blend_ctx_options_init(blend_ctx_options *options, size_t struct_size);

/* Starts the threads and, where a GPU was asked for, opens libblend_cuda.so (beside libblend.so, on
 * the loader's path, or what the environment variable BLEND_CUDA_MODULE names) and its device.
 * `options` may be NULL for the defaults. Errors: INVALID_ARGUMENT (also: more threads to pin than
 * CPUs), INVALID_STRUCT, OUT_OF_MEMORY, IO (the system will not pin a thread), NO_DEVICE (says what
 * is missing: the library, the driver or the device), UNSUPPORTED (a device that is too old). */
BLEND_API int32_t blend_ctx_create(blend_ctx **out, const blend_ctx_options *options,
                                   blend_error **err);
/* What computes and with what: "cuda:0 (NAME)"; or "cpu", then in brackets the instruction set (AVX-512,
 * AVX2, SSE4, SSSE3, NEON, no SIMD) and, if there is one, the instruction that multiplies 8-bit integers:
 * "cpu (AVX-512, VNNI)", "cpu (NEON, dot product)". For people to read. Without AVX2 or NEON on_event has
 * heard BLEND_E_UNSUPPORTED: several times slower. Valid while the context is open; "" when `ctx` is
 * NULL. */
BLEND_API const char *blend_ctx_backend(const blend_ctx *ctx);
BLEND_API void blend_ctx_close(blend_ctx *ctx);

/* ---- Model and tokenizer ----------------------------------------------------------------- */

/* Weights, tokenizer and description of one model. Immutable; all functions may run concurrently. */
typedef struct blend_model blend_model;

/* How the weights' matrices are kept in memory. */
#define BLEND_WEIGHTS_AUTO 0u   /* MAPPED where they are quantized and the backend can, else PACKED */
#define BLEND_WEIGHTS_PACKED 1u /* a copy in the form that is computed with fastest: on a CPU the file's
                                   f16 or bf16, else f32 (4 bytes a weight); bf16 on a GPU */
#define BLEND_WEIGHTS_MAPPED 2u /* as the file has them, of any type, decoded as they are used. They take
                                   the file's bytes in the page cache, which processes that open the
                                   same model share, and nothing else. CPU only (UNSUPPORTED). The file
                                   must not be cut short while the model is open */
#define BLEND_WEIGHTS_INT8 3u   /* a copy of 8 bits a weight, a step per output. Activations become bytes
                                   too, with a scale a row: matrix products take a quarter of PACKED's
                                   time where the machine multiplies bytes (blend_ctx_backend() names
                                   VNNI or the dot product), less is gained elsewhere. Answers differ a
                                   little; docs/quality.md has figures. CPU only (UNSUPPORTED) */

typedef struct blend_model_options {
  uint32_t struct_size;
  uint32_t max_context; /* rows a fusion may have; 0 = what the model was trained for */
  blend_progress_fn progress; /* bytes of weights read */
  void *progress_user;
  const blend_cancel *cancel;
  uint32_t weights;         /* BLEND_WEIGHTS_*; default AUTO */
} blend_model_options;

BLEND_API int32_t blend_model_options_init(blend_model_options *options, size_t struct_size);

/* Opens a GGUF file (v2 or v3), or a Hugging Face directory (config.json, tokenizer.json and
 * model.safetensors or its shards). docs/models.md says which families of models, types of weights
 * and tokenizers there are. Files are mapped, every offset and shape in them is checked, and the
 * weights are packed for this machine.
 * Errors: NOT_FOUND, IO, FORMAT (names the file and the offset, member or tensor), UNSUPPORTED (names
 * what was met),
 * NUMERIC (a NaN or infinity in the weights), OUT_OF_MEMORY, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_model_open(blend_model **out, const blend_ctx *ctx, const char *path,
                                   const blend_model_options *options, blend_error **err);
BLEND_API void blend_model_close(blend_model *model);

typedef struct blend_model_info {
  uint32_t struct_size;
  uint32_t n_layers;
  uint32_t d_model;    /* width of the residual stream */
  uint32_t n_heads;    /* query heads */
  uint32_t n_kv_heads; /* key/value heads; query heads h*g .. h*g+g-1 share KV head h (GQA) */
  uint32_t head_dim;
  uint32_t d_ff;       /* width of the feed-forward layer */
  uint32_t n_vocab;
  uint32_t context_length; /* rows a fusion may have */
  int32_t bos_token;       /* -1: none */
  int32_t eos_token;       /* -1: none */
  uint32_t add_bos;        /* 1: the model expects BOS at the start of a prompt */
  double rope_theta;
  uint64_t n_parameters;
  uint64_t weight_bytes;       /* memory of its own that the weights take: little where they are mapped */
  uint64_t kv_bytes_per_token; /* in the fused cache, all layers */
  const char *architecture;    /* "llama", "qwen2", ...; valid while the model is open */
  const char *name;            /* general.name or "" */
  const char *weight_dtype;    /* "f32", "f16", "bf16", "q8_0", ...: the file's matrices */
  uint8_t fingerprint[32];     /* SHA-256 over weights, tokenizer and hyperparameters */
  const char *chat_template;   /* the model's, Jinja source for the host to render; "": none; valid
                                  while the model is open */
  uint32_t weights;            /* BLEND_WEIGHTS_PACKED, _MAPPED or _INT8; 0 where there are none */
} blend_model_info;

BLEND_API int32_t blend_model_info_init(blend_model_info *info, size_t struct_size);
BLEND_API int32_t blend_model_get_info(const blend_model *model, blend_model_info *info,
                                       blend_error **err);

#define BLEND_ROPE_INTERLEAVED 1u /* pairs (0,1), (2,3), ...: GGUF `llama` files */
#define BLEND_ROPE_HALF_SPLIT 2u  /* pairs (0,d/2), (1,d/2+1), ...: Hugging Face transformers */

/* What libblend must know of a model that the host runs itself. The frequency of pair i is
 * rope_theta^(-2i/rotary_dim) / rope_linear_scale / rope_freq_factors[i]; rotations that also
 * change the length of K (YaRN's attention factor) are not covered. */
typedef struct blend_model_description {
  uint32_t struct_size;
  uint32_t n_layers;
  uint32_t n_heads; /* query heads, a multiple of n_kv_heads */
  uint32_t n_kv_heads;
  uint32_t head_dim;
  uint32_t n_vocab;
  uint32_t context_length;  /* rows a plan may have */
  uint32_t weight_dtype;    /* BLEND_KV_F32 (default), _F16 or _BF16: what BLEND_KV_AUTO goes by */
  uint32_t rope_layout;     /* BLEND_ROPE_*; default HALF_SPLIT */
  uint32_t rotary_dim;      /* elements of a head that rotate; 0 (default) = head_dim */
  double rope_theta;        /* default 10000 */
  double rope_linear_scale; /* default 1 */
  const float *rope_freq_factors; /* [rotary_dim / 2]; NULL (default): all 1 */
  size_t n_rope_freq_factors;
  const char *name; /* names the weights, e.g. "org/model@revision"; NULL = "" */
  uint8_t fingerprint[32]; /* all zero (default): made of the name and all the numbers above */
} blend_model_description;

BLEND_API int32_t blend_model_description_init(blend_model_description *description,
                                               size_t struct_size);

/* A model that the host runs itself: no weights, no tokenizer. For blend_put_kv, blend_chunk_find
 * and the step API (blend_plan_create). What needs weights or a tokenizer (blend_tokenize,
 * blend_precompute, blend_fuse, ...) refuses it with INVALID_ARGUMENT.
 * Two models with one fingerprint share their chunks, so weights that differ must differ in name or
 * fingerprint. The description is copied. Errors: INVALID_ARGUMENT (names the member; or there is
 * neither a name nor a fingerprint), INVALID_STRUCT, OUT_OF_MEMORY. */
BLEND_API int32_t blend_model_describe(blend_model **out, const blend_ctx *ctx,
                                       const blend_model_description *description,
                                       blend_error **err);

#define BLEND_TOKENIZE_BOS 1u     /* put the BOS token in front, if the model has one */
#define BLEND_TOKENIZE_SPECIAL 2u /* recognise special tokens such as "</s>" in the text; without
                                     it they are plain text (safe for untrusted input) */
#define BLEND_TOKENIZE_RAW 4u     /* do not add the space that SentencePiece puts before a text */

/* Tokens of a UTF-8 text (invalid bytes become byte tokens). Writes up to `capacity` ids and the
 * full count to *n_tokens. Errors: BUFFER_TOO_SMALL (call again with *n_tokens), INVALID_ARGUMENT,
 * UNSUPPORTED (the model's own patterns take too long over this text). */
BLEND_API int32_t blend_tokenize(const blend_model *model, const char *text, size_t text_bytes,
                                 uint32_t flags, int32_t *tokens, size_t capacity, size_t *n_tokens,
                                 blend_error **err);

/* Text of tokens: bytes, not NUL-terminated, possibly cut inside a UTF-8 sequence; the space that
 * SentencePiece put before the first token is dropped unless BLEND_TOKENIZE_RAW. Control tokens
 * give nothing unless BLEND_TOKENIZE_SPECIAL. Errors: BUFFER_TOO_SMALL (needs *n_bytes),
 * INVALID_ARGUMENT (a token outside the vocabulary). */
BLEND_API int32_t blend_detokenize(const blend_model *model, const int32_t *tokens, size_t n_tokens,
                                   uint32_t flags, char *text, size_t capacity, size_t *n_bytes,
                                   blend_error **err);

/* ---- Chunk store ------------------------------------------------------------------------- */

/* K (before RoPE) and V of every layer of each chunk, on LMDB. Several processes and threads may
 * use one directory at once (never on a network file system). After fork() the child must open the
 * store anew: calls on the inherited handle give BLEND_E_FORKED. */
typedef struct blend_store blend_store;

#define BLEND_KV_AUTO 0u /* bf16 for a bf16 model, otherwise f16 */
#define BLEND_KV_F32 1u
#define BLEND_KV_F16 2u
#define BLEND_KV_BF16 3u

/* How the bytes of K and V are kept. Not part of a chunk's id: a chunk is read the same whatever its
 * codec, and keeps the one it was put with. docs/quality.md has what the lossy ones cost. */
#define BLEND_CODEC_DEFAULT 0u /* of a store: NONE; of a put: the store's */
#define BLEND_CODEC_NONE 1u    /* as they are */
#define BLEND_CODEC_ZSTD 2u    /* lossless: exponents compressed; 1.4 to 1.5 times smaller for bf16,
                                  1.2 for f16 and f32 */
#define BLEND_CODEC_INT8 3u    /* 8 bits: K has a scale per channel, V per token and head */
#define BLEND_CODEC_INT4 4u    /* 4 bits in groups of 32: of K along tokens, of V along channels */

/* How layers are read from the disk. What the page cache holds is taken from there unless a mode
 * other than AUTO is asked for. */
#define BLEND_READ_AUTO 0u    /* the first of these that works here, tried at open */
#define BLEND_READ_URING 1u   /* io_uring past the page cache (O_DIRECT) */
#define BLEND_READ_THREADS 2u /* a few threads that read past the page cache */
#define BLEND_READ_MAPPED 3u  /* copies from the map, fetched ahead by the kernel */

#define BLEND_STORE_READ_ONLY 1u
#define BLEND_STORE_NO_CREATE 2u /* NOT_FOUND instead of making a new store */

/* Which chunk leaves first when a put needs room. Pinned chunks never do; chunks that prompts were
 * hinted at (blend_store_hint) only after all others, what is needed last first. */
#define BLEND_EVICT_LRU 1u   /* the one that was unused longest */
#define BLEND_EVICT_FIFO 2u  /* the one that was put first; neither hits nor puts renew it */
#define BLEND_EVICT_REUSE 3u /* LRU, but what was hit n times gets log2(n) further chances */
#define BLEND_EVICT_NEVER 4u /* none: a put past the quota is BLEND_E_FULL */

typedef struct blend_store_options {
  uint32_t struct_size;
  uint32_t flags;       /* BLEND_STORE_* */
  uint32_t kv_dtype;    /* BLEND_KV_*: what new chunks are stored as; part of a chunk's id */
  uint32_t reserved0;   /* 0 */
  uint64_t quota_bytes; /* of stored chunks; default 16 GiB. A put past it evicts; BLEND_E_FULL when
                           pinned and needed chunks leave no room */
  uint64_t queue_bytes; /* background writes in flight; default 256 MiB. A full queue slows the
                           writer down, nothing is dropped */
  uint32_t codec;       /* BLEND_CODEC_* of what is put without one; with INT8 and INT4 also prefixes
                           and saved fusions come back rounded */
  uint32_t read_mode;   /* BLEND_READ_*; one that does not work here gives UNSUPPORTED */
  uint32_t eviction;    /* BLEND_EVICT_*; default LRU */
  uint32_t reserved1;   /* 0 */
  uint64_t ttl_s;       /* a chunk that nobody used for so long is a miss, and leaves with the next
                           put; pinned ones stay. 0 (default): chunks do not expire */
  uint64_t tenant_quota_bytes; /* of the chunks of any one tenant but ""; 0 (default): no bound but
                           the store's. blend_store_set_tenant_quota for one of them */
  uint64_t ram_bytes;   /* host memory for layers that were read and checked, or put in the
                           background: a hit there costs a copy. On top of what fuses take; 0
                           (default): none */
} blend_store_options;

BLEND_API int32_t blend_store_options_init(blend_store_options *options, size_t struct_size);

/* Opens or creates the directory `path`. Errors: NOT_FOUND, IO, FORMAT (not a store), MISMATCH
 * (another format version), CORRUPT, INVALID_ARGUMENT. */
BLEND_API int32_t blend_store_open(blend_store **out, const blend_ctx *ctx, const char *path,
                                   const blend_store_options *options, blend_error **err);
/* Waits for background writes, then closes. Chunks still to be prefilled are given up (an event). */
BLEND_API void blend_store_close(blend_store *store);

/* Waits until every background write so far is on disk, and every chunk that a fuse left to be
 * prefilled behind it (BLEND_MISS_COMPUTE_STORE). Returns the first error that one of them met since
 * the last flush (also sent as an event). */
BLEND_API int32_t blend_store_flush(const blend_store *store, blend_error **err);

typedef struct blend_chunk_id {
  uint8_t bytes[32]; /* SHA-256 over model fingerprint, KV dtype, chunk prefix, tenant, token ids */
} blend_chunk_id;

/* 64 lower-case hexadecimal digits and a NUL into `hex` (65 bytes). */
BLEND_API void blend_chunk_id_to_hex(const blend_chunk_id *id, char *hex);
/* Errors: INVALID_ARGUMENT (not 64 hexadecimal digits). */
BLEND_API int32_t blend_chunk_id_from_hex(blend_chunk_id *id, const char *hex, blend_error **err);

/* The background write of one chunk, by its id: that of blend_fusion_save, of a put with
 * BLEND_PUT_BACKGROUND, of a fuse that missed, its prefill included. Waits `timeout_ms`, for ever if
 * negative. BLEND_OK: it is on disk. BLEND_PENDING: not yet. Otherwise its own error (asking again
 * gives it again, until the chunk is put anew), or NOT_FOUND: the chunk is neither stored nor on its
 * way. */
BLEND_API int32_t blend_store_wait(const blend_store *store, const blend_chunk_id *id,
                                   int64_t timeout_ms, blend_error **err);

typedef struct blend_chunk_info {
  uint32_t struct_size;
  uint32_t n_tokens;
  uint32_t n_prefix_tokens; /* of the chunk prefix it was prefilled after */
  uint32_t kv_dtype;        /* BLEND_KV_F32, _F16 or _BF16 */
  uint32_t n_layers;
  uint32_t kv_dim; /* n_kv_heads * head_dim */
  uint64_t bytes;  /* of K and V */
  int64_t created_unix_s;
  blend_chunk_id id;
  uint8_t fingerprint[32]; /* of the model */
  uint64_t stored_bytes; /* of K and V, encoded */
  uint32_t codec;        /* BLEND_CODEC_NONE .. _INT4 */
  uint32_t pinned;       /* 1: it is not evicted; 0, as the next two, when nothing is known of it */
  int64_t last_used_unix_s; /* put or hit; other processes' hits show after a while */
  uint64_t n_uses;       /* hits */
} blend_chunk_info;

BLEND_API int32_t blend_chunk_info_init(blend_chunk_info *info, size_t struct_size);

/* `info` and `problem` are valid during the call only. `problem` is NULL for a sound chunk. */
typedef int32_t (*blend_chunk_fn)(void *user, const blend_chunk_info *info, const char *problem);

/* Calls `fn` for every chunk, in the order of their ids. `verify` non-zero also reads every byte
 * and checks it; a damaged chunk is reported with a sentence in `problem` and stays in the store.
 * Returns BLEND_E_CORRUPT after the last chunk if any was damaged. */
BLEND_API int32_t blend_store_list(const blend_store *store, int32_t verify, blend_chunk_fn fn,
                                   void *user, blend_error **err);
/* Errors: NOT_FOUND, READ_ONLY, IO. */
BLEND_API int32_t blend_store_remove(const blend_store *store, const blend_chunk_id *id,
                                     blend_error **err);

/* Keeps a chunk from being evicted and from expiring, for all processes, until it is unpinned
 * (`pinned` 0) or removed. Waits for background writes if it is on its way to the disk.
 * Errors: NOT_FOUND, READ_ONLY, IO. */
BLEND_API int32_t blend_store_pin(const blend_store *store, const blend_chunk_id *id,
                                  int32_t pinned, blend_error **err);

/* Evicts what has expired and then, by the store's policy (LRU where it is NEVER), until at most
 * `target_bytes` are stored, after the background writes so far. `n_evicted` may be NULL. Errors:
 * FULL (pinned or needed chunks are in the way; all others are gone), READ_ONLY, IO. */
BLEND_API int32_t blend_store_evict(const blend_store *store, uint64_t target_bytes,
                                    uint64_t *n_evicted, blend_error **err);

/* The chunks that coming prompts need, in the order of need: a scheduler's queue (AttentionStore
 * section 3.3). They are read ahead into memory, as far as ram_bytes go, and while this hint stands
 * no put of this handle evicts what fits three quarters of the quota of them for a chunk that is
 * needed later or not at all; what is beyond that goes before it, last first. A hint takes the place
 * of the one before; none (n_ids 0) lets all go. `ids` [n_ids] is copied; ids that are not stored
 * are welcome. Returns at once. Errors: FORKED, IO. */
BLEND_API int32_t blend_store_hint(const blend_store *store, const blend_chunk_id *ids,
                                   size_t n_ids, blend_error **err);

/* What the chunks of one tenant (as in blend_precompute_options) may take, kept in the store and in
 * force for all processes from their next put on; a put past it evicts that tenant's own chunks.
 * 0: tenant_quota_bytes of the options again. Errors: INVALID_ARGUMENT (the tenant ""), READ_ONLY,
 * IO. */
BLEND_API int32_t blend_store_set_tenant_quota(const blend_store *store, const char *tenant,
                                               uint64_t quota_bytes, blend_error **err);
/* What a tenant's chunks take now, in bytes, and what they may (0: no bound but the store's). Each
 * output may be NULL. */
BLEND_API int32_t blend_store_get_tenant(const blend_store *store, const char *tenant,
                                         uint64_t *n_chunks, uint64_t *stored_bytes,
                                         uint64_t *quota_bytes, blend_error **err);

/* Reads and checks every byte as blend_store_list does, removes what is damaged, and makes the
 * store's accounts of use anew. `fn` (may be NULL) is called for every chunk removed, with the
 * problem; `n_removed` may be NULL. A store whose trees are damaged cannot be opened: make it anew.
 * Errors: READ_ONLY, IO, CALLBACK, CORRUPT (a chunk cannot be freed safely). */
BLEND_API int32_t blend_store_repair(const blend_store *store, blend_chunk_fn fn, void *user,
                                     uint64_t *n_removed, blend_error **err);

/* Writes a consistent copy of the store, as small as its chunks, into the directory `path`, after
 * the background writes so far; others may read and write meanwhile. Errors: INVALID_ARGUMENT (there
 * is a store in it), IO, FULL. */
BLEND_API int32_t blend_store_copy(const blend_store *store, const char *path, blend_error **err);

/* Replaces the data file of the store in the directory `path` by such a copy, whole or not at all:
 * evicted chunks leave room inside the file, which never shrinks otherwise. Needs the copy's room on
 * disk. `bytes_before` and `bytes_after` may be NULL. Errors: BUSY (a process, this one included, has
 * the store open), NOT_FOUND, CORRUPT, IO, FULL. */
BLEND_API int32_t blend_store_compact(const char *path, uint64_t *bytes_before,
                                      uint64_t *bytes_after, blend_error **err);

#define BLEND_IMPORT_REPLACE 1u /* also chunks that are in the store already */

typedef struct blend_transfer_options {
  uint32_t struct_size;
  uint32_t flags;             /* BLEND_IMPORT_* */
  const blend_chunk_id *ids;  /* export: which; NULL (default): all that are sound */
  size_t n_ids;
  blend_progress_fn progress; /* export: chunks; import: bytes of the file */
  void *progress_user;
  const blend_cancel *cancel;
} blend_transfer_options;

BLEND_API int32_t blend_transfer_options_init(blend_transfer_options *options, size_t struct_size);

/* Chunks from store to store by way of a file: K and V decoded, with checksums, whatever the codec.
 * The file appears under its name whole or not at all. `options` and `n_chunks` may be NULL.
 * Errors: NOT_FOUND and CORRUPT (one of `ids`), IO, FULL, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_export(const blend_store *store, const char *path,
                                     const blend_transfer_options *options, uint64_t *n_chunks,
                                     blend_error **err);
/* Puts the chunks of such a file, each checked before it is put; the store's quota holds. Ids are
 * taken on trust: import files of those whose chunks you would use. `n_chunks` (may be NULL) counts
 * those put, also when the call fails: they stay. Errors: NOT_FOUND, FORMAT (not such a file, or
 * truncated), MISMATCH (its version), CORRUPT, FULL, READ_ONLY, IO, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_import(const blend_store *store, const char *path,
                                     const blend_transfer_options *options, uint64_t *n_chunks,
                                     blend_error **err);

typedef struct blend_store_stat {
  uint32_t struct_size;
  uint32_t read_mode; /* BLEND_READ_URING, _THREADS or _MAPPED: what AUTO found */
  uint64_t n_chunks;
  uint64_t n_tokens;
  uint64_t bytes;      /* of K and V */
  uint64_t file_bytes; /* of the data file on disk */
  uint64_t quota_bytes;
  uint64_t hits;         /* since this process opened it, as the next four */
  uint64_t misses;
  uint64_t damaged;      /* reads that failed their check and became misses */
  uint64_t written;      /* chunks */
  uint64_t write_errors; /* of background writes */
  double read_bytes_per_s; /* of the layers that fuses have read through this handle, smoothed; 0:
                              none yet */
  uint64_t stored_bytes;   /* what the quota counts: as encoded, rounded up to pages */
  uint64_t ram_hits;       /* of `hits`: served from memory; since this process opened it */
  uint64_t pinned_chunks;  /* now, as the next */
  uint64_t pinned_bytes;
  uint64_t total_ram_hits;  /* of all processes since the store was made, as the next five; hits and
                               misses are written in batches, so a little behind */
  uint64_t total_disk_hits;
  uint64_t total_misses;
  uint64_t evicted_chunks;  /* expired ones included */
  uint64_t evicted_bytes;
  uint64_t expired_chunks;
  int64_t oldest_use_unix_s; /* the last use of the chunk that is next to go, and */
  int64_t newest_use_unix_s; /* of the last one to; 0: every chunk is pinned or there is none */
  uint64_t ram_bytes;       /* layers held in memory */
  uint64_t ram_budget_bytes;
  uint64_t ram_chunks;      /* of which layers are held */
  uint64_t prefetched_chunks; /* read ahead by hints; since this process opened it */
  uint64_t queue_bytes;     /* background writes that are not on disk yet */
} blend_store_stat;

BLEND_API int32_t blend_store_stat_init(blend_store_stat *stat, size_t struct_size);
BLEND_API int32_t blend_store_get_stat(const blend_store *store, blend_store_stat *stat,
                                       blend_error **err);

typedef struct blend_codec_stat {
  uint32_t struct_size;
  uint32_t codec;        /* BLEND_CODEC_NONE .. _INT4 */
  uint64_t n_chunks;     /* stored with it */
  uint64_t bytes;        /* of their K and V */
  uint64_t stored_bytes; /* the same encoded; bytes / stored_bytes is the codec's ratio here */
} blend_codec_stat;

BLEND_API int32_t blend_codec_stat_init(blend_codec_stat *stat, size_t struct_size);
/* Errors: INVALID_ARGUMENT (not one of BLEND_CODEC_NONE .. _INT4), IO, FORKED. */
BLEND_API int32_t blend_store_get_codec_stat(const blend_store *store, uint32_t codec,
                                             blend_codec_stat *stat, blend_error **err);

#define BLEND_METRIC_COUNTER 1u /* only grows while the store is open; otherwise a gauge */

/* One figure of the store: `name` as Prometheus has it, `labels` such as "tier=\"ram\"" or "", and
 * a line of help. The strings are never freed. */
typedef int32_t (*blend_metric_fn)(void *user, const char *name, const char *labels,
                                   const char *help, uint32_t flags, double value);

/* Calls `fn` for every figure of blend_store_get_stat, for a host's own metrics system. Those of one
 * name come together. */
BLEND_API int32_t blend_store_visit_metrics(const blend_store *store, blend_metric_fn fn,
                                            void *user, blend_error **err);
/* The same as the text that Prometheus scrapes (exposition format 0.0.4), each line with the label
 * store="`name`"; NULL is "". Writes up to `capacity` bytes and a NUL if it fits, and the text's
 * length to *n_bytes. Errors: BUFFER_TOO_SMALL (call again with *n_bytes + 1; figures may have grown
 * meanwhile). */
BLEND_API int32_t blend_store_metrics(const blend_store *store, const char *name, char *text,
                                      size_t capacity, size_t *n_bytes, blend_error **err);

/* ---- Precompute -------------------------------------------------------------------------- */

#define BLEND_PUT_BACKGROUND 1u /* return once the chunk is queued; blend_store_wait tells when it is
                                   on disk, and whether that failed */

typedef struct blend_precompute_options {
  uint32_t struct_size;
  uint32_t flags; /* BLEND_PUT_* */
  const int32_t *prefix; /* chunk prefix: prefilled before the chunk, not stored; part of the id */
  size_t n_prefix;
  const char *tenant; /* salt of the id, so that tenants never share chunks; NULL = "" */
  blend_progress_fn progress; /* layers */
  void *progress_user;
  const blend_cancel *cancel;
  uint32_t codec;     /* BLEND_CODEC_*; default: the store's */
  uint32_t n_threads; /* of the call; 0 (default): all */
} blend_precompute_options;

BLEND_API int32_t blend_precompute_options_init(blend_precompute_options *options,
                                                size_t struct_size);

/* Prefills one chunk by itself and stores its K (before RoPE) and V (CacheBlend section 4;
 * AttentionStore section 3.4.1 for the order of K and RoPE). When it returns BLEND_OK the chunk is
 * on disk; BLEND_EXISTS: it was there already, nothing was computed (nor were its bytes read: a
 * damaged chunk is mended by the next fuse that meets it). `id` may be NULL.
 * tokens: [n_tokens]. Errors: INVALID_ARGUMENT (no tokens, or one outside the vocabulary),
 * CONTEXT_LENGTH, FULL, READ_ONLY, IO, NUMERIC, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_precompute(const blend_model *model, const blend_store *store,
                                   const int32_t *tokens, size_t n_tokens,
                                   const blend_precompute_options *options, blend_chunk_id *id,
                                   blend_error **err);

/* ---- Chunks that the host prefilled ------------------------------------------------------- */

#define BLEND_KV_VIEW_UNROTATED 1u /* K is before RoPE; otherwise it is rotated to its row's place */

/* K and V of consecutive rows of one layer in the host's memory. Element e of head h of row i lies
 * at k + i * row_stride + h * head_stride + e, the same for v: [rows, n_kv_heads, head_dim] (the
 * default) and [n_kv_heads, rows, head_dim] (row_stride = head_dim, head_stride = rows * head_dim)
 * both fit. Only blend_fetch_kv writes through it. */
typedef struct blend_kv_view {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t flags;       /* BLEND_KV_VIEW_* */
  uint32_t dtype;       /* BLEND_KV_F32 (default), _F16 or _BF16 */
  uint32_t reserved0;   /* 0 */
  void *k;
  void *v;
  size_t row_stride;  /* elements from row to row; 0 (default): n_kv_heads * head_dim */
  size_t head_stride; /* elements from head to head; 0 (default): head_dim */
} blend_kv_view;

BLEND_API int32_t blend_kv_view_init(blend_kv_view *view, size_t struct_size);

/* Whether a chunk is in the store: the look-up that a fuse would do, without counting it.
 * `options` (prefix, tenant) as for blend_precompute, may be NULL; `id` may be NULL, and is given
 * either way. tokens: [n_tokens]. Errors: NOT_FOUND, INVALID_ARGUMENT, CONTEXT_LENGTH, IO. */
BLEND_API int32_t blend_chunk_find(const blend_model *model, const blend_store *store,
                                   const int32_t *tokens, size_t n_tokens,
                                   const blend_precompute_options *options, blend_chunk_id *id,
                                   blend_error **err);

/* Stores a chunk whose K and V the host's own engine computed, as blend_precompute does with the
 * built-in one: the rows of `tokens`, prefilled after options.prefix (which is not stored).
 * layers: [n_layers], each the chunk's n_tokens rows; rotated K is turned back from the positions
 * first_position, first_position + 1, ... (options.n_prefix, as a rule). When it returns BLEND_OK
 * the chunk is on disk; one of the same id is replaced. `id` and `options` may be NULL.
 * Errors: INVALID_ARGUMENT, CONTEXT_LENGTH, NUMERIC (names layer and row; or a value that does not
 * fit the store's kv_dtype), FULL, READ_ONLY, IO, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_put_kv(const blend_model *model, const blend_store *store,
                               const int32_t *tokens, size_t n_tokens,
                               const blend_kv_view *layers, size_t n_layers,
                               uint32_t first_position, const blend_precompute_options *options,
                               blend_chunk_id *id, blend_error **err);

/* ---- Fuse -------------------------------------------------------------------------------- */

/* One prompt's fused KV cache and the logits of its last row. Exclusive use for decode, generate,
 * replace, erase, extend and close; the getters and save may run concurrently with each other. */
typedef struct blend_fusion blend_fusion;

#define BLEND_SEGMENT_PREFIX 1u   /* reused exactly: system prompt; before all other kinds. Several
                                     are each stored for just what precedes them */
#define BLEND_SEGMENT_CHUNK 2u    /* stored by itself, reused anywhere */
#define BLEND_SEGMENT_TEXT 3u     /* new text: always computed, never stored */
#define BLEND_SEGMENT_QUESTION 4u /* always computed; must come last */

typedef struct blend_segment {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t kind;        /* BLEND_SEGMENT_* */
  const int32_t *tokens;    /* [n_tokens]; may be NULL for a CHUNK given by id */
  size_t n_tokens;
  const blend_chunk_id *id; /* CHUNK only; NULL: found by its tokens. With tokens as well, the
                               stored token ids must be equal */
} blend_segment;

BLEND_API int32_t blend_segment_init(blend_segment *segment, size_t struct_size);

#define BLEND_POLICY_FULL 1u  /* full prefill: nothing reused; the reference */
#define BLEND_POLICY_REUSE 2u /* stored rows as they are (PromptCache); wrong where chunks refer to
                                 each other; the lower bound */
#define BLEND_POLICY_HKVD 3u  /* recompute the rows of highest KV deviation (CacheBlend 4.2-4.3) */
#define BLEND_POLICY_FIRST_K 4u /* the first rows of every chunk, the budget split over the chunks by
                                   their rows (EPIC's LegoLink). Measures nothing */
#define BLEND_POLICY_RANDOM 5u  /* any rows, by `seed`: the control. Measures nothing */
#define BLEND_POLICY_QUESTION 6u /* deviation times the attention that the question puts on the row
                                    at the check layer; the prompt needs a QUESTION segment */
#define BLEND_POLICY_CALLBACK 7u /* the rows to which `score` gives the largest scores */
#define BLEND_POLICY_UNION 8u    /* `terms`: several of the others, each with its share */
#define BLEND_POLICY_CONTEXT_IMPACT 9u /* the rows that lean most on what stands before their chunk and
                                   are most leaned on inside it, as seen when it was precomputed:
                                   statistics that are kept with the chunk (Cache-Craft). Measures
                                   nothing; NOT_FOUND names a chunk that has none (blend_put_kv) */
#define BLEND_POLICY_APE 10u     /* nothing is recomputed; rows of chunks are attended to with
                                   `ape_temperature` and `ape_scale` (Adaptive Parallel Encoding). In
                                   a union: the rows that the others leave to their stored K, V */

#define BLEND_METRIC_V 1u  /* sum over kv_dim of (V_fresh - V_stored)^2 */
#define BLEND_METRIC_K 2u  /* the same of K */
#define BLEND_METRIC_KV 3u /* their sum */
#define BLEND_METRIC_V_WEIGHED 5u  /* HKVD: the row's distance (the root of its squares) times the
                                      attention it got from the rows of its chunk when that was
                                      precomputed, which is kept with it: the error that readers get */
#define BLEND_METRIC_K_WEIGHED 6u  /* the same of K. A chunk without that statistic counts as if its */
#define BLEND_METRIC_KV_WEIGHED 7u /* rows had attended evenly */

#define BLEND_NORM_L2 1u /* squares are summed, as above (the paper's deviation) */
#define BLEND_NORM_L1 2u /* magnitudes are summed */

#define BLEND_MISS_PRECOMPUTE 1u /* prefill the chunk, store it in the background, fuse it */
#define BLEND_MISS_COMPUTE 2u    /* treat it as new text: exact, nothing is stored */
#define BLEND_MISS_FAIL 3u       /* BLEND_E_NOT_FOUND */
#define BLEND_MISS_COMPUTE_STORE 4u /* COMPUTE, so the first token waits for no prefill but its own,
                                   and the chunk is prefilled by itself and stored behind the fuse,
                                   when nobody waits for the context's threads: the next prompt finds
                                   it, unless the store is closed first: flush, or wait for its id.
                                   With a `machine`, PRECOMPUTE where that is sooner. Not for plans */

/* A layer at which rows are chosen, and the share of the reused rows that goes on behind it. A plain
 * pair that will not grow. */
typedef struct blend_check_layer {
  uint32_t layer;
  uint32_t reserved0; /* 0 */
  double ratio;       /* 0 .. 1 */
} blend_check_layer;

/* One policy of a union. A plain pair that will not grow. */
typedef struct blend_policy_term {
  uint32_t policy;    /* BLEND_POLICY_HKVD .. BLEND_POLICY_APE, but FULL, REUSE and UNION */
  uint32_t reserved0; /* 0 */
  double share;       /* of the budget, relative to the other terms' shares; more than 0. That of
                         APE counts for nothing: it asks for no rows */
} blend_policy_term;

/* Scores of the candidate rows at a check layer: those with the largest go on, ties to the earlier
 * row. `rows` are places in the prompt, ascending; `deviation` is as measured at `layer`; `scores`
 * begins as a copy of it. All [n], valid during the call only. A NaN fails the fuse with
 * INVALID_ARGUMENT. Called once a check layer, again if a damaged chunk makes the fuse start over,
 * and once a layer for each CALLBACK term of a union. */
typedef int32_t (*blend_score_fn)(void *user, uint32_t layer, const uint32_t *rows,
                                  const float *deviation, size_t n, float *scores);

/* How fast this machine prefills a model, measured once and kept: see "Controller" below. Immutable;
 * all functions may run concurrently. Times are estimates: another load of the machine changes
 * them. */
typedef struct blend_machine blend_machine;

/* What calibration found out about a model; see "Calibration" below. */
typedef struct blend_profile blend_profile;

#define BLEND_CORRECTION_AUTO 0u /* as the profile says */
#define BLEND_CORRECTION_OFF 1u  /* rows that are not recomputed keep their stored K, V */
#define BLEND_CORRECTION_ON 2u   /* whatever was chosen; INVALID_ARGUMENT where there are no maps */

typedef struct blend_fuse_options {
  uint32_t struct_size;
  uint32_t policy;      /* BLEND_POLICY_*; default HKVD */
  uint32_t metric;      /* BLEND_METRIC_*; default V */
  uint32_t check_layer; /* where deviations are measured, 1 .. n_layers-1; default 1. FIRST_K, RANDOM
                           and CONTEXT_IMPACT measure nothing and leave rows out from layer 0 on,
                           whatever this says; check_layers below can have them choose later */
  double ratio;         /* recomputed share of the reused rows, 0 .. 1; default 0.15. The question,
                           new text and misses computed inline come on top */
  uint32_t on_miss;     /* BLEND_MISS_*; default PRECOMPUTE */
  uint32_t reserve_tokens; /* rows kept free behind the prompt for decode; default 256, less where
                              the model's context ends sooner */
  const int32_t *chunk_prefix; /* as given to blend_precompute for these chunks */
  size_t n_chunk_prefix;
  const char *tenant;
  blend_progress_fn progress; /* layers */
  void *progress_user;
  const blend_cancel *cancel;
  uint32_t norm;     /* BLEND_NORM_*; default L2 */
  uint32_t relative; /* 1: a deviation is divided by the stored row's own sum in that norm */
  uint64_t seed;     /* of RANDOM: same seed, same rows */
  const blend_check_layer *check_layers; /* gradual filtering (CacheBlend 4.3, figure 9): layers rise,
                        ratios do not; each chooses among the rows that the one before let through,
                        and every row keeps its fresh K, V up to the layer that leaves it out. NULL:
                        one, of check_layer and ratio. A layer 0 (FIRST_K, RANDOM and CONTEXT_IMPACT
                        only) is before that layer */
  size_t n_check_layers;
  const blend_policy_term *terms; /* UNION: 1 to 16. They choose in this order, a later one among the
                        rows that the earlier ones left, so the budget is met exactly */
  size_t n_terms;
  blend_score_fn score; /* CALLBACK */
  void *score_user;
  const blend_machine *machine; /* for BLEND_RATIO_AUTO; opened with this model; may be NULL */
  const blend_profile *profile; /* of this model, opened on the same context; NULL: none, and the
                        fusion says BLEND_FUSION_UNCALIBRATED. It changes no other member:
                        blend_profile_apply() sets them */
  uint32_t correction; /* BLEND_CORRECTION_*; default AUTO. Corrected are the rows of chunks that are
                        not recomputed, behind the check layer of the profile, where that is the
                        first of this fuse and the chunk prefix is the profile's; in every other
                        fuse AUTO corrects nothing and ON is an error */
  uint32_t n_threads;  /* of the call and, unless they say otherwise, of later ones on the fusion
                        (decode, generate, extend, replace, erase, save); of a plan for its life; of
                        the prefill that a miss leaves behind (COMPUTE_STORE). 0 (default): all, in
                        blend_fusion_extend the fusion's */
  double ape_temperature; /* APE: scores of the rows in question are divided by it; default 0.9 */
  double ape_scale;    /* APE: the logarithm of what these rows' exponentials add up to is multiplied
                        by it, before it shares a row's attention with the others; default 0.9. Both 1:
                        plain attention. In (0, 100]. Decoded rows attend in the same way. Of a fusion
                        that is extended, the latest fuse with APE sets both for all such rows; one
                        with APE cannot be saved, nor a host's own attention changed by a plan */
} blend_fuse_options;

/* A `ratio` that lets the controller choose (CacheBlend section 5.1): the largest ratio whose
 * recompute hides behind loading, but never less than r*, below which quality is not vouched for:
 * the least ratio that `profile` trusts for this prefix, metric, check layer and correction (1 if it
 * measured them and trusts none), and 0.15 without a profile or for what it did not measure.
 * Loading is judged by the store's reads so far (blend_store_stat; before the first, a few layers of
 * the prompt are read to see), computing by `machine`; without a machine or a store it is r*. Where loading a chunk is slower than computing it, chunks are computed inline
 * (BLEND_SOURCE_COMPUTED), and the ring of layers in flight grows with the reader's lag. With
 * check_layers nothing is chosen. In blend_plan_create it is right as far as the host computes as
 * fast as `machine`. The info has the ratio in force. */
#define BLEND_RATIO_AUTO (-1.0)

BLEND_API int32_t blend_fuse_options_init(blend_fuse_options *options, size_t struct_size);

/* A schedule for gradual filtering: `*n` check layers from `first_layer` on, evenly spaced over the
 * layers behind it, with ratios that fall from about 1.5 `ratio` to 0.5 `ratio` and have the mean
 * `ratio` over those layers. On entry *n is how many are wanted and `out` [*n] has room for; fewer
 * where the model has fewer layers. Errors: INVALID_ARGUMENT. */
BLEND_API int32_t blend_falling_check_layers(const blend_model *model, double ratio,
                                             uint32_t first_layer, blend_check_layer *out, size_t *n,
                                             blend_error **err);

/* Fuses `segments` (prompt order) into one KV cache and computes the logits of the last row.
 * Layers are loaded ahead of the compute by a reader thread. Row i attends to exactly the rows
 * j <= i, so ratio 1 equals full prefill to rounding. A chunk whose chunk prefix is exactly what
 * precedes it in the prompt is reused without loss and never recomputed. `store` may be NULL with
 * BLEND_POLICY_FULL or BLEND_MISS_COMPUTE. Damaged chunks are misses (and an event).
 * Errors: INVALID_ARGUMENT (names the segment), CONTEXT_LENGTH, NOT_FOUND, MISMATCH (a chunk id of
 * another model or with other tokens), IO, NUMERIC, OUT_OF_MEMORY, CANCELLED, CALLBACK, FORKED. */
BLEND_API int32_t blend_fuse(blend_fusion **out, const blend_model *model, const blend_store *store,
                             const blend_segment *segments, size_t n_segments,
                             const blend_fuse_options *options, blend_error **err);
BLEND_API void blend_fusion_close(blend_fusion *fusion);

/* One prompt of a batch. */
typedef struct blend_fuse_request {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t reserved0;   /* 0 */
  const blend_segment *segments;
  size_t n_segments;
  const blend_fuse_options *options; /* may be NULL, and shared by several requests */
} blend_fuse_request;

BLEND_API int32_t blend_fuse_request_init(blend_fuse_request *request, size_t struct_size);

/* Fuses n prompts together, layer by layer in step. A chunk that several of them have (or one has
 * twice) is prefilled once if it is missing, and read, checked and decoded once; the rest is work
 * of each prompt, and each fusion equals that of its own blend_fuse bit for bit. All of them are
 * complete at about the same time, later than the first of as many single calls would be, so a
 * batch is for throughput: several users or questions over the same documents. Memory: n fused
 * caches and n times the scratch of a fuse, one ring of layers in flight.
 *   out: [n], a fusion (blend_fusion_close) or NULL. errors: [n], the error of each prompt that
 * failed (blend_error_free) or NULL; a prompt that fails, or that its own options cancel, leaves
 * the others alone, and the call returns BLEND_PARTIAL. With errors == NULL it is all or nothing:
 * the call fails with the first failure's code and a message that names the request.
 *   The call has as many threads as the request with most; each fusion keeps its own n_threads.
 *   bytes_loaded of a fusion's info are those that it was the first to need; those that it shares
 * are bytes_shared. Times of loading are the whole batch's; other_ns are the other prompts' turns.
 * n == 0 does nothing. Errors: as blend_fuse for each prompt; of the call INVALID_ARGUMENT,
 * INVALID_STRUCT and OUT_OF_MEMORY, then with nothing in `out`. */
BLEND_API int32_t blend_fuse_batch(blend_fusion **out, blend_error **errors,
                                   const blend_model *model, const blend_store *store,
                                   const blend_fuse_request *requests, size_t n,
                                   blend_error **err);

#define BLEND_FUSION_UNCALIBRATED 1u /* no profile of this model was used: the ratio is a default */
#define BLEND_FUSION_EDITED 2u       /* blend_fusion_replace or _erase has changed rows since */
#define BLEND_FUSION_RESTORED 32u    /* by blend_fusion_restore: the account of its fuse is gone */
#define BLEND_FUSION_RATIO_CHOSEN 16u /* by the controller: BLEND_RATIO_AUTO, a machine, a known store */
#define BLEND_FUSION_CORRECTED 4u    /* rows that were not recomputed took the drift correction */
#define BLEND_FUSION_UNTRUSTED 8u    /* a profile was used and does not vouch for this fuse: what it
                                        measured of this chunk prefix, metric, check layer and
                                        correction did not keep its limits at this ratio, or it
                                        measured nothing of the kind. Never with FULL */

typedef struct blend_fusion_info {
  uint32_t struct_size;
  uint32_t flags; /* BLEND_FUSION_* */
  uint32_t policy;
  uint32_t metric;
  uint32_t check_layer;      /* the first */
  uint32_t n_layers;
  double ratio;              /* as asked; of check_layers their mean over the layers behind the first */
  uint64_t n_rows;           /* of the prompt */
  uint64_t n_rows_exact;     /* reused without loss */
  uint64_t n_rows_reused;    /* rows of CHUNK segments found or precomputed, exact ones included */
  uint64_t n_rows_selected;  /* recomputed by the policy, all layers: what the last check let through */
  uint64_t n_rows_always;    /* question, new text, misses computed inline */
  uint64_t n_segments;
  uint64_t n_hits;           /* PREFIX and CHUNK segments found */
  uint64_t n_misses;
  uint64_t bytes_loaded;     /* K and V staged, from the store or (misses) from memory */
  uint64_t ttft_ns;          /* the whole call: from entry to the logits of the last row */
  uint64_t plan_ns;          /* ids, look-up, token comparison */
  uint64_t miss_ns;          /* prefill of missing chunks */
  uint64_t load_ns;          /* reader thread busy: reading, checking, gathering; overlaps compute */
  uint64_t wait_ns;          /* compute waited for the reader */
  uint64_t place_ns;         /* stored rows decoded, rotated and scattered */
  uint64_t select_ns;        /* deviation and top-k */
  uint64_t compute_ns;       /* layers and logits, without the three before */
  uint32_t norm;
  uint32_t relative;
  uint32_t n_check_layers;   /* 0: the policy chose nothing */
  uint32_t reserved0;
  uint64_t n_rows_resident;  /* there before the fuse: blend_fusion_extend, blend_fusion_restore */
  uint64_t n_rows_corrected; /* not recomputed, drift correction applied; with the last check layer's
                                selection these are all reused rows that are not exact */
  uint64_t correct_ns;       /* part of place_ns: the drift maps */
  uint64_t prepare_ns;       /* room for the rows and the ring, embedding */
  uint64_t other_ns;         /* what is left of ttft_ns when plan, miss, prepare, wait, place, select
                                and compute are taken away: the host's callbacks, a round that a
                                damaged chunk spoilt, and the other prompts of a batch */
  uint64_t stall_ns;         /* reader thread waited for room in the ring; overlaps compute */
  uint64_t bytes_shared;     /* not in bytes_loaded: K and V that were staged anyway, for another
                                prompt of the batch or another place of the chunk */
  uint32_t ring_depth;       /* layers that could be in flight; 0: nothing was loaded */
  uint32_t reserved1;
  uint64_t bytes_from_memory;  /* of bytes_loaded: from the store's ram_bytes, from chunks that were on
                                  their way to the disk, and of misses; the rest came from the disk or
                                  its page cache */
  uint64_t n_rows_from_memory; /* rows of PREFIX and CHUNK segments, all that was loaded of which did */
  uint64_t n_rows_tempered;  /* attended to with APE's temperature and scale */
  uint64_t n_misses_queued;  /* BLEND_MISS_COMPUTE_STORE: misses computed in this pass that are
                                prefilled by themselves and stored behind it; blend_store_flush waits
                                for them and says if one failed */
  uint64_t n_rows_from_device; /* of n_rows_from_memory: all that was needed of them was in device
                                  memory (device_bytes of blend_ctx_options) */
  uint64_t bytes_from_device;  /* not in bytes_loaded: K and V, as if decoded, that were there */
} blend_fusion_info;

BLEND_API int32_t blend_fusion_info_init(blend_fusion_info *info, size_t struct_size);
BLEND_API int32_t blend_fusion_get_info(const blend_fusion *fusion, blend_fusion_info *info,
                                        blend_error **err);

/* Times are since the start of the fuse; load_begin_ns == load_end_ns == 0: nothing was loaded. */
typedef struct blend_layer_info {
  uint32_t struct_size;
  uint32_t layer;
  uint64_t rows_kv;      /* rows whose K, V were computed at this layer */
  uint64_t rows_full;    /* rows that also went through attention and the feed-forward layer */
  uint64_t rows_placed;  /* stored rows placed */
  uint64_t bytes_loaded;
  uint64_t load_begin_ns;
  uint64_t load_end_ns;
  uint64_t compute_begin_ns; /* includes wait and place */
  uint64_t compute_end_ns;
  uint64_t wait_ns;
  uint64_t place_ns;
  uint64_t select_ns;
  uint64_t stall_ns;     /* the reader waited before it, for room in the ring */
  uint64_t bytes_shared; /* as in blend_fusion_info */
  uint64_t bytes_from_memory; /* the same */
} blend_layer_info;

BLEND_API int32_t blend_layer_info_init(blend_layer_info *info, size_t struct_size);
BLEND_API int32_t blend_fusion_get_layer(const blend_fusion *fusion, uint32_t layer,
                                         blend_layer_info *info, blend_error **err);

#define BLEND_SOURCE_NONE 0u       /* TEXT and QUESTION */
#define BLEND_SOURCE_STORE 1u      /* hit */
#define BLEND_SOURCE_PRECOMPUTED 2u /* miss, prefilled by itself, fused */
#define BLEND_SOURCE_COMPUTED 3u   /* miss, computed inline (or policy FULL) */

typedef struct blend_segment_info {
  uint32_t struct_size;
  uint32_t kind;   /* BLEND_SEGMENT_* */
  uint32_t source; /* BLEND_SOURCE_* */
  uint32_t exact;  /* 1: reused without loss */
  uint64_t first_row;
  uint64_t n_rows;
  uint64_t n_rows_selected;
  blend_chunk_id id; /* zero for TEXT and QUESTION, and under BLEND_POLICY_FULL */
} blend_segment_info;

BLEND_API int32_t blend_segment_info_init(blend_segment_info *info, size_t struct_size);
BLEND_API int32_t blend_fusion_get_segment(const blend_fusion *fusion, size_t segment,
                                           blend_segment_info *info, blend_error **err);

/* Rows the policy selected, ascending; [*n]. Valid while the fusion is open. */
BLEND_API int32_t blend_fusion_selected(const blend_fusion *fusion, const uint32_t **rows,
                                        size_t *n, blend_error **err);
/* Deviation of every prompt row at the first check layer, [*n_rows]; 0 where it was not measured
 * (exact rows, new text, policies that do not measure). Valid while the fusion is open. */
BLEND_API int32_t blend_fusion_deviation(const blend_fusion *fusion, const float **deviation,
                                         size_t *n_rows, blend_error **err);
/* Logits of the last row, [*n_vocab]. Valid until the next decode, generate, replace, erase or
 * close. */
BLEND_API int32_t blend_fusion_logits(const blend_fusion *fusion, const float **logits,
                                      size_t *n_vocab, blend_error **err);
/* Tokens of all rows there are now, the prompt's and those appended since, [*n_rows]. Valid until
 * the next decode, generate, replace, erase or close. */
BLEND_API int32_t blend_fusion_tokens(const blend_fusion *fusion, const int32_t **tokens,
                                      size_t *n_rows, blend_error **err);

/* ---- Step API ---------------------------------------------------------------------------- */

/* For hosts that run the model themselves (the paper's fetch_kv, synchronize and prefill_layer,
 * CacheBlend section 5). The host computes the rows of blend_plan_rows, layer by layer; the plan
 * brings the stored K and V of all other rows into the host's cache meanwhile:
 *
 *   blend_plan_create
 *   for each layer l = 0 .. n_layers-1:
 *     blend_fetch_kv(l)     where the layer's K and V go; may be called for later layers too, in
 *                           order and as early as the memory is there, so that loading runs ahead
 *     (host: K and V of the rows of blend_plan_rows, into its cache at those rows)
 *     blend_synchronize(l)  the stored rows are in place
 *     blend_select(l)       fresh K and V of those rows -> the rows to go on with
 *     (host: attention and the rest of the layer, for the rows that go on or for all of them)
 *     blend_commit(l)
 *
 * Row i must attend to exactly the rows j <= i. Any other order of calls is refused with a sentence
 * that names the call that is due. */
typedef struct blend_plan blend_plan;

/* Looks the segments up and starts loading. Arguments are those of blend_fuse. With a described
 * model on_miss must be BLEND_MISS_COMPUTE (the host computes the chunk's rows) or BLEND_MISS_FAIL.
 * reserve_tokens is not used. options.cancel, options.progress (asked by blend_commit, in layers) and
 * options.score (asked by blend_select) are kept and must outlive the plan; `profile` need not. With
 * a profile the rows that are not computed take the drift correction on their way into the host's
 * cache, as in blend_fuse: the fresh K and V given to blend_select at the check layer are what it
 * goes by. Its maps are of the K and V of the model that was calibrated, element by element: a host
 * that orders them otherwise (BLEND_ROPE_HALF_SPLIT for a model calibrated as GGUF) must not use it.
 * The plan keeps the store open and reads from one snapshot of it until the last layer is committed
 * or the plan is closed, so do not leave it lying about.
 * After fork() the child's calls on it give BLEND_E_FORKED.
 * Errors: as blend_fuse; UNSUPPORTED for a policy that needs more than K and V. */
BLEND_API int32_t blend_plan_create(blend_plan **out, const blend_model *model,
                                    const blend_store *store, const blend_segment *segments,
                                    size_t n_segments, const blend_fuse_options *options,
                                    blend_error **err);
/* At any time; waits for a read under way. Memory given to blend_fetch_kv is not written any more. */
BLEND_API void blend_plan_close(blend_plan *plan);

/* Starts anew at layer 0 with the same look-up; what was fetched so far is void. After
 * BLEND_E_CORRUPT the damaged chunk is a miss now (and an event): precomputed, computed by the host,
 * or BLEND_E_NOT_FOUND, as on_miss says. Refused once the last layer is committed. */
BLEND_API int32_t blend_plan_restart(blend_plan *plan, blend_error **err);

/* Tokens of the prompt, [*n_tokens]. Valid while the plan is open. */
BLEND_API int32_t blend_plan_tokens(const blend_plan *plan, const int32_t **tokens,
                                    size_t *n_tokens, blend_error **err);
/* Rows that the host computes at this point, ascending; [*n]. Valid until the next blend_select,
 * blend_plan_restart or close. */
BLEND_API int32_t blend_plan_rows(const blend_plan *plan, const uint32_t **rows, size_t *n,
                                  blend_error **err);

/* Says where `layer` goes, [n_rows of the prompt] rows, and lets its placing start: rows that the
 * host does not compute at this layer are decoded, rotated to their place (unless
 * BLEND_KV_VIEW_UNROTATED) and written; all others are left alone. Returns at once. The memory must
 * stay until blend_synchronize of the layer returned, or the plan is restarted or closed.
 * Errors: INVALID_ARGUMENT, INVALID_STRUCT. */
BLEND_API int32_t blend_fetch_kv(blend_plan *plan, uint32_t layer, const blend_kv_view *layer_kv,
                                 blend_error **err);

/* Waits until the stored rows of `layer` are in place.
 * Errors: CORRUPT (a chunk is damaged: blend_plan_restart), IO, NUMERIC (a stored value does not fit
 * the host's dtype), CANCELLED, INVALID_ARGUMENT. */
BLEND_API int32_t blend_synchronize(blend_plan *plan, uint32_t layer, blend_error **err);

/* The rows to go on with behind this layer's K and V, ascending, [*n]; a subset of blend_plan_rows,
 * and its value from now on. At a check layer they are the policy's choice by deviation, and the call
 * is needed; at the last layer the prompt's last row alone; elsewhere the same rows. The last row is
 * always among them. The rows' fresh K and V of this layer stay in the cache even for those that
 * are dropped.
 * fresh: row i is row (*rows)[i] of the last call; may be NULL where nothing is measured. `rows` is
 * valid until the next blend_select, blend_plan_restart or close.
 * Errors: INVALID_ARGUMENT, NUMERIC (names the row), CALLBACK, CANCELLED. */
BLEND_API int32_t blend_select(blend_plan *plan, uint32_t layer, const blend_kv_view *fresh,
                               const uint32_t **rows, size_t *n, blend_error **err);

/* The layer is finished: its account is closed and, after the last one, what the plan held of the
 * store is free. Errors: INVALID_ARGUMENT, CALLBACK, CANCELLED. */
BLEND_API int32_t blend_commit(blend_plan *plan, uint32_t layer, blend_error **err);

/* The account so far; complete when the last layer is committed. ttft_ns ends with the last commit,
 * compute_ns is the host's time between the calls, place_ns overlaps with it. */
BLEND_API int32_t blend_plan_get_info(const blend_plan *plan, blend_fusion_info *info,
                                      blend_error **err);
BLEND_API int32_t blend_plan_get_layer(const blend_plan *plan, uint32_t layer,
                                       blend_layer_info *info, blend_error **err);
BLEND_API int32_t blend_plan_get_segment(const blend_plan *plan, size_t segment,
                                         blend_segment_info *info, blend_error **err);
/* As blend_fusion_selected and blend_fusion_deviation. Valid until the next blend_select,
 * blend_plan_restart or close. */
BLEND_API int32_t blend_plan_selected(const blend_plan *plan, const uint32_t **rows, size_t *n,
                                      blend_error **err);
BLEND_API int32_t blend_plan_deviation(const blend_plan *plan, const float **deviation,
                                       size_t *n_rows, blend_error **err);

/* ---- Decode and generate ----------------------------------------------------------------- */

/* Appends tokens [n_tokens] to the fusion's cache and computes the logits of the last of them.
 * `cancel` may be NULL; a cancelled or failed call leaves the fusion as it was before.
 * Errors: INVALID_ARGUMENT, CONTEXT_LENGTH (more rows than reserve_tokens left), NUMERIC,
 * CANCELLED. */
BLEND_API int32_t blend_decode(blend_fusion *fusion, const int32_t *tokens, size_t n_tokens,
                               const blend_cancel *cancel, blend_error **err);

typedef struct blend_generate_options {
  uint32_t struct_size;
  uint32_t max_tokens;  /* default 128; fewer if the reserved rows end sooner */
  float temperature;    /* 0 (default): greedy, ties to the lowest id */
  float top_p;          /* 1 (default): off */
  uint32_t top_k;       /* 0 (default): off */
  uint32_t ignore_eos;  /* 1: generate past EOS */
  uint64_t seed;        /* of the sampler; same seed, same tokens */
  const int32_t *stop_tokens; /* besides EOS */
  size_t n_stop_tokens;
  const blend_cancel *cancel;
  uint32_t n_threads;   /* of this call; 0 (default): the fusion's, that of blend_fuse_options */
  uint32_t reserved0;   /* 0 */
} blend_generate_options;

BLEND_API int32_t blend_generate_options_init(blend_generate_options *options, size_t struct_size);

/* A token and the text it completes: whole UTF-8 sequences, NUL-terminated (text_bytes does not
 * count the NUL); "" while a sequence is incomplete. Valid during the call only. */
typedef int32_t (*blend_token_fn)(void *user, int32_t token, const char *text, size_t text_bytes);

/* Generates from the fusion's logits, one callback a token, and appends what it generates to the
 * cache, so that a later call continues. The stop token is not reported. A token is reported before
 * it is appended: the one at which a callback stopped the call, or a cancel caught it, is counted
 * but not appended. `fn` may be NULL.
 * `n_generated` may be NULL. Returns BLEND_OK (max_tokens or the cache's end) or BLEND_STOPPED.
 * Errors: CANCELLED, CALLBACK, NUMERIC, INVALID_ARGUMENT. */
BLEND_API int32_t blend_generate(blend_fusion *fusion, const blend_generate_options *options,
                                 blend_token_fn fn, void *user, size_t *n_generated,
                                 blend_error **err);

/* ---- Controller: what recomputing and loading cost ---------------------------------------- */

#define BLEND_MACHINE_MEASURE 1u /* measure anew, whatever the file holds */

typedef struct blend_machine_options {
  uint32_t struct_size;
  uint32_t flags;      /* BLEND_MACHINE_* */
  uint64_t max_tokens; /* longest prefill that is timed, default 1024, at most the context; longer
                          ones are extrapolated */
  blend_progress_fn progress; /* prefills */
  void *progress_user;
  const blend_cancel *cancel;
  uint32_t n_threads;  /* that are timed; 0 (default): all. For fuses with n_threads: theirs */
  uint32_t reserved0;  /* 0 */
} blend_machine_options;

BLEND_API int32_t blend_machine_options_init(blend_machine_options *options, size_t struct_size);

/* Takes the measurement that the file `path` holds, if it is of this CPU, number of threads and
 * model (returns BLEND_EXISTS); otherwise measures in a few prefills, best on an idle machine, and
 * writes the file (BLEND_OK). A damaged file is replaced. `path` may be NULL: nothing is kept. One
 * file holds one measurement; beside the store's directory is a good place.
 * Errors: INVALID_ARGUMENT, IO (the file cannot be written), OUT_OF_MEMORY, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_machine_open(blend_machine **out, const blend_model *model,
                                     const char *path, const blend_machine_options *options,
                                     blend_error **err);
BLEND_API void blend_machine_close(blend_machine *machine);

typedef struct blend_machine_info {
  uint32_t struct_size;
  uint32_t n_threads;
  uint64_t n_points; /* lengths that were measured */
  int64_t measured_unix_s;
  const char *cpu; /* valid while the machine is open */
} blend_machine_info;

BLEND_API int32_t blend_machine_info_init(blend_machine_info *info, size_t struct_size);
BLEND_API int32_t blend_machine_get_info(const blend_machine *machine, blend_machine_info *info,
                                         blend_error **err);
/* One measured length, point < n_points, ascending. */
BLEND_API int32_t blend_machine_get_point(const blend_machine *machine, uint64_t point,
                                          uint64_t *n_tokens, uint64_t *prefill_ns,
                                          blend_error **err);
/* T_recompute(r, model, L) = r * Prefill(model, L): ratio 1 is the whole prefill. Errors:
 * INVALID_ARGUMENT (a ratio outside [0, 1]). */
BLEND_API int32_t blend_machine_recompute_ns(const blend_machine *machine, uint64_t n_tokens,
                                             double ratio, uint64_t *ns, blend_error **err);

/* A place where chunks could be stored. */
typedef struct blend_device {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t reserved0;
  double bytes_per_s;      /* reading; > 0 */
  double cost_per_gb_hour; /* of 1e9 bytes, in any currency; >= 0 */
} blend_device;

BLEND_API int32_t blend_device_init(blend_device *device, size_t struct_size);

typedef struct blend_advise_options {
  uint32_t struct_size;
  uint32_t check_layer; /* layers before it are computed for all rows and not loaded; default 1, 0 is
                           the paper's formula */
  uint64_t n_tokens;    /* of the prompt's chunks; default 4096 */
  double ratio;         /* 0 .. 1; default 0.15 */
  uint32_t kv_dtype;    /* BLEND_KV_* of the store; default AUTO */
  uint32_t reserved0;
} blend_advise_options;

BLEND_API int32_t blend_advise_options_init(blend_advise_options *options, size_t struct_size);

#define BLEND_ADVICE_NO_DELAY 1u /* loading hides behind recomputing at the ratio asked for */
#define BLEND_ADVICE_CHEAPEST 2u /* the cheapest of those; ties go to the faster, then the first */
#define BLEND_ADVICE_SLOWER_THAN_PREFILL 4u /* loading takes longer than computing all anew */

typedef struct blend_advice {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t flags;       /* BLEND_ADVICE_* */
  uint64_t load_ns;
  uint64_t recompute_ns; /* at the ratio asked for */
  double hidden_ratio;   /* the largest ratio whose recompute hides behind loading */
  double ratio;          /* the larger of the two: what a fuse from this device would better use */
  double cost_per_hour;  /* of keeping the chunks' bytes */
} blend_advice;

BLEND_API int32_t blend_advice_init(blend_advice *advice, size_t struct_size);

/* Of several devices the cheapest that adds no delay, and the ratio each allows (CacheBlend section
 * 5.1). devices, advice: [n_devices], every element initialised. `options` may be NULL.
 * Errors: INVALID_ARGUMENT (names the device), INVALID_STRUCT. */
BLEND_API int32_t blend_advise(const blend_machine *machine, const blend_device *devices,
                               size_t n_devices, const blend_advise_options *options,
                               blend_advice *advice, blend_error **err);

/* ---- Truncate and edit ------------------------------------------------------------------- */

/* Puts `tokens` [n_tokens] in the place of the n_rows rows from `first_row` on, of the prompt or of
 * what followed it (AttentionStore 3.4). Either may be none: n_rows == 0 inserts, n_tokens == 0
 * erases, both do nothing. A long conversation is kept inside the context by erasing its oldest
 * rows, behind BOS and a system prompt, which are better kept.
 *   The new rows are computed and see all that precedes them. The rows behind keep the V they have,
 * and their K turned to its new place; what they took from the erased rows stays in them, and they
 * do not see the new ones. This is what makes it cheap, and it is not what a prefill of the tokens
 * would give: docs/quality.md, "Truncation", has figures. Only the last row is computed again, as
 * if it had just been decoded, so that logits, decode and generate are right for the rows as they
 * now stand.
 *   The account moves along: in segments, `selected` and `deviation` rows have the numbers of the
 * places they now have. Erased rows leave them; new rows belong to the segment they were put
 * inside of, or between two of them to none, are not selected and have deviation 0. The info and
 * the layers stay those of the fuse, with BLEND_FUSION_EDITED.
 *   `cancel` may be NULL; a cancelled or failed call leaves the fusion as it was. Memory for the
 * call: one layer of the cache and all layers of the computed rows.
 * Errors: INVALID_ARGUMENT (rows that are not there, no row left, a token outside the vocabulary),
 * CONTEXT_LENGTH (more rows than reserve_tokens left), NUMERIC, OUT_OF_MEMORY, CANCELLED. */
BLEND_API int32_t blend_fusion_replace(blend_fusion *fusion, uint64_t first_row, uint64_t n_rows,
                                       const int32_t *tokens, size_t n_tokens,
                                       const blend_cancel *cancel, blend_error **err);
/* blend_fusion_replace without tokens. */
BLEND_API int32_t blend_fusion_erase(blend_fusion *fusion, uint64_t first_row, uint64_t n_rows,
                                     const blend_cancel *cancel, blend_error **err);

/* ---- Multi-turn -------------------------------------------------------------------------- */

/* Fuses `segments` behind the rows there are: the prompt, what was generated, and whatever the host
 * decoded. These stay as they are and the new rows see them; of the new segments chunks are reused
 * as by blend_fuse, so a next turn may bring passages of its own. The chunks of all turns may be
 * the same. PREFIX segments are refused: nothing stands before them only at the start. The cache
 * grows as far as needed (`reserve_tokens` counts from the new end; while it grows both sizes are
 * in memory). Segments, `selected` and `deviation` then cover all rows, and rows that were decoded
 * belong to no segment; the info (but n_rows and n_segments) and the layers are those of this fuse.
 * On failure the fusion is as before. Errors: as blend_fuse. */
BLEND_API int32_t blend_fusion_extend(blend_fusion *fusion, const blend_store *store,
                                      const blend_segment *segments, size_t n_segments,
                                      const blend_fuse_options *options, blend_error **err);

/* Keeps the fusion's K (turned back to no position) and V in the store, in its kv_dtype, until the
 * conversation goes on (AttentionStore 3.1). The rows are read before the call returns; writing
 * goes on in the background (blend_store_flush waits for it, and says if it failed). `id`, which
 * may be NULL, is of the model, the dtype, `tenant` and the tokens of all rows; no chunk that was
 * prefilled has it, so an approximate cache never passes for an exact one. Saved fusions count
 * towards the quota and are listed and removed like chunks. Errors: READ_ONLY, NUMERIC (a value too
 * large for the dtype), OUT_OF_MEMORY, CANCELLED, FORKED; FULL and IO come later, from the flush. */
BLEND_API int32_t blend_fusion_save(const blend_fusion *fusion, const blend_store *store,
                                    const char *tenant, const blend_cancel *cancel,
                                    blend_chunk_id *id, blend_error **err);
/* Brings a saved fusion back, with `reserve_tokens` rows kept free behind it (fewer where the
 * model's context ends sooner). The last row is computed anew, which gives the logits. It can be
 * decoded, extended, edited and saved like any other; its info has BLEND_FUSION_RESTORED, and no
 * segments and no n_threads. Errors: NOT_FOUND, MISMATCH (another model's), CORRUPT (the saved bytes
 * are damaged; also an event: fuse the tokens anew), CONTEXT_LENGTH, IO, OUT_OF_MEMORY, CANCELLED,
 * FORKED. */
BLEND_API int32_t blend_fusion_restore(blend_fusion **out, const blend_model *model,
                                       const blend_store *store, const blend_chunk_id *id,
                                       uint32_t reserve_tokens, const blend_cancel *cancel,
                                       blend_error **err);

/* ---- Calibration ------------------------------------------------------------------------- */

/* How well fusing keeps full prefill's answers depends on the model: on what its chunks are
 * prefilled after, on the share of rows that is recomputed, and on whether the drift of the other
 * rows can be predicted. blend_calibrate measures that on sample prompts and writes a profile;
 * blend_verify measures a profile on other prompts.
 *
 * The drift correction: a row that is not recomputed keeps stored K and V, which lack what the row
 * would have taken from the chunks before it. At the check layer its fresh K and V are known, and
 * what they differ by there predicts what the stored ones lack later: such a row takes
 * K, V + x A_l at each later layer l, x its inputs (BLEND_DRIFT_*) and A_l a matrix fitted by ridge
 * regression. */

/* Inputs of the drift maps. The deviation (fresh - stored K and V at the check layer, K before RoPE)
 * is always one. */
#define BLEND_DRIFT_DEVIATION 1u
#define BLEND_DRIFT_FRESH 2u    /* the fresh K and V themselves */
#define BLEND_DRIFT_CONSTANT 4u /* 1 */

/* Opens a profile file. Errors: NOT_FOUND, IO, FORMAT (not a profile, or truncated), CORRUPT (its
 * checksum fails), MISMATCH (of another model or format version), NUMERIC, OUT_OF_MEMORY. */
BLEND_API int32_t blend_profile_open(blend_profile **out, const blend_model *model,
                                     const char *path, blend_error **err);
BLEND_API void blend_profile_close(blend_profile *profile);

typedef struct blend_profile_info {
  uint32_t struct_size;
  uint32_t trusted;    /* 1: `ratio` kept the limits; 0: no measured ratio did, and `ratio` is 1 */
  uint32_t metric;     /* BLEND_METRIC_*, chosen */
  uint32_t check_layer;
  double ratio;        /* the least trusted one */
  double max_kl;       /* limits: mean KL(full || fused), nats, */
  double min_top1;     /* and share of positions whose likeliest token is full prefill's */
  const int32_t *chunk_prefix; /* chosen; valid while the profile is open */
  size_t n_chunk_prefix;
  uint32_t corrected;    /* 1: the drift correction is part of the choice */
  uint32_t drift_inputs; /* BLEND_DRIFT_*; 0: the profile has no maps */
  uint32_t drift_rank;   /* 0: whole matrices */
  uint32_t kv_dtype;     /* what chunks were stored as: BLEND_KV_F32, _F16 or _BF16 */
  uint64_t drift_bytes;  /* memory the packed maps take */
  uint64_t n_fitted;     /* sample prompts that the maps were fitted on */
  uint64_t n_measured;   /* sample prompts that were measured */
  uint64_t n_measurements;
  uint8_t fingerprint[32]; /* of the model */
} blend_profile_info;

BLEND_API int32_t blend_profile_info_init(blend_profile_info *info, size_t struct_size);
BLEND_API int32_t blend_profile_get_info(const blend_profile *profile, blend_profile_info *info,
                                         blend_error **err);

/* One line of a measured table: one kind of fusing over all measured prompts. */
typedef struct blend_measurement {
  uint32_t struct_size;
  uint32_t metric;    /* BLEND_METRIC_* */
  uint32_t corrected; /* 1: with the drift correction */
  uint32_t reserved0;
  double ratio;
  double kl_mean; /* KL(full || fused) of the next-token distribution, nats */
  double kl_p95;
  double top1; /* share of positions whose likeliest token is full prefill's */
  uint64_t n_positions;
  const int32_t *chunk_prefix; /* from a profile: valid while it is open; to a callback: during it */
  size_t n_chunk_prefix;
} blend_measurement;

BLEND_API int32_t blend_measurement_init(blend_measurement *measurement, size_t struct_size);
/* Line `index` of 0 .. n_measurements-1 of the table that the profile was chosen from. */
BLEND_API int32_t blend_profile_get_measurement(const blend_profile *profile, size_t index,
                                                blend_measurement *measurement, blend_error **err);
/* Shares of the squared drift of K and of V at `layer` that its map took away where it was fitted.
 * NOT_FOUND for a layer without a map. */
BLEND_API int32_t blend_profile_get_drift(const blend_profile *profile, uint32_t layer, double *k,
                                          double *v, blend_error **err);

/* Sets policy (HKVD), metric, check_layer, ratio, chunk_prefix, n_chunk_prefix, correction (AUTO) and
 * profile of initialised options; members set afterwards hold against the profile. chunk_prefix
 * points into the profile: it must stay open as long as the options are used. Give the same prefix to
 * blend_precompute. */
BLEND_API int32_t blend_profile_apply(const blend_profile *profile, blend_fuse_options *options,
                                      blend_error **err);

/* A sample prompt. Chunks must be given as tokens. */
typedef struct blend_sample {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t reserved0;   /* 0 */
  const blend_segment *segments;
  size_t n_segments;
} blend_sample;

BLEND_API int32_t blend_sample_init(blend_sample *sample, size_t struct_size);

/* A line as it is measured. `measurement` is valid during the call only. */
typedef int32_t (*blend_measurement_fn)(void *user, const blend_measurement *measurement);

/* Token ids. A plain pair that will not grow. */
typedef struct blend_token_list {
  const int32_t *tokens;
  size_t n_tokens;
} blend_token_list;

typedef struct blend_calibrate_options {
  uint32_t struct_size;
  uint32_t check_layer; /* 1 .. n_layers-1; default 1 */
  const blend_token_list *chunk_prefixes; /* that are tried; NULL: none, and BOS if the model has one */
  size_t n_chunk_prefixes;
  const uint32_t *metrics; /* BLEND_METRIC_*; NULL: V_WEIGHED */
  size_t n_metrics;
  const double *ratios; /* NULL: 0, 0.05, 0.1, 0.15, 0.2, 0.3 */
  size_t n_ratios;
  uint32_t kv_dtype;     /* BLEND_KV_*: what chunks are rounded to; default AUTO */
  uint32_t correction;   /* BLEND_CORRECTION_*; OFF: no drift maps are fitted */
  uint32_t drift_inputs; /* BLEND_DRIFT_*; default all three */
  uint32_t drift_rank;   /* at most; 0 (default): whole matrices */
  double ridge;          /* of each input's own power; default 0.001 */
  uint32_t score_tokens; /* tokens of full prefill's greedy answer that are compared; default 16 */
  uint32_t n_threads;    /* of the call; 0 (default): all */
  double max_kl;         /* limits of trust; default 0.02 nats */
  double min_top1;       /* default 0.95 */
  blend_measurement_fn on_measurement;
  void *measurement_user;
  blend_progress_fn progress; /* prefills and fuses */
  void *progress_user;
  const blend_cancel *cancel;
} blend_calibrate_options;

BLEND_API int32_t blend_calibrate_options_init(blend_calibrate_options *options,
                                               size_t struct_size);

/* Measures every chunk prefix, metric and ratio, plain and corrected, against full prefill, and
 * writes what it finds to the file `path`, atomically. With the correction its maps are fitted on
 * samples 0, 2, 4, ... and everything is measured on samples 1, 3, 5, ...; without it on all. A ratio
 * is trusted when mean KL and top-1 agreement keep the limits there and at every greater measured
 * ratio. Chosen is the kind of fusing with the least trusted ratio, of equals the one with the least
 * KL. Takes as long as some prefills of the samples for every line of the table; chunks stay in
 * memory. Returns BLEND_OK, or BLEND_UNTRUSTED when no ratio kept the limits: the profile then says
 * so and asks for ratio 1.
 * Errors: INVALID_ARGUMENT (names the sample or option), CONTEXT_LENGTH, NUMERIC, IO (of `path`),
 * OUT_OF_MEMORY, CANCELLED, CALLBACK; nothing is written then. */
BLEND_API int32_t blend_calibrate(const blend_model *model, const blend_sample *samples,
                                  size_t n_samples, const blend_calibrate_options *options,
                                  const char *path, blend_error **err);

typedef struct blend_verify_options {
  uint32_t struct_size;
  uint32_t score_tokens; /* as above; default 16 */
  const double *ratios;  /* besides the profile's own; NULL: 0, 0.05, 0.1, 0.15, 0.2, 0.3 */
  size_t n_ratios;
  double max_kl;   /* limits; negative (default): the profile's */
  double min_top1; /* likewise */
  blend_measurement_fn on_measurement;
  void *measurement_user;
  blend_progress_fn progress; /* prefills and fuses */
  void *progress_user;
  const blend_cancel *cancel;
  uint32_t n_threads; /* of the call; 0 (default): all */
  uint32_t reserved0; /* 0 */
} blend_verify_options;

BLEND_API int32_t blend_verify_options_init(blend_verify_options *options, size_t struct_size);

typedef struct blend_verdict {
  uint32_t struct_size;
  uint32_t trusted;   /* 1: at the profile's ratio these prompts keep the limits */
  double ratio;       /* the profile's */
  double kl_mean;     /* there */
  double top1;        /* there */
  double least_ratio; /* of those measured, from which on all keep the limits; -1: none */
} blend_verdict;

BLEND_API int32_t blend_verdict_init(blend_verdict *verdict, size_t struct_size);

/* Measures the profile's choice on samples that it was not made from. `verdict` may be NULL. Returns
 * BLEND_OK, or BLEND_UNTRUSTED when the limits are not kept at the profile's ratio. Errors: as
 * blend_calibrate, and MISMATCH (the profile is of another model). */
BLEND_API int32_t blend_verify(const blend_model *model, const blend_profile *profile,
                               const blend_sample *samples, size_t n_samples,
                               const blend_verify_options *options, blend_verdict *verdict,
                               blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_BLEND_H */
