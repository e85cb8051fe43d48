/*
 * store.h - the directory of stored chunks: options, open, flush, close.
 * blend/precompute.h fills it, blend/admin.h looks after it.
 */
#ifndef BLEND_STORE_H
#define BLEND_STORE_H

#include "blend/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* K (before RoPE) and V of every layer of each chunk, on LMDB (AttentionStore sections 3.3, 3.4.1).
 * Several processes and threads may use one directory at once, but not on a network file system.
 * After fork() the child must open the store again: calls on the inherited handle give
 * BLEND_E_FORKED. All functions take a const store, also those that write: const means that they
 * may run concurrently. */
typedef struct blend_store blend_store;

/* How the bytes of K and V are stored. The codec is not part of a chunk's id. A chunk keeps the
 * codec that it was put with; a store may hold chunks of several. docs/quality.md says what the
 * lossy ones cost. */
#define BLEND_CODEC_DEFAULT 0u /* for a store NONE, for a put the store's */
#define BLEND_CODEC_NONE 1u    /* the elements as they are */
#define BLEND_CODEC_ZSTD 2u    /* lossless: exponents compressed; 1.4 to 1.5 times smaller for bf16,
                                  1.2 for f16 and f32 */
#define BLEND_CODEC_INT8 3u    /* 8 bits: K has a scale per channel, V per token and head */
#define BLEND_CODEC_INT4 4u    /* 4 bits in groups of 32: of K along tokens, of V along channels */
#define BLEND_CODEC_RANS 5u    /* quantized with a step (codec_step), finer for rows that their
                                  chunk attends to, then entropy-coded: about 5 times smaller than
                                  16 bits. The CPU decodes it; a store with such chunks is of format
                                  version 3 */

/* How layers are read from the disk. */
#define BLEND_READ_AUTO 0u    /* the first of the others that works here, tried at open; layers that
                                 are in the page cache are taken from it */
#define BLEND_READ_URING 1u   /* io_uring past the page cache (O_DIRECT) */
#define BLEND_READ_THREADS 2u /* a few threads that read past the page cache */
#define BLEND_READ_MAPPED 3u  /* copies from the mapped file, which the kernel reads ahead */

/* Which chunk is evicted first when a put needs space. Pinned chunks never are. Chunks that
 * blend_store_prefetch named go after all others, the one needed last first; those that it protects
 * (admin.h) go only for one that is needed sooner. */
#define BLEND_EVICT_LRU 0u   /* the least recently used */
#define BLEND_EVICT_FIFO 1u  /* the one that was put first; a hit or another put of it changes
                                nothing */
#define BLEND_EVICT_REUSE 2u /* LRU, but a chunk with n hits gets log2(n) further chances */
#define BLEND_EVICT_NEVER 3u /* none: a put past the quota is BLEND_E_FULL */

#define BLEND_STORE_READ_ONLY 1u
#define BLEND_STORE_NO_CREATE 2u /* NOT_FOUND instead of making a new store */
#define BLEND_STORE_GROUP 4u     /* new files are its group's too: 0770 and 0660, not 0700 and
                                    0600 */

struct blend_remote_options; /* blend/remote.h */

typedef struct blend_store_options {
  uint32_t struct_size;
  uint32_t flags;     /* BLEND_STORE_* */
  /* How chunks are stored. */
  uint32_t kv_dtype;  /* BLEND_DTYPE_*: element type of new chunks; part of a chunk's id. Default
                         AUTO: bf16 for a bf16 model, otherwise f16 */
  uint32_t codec;     /* BLEND_CODEC_* for puts that name none. INT8, INT4 and RANS also round
                         prefixes and saved fusions. Until its background write is done, a chunk is
                         used unrounded */
  double codec_step;  /* multiplier on the quantization step of BLEND_CODEC_RANS, 0.0625 to 16.
                         Halving it costs about one bit per element and halves the error. Multiplied
                         by the layer factors of blend_store_set_codec_profile. 0 (default): 1 */
  /* What stays. */
  uint32_t eviction;  /* BLEND_EVICT_*; default LRU */
  uint32_t read_mode; /* BLEND_READ_*; one that does not work here gives UNSUPPORTED */
  uint64_t quota_bytes; /* of stored chunks; default 16 GiB. A put that would exceed it evicts
                           others, and is BLEND_E_FULL if those are pinned or protected by
                           blend_store_prefetch. The file may be larger: docs/store.md */
  uint64_t tenant_quota_bytes; /* of the chunks of each tenant but ""; 0 (default): only the store's
                           quota. blend_store_set_tenant_quota sets that of one tenant */
  uint64_t ttl_s;       /* a chunk that was not used for this many seconds is a miss, and the next
                           put removes it; pinned ones stay. 0 (default): chunks do not expire */
  uint64_t most_variants; /* copies of one text (same tokens, model, kv_dtype, tenant) kept with
                           different prefixes, besides the one with the shortest prefix. A put that
                           would exceed it evicts one that was never used, else the one used longest
                           ago; it is BLEND_E_FULL if all are pinned or the store does not evict. 0
                           (default): 16; UINT64_MAX: no bound */
  /* Memory. */
  uint64_t ram_bytes;   /* size of a cache in host memory for layers that were read and checked, or
                           put in the background: a hit there costs a copy. Fuses need their own
                           memory besides. 0 (default): none */
  uint64_t queue_bytes; /* background writes in flight; default 256 MiB. A full queue slows the
                           writer down, nothing is dropped */
  /* Self-check (blend/fidelity.h). */
  uint32_t check_every;  /* one in this many fuses that reuse stored rows is checked: while no call
                            runs on the context, its prompt and answer are prefilled in full and
                            compared. The first few fuses of a kind always are. 0 (default): 16;
                            UINT32_MAX: none */
  uint32_t check_tokens; /* answer tokens that a check compares, at most 256; 0 (default): 32 */
  const struct blend_remote_options *remote; /* a Valkey or Redis that many machines share,
                            initialised by blend_remote_options_init; NULL (default): none.
                            Copied */
} blend_store_options;

BLEND_API int32_t blend_store_options_init(blend_store_options *options, size_t struct_size);

/* Opens or creates the directory `path`. Errors: NOT_FOUND, IO, FORMAT (not a store), MISMATCH
 * (another format version), CORRUPT, INVALID_ARGUMENT; with `remote` UNSUPPORTED (TLS is not
 * installed, or the build has no remote tier) and CALLBACK. It succeeds while a server is down: its
 * chunks are misses until it answers. */
BLEND_API int32_t blend_store_open(blend_store **out, const blend_ctx *ctx, const char *path,
                                   const blend_store_options *options, blend_error **err);
/* Waits for background writes, then closes. It waits for writes to the remote tier at most drain_ms
 * of blend_remote_options and drops the rest; the log is told how many chunks, which
 * blend_store_remote_push can upload later. It also drops deferred prefills
 * (BLEND_MISS_COMPUTE_STORE), as it tells the log, and answers that wait for a check. */
BLEND_API void blend_store_close(blend_store *store);

/* Waits until every background write so far is on disk, and every deferred prefill
 * (BLEND_MISS_COMPUTE_STORE) is done. It waits for writes to the remote tier at most drain_ms of
 * blend_remote_options; the rest goes on afterwards (`queued` of blend_remote_stat). Returns the
 * first error of these writes since the last flush (the log is told of each). */
BLEND_API int32_t blend_store_flush(const blend_store *store, blend_error **err);

/* Waits for the background write of one chunk, by its id: that of blend_fusion_save, of a put with
 * BLEND_PUT_BACKGROUND, or of a fuse that missed the chunk, which includes its deferred prefill.
 * Waits `timeout_ms`, for ever if negative. BLEND_OK: it is on disk. BLEND_PENDING: not yet.
 * Otherwise the error of the write, which every call returns until the chunk is put again, or
 * NOT_FOUND: the chunk is neither stored nor being written. */
BLEND_API int32_t blend_store_wait(const blend_store *store, const blend_chunk_id *id,
                                   int64_t timeout_ms, blend_error **err);

typedef struct blend_store_stat {
  uint32_t struct_size;
  uint32_t read_mode; /* BLEND_READ_URING, _THREADS or _MAPPED: what AUTO found */
  /* Now. */
  uint64_t n_chunks;
  uint64_t n_tokens;
  uint64_t bytes;        /* of K and V */
  uint64_t stored_bytes; /* what the quota counts: as encoded, rounded up to pages */
  uint64_t quota_bytes;
  uint64_t file_bytes;   /* of the data file on disk */
  uint64_t queue_bytes;  /* background writes that are not on disk yet */
  /* Since this process opened it. */
  uint64_t hits;
  uint64_t misses;
  uint64_t damaged;      /* reads that failed their check and became misses */
  uint64_t written;      /* chunks */
  uint64_t write_errors; /* of background writes */
} blend_store_stat;

/* The figures that a host watches. blend/report.h has all of them. */
BLEND_API int32_t blend_store_get_stat(const blend_store *store, blend_store_stat *stat,
                                       blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_STORE_H */
