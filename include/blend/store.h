/*
 * store.h - a store's upkeep: what is in it, what stays, copies, figures.
 */
#ifndef BLEND_STORE_H
#define BLEND_STORE_H

#include "blend/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Background writes -------------------------------------------------------------------- */

/* The background write of one chunk, by its id: that of blend_fusion_save, of a put with
 * BLEND_PUT_BACKGROUND, of a fuse that missed, its prefill included. Waits `timeout_ms`, for ever if
 * negative. BLEND_OK: it is on disk. BLEND_PENDING: not yet. Otherwise its own error (asking again
 * gives it again, until the chunk is put anew), or NOT_FOUND: the chunk is neither stored nor on its
 * way. */
BLEND_API int32_t blend_store_wait(const blend_store *store, const blend_chunk_id *id,
                                   int64_t timeout_ms, blend_error **err);

/* ---- Chunks ------------------------------------------------------------------------------- */

typedef struct blend_chunk_info {
  uint32_t struct_size;
  uint32_t n_tokens;
  uint32_t n_prefix_tokens; /* of the chunk prefix it was prefilled after */
  uint32_t n_layers;
  uint32_t kv_dim;   /* n_kv_heads * head_dim */
  uint32_t kv_dtype; /* BLEND_DTYPE_F32, _F16 or _BF16 */
  uint32_t codec;    /* BLEND_CODEC_NONE .. _RANS */
  uint32_t pinned;   /* 1: it is not evicted. 0, as the uses, when nothing is known of it */
  uint64_t bytes;        /* of K and V */
  uint64_t stored_bytes; /* of K and V, encoded */
  uint64_t n_uses;       /* hits */
  int64_t last_used_unix_s; /* put or hit; other processes' hits show after a while */
  int64_t created_unix_s;
  blend_chunk_id id;
  uint8_t fingerprint[32]; /* of the model */
  const char *label;       /* what it is called; "": it has no label */
  const char *tags;        /* in order, one space between; "": none */
} blend_chunk_info;

/* `info` and `problem` are valid during the call only. `problem` is NULL for a sound chunk. */
typedef int32_t (*blend_chunk_fn)(void *user, const blend_chunk_info *info, const char *problem);

/* Calls `fn` for every chunk of `tenant` (as in blend_precompute_options: "" is the one without a
 * name), in the order of their ids; NULL: of all tenants. `verify` non-zero also reads every byte
 * and checks it; a damaged chunk is reported with a sentence in `problem` and stays in the store.
 * Returns BLEND_E_CORRUPT after the last chunk if any was damaged. Whose a chunk is whose description
 * is damaged is not known: only NULL shows it. */
BLEND_API int32_t blend_store_list(const blend_store *store, const char *tenant, int32_t verify,
                                   blend_chunk_fn fn, void *user, blend_error **err);
/* What a chunk is called from now on (core.h has the rules). NULL leaves the label, or the tags, as they
 * are; "" removes them. The rows are not touched, so it costs the same for any chunk; waits for background
 * writes if it is on its way to the disk. With a remote tier the name there follows, in the background.
 * `tenant` NULL: whoever's chunk it is. Errors: INVALID_ARGUMENT, NOT_FOUND, READ_ONLY, IO, FULL. */
BLEND_API int32_t blend_store_set_label(const blend_store *store, const blend_chunk_id *id,
                                        const char *tenant, const char *label, const char *tags,
                                        blend_error **err);

#define BLEND_FILTER_UNLABELLED 1u /* only chunks that have no label */

/* Which chunks are meant; all zero: every chunk. A text that is NULL or "" is not given. In patterns `*` stands for any characters, `?` for one, and
 * `\\` takes the next as it is. */
typedef struct blend_filter_options {
  uint32_t struct_size;
  uint32_t flags;    /* BLEND_FILTER_* */
  const char *label; /* pattern of the label, or of what stands in it before the last '#': "manual.pdf" means all
                        parts of it; any, if not given */
  const char *tags;  /* patterns with one space between, each of which must fit a tag; any, if not given */
  const char *model; /* first digits of the model's fingerprint, in hexadecimal; any, if not given */
} blend_filter_options;

/* As blend_store_list, of the chunks that `filter` (may be NULL) means. A chunk whose description is damaged
 * tells neither label nor model: only a filter that says nothing shows it. INVALID_ARGUMENT: see the members. */
BLEND_API int32_t blend_store_list_matching(const blend_store *store, const char *tenant,
                                            const blend_filter_options *filter, int32_t verify,
                                            blend_chunk_fn fn, void *user, blend_error **err);
/* Removes the chunks that blend_store_list_matching shows, pinned ones too. `fn` (may be NULL) is called for
 * every chunk before it goes; non-zero stops, and the chunk stays. `n_removed` (may be NULL) counts those
 * removed, also when the call fails. INVALID_ARGUMENT: also a filter that says nothing ("*" as label means
 * every chunk). NOT_FOUND is none: it may be that nothing fits. READ_ONLY, IO, CALLBACK. */
BLEND_API int32_t blend_store_remove_matching(const blend_store *store, const char *tenant,
                                              const blend_filter_options *filter, blend_chunk_fn fn,
                                              void *user, uint64_t *n_removed, blend_error **err);
/* `tenant` NULL: whoever's chunk it is. Errors: NOT_FOUND (no such chunk, or not the tenant's),
 * READ_ONLY, IO. */
BLEND_API int32_t blend_store_remove(const blend_store *store, const blend_chunk_id *id,
                                     const char *tenant, blend_error **err);

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
 * section 3.3). They are read ahead into memory, as far as ram_bytes go. The first of them, up to
 * three quarters of the quota, are protected: a put through this handle does not evict one for a
 * chunk that is needed later or not hinted at. A hint replaces the one before; n_ids 0 ends it.
 * `ids` [n_ids] is copied and may hold ids that are not stored. Returns at once. Errors: FORKED,
 * IO. */
BLEND_API int32_t blend_store_hint(const blend_store *store, const blend_chunk_id *ids,
                                   size_t n_ids, blend_error **err);

/* ---- Quotas, repair, copies ---------------------------------------------------------------- */

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

/* ---- From store to store ------------------------------------------------------------------- */

#define BLEND_IMPORT_REPLACE 1u /* also chunks that are in the store already */

/* All zero: the defaults. */
typedef struct blend_transfer_options {
  uint32_t struct_size;
  uint32_t flags;             /* BLEND_IMPORT_* */
  const blend_chunk_id *ids;  /* export: which; NULL (default): all that are sound */
  size_t n_ids;
  blend_progress_fn progress; /* export: chunks; import: bytes of the file */
  void *progress_user;
  const blend_cancel *cancel;
} blend_transfer_options;

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

/* ---- The remote tier ------------------------------------------------------------------------ */

/* What a store with `remote` in its options does there on an operator's word. Fuses need none of it: what
 * they miss comes by itself, and what is put goes up behind the put. Errors of all: INVALID_ARGUMENT (the
 * store has no remote tier), IO (a server is down, too slow or refuses; the message has its words),
 * FORKED. */

/* Asks every server whether it answers, and takes us. */
BLEND_API int32_t blend_store_check_remote(const blend_store *store, blend_error **err);
/* Puts chunks there that it does not have: those of `ids` in the options, or all that the store has.
 * `n_chunks` (may be NULL) counts those put. Errors: NOT_FOUND and CORRUPT (one of `ids`), FULL,
 * CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_push(const blend_store *store, const blend_transfer_options *options,
                                   uint64_t *n_chunks, blend_error **err);
/* Brings chunks from there that the store does not have, as far as its quota goes: those of `ids`, or
 * all that are there. Likewise. */
BLEND_API int32_t blend_store_pull(const blend_store *store, const blend_transfer_options *options,
                                   uint64_t *n_chunks, blend_error **err);

/* `id` is valid during the call only; NULL where a key there does not tell it. `problem` is NULL for a
 * sound chunk. */
typedef int32_t (*blend_remote_fn)(void *user, const blend_chunk_id *id, const char *problem);

/* Reads and checks every byte of those of `ids`, or of all that are there, and calls `fn` (may be NULL)
 * for each. CORRUPT after the last if any was damaged or not whole; CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_verify_remote(const blend_store *store,
                                            const blend_transfer_options *options,
                                            blend_remote_fn fn, void *user, blend_error **err);
/* Removes a chunk there; that of the store itself stays. Errors: NOT_FOUND. */
BLEND_API int32_t blend_store_remove_remote(const blend_store *store, const blend_chunk_id *id,
                                            blend_error **err);

/* ---- Figures ------------------------------------------------------------------------------- */

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
  uint64_t pinned_chunks;
  uint64_t pinned_bytes;
  uint64_t ram_chunks;   /* of which layers are held in memory */
  uint64_t ram_bytes;
  uint64_t ram_budget_bytes;
  int64_t oldest_use_unix_s; /* the last use of the chunk that is next to go, and of the last one to */
  int64_t newest_use_unix_s; /* go; 0: every chunk is pinned or there is none */
  /* Since this process opened it. */
  uint64_t hits;
  uint64_t ram_hits;     /* of `hits`: served from memory */
  uint64_t misses;
  uint64_t damaged;      /* reads that failed their check and became misses */
  uint64_t written;      /* chunks */
  uint64_t write_errors; /* of background writes */
  uint64_t prefetched_chunks; /* read ahead by hints */
  double read_bytes_per_s; /* of the layers that fuses have read through this handle, smoothed; 0:
                              none yet */
  /* Of all processes since the store was made; hits and misses are written in batches, so a little
   * behind. */
  uint64_t total_ram_hits;
  uint64_t total_disk_hits;
  uint64_t total_misses;
  uint64_t evicted_chunks; /* expired ones included */
  uint64_t evicted_bytes;
  uint64_t expired_chunks;
  /* Of the remote tier since this process opened the store; zero without one. */
  uint64_t remote_hits;      /* of `misses`: chunks found there, though they may go before they are read */
  uint64_t remote_misses;    /* look-ups there that found nothing, or were not made: it was down */
  uint64_t remote_read_bytes;
  uint64_t remote_written_bytes;
  uint64_t remote_written;   /* chunks put there */
  uint64_t remote_existing;  /* chunks that were to be put and were there already */
  uint64_t remote_dropped;   /* chunks that were not put, or not fetched: it was down or full, or too many
                                waited */
  uint64_t remote_damaged;   /* chunks there that were damaged, or not whole, and became misses */
  uint64_t remote_errors;    /* requests that failed */
  uint64_t remote_downs;     /* times that a server was left alone for a while */
  uint64_t remote_queued;    /* chunks that are still to be put there */
  uint64_t remote_arriving_bytes; /* host memory of chunks on their way from there */
  uint64_t remote_look_up_p50_us; /* how long look-ups took: half of them at most so long */
  uint64_t remote_look_up_p99_us; /* 99 of 100 of them */
  uint64_t remote_segment_p50_us; /* how long segments took: half of them at most so long */
  uint64_t remote_segment_p99_us; /* 99 of 100 of them */
  double remote_read_bytes_per_s; /* of its segments, all connections together, smoothed; 0: none yet */
  uint64_t remote_state;     /* BLEND_REMOTE_NONE, _REACHABLE or _OFF */
  /* Chunks of one text behind different prefixes: the one behind the fewest tokens is its plain record,
   * the others are variants. Now; all 0 while the store has chunks: not known before it is opened for
   * writing, for a build that counts no texts wrote it. */
  uint64_t n_texts;
  uint64_t varied_texts;     /* of n_texts: those that have variants */
  uint64_t n_variants;
  uint64_t variant_bytes;    /* of stored_bytes */
  uint64_t variant_hits;     /* of `hits`: took the chunk that is stored behind what precedes it */
  uint64_t total_variant_hits; /* the same of all processes since the store was made; written in batches */
  /* Answers compared with full prefill (check_every), since this handle was opened. */
  uint64_t checks_done;
  uint64_t checks_dropped;   /* too many waited, or the prefill failed */
  uint64_t checks_queued;    /* answers that wait for idle time now */
  uint64_t remote_late;      /* of remote_misses: not answered when remote_fuse_ms were over */
} blend_store_stat;

#define BLEND_REMOTE_NONE 0u      /* the store has no remote tier */
#define BLEND_REMOTE_REACHABLE 1u /* as far as is known */
#define BLEND_REMOTE_OFF 2u       /* what fails is left alone: all its servers are down */

BLEND_API int32_t blend_store_get_stat(const blend_store *store, blend_store_stat *stat,
                                       blend_error **err);

typedef struct blend_codec_stat {
  uint32_t struct_size;
  uint32_t codec;        /* BLEND_CODEC_NONE .. _RANS */
  uint64_t n_chunks;     /* stored with it */
  uint64_t bytes;        /* of their K and V */
  uint64_t stored_bytes; /* the same encoded; bytes / stored_bytes is the codec's ratio here */
} blend_codec_stat;

/* Errors: INVALID_ARGUMENT (not one of BLEND_CODEC_NONE .. _RANS), IO, FORKED. */
BLEND_API int32_t blend_store_get_codec_stat(const blend_store *store, uint32_t codec,
                                             blend_codec_stat *stat, blend_error **err);

#define BLEND_PROMETHEUS_COUNTER 1u /* only grows while the store is open; otherwise a gauge */

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
BLEND_API int32_t blend_store_get_metrics(const blend_store *store, const char *name, char *text,
                                      size_t capacity, size_t *n_bytes, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_STORE_H */
