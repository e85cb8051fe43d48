/*
 * remote.h - the remote tier: a Valkey or Redis server, or a cluster of them, that the stores of
 * many machines share (docs/remote.md). Below, "the server" means all of it. Include this header
 * after "blend/blend.h".
 */
#ifndef BLEND_REMOTE_H
#define BLEND_REMOTE_H

#include "blend/admin.h"
#include "blend/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options ------------------------------------------------------------------------------ */

#define BLEND_SECRET_USER 1u     /* the name of this client's user on the server */
#define BLEND_SECRET_PASSWORD 2u /* of that user */
#define BLEND_SECRET_SEAL_KEY 3u /* 32 bytes, with which values are encrypted (AES-256-GCM) before
                                    they are sent to the server */

/* Writes a secret's bytes to `out`, up to `capacity` (1024), and their number to *n_bytes; 0 bytes:
 * no such secret. Called by the thread that opens a store, before blend_store_open returns.
 * Non-zero stops it with BLEND_E_CALLBACK. */
typedef int32_t (*blend_secret_fn)(void *user, uint32_t secret, char *out, size_t capacity,
                                   size_t *n_bytes);

/* For `remote` of blend_store_options. */
typedef struct blend_remote_options {
  uint32_t struct_size;
  /* The server, and this client's identity. */
  const char *url;   /* redis://HOST:PORT, rediss:// with TLS, redis+cluster:// and
                           rediss+cluster:// with any of the cluster's nodes, separated by commas.
                           NULL: none */
  const char *space; /* first part of every key on the server; NULL: "blend" */
  const char *ca;    /* file of the certificates (PEM) that the server's certificate is checked
                           against; NULL: the system's */
  const char *certificate; /* file of this client's certificate (PEM); NULL: none */
  const char *key;   /* file of the certificate's key (PEM); NULL: none */
  blend_secret_fn secret; /* gives user, password and seal key. NULL: they come from
                           BLEND_REMOTE_USER, BLEND_REMOTE_PASSWORD and BLEND_REMOTE_SEAL_KEY (64
                           hexadecimal digits) of the environment */
  void *secret_user;
  /* Bounds. */
  uint64_t ttl_s;    /* the server deletes a chunk that was neither read nor put for this many
                           seconds; default 604800, a week. 0: no expiry, only the server's own
                           eviction */
  uint64_t bytes;    /* host memory for chunks that are being downloaded; default 1 GiB. A chunk
                           that does not fit is a miss */
  uint32_t timeout_ms; /* of one request to the server, with an answer of up to segment_bytes: the
                           longest that a fuse waits for a part of a chunk; default 1000 */
  uint32_t retry_ms; /* pause after a failure of a server; then it is tried again in the
                           background; default 5000 */
  uint32_t fuse_ms;  /* time that one fuse, or one batch, may wait for all its look-ups together. A
                           chunk that is not found by then is a miss (n_misses_late). If no answer
                           came at all, the remote tier is not asked again until retry_ms have
                           passed. At most 600000; 0 (default): half of timeout_ms */
  uint32_t drain_ms; /* how long blend_store_flush and blend_store_close each wait for uploads;
                           closing drops the rest, and the log is told how many chunks. At
                           most 600000; 0 (default): 3000 */
  uint32_t segment_bytes; /* size of the pieces in which the server keeps chunks; 65536 to 33554432,
                           default 4194304 */
  uint32_t connections; /* open at a time, each with a thread; default 4 */
} blend_remote_options;

BLEND_API int32_t blend_remote_options_init(blend_remote_options *options, size_t struct_size);

/* ---- An operator's calls ------------------------------------------------------------------ */

/* Fuses need none of these: they download missing chunks by themselves, and put chunks are uploaded
 * after the put. Errors of all: INVALID_ARGUMENT (the store has no remote tier), UNSUPPORTED
 * (the build has none, BLEND_REMOTE=OFF), IO (the server is down, too slow or refuses; the message
 * has its words), FORKED. */

/* Asks every server whether it answers and accepts this client. */
BLEND_API int32_t blend_store_remote_check(const blend_store *store, blend_error **err);
/* Uploads chunks that the server does not have: those of `ids` in the options, or all that the
 * store has. `n_chunks` (may be NULL) counts those uploaded. Errors: NOT_FOUND and CORRUPT (one of
 * `ids`), FULL, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_remote_push(const blend_store *store,
                                          const blend_transfer_options *options,
                                          uint64_t *n_chunks, blend_error **err);
/* Downloads chunks that the store does not have, up to its quota: those of `ids`, or all that the
 * server has. `n_chunks` and errors as for blend_store_remote_push. */
BLEND_API int32_t blend_store_remote_pull(const blend_store *store,
                                          const blend_transfer_options *options,
                                          uint64_t *n_chunks, blend_error **err);

/* `id` is valid during the call only; NULL if a key on the server does not contain one. `problem`
 * is NULL for a sound chunk. */
typedef int32_t (*blend_remote_fn)(void *user, const blend_chunk_id *id, const char *problem);

/* Reads and checks every byte of the chunks of `ids`, or of all that the server has, and calls `fn`
 * (may be NULL) for each. Errors: CORRUPT (after the last one, if any was damaged or incomplete),
 * CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_remote_verify(const blend_store *store,
                                            const blend_transfer_options *options,
                                            blend_remote_fn fn, void *user, blend_error **err);
/* Removes a chunk from the server; that of the store itself stays. Errors: NOT_FOUND. */
BLEND_API int32_t blend_store_remote_remove(const blend_store *store, const blend_chunk_id *id,
                                            blend_error **err);
/* Measures how fast the remote tier is from this machine. It reads a few chunks, up to some 64 MiB,
 * and writes bytes_per_s and latency_s; cost_per_gb_hour stays as it is. Fuses of this store then
 * expect that speed. It keeps the chunks that it has read, unless the store is read-only. out:
 * initialised. Thread-safe. Errors: NOT_FOUND (the server has no chunk that can be read),
 * INVALID_STRUCT. */
BLEND_API int32_t blend_store_remote_measure(const blend_store *store, blend_storage *out,
                                             blend_error **err);

/* ---- Figures ------------------------------------------------------------------------------- */

#define BLEND_REMOTE_NONE 0u      /* the store has no remote tier */
#define BLEND_REMOTE_REACHABLE 1u /* as far as is known */
#define BLEND_REMOTE_OFF 2u       /* all its servers failed; they are not asked for now */

/* Since this process opened the store; zero without a remote tier. */
typedef struct blend_remote_stat {
  uint32_t struct_size;
  uint32_t state;     /* BLEND_REMOTE_NONE, _REACHABLE or _OFF */
  uint64_t hits;      /* of the store's misses: chunks that the server had. It may evict them before
                                they are read */
  uint64_t misses;    /* look-ups that found nothing, or were not made because the server was down
                         */
  uint64_t late;      /* of misses: not answered within fuse_ms */
  uint64_t read_bytes;
  uint64_t written_bytes;
  uint64_t written;   /* chunks uploaded */
  uint64_t existing;  /* chunks not uploaded because the server had them */
  uint64_t dropped;   /* chunks not uploaded, or not downloaded, because the server was down or
                                full, or too many were waiting */
  uint64_t damaged;   /* chunks that arrived damaged or incomplete, and became misses */
  uint64_t errors;    /* requests that failed */
  uint64_t downs;     /* times that a server failed and was not asked for a while */
  uint64_t queued;    /* chunks that wait to be uploaded */
  uint64_t arriving_bytes; /* host memory of chunks that are being downloaded */
  uint64_t look_up_p50_us; /* median time of a look-up */
  uint64_t look_up_p99_us; /* 99th percentile */
  uint64_t segment_p50_us; /* median time of a segment */
  uint64_t segment_p99_us; /* 99th percentile */
  double read_bytes_per_s; /* of its segments, all connections together, smoothed; 0: none yet */
} blend_remote_stat;

BLEND_API int32_t blend_store_get_remote_stat(const blend_store *store, blend_remote_stat *stat,
                                              blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_REMOTE_H */
