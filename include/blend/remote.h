/*
 * remote.h - the remote tier: a Valkey or Redis that the stores of many machines share
 * (docs/remote.md). Include it after "blend/blend.h".
 */
#ifndef BLEND_REMOTE_H
#define BLEND_REMOTE_H

#include "blend/admin.h"
#include "blend/machine.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options ------------------------------------------------------------------------------ */

#define BLEND_SECRET_USER 1u     /* the user that the server knows this client as */
#define BLEND_SECRET_PASSWORD 2u /* of that user */
#define BLEND_SECRET_SEAL_KEY 3u /* 32 bytes: values there are encrypted with them (AES-256-GCM) */

/* Writes a secret's bytes to `out`, up to `capacity` (1024), and their number to *n_bytes; 0 bytes:
 * there is none. Called by the thread that opens a store, before blend_store_open returns. Non-zero
 * stops it with BLEND_E_CALLBACK. */
typedef int32_t (*blend_secret_fn)(void *user, uint32_t secret, char *out, size_t capacity,
                                   size_t *n_bytes);

/* For `remote` of blend_store_options. */
typedef struct blend_remote_options {
  uint32_t struct_size;
  /* Where it is, and who this is. */
  const char *url;   /* redis://HOST:PORT, rediss:// with TLS, redis+cluster:// and
                           rediss+cluster:// with any of the cluster's nodes, separated by commas.
                           NULL: none */
  const char *space; /* in front of every key there; NULL: "blend" */
  const char *ca;    /* file of the certificates (PEM) that a server's is checked by; NULL: the
                           system's */
  const char *certificate; /* file of this client's certificate (PEM); NULL: none */
  const char *key;   /* file of the certificate's key (PEM); NULL: none */
  blend_secret_fn secret; /* gives user, password and seal key. NULL: they come from
                           BLEND_REMOTE_USER, BLEND_REMOTE_PASSWORD and BLEND_REMOTE_SEAL_KEY (64
                           hexadecimal digits) of the environment */
  void *secret_user;
  /* Bounds. */
  uint64_t ttl_s;    /* a chunk there that was neither read nor put for this many seconds is gone;
                           default 604800, a week. 0: the server alone decides */
  uint64_t bytes;    /* host memory for chunks that are on their way from there; default 1 GiB.
                           What does not fit is a miss */
  uint32_t timeout_ms; /* of one request to a server, up to segment_bytes of answer included: the
                           longest that a fuse waits for a part of a chunk; default 1000 */
  uint32_t retry_ms; /* a server that failed is left alone for this long, then tried in the
                           background; default 5000 */
  uint32_t fuse_ms;  /* what one fuse, or one batch, may wait for all its look-ups there
                           together; what is not found by then is a miss (n_misses_late). Where no
                           answer came at all the tier is left alone for retry_ms. At most
                           600000; 0 (default): half of timeout_ms */
  uint32_t drain_ms; /* how long blend_store_flush and blend_store_close each wait for what still
                           goes up; closing gives up the rest, and an event says how many chunks. At
                           most 600000; 0 (default): 3000 */
  uint32_t segment_bytes; /* size of the pieces that chunks are cut into there; 65536 to 33554432,
                           default 4194304 */
  uint32_t connections; /* at work at a time, each with a thread; default 4 */
} blend_remote_options;

BLEND_API int32_t blend_remote_options_init(blend_remote_options *options, size_t struct_size);

/* ---- An operator's calls ------------------------------------------------------------------ */

/* Fuses need none of these: what they miss comes by itself, and what is put goes up after the put.
 * Errors of all: INVALID_ARGUMENT (the store has no remote tier), UNSUPPORTED (nor has this build,
 * BLEND_REMOTE=OFF), IO (a server is down, too slow or refuses; the message has its words),
 * FORKED. */

/* Asks every server whether it answers, and accepts this client. */
BLEND_API int32_t blend_store_remote_check(const blend_store *store, blend_error **err);
/* Puts chunks there that it does not have: those of `ids` in the options, or all that the store
 * has. `n_chunks` (may be NULL) counts those put. Errors: NOT_FOUND and CORRUPT (one of `ids`),
 * FULL, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_remote_push(const blend_store *store,
                                          const blend_transfer_options *options,
                                          uint64_t *n_chunks, blend_error **err);
/* Brings chunks from there that the store does not have, as far as its quota goes: those of `ids`,
 * or all that are there. Likewise. */
BLEND_API int32_t blend_store_remote_pull(const blend_store *store,
                                          const blend_transfer_options *options,
                                          uint64_t *n_chunks, blend_error **err);

/* `id` is valid during the call only; NULL where a key there does not tell it. `problem` is NULL
 * for a sound chunk. */
typedef int32_t (*blend_remote_fn)(void *user, const blend_chunk_id *id, const char *problem);

/* Reads and checks every byte of those of `ids`, or of all that are there, and calls `fn` (may be
 * NULL) for each. CORRUPT after the last if any was damaged or not whole; CANCELLED, CALLBACK. */
BLEND_API int32_t blend_store_remote_verify(const blend_store *store,
                                            const blend_transfer_options *options,
                                            blend_remote_fn fn, void *user, blend_error **err);
/* Removes a chunk there; that of the store itself stays. Errors: NOT_FOUND. */
BLEND_API int32_t blend_store_remote_remove(const blend_store *store, const blend_chunk_id *id,
                                            blend_error **err);
/* How fast the remote tier is from here: reads a few chunks of it, up to some 64 MiB, and writes
 * bytes_per_s and latency_s; cost_per_gb_hour stays as it is. From then on fuses of this store
 * expect loading from there to take that long. What was read is kept unless the store is read-only.
 * out: initialised. Thread-safe. Errors: NOT_FOUND (nothing there yet that can be read),
 * INVALID_STRUCT. */
BLEND_API int32_t blend_store_remote_measure(const blend_store *store, blend_storage *out,
                                             blend_error **err);

/* ---- Figures ------------------------------------------------------------------------------- */

#define BLEND_REMOTE_NONE 0u      /* the store has no remote tier */
#define BLEND_REMOTE_REACHABLE 1u /* as far as is known */
#define BLEND_REMOTE_OFF 2u       /* all its servers are down and left alone */

/* Since this process opened the store; zero without a remote tier. */
typedef struct blend_remote_stat {
  uint32_t struct_size;
  uint32_t state;     /* BLEND_REMOTE_NONE, _REACHABLE or _OFF */
  uint64_t hits;      /* of the store's misses: chunks found there, though they may go before they
                                are read */
  uint64_t misses;    /* look-ups there that found nothing, or were not made: it was down */
  uint64_t late;      /* of misses: not answered when fuse_ms were over */
  uint64_t read_bytes;
  uint64_t written_bytes;
  uint64_t written;   /* chunks put there */
  uint64_t existing;  /* chunks that were to be put and were there already */
  uint64_t dropped;   /* chunks that were not put, or not fetched: it was down or full, or too many
                                waited */
  uint64_t damaged;   /* chunks there that were damaged, or not whole, and became misses */
  uint64_t errors;    /* requests that failed */
  uint64_t downs;     /* times that a server was left alone for a while */
  uint64_t queued;    /* chunks that are still to be put there */
  uint64_t arriving_bytes; /* host memory of chunks on their way from there */
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
