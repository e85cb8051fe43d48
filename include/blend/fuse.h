/*
 * fuse.h - fuse the stored chunks of a prompt into one KV cache (CacheBlend).
 */
#ifndef BLEND_FUSE_H
#define BLEND_FUSE_H

#include "blend/store.h"

#ifdef __cplusplus
extern "C" {
#endif

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
  const int32_t *tokens;    /* [n_tokens]; may be NULL for a CHUNK given by id. A newline or space
                               at the end is part of a chunk: with and without it are two chunks */
  size_t n_tokens;
  const blend_chunk_id *id; /* CHUNK only; NULL: found by its tokens. With tokens as well, the
                               stored token ids must be equal. Another tenant's is a miss */
} blend_segment;

/* The choice of the rows that are recomputed. docs/fusion.md compares them. blend/experimental.h
 * has further ones, for research. */
#define BLEND_POLICY_AUTO 0u  /* what the profile chose, ATTENTION without one; HKVD where that
                                 cannot be: without a QUESTION segment, in a layerwise fuse, with
                                 check_layers, for a model of one layer, and where CASCADE meets a
                                 chunk that was stored without its rows' statistics
                                 (blend_chunk_put). The info has the one in force. Not in a union */
#define BLEND_POLICY_FULL 1u  /* full prefill: nothing reused; the reference */
#define BLEND_POLICY_REUSE 2u /* stored rows as they are (PromptCache); wrong where chunks refer to
                                 each other; the lower bound */
#define BLEND_POLICY_HKVD 3u  /* the rows of highest KV deviation at a check layer (CacheBlend
                                 4.2-4.3) */
#define BLEND_POLICY_CASCADE 12u /* a first choice by the question's attention at layer 1 lets a few
                                   rows through (0.15 of the reused rows, or twice the ratio where
                                   that is more). Layer 0 is computed for these alone, and `ratio`
                                   of all go on from check_layer, by their deviation there times how
                                   much they are read */
#define BLEND_POLICY_ATTENTION 13u /* the rows that the question attends to in the middle layers
                                   over the stored rows (L/6 .. L - L/6 - 1 of L layers), chosen
                                   before layer 0: rows that are left out are not computed at all.
                                   Needs a QUESTION segment; chunks need no statistics. The drift
                                   correction does not apply. In a layerwise fuse the host gives
                                   that attention (blend_layerwise_probe) */

#define BLEND_MISS_COMPUTE_STORE 0u /* the default: COMPUTE, and after the fuse the chunk is
                                   prefilled by itself and stored, while no call runs on the
                                   context. The next prompt finds it, unless the store is closed
                                   first (flush, or wait for its id). Where chunk_prefix is NULL,
                                   chunks that are found get better records in idle time, once two
                                   prompts have lacked them: in the context of the prompt's other
                                   chunks, and after the chunk that stands before. With a `machine`,
                                   PRECOMPUTE where that is sooner. A chunk that stands first, after
                                   BOS alone, and is not stored after that gets such a copy too
                                   (BLEND_PUT_AFTER_BOS). In a layerwise fuse it is PRECOMPUTE, or
                                   COMPUTE where the model is only described */
#define BLEND_MISS_PRECOMPUTE 1u /* prefill the chunk, store it in the background, fuse it */
#define BLEND_MISS_COMPUTE 2u    /* treat it as new text: exact, nothing is stored */
#define BLEND_MISS_FAIL 3u       /* BLEND_E_NOT_FOUND */

#define BLEND_ON_UNTRUSTED_FUSE 0u /* fuse; the info says so */
#define BLEND_ON_UNTRUSTED_FULL 1u /* as BLEND_POLICY_FULL, which the info shows; in a layerwise
                                      fuse the host computes all rows */
#define BLEND_ON_UNTRUSTED_FAIL 2u /* BLEND_E_UNTRUSTED names what is not kept, before any work */

/* The default `ratio`: it keeps a stated agreement with full prefill, `agreement_target`, by what
 * the store has seen. Answers to one fuse in check_every (blend_store_options) are compared with
 * full prefill in idle time. While nothing is known of a kind of fuse, its ratio follows from the
 * record farthest from full prefill: 0.2 for PREDECESSOR and CONTEXTUAL, 0.45 for HEAD, 0.6 for
 * ALONE (BLEND_RECORD_*). From there it moves from check to check along 0, 0.05, 0.1, 0.15, 0.2,
 * 0.3, 0.45, 0.6, 1: up when the agreement is below the target, down when it is clearly above.
 * These are shares r of prompts with 800 or more reused rows. For n < 800 rows it is 1 - (1 - r)^k
 * with k = sqrt(800 / n), since a short prompt needs more and has less time to lose. Otherwise as
 * BLEND_RATIO_AUTO, with that ratio for r*; never below what `profile` vouches for, if it measured
 * this kind of fuse. Without a store nothing is learnt. For a fuse that is the same on every day
 * give a number. */
#define BLEND_RATIO_FIDELITY (-2.0)

/* A `ratio` that the controller chooses (CacheBlend section 5.1): the largest ratio whose recompute
 * hides behind loading, but never less than r*, below which quality is not vouched for. r* is the
 * least ratio that `profile` trusts for this prefix, metric, check layer and correction (1 if it
 * measured them and trusts none), and 0.15 without a profile or for what it did not measure. Needs
 * `machine` and a store, else it is r*; with check_layers nothing is chosen. The info has the ratio
 * in force. docs/controller.md says how loading is judged. */
#define BLEND_RATIO_AUTO (-1.0)

/* How fast this machine prefills a model (blend/machine.h), and what calibration found out about
 * one (blend/profile.h). Both immutable; all functions may run concurrently. */
typedef struct blend_machine blend_machine;
typedef struct blend_profile blend_profile;

struct blend_selection_options; /* blend/experimental.h */

typedef struct blend_fuse_options {
  uint32_t struct_size;
  uint32_t n_threads;   /* of the call and, unless they say otherwise, of later calls on the fusion
                           (decode, generate, extend, replace, erase, save); of a layerwise fuse
                           for its life; of a deferred prefill (COMPUTE_STORE). 0 (default): all, in
                           blend_fusion_extend the fusion's */
  /* Which rows are recomputed, and how many. */
  uint32_t policy;      /* BLEND_POLICY_*; default AUTO */
  uint32_t on_untrusted; /* BLEND_ON_UNTRUSTED_*; default FUSE: what becomes of a fuse that would be
                           BLEND_FUSION_UNTRUSTED. Each prompt of a batch is judged by itself */
  double ratio;         /* recomputed share of the reused rows, 0 .. 1; default
                           BLEND_RATIO_FIDELITY. The question, new text and misses computed inline
                           come on top */
  double agreement_target; /* for BLEND_RATIO_FIDELITY: share of the answer tokens at which full
                           prefill would have preferred the same token, 0.5 .. 0.999; 0 (default):
                           0.98 */
  uint64_t ttft_target_ns; /* for BLEND_RATIO_AUTO with a machine: the time to first token that is
                           soon enough, counted from the call. Of the choices that are expected to
                           keep it, the one nearest to full prefill is taken; if none keeps it, the
                           soonest, and the fusion says BLEND_FUSION_TARGET_MISSED. 0 (default): the
                           soonest, and more rows recomputed only where that costs no time. No
                           choice goes below the least ratio that quality allows */
  const blend_machine *machine; /* for BLEND_RATIO_AUTO; opened with this model; may be NULL */
  const blend_profile *profile; /* of this model, opened on the same context; NULL: none, and the
                           fusion says BLEND_FUSION_UNCALIBRATED. It changes no other member,
                           which blend_profile_apply() does; metric, check layer and correction of
                           `selection` follow it where they are not set */
  const struct blend_selection_options *selection; /* how rows are chosen, in detail, for research;
                           NULL (default): its defaults. Copied */
  /* Which chunks are found, and what follows them. */
  const int32_t *chunk_prefix; /* what these chunks were precomputed after. NULL (default): the
                           prompt head, that is all tokens before the first CHUNK. Not NULL with
                           n_chunk_prefix 0: nothing, as for chunks that were prefilled alone */
  size_t n_chunk_prefix;
  const char *tenant;   /* as given to blend_precompute */
  uint32_t on_miss;     /* BLEND_MISS_*; default COMPUTE_STORE */
  uint32_t reserve_tokens; /* rows kept free after the prompt for decode; default 256, less where
                           the model's context ends sooner */
  /* The call. */
  blend_progress_fn progress; /* layers */
  void *progress_user;
  const blend_cancel *cancel;
} blend_fuse_options;

BLEND_API int32_t blend_fuse_options_init(blend_fuse_options *options, size_t struct_size);

/* Fuses `segments` (prompt order) into one KV cache and computes the logits of the last row. A
 * reader thread loads layers ahead of the compute. Row i attends to exactly the rows j <= i, so
 * ratio 1 equals full prefill to rounding. A chunk whose chunk prefix is exactly what precedes it
 * in the prompt is a prefix hit: reused without loss and never recomputed. Of a chunk's records the
 * nearest to full prefill is taken (BLEND_RECORD_*), also for a chunk that is given by its id.
 * `store` may be NULL with BLEND_POLICY_FULL or BLEND_MISS_COMPUTE, `options` for the defaults.
 * Damaged chunks are misses (and an event).
 * Errors: INVALID_ARGUMENT (names the segment), CONTEXT_LENGTH, NOT_FOUND, MISMATCH (a chunk id of
 * another model or with other tokens), IO, NUMERIC, OUT_OF_MEMORY, UNTRUSTED, CANCELLED, CALLBACK,
 * FORKED. */
BLEND_API int32_t blend_fuse(blend_fusion **out, const blend_model *model, const blend_store *store,
                             const blend_segment *segments, size_t n_segments,
                             const blend_fuse_options *options, blend_error **err);
BLEND_API void blend_fusion_close(blend_fusion *fusion);

/* ---- What became of it ------------------------------------------------------------------- */

#define BLEND_FUSION_UNCALIBRATED 1u /* no profile of this model was used: the ratio is a default */
#define BLEND_FUSION_UNTRUSTED 2u    /* a profile was used and does not vouch for this fuse: what it
                                        measured of this chunk prefix, metric, check layer and
                                        correction did not keep its limits at this ratio, or it
                                        measured nothing of the kind. Never with FULL */
#define BLEND_FUSION_CORRECTED 4u    /* rows that were not recomputed took the drift correction */
#define BLEND_FUSION_RATIO_CHOSEN 8u /* by the controller: BLEND_RATIO_AUTO, a machine, a known
                                        store */
#define BLEND_FUSION_EDITED 16u      /* blend_fusion_replace or _erase has changed rows since */
#define BLEND_FUSION_RESTORED 32u    /* by blend_fusion_restore: the report of its fuse is gone */
#define BLEND_FUSION_DRIFT_DOUBTED 64u /* the drift maps do not hold for this prompt: drift_share is
                                        below 0.5, and the correction is scaled down accordingly.
                                        With on_untrusted FULL the prompt is prefilled in full
                                        instead, with FAIL the fuse fails; both happen after the
                                        last layer. Layerwise fuses only say so */
#define BLEND_FUSION_TARGET_MISSED 128u /* no choice was expected to keep ttft_target_ns: the
                                        soonest was taken */
#define BLEND_FUSION_ALONE 256u      /* a chunk was found only as prefilled after nothing
                                        (BLEND_RECORD_ALONE): precompute it after the prompt head */
#define BLEND_FUSION_CHECKED 512u    /* the answer that is generated from it will be compared with
                                        full prefill in idle time (check_every of
                                        blend_store_options) */
#define BLEND_FUSION_EXACT 1024u     /* blend_fusion_make_exact: K and V are full prefill's now; the
                                        rest of the report is still that of the fuse */

/* The short report. blend/report.h has the whole one. */
typedef struct blend_fusion_info {
  uint32_t struct_size;
  uint32_t flags;  /* BLEND_FUSION_* */
  uint32_t policy; /* BLEND_POLICY_*: the one in force */
  uint32_t n_layers;
  double ratio;    /* as asked; of check_layers their mean over the layers after the first */
  uint64_t n_rows;          /* of the prompt */
  uint64_t n_rows_reused;   /* rows of CHUNK segments found or precomputed, prefix hits included */
  uint64_t n_rows_exact;    /* reused without loss: prefix hits */
  uint64_t n_rows_selected; /* recomputed by the policy, all layers: what the last check let
                               through */
  uint64_t n_hits;          /* PREFIX and CHUNK segments found */
  uint64_t n_misses;
  uint64_t ttft_ns;         /* the whole call: from entry to the logits of the last row */
  uint64_t wait_ns;         /* of ttft_ns: compute waited for loading */
  uint64_t bytes_loaded;    /* K and V staged, from the store or (misses) from memory; in a batch
                               those that this prompt was the first to need */
} blend_fusion_info;

BLEND_API int32_t blend_fusion_get_info(const blend_fusion *fusion, blend_fusion_info *info,
                                        blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_FUSE_H */
