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

#define BLEND_SEGMENT_PREFIX 1u   /* a system prompt: reused exactly. Before all other kinds.
                                     Each is a hit only after the same PREFIX segments */
#define BLEND_SEGMENT_CHUNK 2u    /* stored once, reused in any prompt */
#define BLEND_SEGMENT_TEXT 3u     /* new text: always computed, never stored */
#define BLEND_SEGMENT_QUESTION 4u /* always computed; must come last */

typedef struct blend_segment {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t kind;        /* BLEND_SEGMENT_* */
  const int32_t *tokens;    /* [n_tokens]; may be NULL for a CHUNK given by id. A newline or space
                               at the end is part of a chunk: with and without it are two chunks */
  size_t n_tokens;
  const blend_chunk_id *id; /* CHUNK only; NULL: found by its tokens. If tokens are given too, the
                               stored token ids must be equal. A chunk of another tenant is a
                               miss */
} blend_segment;

/* Policies: which rows are recomputed. docs/fusion.md compares them. blend/experimental.h has
 * further ones, for research. */
#define BLEND_POLICY_AUTO 0u  /* the profile's choice, or ATTENTION without a profile. HKVD instead
                                 if there is no QUESTION segment, in a layerwise fuse, with
                                 check_layers, for a model of one layer, or where a chunk lacks the
                                 statistics that the profile's CASCADE needs (blend_chunk_put). FULL
                                 for a prompt of at most 256 tokens on a GPU, with the default
                                 ratio: alone it takes no longer. The info says which is in force.
                                 Not a term of a UNION */
#define BLEND_POLICY_FULL 1u  /* full prefill: nothing reused; the reference */
#define BLEND_POLICY_REUSE 2u /* none: stored rows are used as they are (PromptCache). Cheapest; may
                                 err if chunks refer to each other */
#define BLEND_POLICY_HKVD 3u  /* the rows of highest KV deviation at a check layer (CacheBlend
                                 4.2-4.3) */
#define BLEND_POLICY_CASCADE 12u /* chooses twice. First, before layer 0, by the question's
                                   attention at layer 1: 0.15 of the reused rows, or twice `ratio`
                                   if that is more. Only these are computed up to check_layer. There
                                   it keeps `ratio` of all reused rows: those with the largest
                                   product of deviation and attention */
#define BLEND_POLICY_ATTENTION 13u /* the rows that the question attends to most in the middle
                                   layers (L/6 .. L - L/6 - 1 of L layers), judged on the stored
                                   rows before layer 0; of each chunk at least the best four, if
                                   the budget has room for so many. Other reused rows are not
                                   computed at any layer, but shifted by how far the recomputed
                                   rows of their chunk moved (BLEND_CORRECTION_SHIFT,
                                   experimental.h). Needs a
                                   QUESTION segment; chunks need no statistics. The drift maps do
                                   not apply. In a layerwise fuse the host gives that attention
                                   (blend_layerwise_probe), and no row is shifted */

#define BLEND_MISS_COMPUTE_STORE 0u /* the default: COMPUTE; later, in idle time (no call runs on
                                   the context), the chunk is prefilled after chunk_prefix and
                                   stored (a deferred prefill): the next prompt finds it. Closing
                                   the store drops it: call blend_store_flush or _wait first. With a
                                   `machine`, PRECOMPUTE if that is sooner. In a layerwise fuse
                                   PRECOMPUTE, or COMPUTE for a described model (step.h).
                                   COMPUTE_STORE also makes better records in idle time. If
                                   chunk_prefix is NULL, a chunk without a contextual record gets
                                   one over the prompt's other chunks, and a chunk that had the same
                                   text before it in two prompts gets a record after that text. One
                                   that stands first, after BOS alone, gets a copy for that place
                                   (BLEND_PUT_AFTER_BOS) */
#define BLEND_MISS_PRECOMPUTE 1u /* prefill the chunk, store it in the background, fuse it */
#define BLEND_MISS_COMPUTE 2u    /* treat it as new text: exact, nothing is stored */
#define BLEND_MISS_FAIL 3u       /* BLEND_E_NOT_FOUND */

#define BLEND_ON_UNTRUSTED_FUSE 0u /* fuse; the info says so */
#define BLEND_ON_UNTRUSTED_FULL 1u /* as BLEND_POLICY_FULL, which the info shows; in a layerwise
                                      fuse the host computes all rows */
#define BLEND_ON_UNTRUSTED_FAIL 2u /* BLEND_E_UNTRUSTED; the message says what the profile lacks */

/* The default `ratio`: the library chooses it so that fused answers keep a stated agreement with
 * full prefill, `agreement_target`. In idle time the store compares the answers of one fuse in
 * check_every (blend_store_options) with full prefill, and the ratio follows what it finds:
 *   - Before the first checks it depends on the prompt's worst record: 0.2 for PREDECESSOR and
 *     CONTEXTUAL, 0.45 for HEAD, 0.6 for ALONE (BLEND_RECORD_*, report.h).
 *   - After checks it moves along 0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 1: up if the agreement
 *     is below the target, down if it is clearly above.
 *   - These are shares r for 800 or more reused rows. A prompt with n < 800 gets more, because it
 *     loses more at the same share: r^((n - 100) / 700), and r^0.3 below 310.
 *     Checks of such prompts move an r of their own.
 *   - It is never below the least ratio that `profile` trusts.
 *   - With a machine the controller may raise it, as for BLEND_RATIO_AUTO.
 * The ratio so changes over time; give a number for fuses that are the same every day. Without a
 * store nothing is checked. */
#define BLEND_RATIO_FIDELITY (-2.0)

/* A `ratio` that the controller chooses (CacheBlend section 5.1): the largest for which recomputing
 * takes no longer than loading, which it overlaps with, but at least r*, the least ratio that
 * quality allows. r* is the least ratio that `profile` trusts for this prefix, metric, check layer
 * and correction; 1 if it measured them and trusts none; 0.15 if it did not measure them, or
 * without a profile. The controller needs `machine` and a store, otherwise the ratio is r*; with
 * check_layers it chooses nothing. The info has the ratio in force. docs/controller.md says how the
 * loading time is estimated. */
#define BLEND_RATIO_AUTO (-1.0)

/* How fast this machine prefills a model (blend/machine.h), and what calibration measured of a
 * model (blend/profile.h). Both immutable; all functions may run concurrently. */
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
  uint32_t on_untrusted; /* BLEND_ON_UNTRUSTED_*; default FUSE: what to do with a fuse that would be
                           BLEND_FUSION_UNTRUSTED. Each prompt of a batch is judged by itself */
  double ratio;         /* recomputed share of the reused rows, 0 .. 1; default
                           BLEND_RATIO_FIDELITY. The question, new text and misses are always
                           computed and do not count */
  double agreement_target; /* for BLEND_RATIO_FIDELITY: share of the answer tokens at which full
                           prefill would have preferred the same token, 0.5 .. 0.999; 0 (default):
                           0.98 */
  uint64_t ttft_target_ns; /* for BLEND_RATIO_AUTO with a machine: a time to first token, counted
                           from the call, that is soon enough. The controller takes the choice
                           nearest to full prefill that is expected to keep it. If none is, it takes
                           the soonest, and the fusion says BLEND_FUSION_TARGET_MISSED. 0 (default):
                           the soonest, with more rows recomputed only if that costs no time. No
                           choice goes below r* */
  const blend_machine *machine; /* of this model; for the ratio and on_miss; may be NULL */
  const blend_profile *profile; /* of this model, opened on the same context; NULL: none, and the
                           fusion says BLEND_FUSION_UNCALIBRATED. Metric, check layer and correction
                           follow it unless `selection` sets them. It changes no other member;
                           blend_profile_apply() does */
  const struct blend_selection_options *selection; /* how rows are chosen, in detail, for research;
                           NULL (default): its defaults. Copied */
  /* Which chunks are found, what to do about missing ones, and how many rows may follow. */
  const int32_t *chunk_prefix; /* the chunk_prefix with which these chunks were precomputed. NULL
                           (default): the prompt head, that is all tokens before the first CHUNK.
                           Not NULL with n_chunk_prefix 0: none, for chunks that were prefilled
                           alone */
  size_t n_chunk_prefix;
  const char *tenant;   /* as given to blend_precompute */
  uint32_t on_miss;     /* BLEND_MISS_*; default COMPUTE_STORE */
  uint32_t reserve_tokens; /* rows kept free after the prompt for decode; default 256, fewer if the
                           model's context ends sooner */
  /* The call. */
  blend_progress_fn progress; /* layers */
  void *progress_user;
  const blend_cancel *cancel;
} blend_fuse_options;

BLEND_API int32_t blend_fuse_options_init(blend_fuse_options *options, size_t struct_size);

/* Fuses `segments` (prompt order) into one KV cache and computes the logits of the last row. A
 * reader thread loads layers ahead of the compute. Each row attends to the rows that it sees in
 * full prefill, none of them after it, so ratio 1 equals full prefill to rounding. A chunk whose
 * chunk prefix is exactly what precedes it in the prompt is a prefix hit: reused without loss and
 * never recomputed. If the store has several records of a chunk, the fuse takes the one nearest to
 * full prefill (BLEND_RECORD_*, report.h), also for a chunk that is given by its id. `store` may be
 * NULL with BLEND_POLICY_FULL or BLEND_MISS_COMPUTE, `options` for the defaults. Damaged chunks are
 * misses (and the log is told).
 * Errors: INVALID_ARGUMENT (names the segment), CONTEXT_LENGTH, NOT_FOUND, MISMATCH (a chunk id of
 * another model or with other tokens), IO, NUMERIC, OUT_OF_MEMORY, UNTRUSTED, CANCELLED, CALLBACK,
 * FORKED. */
BLEND_API int32_t blend_fuse(blend_fusion **out, const blend_model *model, const blend_store *store,
                             const blend_segment *segments, size_t n_segments,
                             const blend_fuse_options *options, blend_error **err);
BLEND_API void blend_fusion_close(blend_fusion *fusion);

/* ---- The result -------------------------------------------------------------------------- */

#define BLEND_FUSION_UNCALIBRATED 1u /* no profile of this model was used */
#define BLEND_FUSION_UNTRUSTED 2u    /* a profile was used and does not trust this fuse. For this
                                        chunk prefix, metric, check layer and correction it measured
                                        that this ratio does not keep the profile's limits, or it
                                        measured nothing. Never with FULL */
#define BLEND_FUSION_CORRECTED 4u    /* the drift correction was applied to rows that were not
                                        recomputed */
#define BLEND_FUSION_RATIO_CHOSEN 8u /* the controller chose the ratio (BLEND_RATIO_AUTO or
                                        BLEND_RATIO_FIDELITY, with a machine and a store) */
#define BLEND_FUSION_EDITED 16u      /* blend_fusion_replace or _erase has changed rows since */
#define BLEND_FUSION_RESTORED 32u    /* made by blend_fusion_restore: no report of the fuse */
#define BLEND_FUSION_DRIFT_DOUBTED 64u /* the drift maps do not fit this prompt: drift_share is
                                        below 0.5, and the correction is scaled down accordingly.
                                        After the last layer on_untrusted acts: with FULL the prompt
                                        is prefilled in full, with FAIL the fuse fails. A layerwise
                                        fuse only sets this flag */
#define BLEND_FUSION_TARGET_MISSED 128u /* no choice was expected to keep ttft_target_ns: the
                                        soonest was taken */
#define BLEND_FUSION_ALONE 256u      /* a chunk was found only as prefilled after nothing
                                        (BLEND_RECORD_ALONE): precompute it after the prompt head */
#define BLEND_FUSION_CHECKED 512u    /* the answer that is generated from this fusion will be
                                        compared with full prefill in idle time (check_every of
                                        blend_store_options) */
#define BLEND_FUSION_EXACT 1024u     /* blend_fusion_make_exact has replaced K and V by full
                                        prefill's; the report is still that of the fuse */

/* The short report. blend/report.h has the long one. */
typedef struct blend_fusion_info {
  uint32_t struct_size;
  uint32_t flags;  /* BLEND_FUSION_* */
  uint32_t policy; /* BLEND_POLICY_*: the one in force */
  uint32_t n_layers;
  double ratio;    /* the one in force; with check_layers their mean over the layers after the
                      first */
  uint64_t n_rows;          /* of the prompt */
  uint64_t n_rows_reused;   /* rows of CHUNK segments found or precomputed, prefix hits included */
  uint64_t n_rows_exact;    /* reused without loss: prefix hits */
  uint64_t n_rows_selected; /* rows that the policy chose: recomputed in every layer (with
                               check_layers, those that passed the last) */
  uint64_t n_hits;          /* PREFIX and CHUNK segments found */
  uint64_t n_misses;
  uint64_t ttft_ns;         /* the whole call: from entry to the logits of the last row */
  uint64_t wait_ns;         /* part of ttft_ns: compute waited for loading */
  uint64_t bytes_loaded;    /* K and V read for this fuse, from the store or (misses) from memory;
                               in a batch those that this prompt was the first to need */
} blend_fusion_info;

BLEND_API int32_t blend_fusion_get_info(const blend_fusion *fusion, blend_fusion_info *info,
                                        blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_FUSE_H */
