/*
 * report.h - the full reports of a fuse and of a store. Include it after "blend/blend.h".
 */
#ifndef BLEND_REPORT_H
#define BLEND_REPORT_H

#include "blend/fuse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A fuse ------------------------------------------------------------------------------ */

/* In a batch, loading times are those of the whole batch. */
typedef struct blend_fusion_report {
  uint32_t struct_size;
  uint32_t flags; /* BLEND_FUSION_* */
  /* The choices. */
  uint32_t policy;           /* BLEND_POLICY_*: the one in force */
  uint32_t metric;           /* BLEND_METRIC_* */
  uint32_t norm;             /* BLEND_NORM_* */
  uint32_t relative;
  uint32_t check_layer;      /* the first */
  uint32_t n_check_layers;   /* 0: the policy chose no rows */
  uint32_t first_asked_layer; /* PROBE, CASCADE and ATTENTION rank rows by the question's attention,
                                 mean over the layers from this one */
  uint32_t last_asked_layer;  /* the last of these layers; 0 and 0: the policy does not look at that
                                 attention */
  uint32_t n_layers;
  uint32_t ring_depth;       /* layers that could be in flight; 0: nothing was loaded */
  double ratio;              /* the one in force; with check_layers their mean over the layers after
                                the first */
  /* Rows. */
  uint64_t n_rows;           /* of the prompt */
  uint64_t n_rows_resident;  /* past: in the cache before this fuse (blend_fusion_extend,
                                blend_fusion_restore) */
  uint64_t n_rows_exact;     /* reused without loss: prefix hits */
  uint64_t n_rows_reused;    /* rows of CHUNK segments found or precomputed, prefix hits included */
  uint64_t n_rows_selected;  /* rows that the policy chose: recomputed in every layer (with
                                check_layers, those that passed the last) */
  uint64_t n_rows_always;    /* question, new text, misses computed inline */
  uint64_t n_rows_corrected; /* not recomputed, drift correction applied. If it is not 0,
                                n_rows_selected + n_rows_corrected = n_rows_reused - n_rows_exact */
  uint64_t n_rows_judging;   /* recomputed rows on which the drift correction was checked */
  uint64_t n_rows_shifted;   /* not recomputed, shifted by what the recomputed rows of their chunk
                                moved by (BLEND_CORRECTION_SHIFT) */
  uint64_t n_rows_tempered;  /* attended to with APE's temperature and scale */
  uint64_t n_rows_from_memory; /* rows of those PREFIX and CHUNK segments that were loaded from
                                  memory alone */
  uint64_t n_rows_from_device; /* of these: rows that were in device memory and not loaded
                                  (device_bytes of blend_ctx_options) */
  uint64_t n_rows_sooner_computed; /* rows of stored segments that were computed because that was
                                  sooner than loading: their source is BLEND_SOURCE_COMPUTED */
  /* Segments. */
  uint64_t n_segments;
  uint64_t n_hits;           /* PREFIX and CHUNK segments found */
  uint64_t n_misses;
  uint64_t n_misses_late;    /* of n_misses: the remote tier did not answer within fuse_ms */
  uint64_t n_misses_queued;  /* BLEND_MISS_COMPUTE_STORE: deferred prefills that this fuse has
                                queued, for its misses and for a first chunk that gets a copy after
                                BOS */
  /* Bytes of K and V. */
  uint64_t bytes_loaded;     /* read for this fuse, from the store or (misses) from memory; in a
                                batch those that this prompt was the first to need */
  uint64_t bytes_from_memory; /* of bytes_loaded: from the store's memory (ram_bytes), from chunks
                                 that were not on disk yet, and of misses. The remainder, without
                                 bytes_from_remote, came from the disk or its page cache */
  uint64_t bytes_from_remote; /* of bytes_loaded: from the remote tier */
  uint64_t bytes_from_device; /* not in bytes_loaded: decoded size of K and V that were in device
                                 memory */
  uint64_t bytes_shared;     /* not in bytes_loaded: K and V that had been loaded for another prompt
                                of the batch, or for another occurrence of the chunk */
  /* Times. ttft_ns is the sum of the eight after it. */
  uint64_t ttft_ns;          /* the whole call: from entry to the logits of the last row */
  uint64_t plan_ns;          /* ids, look-up, token comparison */
  uint64_t miss_ns;          /* prefill of missing chunks */
  uint64_t prepare_ns;       /* memory for the rows and the ring, embedding */
  uint64_t wait_ns;          /* compute waited for the reader */
  uint64_t place_ns;         /* stored rows decoded, rotated and scattered */
  uint64_t select_ns;        /* deviation and top-k */
  uint64_t compute_ns;       /* layers and logits */
  uint64_t other_ns;         /* the host's callbacks, a pass that a damaged chunk made void, and the
                                other prompts of a batch */
  uint64_t correct_ns;       /* part of place_ns: the drift maps */
  uint64_t load_ns;          /* reader thread busy: reading, checking, gathering; overlaps
                                compute */
  uint64_t stall_ns;         /* reader thread waited for a free slot of the ring; overlaps
                                compute */
  double flops;              /* operations of matrix products and attention, 2 a multiply-add,
                                including drift maps and the rows that the policy computes to
                                choose */
  double drift_share;        /* applied share of the drift correction: mean over K and V of the
                                corrected layers, 0 .. 1. 1 if n_rows_judging is 0; 0 without a
                                correction */
  /* The controller's estimates, with BLEND_FUSION_RATIO_CHOSEN; otherwise 0. */
  uint64_t ttft_expected_ns; /* for its choice: the sum over the layers of the longer of load and
                                compute */
  uint64_t load_expected_ns; /* loading, all layers */
  uint64_t compute_expected_ns; /* computing, all layers */
  uint64_t computing_expected_ns; /* if everything were computed and nothing loaded */
} blend_fusion_report;

BLEND_API int32_t blend_fusion_get_report(const blend_fusion *fusion, blend_fusion_report *report,
                                          blend_error **err);

/* Times are since the start of the fuse; load_begin_ns == load_end_ns == 0: nothing was loaded.
 * Bytes and times are as in blend_fusion_report. */
typedef struct blend_layer_info {
  uint32_t struct_size;
  uint32_t layer;
  uint64_t rows_kv;     /* rows whose K, V were computed at this layer */
  uint64_t rows_full;   /* rows that also went through attention and the feed-forward layer */
  uint64_t rows_asked;  /* rows that PROBE, CASCADE or ATTENTION computed here beforehand, to see
                           what the question attends to; they were computed again and are not
                           counted in rows_kv and rows_full. At last_asked_layer only their K, V */
  uint64_t rows_placed; /* stored rows scattered into the cache */
  uint64_t bytes_loaded;
  uint64_t bytes_from_memory;
  uint64_t bytes_from_remote;
  uint64_t bytes_shared;
  uint64_t load_begin_ns;
  uint64_t load_end_ns;
  uint64_t compute_begin_ns; /* includes wait and place */
  uint64_t compute_end_ns;
  uint64_t wait_ns;
  uint64_t place_ns;
  uint64_t select_ns;
  uint64_t stall_ns; /* the reader waited for a free slot of the ring before it read this layer */
  double drift_share_k; /* applied share of the drift correction of K: clip(<drift, predicted> /
                           <predicted, predicted>, 0, 1) over the recomputed rows. 0: not
                           corrected */
  double drift_share_v; /* the same of V */
} blend_layer_info;

BLEND_API int32_t blend_fusion_get_layer(const blend_fusion *fusion, uint32_t layer,
                                         blend_layer_info *info, blend_error **err);

#define BLEND_SOURCE_NONE 0u        /* TEXT and QUESTION */
#define BLEND_SOURCE_STORE 1u       /* hit */
#define BLEND_SOURCE_PRECOMPUTED 2u /* miss, prefilled after chunk_prefix, then fused */
#define BLEND_SOURCE_COMPUTED 3u    /* miss, computed inline; or any chunk under policy FULL; or a
                                       hit that is computed because that is sooner than loading */

/* Which record of a chunk was used, the nearest to full prefill first. */
#define BLEND_RECORD_NONE 0u        /* nothing was reused */
#define BLEND_RECORD_EXACT 1u       /* prefilled after exactly what precedes it in this prompt */
#define BLEND_RECORD_PREDECESSOR 2u /* prefilled after the prompt head and the chunk before it,
                                       perhaps with other texts before that one */
#define BLEND_RECORD_CONTEXTUAL 3u  /* prefilled after the chunk prefix and context passages */
#define BLEND_RECORD_HEAD 4u        /* prefilled after the chunk prefix */
#define BLEND_RECORD_ALONE 5u       /* prefilled after nothing, although the prompt has a head: its
                                       first row is an attention sink, which it should not be, and
                                       many answers are wrong (docs/quality.md) */

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

/* Rows the policy selected, ascending; [*n]. Valid until the next extend, replace, erase or
 * close. */
BLEND_API int32_t blend_fusion_get_selected(const blend_fusion *fusion, const uint32_t **rows,
                                            size_t *n, blend_error **err);
/* Deviation of every prompt row at the first check layer, [*n_rows]; 0 where it was not measured
 * (prefix hits, new text, policies that do not measure). Valid until the next extend, replace,
 * erase or close. */
BLEND_API int32_t blend_fusion_get_deviation(const blend_fusion *fusion, const float **deviation,
                                             size_t *n_rows, blend_error **err);

/* ---- A store ----------------------------------------------------------------------------- */

typedef struct blend_store_report {
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
  uint64_t ram_chunks;   /* chunks with layers in memory */
  uint64_t ram_bytes;
  uint64_t ram_budget_bytes;
  int64_t oldest_use_unix_s; /* last use of the first chunk in eviction order; 0: every chunk is
                                pinned or there is none */
  int64_t newest_use_unix_s; /* last use of the last chunk in eviction order; likewise 0 */
  /* Copies of one text with different prefixes: the one with the shortest prefix is its plain
   * record, the others are variants. If all are 0 although the store has chunks, an older build
   * wrote it; opening it for writing counts them. */
  uint64_t n_texts;
  uint64_t varied_texts;     /* of n_texts: those that have variants */
  uint64_t n_variants;
  uint64_t variant_bytes;    /* of stored_bytes */
  /* Since this process opened it. */
  uint64_t hits;
  uint64_t ram_hits;     /* of `hits`: served from memory */
  uint64_t variant_hits; /* of `hits`: a copy was used that was stored for exactly what precedes the
                            chunk */
  uint64_t misses;
  uint64_t damaged;      /* reads that failed their check and became misses */
  uint64_t written;      /* chunks */
  uint64_t write_errors; /* of background writes */
  uint64_t prefetched_chunks; /* read ahead by blend_store_prefetch */
  double read_bytes_per_s; /* of the layers that fuses have read through this handle, smoothed; 0:
                              none yet */
  uint64_t checks_done;      /* answers compared with full prefill (check_every) */
  uint64_t checks_dropped;   /* too many waited, or the prefill failed */
  uint64_t checks_queued;    /* answers that wait for idle time now */
  /* All processes together, since the store was made. Hits and misses are written in batches, so
   * these figures lag a little. */
  uint64_t total_ram_hits;
  uint64_t total_disk_hits;
  uint64_t total_variant_hits;
  uint64_t total_misses;
  uint64_t evicted_chunks; /* expired ones included */
  uint64_t evicted_bytes;
  uint64_t expired_chunks;
} blend_store_report;

BLEND_API int32_t blend_store_get_report(const blend_store *store, blend_store_report *report,
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

/* Calls `fn` for every figure of the store and its remote tier, for a host's own metrics system.
 * Figures of one name come together. */
BLEND_API int32_t blend_store_list_metrics(const blend_store *store, blend_metric_fn fn, void *user,
                                           blend_error **err);
/* The same as the text that Prometheus scrapes (exposition format 0.0.4), each line with the label
 * store="`name`"; NULL is "". Writes up to `capacity` bytes and a NUL if it fits, and the text's
 * length to *n_bytes. Errors: BUFFER_TOO_SMALL (call again with *n_bytes + 1; figures may have
 * grown meanwhile). */
BLEND_API int32_t blend_store_get_metrics(const blend_store *store, const char *name, char *text,
                                          size_t capacity, size_t *n_bytes, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_REPORT_H */
