/*
 * core.h - contexts, models, stores, precompute, fuse and generate: what a program needs to answer
 * from stored chunks. Include "blend/blend.h", which has the rules that hold everywhere.
 */
#ifndef BLEND_CORE_H
#define BLEND_CORE_H

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
#define BLEND_EXISTS 1    /* blend_precompute: the chunk was in the store already */
#define BLEND_STOPPED 2   /* blend_fusion_generate: ended by a stop token or text, not by max_tokens */
#define BLEND_UNTRUSTED 3 /* blend_calibrate, blend_verify: done, but the limits were not kept */
#define BLEND_PARTIAL 4   /* blend_fuse_batch, blend_generate_batch: some requests failed, the
                             others are done */
#define BLEND_EVICTED 5   /* an event, no error: a chunk left the store to make room, or expired */
#define BLEND_PENDING 6   /* blend_store_wait: the time ran out before the write was done */
#define BLEND_REMOTE_DOWN 7 /* an event, no error: a server of the remote tier is left alone for a while */
#define BLEND_REMOTE_UP 8   /* an event: it answers again */

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
#define BLEND_E_FORKED (-46)    /* the handle was made before fork(); make it anew in the child */
#define BLEND_E_NUMERIC (-48)   /* NaN or infinity in the weights, activations or KV */
#define BLEND_E_UNTRUSTED (-49) /* the profile does not vouch for this fuse (BLEND_ON_UNTRUSTED_FAIL) */
#define BLEND_E_INTERNAL (-50)  /* a bug in libblend: please report the message */

/* ---- Version and errors ------------------------------------------------------------------ */

/* "major.minor.patch" of the library that is loaded (not of this header). Never freed. */
BLEND_API const char *blend_version(void);

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
 * treated as a miss, a write-back that failed, a CPU that lacks fast kernels (a BLEND_E_*); or
 * BLEND_EVICTED: a chunk, named in the message, left the store; or BLEND_REMOTE_DOWN and _UP: a server of
 * the remote tier failed, or answers again. Called from any thread, several at
 * once; the return value is ignored. Must not call back into the library. */
typedef int32_t (*blend_event_fn)(void *user, int32_t code, const char *message);

/* ---- Element types ----------------------------------------------------------------------- */

#define BLEND_DTYPE_AUTO 0u /* as the member says that has it */
#define BLEND_DTYPE_F32 1u
#define BLEND_DTYPE_F16 2u
#define BLEND_DTYPE_BF16 3u

/* ---- Context ----------------------------------------------------------------------------- */

/* Owns the compute threads, which concurrent calls share; one per process is the usual choice. */
typedef struct blend_ctx blend_ctx;

#define BLEND_CTX_PIN_THREADS 1u /* each thread that the context starts runs on one CPU of those that
                                    the creating thread may run on (sched_getaffinity), in ascending
                                    order; the first is left to the calling threads, which are not
                                    touched. For a process that has these CPUs to itself */

/* All zero: the defaults. */
typedef struct blend_ctx_options {
  uint32_t struct_size;
  uint32_t flags;       /* BLEND_CTX_* */
  uint32_t n_threads;   /* compute threads, the calling one included; 0 = the CPUs this process may
                           run on (sched_getaffinity). At most 1024. */
  uint32_t cache_dtype; /* BLEND_DTYPE_*: what the fused K and V of prompts are kept as. AUTO: f32 on a
                           CPU, bf16 on a GPU, which has no other (UNSUPPORTED). On a CPU F16 halves
                           their memory, and what a decoded token reads of them. A value that F16
                           cannot hold fails the call with NUMERIC: BF16 holds all, with an eighth of
                           the precision. docs/quality.md has figures */
  const char *backend;  /* what computes: "cpu" (also NULL), "cuda" or "cuda:N" (the N-th GPU that the
                           driver shows, from 0), "auto" (the first GPU where one can be had, else the
                           CPU, and on_event says why). Copied. */
  uint64_t device_bytes; /* GPU memory for stored chunks that were used, kept from fuse to fuse until
                            others push them out (least recently used first) or the context closes: a
                            fuse neither loads nor copies what is there. Chunks of INT8 and INT4 stay
                            as small there. 0: none; of no effect with "cpu" */
  blend_event_fn on_event; /* NULL: events are only counted (blend_store_stat) */
  void *event_user;
} blend_ctx_options;

/* Starts the threads and, where a GPU was asked for, opens libblend_cuda.so (beside libblend.so, on
 * the loader's path, or what the environment variable BLEND_CUDA_MODULE names) and its device.
 * `options` may be NULL for the defaults. Errors: INVALID_ARGUMENT (also: more threads to pin than
 * CPUs), INVALID_STRUCT, OUT_OF_MEMORY, IO (the system will not pin a thread), NO_DEVICE (says what
 * is missing: the library, the driver or the device), UNSUPPORTED (a device that is too old). */
BLEND_API int32_t blend_ctx_create(blend_ctx **out, const blend_ctx_options *options,
                                   blend_error **err);
/* What computes and with what, for people to read: "cuda:0 (NAME)"; or "cpu", then in brackets the
 * instruction set (AVX-512, AVX2, SSE4, NEON, no SIMD) and, if there is one, the instruction that
 * multiplies 8-bit integers: "cpu (AVX-512, VNNI)", "cpu (NEON, dot product)". Without AVX2 or NEON
 * on_event has heard BLEND_E_UNSUPPORTED: several times slower. Valid while the context is open; ""
 * when `ctx` is NULL. */
BLEND_API const char *blend_ctx_backend(const blend_ctx *ctx);
BLEND_API void blend_ctx_close(blend_ctx *ctx);

/* ---- Model and tokenizer ----------------------------------------------------------------- */

/* Weights, tokenizer and description of one model. Immutable; all functions may run concurrently. */
typedef struct blend_model blend_model;

/* How the weights' matrices are kept in memory. */
#define BLEND_WEIGHTS_AUTO 0u   /* MAPPED where they are quantized and the backend can, else PACKED */
#define BLEND_WEIGHTS_PACKED 1u /* a copy in the form that is computed with fastest: on a CPU the file's
                                   f16 or bf16, else f32 (4 bytes a weight); bf16 on a GPU */
#define BLEND_WEIGHTS_MAPPED 2u /* as the file has them, decoded as they are used: only the page cache
                                   holds them, and processes share it. CPU only (UNSUPPORTED). The
                                   file must not be cut short while the model is open */
#define BLEND_WEIGHTS_INT8 3u   /* a copy of 8 bits a weight, a step per output; activations become
                                   bytes too, a scale per row. Faster where blend_ctx_backend() names
                                   VNNI or the dot product. Answers differ a little: docs/quality.md.
                                   CPU only (UNSUPPORTED) */

/* All zero: the defaults. */
typedef struct blend_model_options {
  uint32_t struct_size;
  uint32_t weights;           /* BLEND_WEIGHTS_* */
  uint32_t max_context;       /* rows a fusion may have; 0 = what the model was trained for */
  blend_progress_fn progress; /* bytes of weights read */
  void *progress_user;
  const blend_cancel *cancel;
} blend_model_options;

/* Opens a GGUF file (v2 or v3), or a Hugging Face directory (config.json, tokenizer.json and
 * model.safetensors or its shards). docs/models.md says which families of models, types of weights
 * and tokenizers there are. Files are mapped, every offset and shape in them is checked, and the
 * weights are packed for this machine.
 * Errors: NOT_FOUND, IO, FORMAT (names the file and the offset, member or tensor), UNSUPPORTED (names
 * what was met), NUMERIC (a NaN or infinity in the weights), OUT_OF_MEMORY, CANCELLED, CALLBACK. */
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
  uint32_t weights;        /* BLEND_WEIGHTS_PACKED, _MAPPED or _INT8; 0 where there are none */
  double rope_theta;
  uint64_t n_parameters;
  uint64_t weight_bytes;       /* the process's own memory for weights: little where they are mapped */
  uint64_t kv_bytes_per_token; /* in the fused cache, all layers */
  /* Strings are valid while the model is open. */
  const char *architecture;  /* "llama", "qwen2", ... */
  const char *name;          /* general.name or "" */
  const char *weight_dtype;  /* "f32", "f16", "bf16", "q8_0", ...: the file's matrices */
  const char *chat_template; /* the model's, Jinja source; blend_chat_render renders it; "": none */
  uint8_t fingerprint[32];   /* SHA-256 over weights, tokenizer and hyperparameters */
} blend_model_info;

BLEND_API int32_t blend_model_get_info(const blend_model *model, blend_model_info *info,
                                       blend_error **err);

#define BLEND_TOKENIZE_BOS 1u     /* put the BOS token in front, if the model has one */
#define BLEND_TOKENIZE_SPECIAL 2u /* recognise special tokens such as "</s>" in the text; without
                                     it they are plain text (safe for untrusted input) */
#define BLEND_TOKENIZE_RAW 4u     /* do not add the space that SentencePiece puts before a text */

/* Tokens of a UTF-8 text (invalid bytes become byte tokens). Writes up to `capacity` ids and the
 * full count to *n_tokens. Errors: BUFFER_TOO_SMALL (call again with *n_tokens), INVALID_ARGUMENT,
 * UNSUPPORTED (the model's own patterns take too long over this text). */
BLEND_API int32_t blend_model_tokenize(const blend_model *model, const char *text,
                                       size_t text_bytes, uint32_t flags, int32_t *tokens,
                                       size_t capacity, size_t *n_tokens, blend_error **err);

/* Text of tokens: bytes, not NUL-terminated, possibly cut inside a UTF-8 sequence; the space that
 * SentencePiece put before the first token is dropped unless BLEND_TOKENIZE_RAW. Control tokens
 * give nothing unless BLEND_TOKENIZE_SPECIAL. Errors: BUFFER_TOO_SMALL (needs *n_bytes),
 * INVALID_ARGUMENT (a token outside the vocabulary). */
BLEND_API int32_t blend_model_detokenize(const blend_model *model, const int32_t *tokens,
                                         size_t n_tokens, uint32_t flags, char *text,
                                         size_t capacity, size_t *n_bytes, blend_error **err);

/* ---- Chunk store ------------------------------------------------------------------------- */

/* K (before RoPE) and V of every layer of each chunk, on LMDB. Several processes and threads may
 * use one directory at once (never on a network file system). After fork() the child must open the
 * store anew: calls on the inherited handle give BLEND_E_FORKED. blend/store.h has its upkeep. */
typedef struct blend_store blend_store;

/* How the bytes of K and V are kept. Not part of a chunk's id: a chunk is read the same whatever its
 * codec, and keeps the one it was put with. docs/quality.md has what the lossy ones cost. */
#define BLEND_CODEC_DEFAULT 0u /* of a store: NONE; of a put: the store's */
#define BLEND_CODEC_NONE 1u    /* as they are */
#define BLEND_CODEC_ZSTD 2u    /* lossless: exponents compressed; 1.4 to 1.5 times smaller for bf16,
                                  1.2 for f16 and f32 */
#define BLEND_CODEC_INT8 3u    /* 8 bits: K has a scale per channel, V per token and head */
#define BLEND_CODEC_INT4 4u    /* 4 bits in groups of 32: of K along tokens, of V along channels */
#define BLEND_CODEC_RANS 5u    /* multiples of a step (codec_step), finer for rows that their chunk
                                  attends to, entropy-coded: about 5 times smaller than 16 bits. Decoded
                                  by the CPU; a store that holds such chunks is of format version 3 */

/* How layers are read from the disk. What the page cache holds is taken from there unless a mode
 * other than AUTO is asked for. */
#define BLEND_READ_AUTO 0u    /* the first of these that works here, tried at open */
#define BLEND_READ_URING 1u   /* io_uring past the page cache (O_DIRECT) */
#define BLEND_READ_THREADS 2u /* a few threads that read past the page cache */
#define BLEND_READ_MAPPED 3u  /* copies from the map, fetched ahead by the kernel */

/* Which chunk leaves first when a put needs room. Pinned chunks never do; chunks that prompts were
 * hinted at (blend_store_hint) only after all others, what is needed last first. */
#define BLEND_EVICT_LRU 1u   /* the one that was unused longest */
#define BLEND_EVICT_FIFO 2u  /* the one that was put first; neither hits nor puts renew it */
#define BLEND_EVICT_REUSE 3u /* LRU, but what was hit n times gets log2(n) further chances */
#define BLEND_EVICT_NEVER 4u /* none: a put past the quota is BLEND_E_FULL */

#define BLEND_STORE_READ_ONLY 1u
#define BLEND_STORE_NO_CREATE 2u /* NOT_FOUND instead of making a new store */
#define BLEND_STORE_GROUP 4u     /* what is made is its group's too: 0770 and 0660, not 0700 and 0600 */

#define BLEND_SECRET_USER 1u     /* whom the remote tier's server knows */
#define BLEND_SECRET_PASSWORD 2u /* of that user */
#define BLEND_SECRET_SEAL_KEY 3u /* 32 bytes: what is put there is sealed with them (AES-256-GCM) */

/* Writes a secret's bytes to `out`, up to `capacity` (1024), and their number to *n_bytes; 0 bytes: there
 * is none. Called by the thread that opens a store, before blend_store_open returns. Non-zero stops it
 * with BLEND_E_CALLBACK. */
typedef int32_t (*blend_secret_fn)(void *user, uint32_t secret, char *out, size_t capacity,
                                   size_t *n_bytes);

typedef struct blend_store_options {
  uint32_t struct_size;
  uint32_t flags;     /* BLEND_STORE_* */
  uint32_t kv_dtype;  /* BLEND_DTYPE_*: what new chunks are stored as; part of a chunk's id. Default
                         AUTO: bf16 for a bf16 model, otherwise f16 */
  uint32_t codec;     /* BLEND_CODEC_* of what is put without one; with INT8 and INT4 also prefixes and
                         saved fusions come back rounded; before it is on disk a chunk is used as computed */
  uint32_t read_mode; /* BLEND_READ_*; one that does not work here gives UNSUPPORTED */
  uint32_t eviction;  /* BLEND_EVICT_*; default LRU */
  uint64_t quota_bytes; /* of stored chunks; default 16 GiB. A put past it evicts; BLEND_E_FULL when pinned
                           and needed chunks leave no room. The file's bound: docs/store.md, "Room" */
  uint64_t tenant_quota_bytes; /* of the chunks of any one tenant but ""; 0 (default): no bound but
                           the store's. blend_store_set_tenant_quota for one of them */
  uint64_t ttl_s;       /* a chunk that nobody used for so long is a miss, and leaves with the next
                           put; pinned ones stay. 0 (default): chunks do not expire */
  uint64_t ram_bytes;   /* host memory for layers that were read and checked, or put in the
                           background: a hit there costs a copy. On top of what fuses take; 0
                           (default): none */
  uint64_t queue_bytes; /* background writes in flight; default 256 MiB. A full queue slows the
                           writer down, nothing is dropped */
  const char *remote;   /* a Valkey or Redis that many machines share (docs/remote.md): redis://HOST:PORT,
                           rediss:// with TLS, redis+cluster:// and rediss+cluster:// with any of the
                           cluster's nodes, separated by commas. NULL (default): none */
  const char *remote_space; /* in front of every key there; NULL: "blend" */
  const char *remote_ca;    /* file of the certificates (PEM) that a server's is checked by; NULL: the
                           system's */
  const char *remote_certificate; /* file of this client's certificate (PEM), and of its key; NULL: none */
  const char *remote_key;   /* file of the certificate's key (PEM); NULL: none */
  blend_secret_fn remote_secret; /* who this is, and the key that seals. NULL: BLEND_REMOTE_USER,
                           BLEND_REMOTE_PASSWORD and BLEND_REMOTE_SEAL_KEY (64 hexadecimal digits) of
                           the environment */
  void *remote_secret_user;
  uint64_t remote_ttl_s;    /* a chunk there that nobody read or put for so long is gone; default 604800, a
                           week. 0: the server alone decides */
  uint64_t remote_bytes;    /* host memory for chunks that are on their way from there; default 1 GiB. What
                           does not fit is a miss */
  uint32_t remote_timeout_ms; /* of one request to a server, up to remote_segment_bytes of answer
                           included: the longest that a fuse waits for a part of a chunk; default 1000 */
  uint32_t remote_retry_ms; /* a server that failed is left alone for so long, then probed in the
                           background; default 5000 */
  uint32_t remote_connections; /* at work at a time, each with a thread; default 4 */
  uint32_t remote_segment_bytes; /* what chunks are cut into there; 65536 to 33554432, default 4194304 */
  double codec_step;        /* of BLEND_CODEC_RANS: times the steps that it takes by itself, 0.0625 to 16;
                           half of it costs a bit an element and halves the error; of each layer times that of
                           blend_store_use_profile. 0 (default): 1 */
  uint64_t most_variants;   /* chunks of one text (same tokens, model, kv_dtype, tenant) behind different
                           prefixes that stay, beside the one behind the fewest tokens. A put past it
                           evicts the least useful of them; BLEND_E_FULL where all are pinned, or nothing
                           may be evicted. 0 (default): 16; UINT64_MAX: no bound */
  uint32_t check_every;     /* of the fuses that leave rows of chunks as they are stored, one in so many is
                           checked: while no call runs on the context, its prompt and answer are prefilled in
                           full and compared (blend/fidelity.h). The first few of a kind always are. 0
                           (default): 16; UINT32_MAX: none */
  uint32_t check_tokens;    /* answer tokens that a check compares, at most 256; 0 (default): 32 */
  uint32_t remote_fuse_ms;  /* what one fuse, or one batch, may wait for all its look-ups in the remote tier
                           together; what is not found by then is a miss (n_misses_late). Where no answer
                           came at all the tier is left alone for remote_retry_ms. At most 600000;
                           0 (default): half of remote_timeout_ms */
  uint32_t remote_drain_ms; /* how long blend_store_flush and blend_store_close each wait for what still goes
                           up there; closing gives up the rest, and an event says how many chunks. At most
                           600000; 0 (default): 3000 */
} blend_store_options;

BLEND_API int32_t blend_store_options_init(blend_store_options *options, size_t struct_size);

/* Opens or creates the directory `path`. Errors: NOT_FOUND, IO, FORMAT (not a store), MISMATCH
 * (another format version), CORRUPT, INVALID_ARGUMENT; with `remote` UNSUPPORTED (TLS is not installed) and
 * CALLBACK. A server that is down is no error: its chunks are misses until it answers. */
BLEND_API int32_t blend_store_open(blend_store **out, const blend_ctx *ctx, const char *path,
                                   const blend_store_options *options, blend_error **err);
/* Waits for background writes, for those to the remote tier at most remote_drain_ms, then closes. Chunks
 * that did not get there are given up (an event says how many; blend_store_push puts them there). Chunks
 * still to be prefilled are given up (an event), and so are answers still to be checked. */
BLEND_API void blend_store_close(blend_store *store);

/* Waits until every background write so far is on disk, and every chunk that a fuse left to be
 * prefilled after it (BLEND_MISS_COMPUTE_STORE); and for what goes up to the remote tier at most
 * remote_drain_ms: what has not got there by then goes on (remote_queued of blend_store_stat). Returns
 * the first error that one of them met since the last flush (also sent as an event). */
BLEND_API int32_t blend_store_flush(const blend_store *store, blend_error **err);

typedef struct blend_chunk_id {
  uint8_t bytes[32]; /* SHA-256 over model fingerprint, KV dtype, chunk prefix, tenant, token ids */
} blend_chunk_id;

/* 64 lower-case hexadecimal digits and a NUL into `hex` (65 bytes). */
BLEND_API void blend_chunk_id_to_hex(const blend_chunk_id *id, char *hex);
/* Errors: INVALID_ARGUMENT (not 64 hexadecimal digits). */
BLEND_API int32_t blend_chunk_id_from_hex(blend_chunk_id *id, const char *hex, blend_error **err);

/* ---- Precompute -------------------------------------------------------------------------- */

#define BLEND_PUT_BACKGROUND 1u /* return once the chunk is queued; blend_store_wait tells when it is
                                   on disk, and whether that failed */
#define BLEND_PUT_AFTER_BOS 2u  /* blend_precompute only: stored a second time, prefilled behind the model's
                                   BOS alone, so that it is exact where it stands first in a prompt
                                   (blend_fuse). Nothing more where the model has no BOS, or where that
                                   is the chunk prefix */

/* A passage that a chunk is prefilled after, and that is not stored with it. A plain pair that will not
 * grow. */
typedef struct blend_context_passage {
  const int32_t *tokens; /* [n_tokens] */
  size_t n_tokens;
} blend_context_passage;

#define BLEND_MOST_CONTEXTS 16u /* passages of one record */

/* All zero: the defaults. */
typedef struct blend_precompute_options {
  uint32_t struct_size;
  uint32_t flags;     /* BLEND_PUT_* */
  uint32_t codec;     /* BLEND_CODEC_* */
  uint32_t n_threads; /* of the call; 0: all */
  const int32_t *chunk_prefix; /* prefilled before the chunk, not stored; part of the id. Give the prompt
                                  head: all tokens before the first chunk of the prompts that will
                                  hold this one (BOS, what the chat template opens with, the system
                                  text). Without it the chunk's first token draws attention that it
                                  has in no prompt, and answers are lost */
  size_t n_chunk_prefix;
  const blend_context_passage *contexts; /* [n_contexts] passages, each prefilled between chunk_prefix and
                                  the chunk, in a pass of its own. The record is contextual: the mean of
                                  the passes' K and V. Its id is not that of the record without passages,
                                  nor does it depend on which they are; blend_fuse prefers it where the
                                  chunk does not stand first. Rows of a passage that the store holds after
                                  the same chunk_prefix are loaded. Best are two to four texts of the same
                                  kind; blend_precompute_corpus finds them. blend_precompute only */
  size_t n_contexts;           /* at most BLEND_MOST_CONTEXTS; 0: none */
  const char *tenant; /* salt of the id, so that tenants never share chunks; NULL = "" */
  blend_progress_fn progress; /* layers */
  void *progress_user;
  const blend_cancel *cancel;
  const char *label; /* what the chunk is called from now on, if given; by custom "document#part" */
  const char *tags;  /* words with one space between, "lang=en draft", in place of those that it has, if given */
} blend_precompute_options;

/* What a chunk is called is kept with it and is no part of its id: the same tokens under another label are
 * the same chunk, which has the label that was given last. NULL, the default, leaves what is there; "" removes
 * it. Both are UTF-8 without control characters. */
#define BLEND_LABEL_BYTES 1024u /* the longest label */
#define BLEND_TAGS_BYTES 1024u  /* the longest list of tags */

/* Prefills one chunk by itself and stores its K (before RoPE) and V (CacheBlend section 4;
 * AttentionStore section 3.4.1 for the order of K and RoPE). When it returns BLEND_OK the chunk is
 * on disk; BLEND_EXISTS: it was there already, nothing was computed (nor were its bytes read: a
 * damaged chunk is mended by the next fuse that meets it), and it has the label and tags of `options` now.
 * `options` and `id` may be NULL. tokens: [n_tokens]. Errors: INVALID_ARGUMENT (no tokens, one outside the
 * vocabulary, or a label or tags that are too long or not a line of UTF-8),
 * CONTEXT_LENGTH, FULL, READ_ONLY, IO, NUMERIC, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_precompute(const blend_model *model, const blend_store *store,
                                   const int32_t *tokens, size_t n_tokens,
                                   const blend_precompute_options *options, blend_chunk_id *id,
                                   blend_error **err);

/* One text of a corpus. */
typedef struct blend_corpus_chunk {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t reserved;    /* 0 */
  const int32_t *tokens; /* [n_tokens] */
  size_t n_tokens;
  const char *label; /* as in blend_precompute_options */
  const char *tags;
} blend_corpus_chunk;

/* What became of one text. Valid during the call of `on_record` only. */
typedef struct blend_corpus_record {
  uint32_t struct_size;
  uint32_t n_contexts; /* passages of the contextual record; 0: there is none, since no other chunk is
                          similar */
  uint64_t index;      /* of the text */
  uint64_t existed;    /* 1: nothing was computed */
  blend_chunk_id id;   /* of the contextual record, or of the one after the head alone */
} blend_corpus_record;

/* Non-zero stops with BLEND_E_CALLBACK. On the calling thread. */
typedef int32_t (*blend_corpus_fn)(void *user, const blend_corpus_record *record);

#define BLEND_CORPUS_REFRESH 1u    /* make contextual records again whose similar chunks have changed */
#define BLEND_CORPUS_HEAD_ONLY 2u  /* no contextual records */

/* All zero: the defaults. */
typedef struct blend_corpus_options {
  uint32_t struct_size;
  uint32_t flags;      /* BLEND_CORPUS_* */
  uint32_t codec;      /* BLEND_CODEC_* */
  uint32_t n_threads;  /* of the call; 0: all */
  const int32_t *chunk_prefix; /* the prompt head, as in blend_precompute_options */
  size_t n_chunk_prefix;
  const char *tenant;  /* chunks of other tenants are no context */
  uint32_t n_contexts; /* similar chunks each, at most BLEND_MOST_CONTEXTS; 0 (default): 4. A record costs
                          as many passes over its own rows, and one for the head record */
  uint32_t reserved;   /* 0 */
  double min_similarity; /* 0 to 0.9: chunks that are less alike are no context; default 0 */
  blend_progress_fn progress; /* chunks; head and contextual records are counted apart */
  void *progress_user;
  const blend_cancel *cancel;
  blend_corpus_fn on_record; /* called for each text, in order; may be NULL */
  void *record_user;
} blend_corpus_options;

/* Stores the chunks of a corpus so that they serve each other as context: each after the prompt head
 * alone, which is exact where it stands first in a prompt, and as a contextual record over its most
 * similar chunks among `chunks` and those that the store holds after the same head
 * (docs/fusion.md, "The record of a chunk"). Similarity is the cosine of TF-IDF weights over token ids;
 * chunks of 0.9 and more say the same and are no context, nor are those of ten tokens and fewer.
 * BLEND_OK when all is on disk; BLEND_EXISTS: it was there already. A call that was stopped goes on
 * where it ended when it is made again. A removed chunk stays part of the means that were made with it,
 * until they are refreshed. chunks: [n]. Errors name the chunk; they are those of blend_precompute. */
BLEND_API int32_t blend_precompute_corpus(const blend_model *model, const blend_store *store,
                                          const blend_corpus_chunk *chunks, size_t n,
                                          const blend_corpus_options *options, blend_error **err);

/* ---- Fuse -------------------------------------------------------------------------------- */

/* One prompt's fused KV cache and the logits of its last row. Getters and save may run concurrently
 * with each other. */
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
                               stored token ids must be equal. Another tenant's is a miss */
} blend_segment;

/* Which rows are recomputed. docs/fusion.md compares them. */
#define BLEND_POLICY_FULL 1u  /* full prefill: nothing reused; the reference */
#define BLEND_POLICY_REUSE 2u /* stored rows as they are (PromptCache); wrong where chunks refer to
                                 each other; the lower bound */
#define BLEND_POLICY_HKVD 3u  /* the rows of highest KV deviation (CacheBlend 4.2-4.3) */
#define BLEND_POLICY_FIRST_K 4u /* the first rows of every chunk, the budget split over the chunks by
                                   their rows (EPIC's LegoLink). Measures nothing */
#define BLEND_POLICY_RANDOM 5u  /* any rows, by `seed`: the control. Measures nothing */
#define BLEND_POLICY_QUESTION 6u /* deviation times the attention that the question puts on the row
                                    at the check layer; the prompt needs a QUESTION segment */
#define BLEND_POLICY_CALLBACK 7u /* the rows to which `score` gives the largest scores */
#define BLEND_POLICY_UNION 8u    /* `terms`: several of the others, each with its share */
#define BLEND_POLICY_CONTEXT_IMPACT 9u /* the rows that attend most to what stands before their chunk
                                   and are most attended to inside it, as seen when it was
                                   precomputed: statistics that are kept with the chunk (Cache-Craft).
                                   Measures nothing; NOT_FOUND names a chunk that has none */
#define BLEND_POLICY_APE 10u     /* nothing is recomputed; rows of chunks are attended to with
                                   `ape_temperature` and `ape_scale` (Adaptive Parallel Encoding). In
                                   a union: the rows that the others leave to their stored K, V */
#define BLEND_POLICY_PROBE 11u   /* the rows that the question attends to at layer 1 over the stored
                                   rows and that lean on the text before their chunk, chosen before
                                   layer 0: no row that is left out is computed at all. Needs a
                                   QUESTION segment, and chunks with the statistics of
                                   CONTEXT_IMPACT. In a plan the host gives that attention
                                   (blend_plan_probe) */
#define BLEND_POLICY_CASCADE 12u /* PROBE lets a few through (0.15 of the reused rows, or twice
                                   the ratio where that is more); layer 0 is computed for these alone,
                                   and `ratio` of all go on from check_layer, by their deviation
                                   there times how much they are read. check_layers: the first is 0 */
#define BLEND_POLICY_ATTENTION 13u /* the rows that the question attends to in the middle layers over
                                   the stored rows (L/6 .. L - L/6 - 1 of L layers), chosen before
                                   layer 0: no row that is left out is computed at all. Needs a
                                   QUESTION segment; chunks need no statistics. The drift correction
                                   does not apply. In a plan the host gives that attention
                                   (blend_plan_probe) */
#define BLEND_POLICY_AUTO 14u    /* what the profile chose, ATTENTION without one; HKVD where that
                                   cannot be: without a QUESTION segment, in a plan, with check_layers,
                                   for a model of one layer, and where CASCADE meets a chunk that was
                                   stored without its rows' statistics (blend_chunk_put). The info has
                                   the one in force. Not in a union */

/* What a row's deviation is measured on: bits 1 (V) and 2 (K), and 4: weighed, that is the root of the
 * sum times the attention that the row got from the rows of its chunk when that was precomputed, which
 * is kept with it: the error that readers get. For HKVD, and QUESTION, which takes the root of the
 * product of both attentions; other policies take the sum. A chunk without
 * that statistic (blend_chunk_put) counts as if its rows had attended evenly. */
#define BLEND_METRIC_V 1u  /* sum over kv_dim of (V_fresh - V_stored)^2 */
#define BLEND_METRIC_K 2u  /* the same of K */
#define BLEND_METRIC_KV 3u /* their sum */
#define BLEND_METRIC_V_WEIGHED 5u
#define BLEND_METRIC_K_WEIGHED 6u
#define BLEND_METRIC_KV_WEIGHED 7u

#define BLEND_NORM_L2 1u /* squares are summed, as above (the paper's deviation) */
#define BLEND_NORM_L1 2u /* magnitudes are summed */

#define BLEND_MISS_PRECOMPUTE 1u /* prefill the chunk, store it in the background, fuse it */
#define BLEND_MISS_COMPUTE 2u    /* treat it as new text: exact, nothing is stored */
#define BLEND_MISS_FAIL 3u       /* BLEND_E_NOT_FOUND */
#define BLEND_MISS_COMPUTE_STORE 4u /* the default: COMPUTE, and after the fuse the chunk is prefilled
                                   by itself and stored, while no call runs on the context: the next
                                   prompt finds it, unless the store is closed first (flush, or wait
                                   for its id). Where chunk_prefix is NULL, chunks that are found get
                                   better records in idle time, once two prompts have lacked them: in the
                                   context of the prompt's other chunks, and after the chunk that stands
                                   before. With a `machine`,
                                   PRECOMPUTE where that is sooner. A chunk that stands first, after
                                   BOS alone, and is not stored after that is left to be so too
                                   (BLEND_PUT_AFTER_BOS). In a plan it is PRECOMPUTE, or COMPUTE where
                                   the model is only described */

#define BLEND_CORRECTION_AUTO 0u /* as the profile says */
#define BLEND_CORRECTION_OFF 1u  /* rows that are not recomputed keep their stored K, V */
#define BLEND_CORRECTION_ON 2u   /* whatever was chosen; INVALID_ARGUMENT where there are no maps */
#define BLEND_CORRECTION_UNGUARDED 3u /* ON, and the maps are taken at their word. With AUTO and ON what
                                    they add is scaled, layer by layer, by how much of what they
                                    foretell of the recomputed rows is there: off the text that they
                                    were fitted on they would do harm */

#define BLEND_ON_UNTRUSTED_FUSE 0u /* fuse; the info says so */
#define BLEND_ON_UNTRUSTED_FULL 1u /* as BLEND_POLICY_FULL, which the info shows; of a plan all rows
                                      are the host's to compute */
#define BLEND_ON_UNTRUSTED_FAIL 2u /* BLEND_E_UNTRUSTED names what is not kept, before any work */

/* A `ratio` that lets the controller choose (CacheBlend section 5.1): the largest ratio whose
 * recompute hides behind loading, but never less than r*, below which quality is not vouched for:
 * the least ratio that `profile` trusts for this prefix, metric, check layer and correction (1 if it
 * measured them and trusts none), and 0.15 without a profile or for what it did not measure. Needs
 * `machine` and a store, else it is r*; with check_layers nothing is chosen. The info has the ratio
 * in force. docs/controller.md says how loading is judged. */
#define BLEND_RATIO_AUTO (-1.0)

/* The default `ratio`: it keeps a stated agreement with full prefill, `agreement_target`, by what the
 * store has seen. Answers to one fuse in check_every (blend_store_options) are compared with full
 * prefill in idle time. What a fuse begins with while nothing is known of its kind follows from the
 * farthest of its records: 0.2 for PREDECESSOR and CONTEXTUAL, 0.45 for HEAD, 0.6 for ALONE. From there
 * it moves from check to check along 0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 1: up when the agreement
 * is below the target, down when it is clearly above. These are shares r of prompts with 800 or more
 * reused rows; of n < 800 it is 1 - (1 - r)^k with k = sqrt(800 / n), since a short prompt needs more
 * and has less time to lose. Otherwise as BLEND_RATIO_AUTO, with that ratio for r*; never below what
 * `profile` vouches for, if it measured this kind of fuse. Without a store nothing is learnt.
 * blend/fidelity.h has what was seen. For a fuse that is the same on every day give a number. */
#define BLEND_RATIO_FIDELITY (-2.0)

/* A layer at which rows are chosen, and the share of the reused rows that goes on behind it. A plain
 * pair that will not grow. */
typedef struct blend_check_layer {
  uint32_t layer;
  double ratio; /* 0 .. 1 */
} blend_check_layer;

/* One policy of a union. A plain pair that will not grow. */
typedef struct blend_policy_term {
  uint32_t policy; /* BLEND_POLICY_HKVD .. BLEND_POLICY_ATTENTION, but FULL, REUSE and UNION. With PROBE,
                      CASCADE or ATTENTION all choose before layer 0, so there are no HKVD, QUESTION and
                      CALLBACK; ATTENTION asks at other layers than PROBE and CASCADE, so not beside them */
  double share;    /* of the budget, relative to the other terms' shares; more than 0. That of APE
                      counts for nothing: it asks for no rows */
} blend_policy_term;

/* Scores of the candidate rows at a check layer: those with the largest go on, ties to the earlier
 * row. `rows` are token positions, ascending; `deviation` is as measured at `layer`; `scores` begins
 * as a copy of it. All [n], valid during the call only. A NaN fails the fuse with INVALID_ARGUMENT.
 * Called once a check layer, again if a damaged chunk makes the fuse start over, and once a layer
 * for each CALLBACK term of a union. */
typedef int32_t (*blend_score_fn)(void *user, uint32_t layer, const uint32_t *rows,
                                  const float *deviation, size_t n, float *scores);

/* How fast this machine prefills a model, and what calibration found out about one. Both immutable;
 * all functions may run concurrently. See blend/calibrate.h. */
typedef struct blend_machine blend_machine;
typedef struct blend_profile blend_profile;

typedef struct blend_fuse_options {
  uint32_t struct_size;
  uint32_t n_threads;   /* of the call and, unless they say otherwise, of later ones on the fusion
                           (decode, generate, extend, replace, erase, save); of a plan for its life;
                           of the prefill that a miss leaves behind (COMPUTE_STORE). 0 (default): all,
                           in blend_fusion_extend the fusion's */
  /* Which rows are recomputed, and how many. */
  uint32_t policy;      /* BLEND_POLICY_*; default AUTO */
  uint32_t metric;      /* BLEND_METRIC_*; default V_WEIGHED */
  uint32_t norm;        /* BLEND_NORM_*; default L2 */
  uint32_t relative;    /* 1: a deviation is divided by the stored row's own sum in that norm */
  uint32_t check_layer; /* where deviations are measured, 1 .. n_layers-1; default 1. FIRST_K, RANDOM
                           and CONTEXT_IMPACT measure nothing and leave rows out from layer 0 on,
                           whatever this says; check_layers below can have them choose later */
  uint32_t correction;  /* BLEND_CORRECTION_*; default AUTO. Corrected are the rows of chunks that are
                           not recomputed, behind the check layer of the profile, where that is the
                           first of this fuse and the chunk prefix is the profile's; in every other
                           fuse AUTO corrects nothing and ON is an error */
  uint32_t on_untrusted; /* BLEND_ON_UNTRUSTED_*; default FUSE. What becomes of a fuse that would be
                           BLEND_FUSION_UNTRUSTED. Of a batch each prompt by itself */
  double ratio;         /* recomputed share of the reused rows, 0 .. 1; default BLEND_RATIO_FIDELITY. The
                           question, new text and misses computed inline come on top */
  double agreement_target; /* for BLEND_RATIO_FIDELITY: share of the answer tokens at which full prefill
                           would have preferred the same token, 0.5 .. 0.999; 0 (default): 0.98 */
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
  uint64_t seed;        /* of RANDOM: same seed, same rows */
  double ape_temperature; /* APE: scores of the rows in question are divided by it; default 0.9 */
  double ape_scale;     /* APE: the logarithm of what these rows' exponentials add up to is multiplied
                           by it, before it shares a row's attention with the others; default 0.9. Both
                           1: plain attention. In (0, 100]. Decoded rows attend in the same way. Of a
                           fusion that is extended, the latest fuse with APE sets both for all such
                           rows; one with APE cannot be saved, nor a host's own attention changed by a
                           plan */
  const blend_profile *profile; /* of this model, opened on the same context; NULL: none, and the
                           fusion says BLEND_FUSION_UNCALIBRATED. It changes no other member:
                           blend_profile_apply() sets them */
  const blend_machine *machine; /* for BLEND_RATIO_AUTO; opened with this model; may be NULL */
  /* Which chunks are found, and what follows them. */
  const int32_t *chunk_prefix; /* what these chunks were precomputed after. NULL (default): the prompt head,
                           that is all tokens before the first CHUNK. Not NULL with n_chunk_prefix 0:
                           nothing, as for chunks that were prefilled alone */
  size_t n_chunk_prefix;
  const char *tenant;   /* as given to blend_precompute */
  uint32_t on_miss;     /* BLEND_MISS_*; default COMPUTE_STORE */
  uint32_t reserve_tokens; /* rows kept free behind the prompt for decode; default 256, less where
                           the model's context ends sooner */
  blend_progress_fn progress; /* layers */
  void *progress_user;
  const blend_cancel *cancel;
  uint64_t ttft_target_ns; /* for BLEND_RATIO_AUTO with a machine: the time to first token that is soon
                           enough, from the call on. Of what is reckoned to be done by then the choice
                           nearest to full prefill is taken; if nothing is, the soonest, and the fusion
                           says BLEND_FUSION_TARGET_MISSED. 0 (default): the soonest, and more recomputed
                           only where that costs no time. No choice goes below the least ratio that
                           quality allows */
} blend_fuse_options;

BLEND_API int32_t blend_fuse_options_init(blend_fuse_options *options, size_t struct_size);

/* Fuses `segments` (prompt order) into one KV cache and computes the logits of the last row.
 * Layers are loaded ahead of the compute by a reader thread. Row i attends to exactly the rows
 * j <= i, so ratio 1 equals full prefill to rounding. A chunk whose chunk prefix is exactly what
 * precedes it in the prompt is reused without loss and never recomputed. Of a chunk's records
 * the nearest to full prefill is taken (BLEND_RECORD_*), also for a chunk that is given by its id. `store` may be NULL with
 * BLEND_POLICY_FULL or BLEND_MISS_COMPUTE, `options` for the defaults. Damaged chunks are misses
 * (and an event).
 * Errors: INVALID_ARGUMENT (names the segment), CONTEXT_LENGTH, NOT_FOUND, MISMATCH (a chunk id of
 * another model or with other tokens), IO, NUMERIC, OUT_OF_MEMORY, CANCELLED, CALLBACK, FORKED. */
BLEND_API int32_t blend_fuse(blend_fusion **out, const blend_model *model, const blend_store *store,
                             const blend_segment *segments, size_t n_segments,
                             const blend_fuse_options *options, blend_error **err);
BLEND_API void blend_fusion_close(blend_fusion *fusion);

/* ---- The account of a fuse --------------------------------------------------------------- */

#define BLEND_FUSION_UNCALIBRATED 1u /* no profile of this model was used: the ratio is a default */
#define BLEND_FUSION_UNTRUSTED 2u    /* a profile was used and does not vouch for this fuse: what it
                                        measured of this chunk prefix, metric, check layer and
                                        correction did not keep its limits at this ratio, or it
                                        measured nothing of the kind. Never with FULL */
#define BLEND_FUSION_CORRECTED 4u    /* rows that were not recomputed took the drift correction */
#define BLEND_FUSION_RATIO_CHOSEN 8u /* by the controller: BLEND_RATIO_AUTO, a machine, a known store */
#define BLEND_FUSION_EDITED 16u      /* blend_fusion_replace or _erase has changed rows since */
#define BLEND_FUSION_RESTORED 32u    /* by blend_fusion_restore: the account of its fuse is gone */
#define BLEND_FUSION_DRIFT_DOUBTED 64u /* the drift maps do not hold for this prompt: drift_share is
                                        below 0.5. What was added is scaled down accordingly; with
                                        on_untrusted FULL the prompt is prefilled in full instead, with
                                        FAIL the fuse fails, both behind its layers. Plans only say so */
#define BLEND_FUSION_TARGET_MISSED 128u /* nothing was reckoned to be done within ttft_target_ns: the
                                        soonest was chosen */
#define BLEND_FUSION_ALONE 256u      /* a chunk was found only as it is after nothing (BLEND_RECORD_ALONE):
                                        precompute it after the prompt head */
#define BLEND_FUSION_CHECKED 512u    /* the answer that is generated from it will be compared with full
                                        prefill in idle time (check_every of blend_store_options) */
#define BLEND_FUSION_EXACT 1024u     /* blend_fusion_make_exact: K and V are full prefill's now; the rest of
                                        the account is still that of the fuse */

/* Times of a batch: those of loading are the whole batch's. */
typedef struct blend_fusion_info {
  uint32_t struct_size;
  uint32_t flags; /* BLEND_FUSION_* */
  uint32_t policy;
  uint32_t metric;
  uint32_t norm;
  uint32_t relative;
  uint32_t check_layer;      /* the first */
  uint32_t n_check_layers;   /* 0: the policy chose nothing */
  uint32_t first_asked_layer; /* PROBE, CASCADE and ATTENTION ask what the question attends to at these */
  uint32_t last_asked_layer;  /* layers, mean over them; 0 and 0: the policy asks nothing beforehand */
  uint32_t n_layers;
  uint32_t ring_depth;       /* layers that could be in flight; 0: nothing was loaded */
  double ratio;              /* as asked; of check_layers their mean over the layers behind the first */

  uint64_t n_rows;           /* of the prompt */
  uint64_t n_rows_resident;  /* there before the fuse: blend_fusion_extend, blend_fusion_restore */
  uint64_t n_rows_exact;     /* reused without loss */
  uint64_t n_rows_reused;    /* rows of CHUNK segments found or precomputed, exact ones included */
  uint64_t n_rows_selected;  /* recomputed by the policy, all layers: what the last check let through */
  uint64_t n_rows_always;    /* question, new text, misses computed inline */
  uint64_t n_rows_corrected; /* not recomputed, drift correction applied; with the last check layer's
                                selection these are all reused rows that are not exact */
  uint64_t n_rows_tempered;  /* attended to with APE's temperature and scale */
  uint64_t n_rows_from_memory; /* rows of PREFIX and CHUNK segments, all that was loaded of which came
                                  from memory */
  uint64_t n_rows_from_device; /* of these: all that was needed of them was in device memory
                                  (device_bytes of blend_ctx_options) */

  uint64_t n_segments;
  uint64_t n_hits;           /* PREFIX and CHUNK segments found */
  uint64_t n_misses;
  uint64_t n_misses_queued;  /* BLEND_MISS_COMPUTE_STORE: misses computed in this pass that are
                                prefilled by themselves and stored behind it, and a first chunk that
                                is stored behind BOS too */

  uint64_t bytes_loaded;     /* K and V staged, from the store or (misses) from memory; in a batch
                                those that this prompt was the first to need */
  uint64_t bytes_from_memory; /* of bytes_loaded: from the store's ram_bytes, from chunks that were on
                                 their way to the disk, and of misses; what is neither that nor
                                 bytes_from_remote came from the disk or its page cache */
  uint64_t bytes_from_device; /* not in bytes_loaded: K and V, as if decoded, in device memory */
  uint64_t bytes_shared;     /* not in bytes_loaded: K and V that were staged anyway, for another
                                prompt of the batch or another place of the chunk */

  uint64_t ttft_ns;          /* the whole call: from entry to the logits of the last row. The sum of */
  uint64_t plan_ns;          /* ids, look-up, token comparison, */
  uint64_t miss_ns;          /* prefill of missing chunks, */
  uint64_t prepare_ns;       /* room for the rows and the ring, embedding, */
  uint64_t wait_ns;          /* compute waited for the reader, */
  uint64_t place_ns;         /* stored rows decoded, rotated and scattered, */
  uint64_t select_ns;        /* deviation and top-k, */
  uint64_t compute_ns;       /* layers and logits, and */
  uint64_t other_ns;         /* the host's callbacks, a round that a damaged chunk spoilt, and the
                                other prompts of a batch */
  uint64_t correct_ns;       /* part of place_ns: the drift maps */
  uint64_t load_ns;          /* reader thread busy: reading, checking, gathering; overlaps compute */
  uint64_t stall_ns;         /* reader thread waited for room in the ring; overlaps compute */

  uint64_t n_rows_judging;   /* recomputed rows by which the drift correction was guarded */
  double flops;              /* operations of the matrices and of attention, 2 a multiply-add, the
                                drift maps and what the policy probes included */
  double drift_share;        /* of the correction, taken: mean over K and V of the corrected layers,
                                0 .. 1; 1 where no row judged, 0 without a correction */
  uint64_t bytes_from_remote; /* of bytes_loaded: brought by a server of the remote tier */

  /* What the controller chose by, with BLEND_FUSION_RATIO_CHOSEN; 0 without. */
  uint64_t ttft_expected_ns; /* of its choice: layer by layer the longer of */
  uint64_t load_expected_ns; /* loading what it left to be loaded, all layers, and */
  uint64_t compute_expected_ns; /* computing, all layers */
  uint64_t computing_expected_ns; /* what loading nothing would have taken */
  uint64_t n_rows_sooner_computed; /* of segments that are stored, but were sooner computed than loaded:
                                      their source is BLEND_SOURCE_COMPUTED */

  uint64_t n_misses_late;    /* of n_misses: the remote tier had not answered when remote_fuse_ms were over */
} blend_fusion_info;

BLEND_API int32_t blend_fusion_get_info(const blend_fusion *fusion, blend_fusion_info *info,
                                        blend_error **err);

/* Times are since the start of the fuse; load_begin_ns == load_end_ns == 0: nothing was loaded.
 * Bytes and times are as in blend_fusion_info. */
typedef struct blend_layer_info {
  uint32_t struct_size;
  uint32_t layer;
  uint64_t rows_kv;     /* rows whose K, V were computed at this layer */
  uint64_t rows_full;   /* rows that also went through attention and the feed-forward layer */
  uint64_t rows_asked;  /* rows that were computed here before that, to see what the question attends to,
                           and computed again (PROBE, CASCADE, ATTENTION): not counted in rows_kv and
                           rows_full. At the last layer that was asked their K, V alone */
  uint64_t rows_placed; /* stored rows placed */
  uint64_t bytes_loaded;
  uint64_t bytes_from_memory;
  uint64_t bytes_shared;
  uint64_t load_begin_ns;
  uint64_t load_end_ns;
  uint64_t compute_begin_ns; /* includes wait and place */
  uint64_t compute_end_ns;
  uint64_t wait_ns;
  uint64_t place_ns;
  uint64_t select_ns;
  uint64_t stall_ns; /* the reader waited before it, for room in the ring */
  double drift_share_k; /* of the drift correction of K, taken: clip(<drift, foretold> /
                           <foretold, foretold>, 0, 1) over the recomputed rows. 0: not corrected */
  double drift_share_v; /* the same of V */
  uint64_t bytes_from_remote;
} blend_layer_info;

BLEND_API int32_t blend_fusion_get_layer(const blend_fusion *fusion, uint32_t layer,
                                         blend_layer_info *info, blend_error **err);

#define BLEND_SOURCE_NONE 0u        /* TEXT and QUESTION */
#define BLEND_SOURCE_STORE 1u       /* hit */
#define BLEND_SOURCE_PRECOMPUTED 2u /* miss, prefilled by itself, fused */
#define BLEND_SOURCE_COMPUTED 3u    /* miss, computed inline (or policy FULL) */

/* Which record of a chunk was used, the nearest to full prefill first. */
#define BLEND_RECORD_NONE 0u        /* nothing was reused */
#define BLEND_RECORD_EXACT 1u       /* prefilled after exactly what precedes it in this prompt */
#define BLEND_RECORD_PREDECESSOR 2u /* after the prompt head and the chunk before it */
#define BLEND_RECORD_CONTEXTUAL 3u  /* after the chunk prefix and context passages */
#define BLEND_RECORD_HEAD 4u        /* after the chunk prefix */
#define BLEND_RECORD_ALONE 5u       /* after nothing, in a prompt that begins with something: its first row
                                       draws attention that it should not have, and answers are lost */

typedef struct blend_segment_info {
  uint32_t struct_size;
  uint32_t kind;   /* BLEND_SEGMENT_* */
  uint32_t source; /* BLEND_SOURCE_* */
  uint32_t exact;  /* 1: reused without loss */
  uint32_t record; /* BLEND_RECORD_* */
  uint32_t reserved; /* 0 */
  uint64_t first_row;
  uint64_t n_rows;
  uint64_t n_rows_selected;
  blend_chunk_id id; /* zero for TEXT and QUESTION, and under BLEND_POLICY_FULL */
} blend_segment_info;

BLEND_API int32_t blend_fusion_get_segment(const blend_fusion *fusion, size_t segment,
                                           blend_segment_info *info, blend_error **err);

/* Rows the policy selected, ascending; [*n]. Valid while the fusion is open. */
BLEND_API int32_t blend_fusion_get_selected(const blend_fusion *fusion, const uint32_t **rows,
                                            size_t *n, blend_error **err);
/* Deviation of every prompt row at the first check layer, [*n_rows]; 0 where it was not measured
 * (exact rows, new text, policies that do not measure). Valid while the fusion is open. */
BLEND_API int32_t blend_fusion_get_deviation(const blend_fusion *fusion, const float **deviation,
                                             size_t *n_rows, blend_error **err);
/* Logits of the last row, [*n_vocab]. Valid until the next decode, generate, make_exact,
 * replace, erase or close. */
BLEND_API int32_t blend_fusion_get_logits(const blend_fusion *fusion, const float **logits,
                                          size_t *n_vocab, blend_error **err);
/* Tokens of all rows there are now, the prompt's and those appended since, [*n_rows]. Valid until
 * the next decode, generate, make_exact, replace, erase or close. */
BLEND_API int32_t blend_fusion_get_tokens(const blend_fusion *fusion, const int32_t **tokens,
                                          size_t *n_rows, blend_error **err);

/* ---- Decode and generate ----------------------------------------------------------------- */

/* Appends tokens [n_tokens] to the fusion's cache and computes the logits of the last of them.
 * `cancel` may be NULL; a cancelled or failed call leaves the fusion as it was before.
 * Errors: INVALID_ARGUMENT, CONTEXT_LENGTH (more rows than reserve_tokens left), NUMERIC,
 * CANCELLED. */
BLEND_API int32_t blend_fusion_decode(blend_fusion *fusion, const int32_t *tokens, size_t n_tokens,
                                      const blend_cancel *cancel, blend_error **err);

/* What is added to a token's logit; -INFINITY: never this token. Several of one token add up. */
typedef struct blend_token_bias {
  int32_t token;
  float bias;
} blend_token_bias;

/* Bytes, not NUL-terminated. */
typedef struct blend_text {
  const char *bytes;
  size_t n_bytes;
} blend_text;

/* Natural logarithm of a token's probability, as the model gave it: before penalties, bias, callback,
 * temperature and what cuts the tail. */
typedef struct blend_logprob {
  int32_t token;
  float logprob;
} blend_logprob;

/* May change the logits from which the next token is sampled, after penalties and bias, -INFINITY
 * included (for grammars of the host). logits: [n_vocab], valid during the call. Non-zero stops with
 * BLEND_E_CALLBACK. Called on the calling thread. */
typedef int32_t (*blend_logits_fn)(void *user, float *logits, size_t n_vocab);

/* Of a token that is about to be reported: logprobs[0] is its own, then come the top_logprobs
 * likeliest, falling, ties by the lower id. Valid during the call. Otherwise as blend_logits_fn. */
typedef int32_t (*blend_logprobs_fn)(void *user, const blend_logprob *logprobs, size_t n);

typedef struct blend_generate_options {
  uint32_t struct_size;
  uint32_t n_threads;   /* of this call; 0 (default): the fusion's, that of blend_fuse_options */
  uint32_t max_tokens;  /* default 128, at most 2^31 - 1; fewer if the reserved rows end sooner */
  uint32_t ignore_eos;  /* 1: generate past EOS */
  float temperature;    /* 0 (default): greedy, ties to the lowest id */
  float top_p;          /* 1 (default): off */
  uint32_t top_k;       /* 0 (default): off */
  uint64_t seed;        /* of the sampler; same seed, same tokens */
  const int32_t *stop_tokens; /* besides EOS */
  size_t n_stop_tokens;
  const blend_cancel *cancel;
  float min_p;          /* tokens less likely than this share of the likeliest one's probability are
                           left out; 0 (default): off */
  float repetition_penalty; /* the logit of a token that was seen is divided by it, multiplied where
                           it is negative; 1 (default): off */
  float frequency_penalty; /* taken off a logit for each time that its token was seen; 0 (default):
                           off */
  float presence_penalty; /* taken off a logit if its token was seen; 0 (default): off */
  uint32_t penalty_context; /* rows before this call whose tokens count as seen, besides those that it
                           generates; 0 (default): none, so that quoting is free */
  uint32_t top_logprobs; /* likeliest tokens that `logprobs` is told with each token; 0 (default): it
                           is not called */
  const blend_token_bias *logit_bias;
  size_t n_logit_bias;
  const blend_text *stop_texts; /* the text ends before the first of them, wherever tokens end */
  size_t n_stop_texts;
  blend_logits_fn logits;
  void *logits_user;
  blend_logprobs_fn logprobs;
  void *logprobs_user;
  uint32_t lookup_tokens; /* most tokens that are computed ahead of being sampled, in one pass with the
                           next one: those that followed an earlier place of the rows where the text
                           reads as it does now (prompt look-up). What is generated stays the same bits;
                           answers that quote their documents come sooner, others cost a little more. At
                           most 16. 0 (default): none */
  uint32_t lookup_match; /* last tokens that must read the same there; a longer match foretells as many
                           tokens as it has, at most lookup_tokens. At least 1; default 3 */
} blend_generate_options;

BLEND_API int32_t blend_generate_options_init(blend_generate_options *options, size_t struct_size);

/* A token and the text it completes: whole UTF-8 sequences, NUL-terminated (text_bytes does not
 * count the NUL); "" while a sequence is incomplete, or a stop text may have begun in it: that text
 * comes with a later token, or with token -1 (no token, not counted) if the stop token is the next.
 * Valid during the call only. */
typedef int32_t (*blend_token_fn)(void *user, int32_t token, const char *text, size_t text_bytes);

/* Generates from the fusion's logits, one callback a token, and appends what it generates to the
 * cache, so that a later call continues. The stop token is not reported. A token is reported before
 * it is appended: the one at which a callback stopped the call, a cancel caught it, or a stop text
 * was whole, is counted but not appended. A stop text counts where it lies in one call's text as a
 * whole. `fn` and `n_generated` may be NULL. Returns BLEND_OK (max_tokens or the cache's end) or
 * BLEND_STOPPED. Errors: CANCELLED, CALLBACK, NUMERIC (also: `logits` left a NaN or +infinity),
 * INVALID_ARGUMENT (also: bias and `logits` leave no token).
 * Calls on fusions of one model that run at the same time share the pass over the weights at each
 * token; what a call computes does not depend on the others to the last bit. */
BLEND_API int32_t blend_fusion_generate(blend_fusion *fusion,
                                        const blend_generate_options *options, blend_token_fn fn,
                                        void *user, size_t *n_generated, blend_error **err);

/* A second fusion with the rows, logits and account that `fusion` has now, for several answers to one
 * prompt. From here on the two are apart: each equals to the last bit what a fuse of its own and the
 * same calls would have given. K and V are shared until one of them is written to (copy-on-write, by
 * the pages of memory that hold 16 rows of a head), so that a fork costs the rows that come. The
 * first fork copies them once, to where they can be shared, and needs as much room meanwhile. A CUDA
 * device, and a host that forbids memfd_create, copies them for every fork. Any of them may be closed
 * first; each may be forked again. Errors: OUT_OF_MEMORY, FORKED. */
BLEND_API int32_t blend_fusion_fork(blend_fusion **out, blend_fusion *fusion, blend_error **err);

/* Makes a fusion exact. Call it on one from which nothing was generated; generate from a fork. K and V of all
 * rows are replaced by those of full prefill, unless BLEND_FUSION_EXACT says that they are that already. Then it
 * appends the tokens of `tokens` [n_tokens] that greedy decoding would give, and stops before the first that it
 * would not: several a pass, as draft tokens. *n_kept is how many. blend_fusion_generate at temperature 0, with no
 * penalties, bias or callback, goes on from there; what is kept and what it generates is full prefill's answer.
 *
 * So a host can show an answer at once and correct it a moment later. It forks the fusion and generates from the
 * fork. Meanwhile another thread calls this on the fusion with no tokens. Then it calls this once more with the
 * tokens that the fork gave. Where *n_kept is less than n_tokens it takes the others back, and generates on from
 * the fusion. Sampled tokens cannot be checked so: append them by blend_fusion_decode after a call with none.
 *
 * Costs a full prefill and room for a second cache meanwhile, unless nothing was reused. `n_kept` and `cancel` may be NULL.
 * A call that fails in full prefill leaves the fusion as it was; one that fails later leaves it exact, with
 * *n_kept of the tokens. Errors: INVALID_ARGUMENT, CONTEXT_LENGTH (more tokens than reserved rows), NUMERIC,
 * OUT_OF_MEMORY, CANCELLED, FORKED. */
BLEND_API int32_t blend_fusion_make_exact(blend_fusion *fusion, const int32_t *tokens, size_t n_tokens,
                                          size_t *n_kept, const blend_cancel *cancel,
                                          blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_CORE_H */
