/*
 * admin.h - administer a store: list and label chunks, pin and evict, quotas, repair, copies.
 * Include it after "blend/blend.h".
 */
#ifndef BLEND_ADMIN_H
#define BLEND_ADMIN_H

#include "blend/fuse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `tenant` of these calls: a name, "" for the tenant without a name (as in
 * blend_precompute_options), or NULL for all tenants' chunks. */

/* ---- What is in it ------------------------------------------------------------------------ */

typedef struct blend_chunk_info {
  uint32_t struct_size;
  uint32_t n_tokens;
  uint32_t n_prefix_tokens; /* of the chunk prefix and the predecessor it was prefilled after */
  uint32_t n_layers;
  uint32_t kv_dim;   /* n_kv_heads * head_dim, of the layers that attend */
  uint32_t kv_dtype; /* BLEND_DTYPE_F32, _F16 or _BF16 */
  uint32_t codec;    /* BLEND_CODEC_NONE .. _RANS */
  uint32_t pinned;   /* 1: pinned. 0: not pinned, or there is no usage record (n_uses is then 0
                        too) */
  uint64_t bytes;        /* of K and V, and of what other layers keep */
  uint64_t stored_bytes; /* the same, encoded */
  uint64_t n_uses;       /* hits */
  int64_t last_used_unix_s; /* put or hit; hits of other processes appear with a delay */
  int64_t created_unix_s;
  blend_chunk_id id;
  uint8_t fingerprint[32]; /* of the model */
  const char *label;       /* "": it has no label */
  const char *tags;        /* in order, one space between; "": none */
} blend_chunk_info;

/* `info` and `problem` are valid during the call only. `problem` is NULL for a sound chunk. */
typedef int32_t (*blend_chunk_fn)(void *user, const blend_chunk_info *info, const char *problem);

#define BLEND_FILTER_UNLABELLED 1u /* only chunks that have no label */

/* Which chunks are meant; with nothing set: every chunk. A text that is NULL or "" is not set. In
 * patterns `*` stands for any characters, `?` for one, and `\\` takes the next as it is. */
typedef struct blend_filter_options {
  uint32_t struct_size;
  uint32_t flags;    /* BLEND_FILTER_* */
  const char *label; /* pattern for the label, or for the part of it before the last '#', so that
                        "manual.pdf" means all its parts; any, if not given */
  const char *tags;  /* patterns with one space between, each of which must match a tag; any, if not
                        given */
  const char *model; /* first digits of the model's fingerprint, in hexadecimal; any, if not
                        given */
} blend_filter_options;

BLEND_API int32_t blend_filter_options_init(blend_filter_options *options, size_t struct_size);

/* Calls `fn` for every chunk that `filter` (NULL: all) means, in the order of their ids. `verify`
 * non-zero also reads every byte and checks it; a damaged chunk is reported with a sentence in
 * `problem` and stays in the store. Returns BLEND_E_CORRUPT after the last chunk if any was
 * damaged. A chunk with a damaged description has no known tenant, label or model: it is listed
 * only with `tenant` NULL and a filter that sets nothing. INVALID_ARGUMENT: see
 * blend_filter_options. */
BLEND_API int32_t blend_store_list(const blend_store *store, const char *tenant,
                                   const blend_filter_options *filter, int32_t verify,
                                   blend_chunk_fn fn, void *user, blend_error **err);

/* Gives a chunk a label and tags (precompute.h has the rules). NULL leaves the label, or the tags,
 * as they are; "" removes them. K and V are not written again, so it costs the same for any chunk.
 * It waits for background writes if the chunk is not on disk yet. On a remote tier the label is
 * changed in the background. Errors: INVALID_ARGUMENT, NOT_FOUND, READ_ONLY, IO, FULL. */
BLEND_API int32_t blend_store_set_label(const blend_store *store, const blend_chunk_id *id,
                                        const char *tenant, const char *label, const char *tags,
                                        blend_error **err);

/* ---- Remove, pin, evict ------------------------------------------------------------------- */

/* Errors: NOT_FOUND (no such chunk, or not the tenant's), READ_ONLY, IO. */
BLEND_API int32_t blend_store_remove(const blend_store *store, const blend_chunk_id *id,
                                     const char *tenant, blend_error **err);
/* Removes the chunks that blend_store_list shows for `filter`, pinned ones too. `fn` (may be NULL)
 * is called for every chunk before it is removed; non-zero stops, and that chunk stays. `n_removed`
 * (may be NULL) counts those removed, also when the call fails. Matching no chunk is not an error.
 * INVALID_ARGUMENT: also a filter that sets nothing ("*" as label means every chunk). READ_ONLY,
 * IO, CALLBACK. */
BLEND_API int32_t blend_store_remove_matching(const blend_store *store, const char *tenant,
                                              const blend_filter_options *filter, blend_chunk_fn fn,
                                              void *user, uint64_t *n_removed, blend_error **err);

/* `pinned` 1 keeps a chunk from being evicted and from expiring, for all processes, until `pinned`
 * 0 or until it is removed. Waits for background writes if the chunk is not on disk yet.
 * Errors: NOT_FOUND, READ_ONLY, IO. */
BLEND_API int32_t blend_store_set_pinned(const blend_store *store, const blend_chunk_id *id,
                                         int32_t pinned, blend_error **err);

/* Waits for the background writes so far. Then it evicts expired chunks, and others in the order of
 * the store's eviction (LRU if that is NEVER) until at most `target_bytes` are stored. `n_evicted`
 * may be NULL. Errors: FULL (all that is left is pinned or named by blend_store_prefetch, and more
 * than target_bytes), READ_ONLY, IO. */
BLEND_API int32_t blend_store_evict(const blend_store *store, uint64_t target_bytes,
                                    uint64_t *n_evicted, blend_error **err);

/* Names the chunks that coming prompts need, in the order of need, as a scheduler's queue has them
 * (AttentionStore section 3.3). They are read ahead into memory, up to ram_bytes. The first of
 * them, up to three quarters of the quota, are protected: a put through this handle does not evict
 * them for a chunk that is needed later or not named. Each call replaces the list of the previous
 * one; n_ids 0 removes it. `ids` [n_ids] is copied and may name chunks that are not stored. Returns
 * at once.
 * Errors: FORKED, IO. */
BLEND_API int32_t blend_store_prefetch(const blend_store *store, const blend_chunk_id *ids,
                                       size_t n_ids, blend_error **err);

/* Sets the rounding of BLEND_CODEC_RANS by layer, for chunks of the profile's model. From now until
 * the store is closed every put with that codec, by whichever call, multiplies `codec_step` by the
 * profile's layer_steps. Before the first call, and with a profile without layer_steps, all layers
 * are alike. Stored chunks and ids do not change. `store` and `profile` may be closed in any
 * order. */
BLEND_API int32_t blend_store_set_codec_profile(const blend_store *store,
                                                const blend_profile *profile, blend_error **err);

/* ---- Tenants' quotas ---------------------------------------------------------------------- */

/* Sets how much the chunks of one tenant may take. The store keeps it, and all processes obey it
 * from their next put on; a put that would exceed it evicts chunks of that tenant. 0: back to
 * tenant_quota_bytes of the options. Errors: INVALID_ARGUMENT (the tenant ""), READ_ONLY, IO. */
BLEND_API int32_t blend_store_set_tenant_quota(const blend_store *store, const char *tenant,
                                               uint64_t quota_bytes, blend_error **err);
/* How much a tenant's chunks take now, in bytes, and how much they may take (0: only the store's
 * quota). Each output may be NULL. */
BLEND_API int32_t blend_store_get_tenant_usage(const blend_store *store, const char *tenant,
                                               uint64_t *n_chunks, uint64_t *stored_bytes,
                                               uint64_t *quota_bytes, blend_error **err);

/* ---- Repair and copies --------------------------------------------------------------------- */

/* Reads and checks every byte as blend_store_list does, removes what is damaged, and counts the
 * store's usage records again. `fn` (may be NULL) is called for every chunk removed, with the
 * problem; `n_removed` may be NULL. A store whose trees are damaged cannot be opened: make a new
 * one.
 * Errors: READ_ONLY, IO, CALLBACK, CORRUPT (a chunk cannot be freed safely). */
BLEND_API int32_t blend_store_repair(const blend_store *store, blend_chunk_fn fn, void *user,
                                     uint64_t *n_removed, blend_error **err);

/* Writes a consistent copy of the store, as small as its chunks, into the directory `path`, after
 * the background writes so far; others may read and write meanwhile. Errors: INVALID_ARGUMENT
 * (there is a store in it), IO, FULL. */
BLEND_API int32_t blend_store_copy(const blend_store *store, const char *path, blend_error **err);

/* Replaces the data file of the store in the directory `path` by such a copy, atomically. Evicted
 * chunks leave free pages in the file, and nothing else shrinks it. Needs free space for the
 * copy. `bytes_before` and `bytes_after` may be NULL. Errors: BUSY (a process, this one
 * included, has the store open), NOT_FOUND, CORRUPT, IO, FULL. */
BLEND_API int32_t blend_store_compact(const char *path, uint64_t *bytes_before,
                                      uint64_t *bytes_after, blend_error **err);

/* ---- From store to store ------------------------------------------------------------------- */

#define BLEND_IMPORT_REPLACE 1u /* also chunks that are in the store already */

typedef struct blend_transfer_options {
  uint32_t struct_size;
  uint32_t flags;             /* BLEND_IMPORT_* */
  const blend_chunk_id *ids;  /* export: which chunks; NULL (default): all undamaged ones */
  size_t n_ids;
  blend_progress_fn progress; /* export: chunks; import: bytes of the file */
  void *progress_user;
  const blend_cancel *cancel;
} blend_transfer_options;

BLEND_API int32_t blend_transfer_options_init(blend_transfer_options *options, size_t struct_size);

/* Writes chunks to a file for another store: K and V decoded, with checksums, whatever the codec.
 * The file appears atomically under its name. `options` and `n_chunks` may be NULL.
 * Errors: NOT_FOUND and CORRUPT (one of `ids`), IO, FULL, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_export(const blend_store *store, const char *path,
                                     const blend_transfer_options *options, uint64_t *n_chunks,
                                     blend_error **err);
/* Puts the chunks of such a file, each checked before it is put; the store's quota holds. Ids are
 * taken on trust: import files only from sources whose chunks you would use. `n_chunks` (may be
 * NULL) counts those put, also when the call fails: they stay. Errors: NOT_FOUND, FORMAT (not such
 * a file, or truncated), MISMATCH (its version), CORRUPT, FULL, READ_ONLY, IO, CANCELLED,
 * CALLBACK. */
BLEND_API int32_t blend_store_import(const blend_store *store, const char *path,
                                     const blend_transfer_options *options, uint64_t *n_chunks,
                                     blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_ADMIN_H */
