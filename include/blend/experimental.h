/*
 * experimental.h - how rows are chosen, in detail: for research and for reproducing papers. Any
 * release may change these declarations. Define BLEND_EXPERIMENTAL before "blend/blend.h".
 */
#ifndef BLEND_EXPERIMENTAL_H
#define BLEND_EXPERIMENTAL_H

#include "blend/fuse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Research policies ------------------------------------------------------------------- */

#define BLEND_POLICY_FIRST_K 4u /* the first rows of every chunk, the budget split over the chunks
                                   by their rows (EPIC's LegoLink). Measures nothing */
#define BLEND_POLICY_RANDOM 5u  /* any rows, by `seed`: the control. Measures nothing */
#define BLEND_POLICY_QUESTION 6u /* deviation times the attention that the question puts on the row
                                    at the check layer; the prompt needs a QUESTION segment */
#define BLEND_POLICY_CALLBACK 7u /* the rows to which `score` gives the largest scores */
#define BLEND_POLICY_UNION 8u    /* `terms`: several of the others, each with its share */
#define BLEND_POLICY_CONTEXT_IMPACT 9u /* the rows that attended most to the text before their chunk
                                   and were attended to most inside it, when the chunk was
                                   precomputed. These statistics are stored with the chunk
                                   (Cache-Craft). Measures nothing; NOT_FOUND names a chunk without
                                   statistics */
#define BLEND_POLICY_APE 10u     /* nothing is recomputed; attention to rows of chunks is changed by
                                   `ape_temperature` and `ape_scale` (Adaptive Parallel Encoding).
                                   In a union this applies to the rows that the other terms do not
                                   recompute */
#define BLEND_POLICY_PROBE 11u   /* scores rows before layer 0: the question's attention at layer 1
                                   over the stored K and V, times how much each row depended on
                                   preceding text when it was precomputed. Rows that are left out
                                   are not computed at all. Needs a QUESTION segment, and chunks
                                   with the statistics of CONTEXT_IMPACT. In a layerwise fuse the
                                   host gives that attention (blend_layerwise_probe) */

/* ---- Deviation --------------------------------------------------------------------------- */

/* How a row's deviation is measured. Bits 1 and 2 choose V and K. Bit 4 weighs it: the root of the
 * sum is multiplied by the attention that the row got from the rows of its chunk when that was
 * precomputed, so it estimates the error that other rows read. (The chunk stores this statistic;
 * without it, after blend_chunk_put, its rows count as attended to evenly.) Only HKVD and QUESTION
 * weigh, other policies take the sum; QUESTION weighs by the root of this attention times the
 * question's. */
#define BLEND_METRIC_AUTO 0u /* the profile's; V_WEIGHED without one */
#define BLEND_METRIC_V 1u  /* sum over kv_dim of (V_fresh - V_stored)^2 */
#define BLEND_METRIC_K 2u  /* the same of K */
#define BLEND_METRIC_KV 3u /* their sum */
#define BLEND_METRIC_V_WEIGHED 5u
#define BLEND_METRIC_K_WEIGHED 6u
#define BLEND_METRIC_KV_WEIGHED 7u

#define BLEND_NORM_L2 0u /* squares are summed, as above (the paper's deviation) */
#define BLEND_NORM_L1 1u /* magnitudes are summed */

/* How rows that are not recomputed are corrected: by the drift maps of a profile (blend/profile.h),
 * or by the shift of chunks. The shift takes the differences between the recomputed rows of a chunk
 * and what is stored of them, K and V, at every layer after the first. It adds a weighted mean of
 * them to the chunk's other rows (docs/fusion.md, "The shift of chunks"). */
#define BLEND_CORRECTION_AUTO 0u /* SHIFT with ATTENTION; with other policies the drift maps, if the
                                    profile says so */
#define BLEND_CORRECTION_OFF 1u  /* rows that are not recomputed keep their stored K, V */
#define BLEND_CORRECTION_ON 2u   /* also if the profile chose none; INVALID_ARGUMENT if it has no
                                    maps */
#define BLEND_CORRECTION_UNGUARDED 3u /* ON, without the guard. The guard (AUTO and ON) compares the
                                    maps' predictions with the recomputed rows, and scales each
                                    layer's correction by the share that is confirmed: on text
                                    unlike the samples the maps would do harm */
#define BLEND_CORRECTION_SHIFT 4u /* the shift of chunks, and no maps. Only ATTENTION, alone or in a
                                    union, has it; with other policies, in a layerwise fuse and for
                                    a model with latent attention (MLA) this is OFF */

/* ---- Selection --------------------------------------------------------------------------- */

/* A layer at which rows are chosen, and the share of the reused rows that goes on after it. A plain
 * pair that will not grow. */
typedef struct blend_check_layer {
  uint32_t layer;
  double ratio; /* 0 .. 1 */
} blend_check_layer;

/* One policy of a union. A plain pair that will not grow. */
typedef struct blend_policy_term {
  uint32_t policy; /* BLEND_POLICY_HKVD .. _ATTENTION, except UNION. HKVD, QUESTION and CALLBACK
                      cannot be combined with PROBE, CASCADE or ATTENTION, which choose before layer
                      0; nor ATTENTION with PROBE or CASCADE, which look at other layers */
  double share;    /* of the budget, relative to the other terms' shares; more than 0. The share of
                      APE is ignored, because it recomputes no rows */
} blend_policy_term;

/* Scores of the candidate rows at a check layer: those with the largest go on, ties to the earlier
 * row. `rows` are token positions, ascending; `deviation` is as measured at `layer`; `scores`
 * begins as a copy of it. All [n], valid during the call only. A NaN fails the fuse with
 * INVALID_ARGUMENT. Called once a check layer, again if a damaged chunk makes the fuse start over,
 * and once a layer for each CALLBACK term of a union. */
typedef int32_t (*blend_score_fn)(void *user, uint32_t layer, const uint32_t *rows,
                                  const float *deviation, size_t n, float *scores);

typedef struct blend_selection_options {
  uint32_t struct_size;
  uint32_t metric;      /* BLEND_METRIC_*; default AUTO */
  uint32_t norm;        /* BLEND_NORM_*; default L2 */
  uint32_t relative;    /* 1: a deviation is divided by the stored row's own sum in that norm */
  uint32_t check_layer; /* where deviations are measured, 1 .. n_layers-1; 0 (default): the
                           profile's, 1 without one. Where not all layers attend, the fuse
                           takes the first layer from there on that attends and knows of rows
                           far away: after another that attends, or one with states. FIRST_K,
                           RANDOM and CONTEXT_IMPACT measure nothing and choose before layer 0
                           whatever this is; with check_layers they can choose later */
  uint32_t correction;  /* BLEND_CORRECTION_*; default AUTO. It corrects the rows of chunks that are
                           not recomputed, at the layers after the profile's check layer. That must
                           be the first check layer of this fuse, and the chunk prefix must be the
                           profile's; otherwise AUTO corrects nothing and ON is an error */
  const blend_check_layer *check_layers; /* gradual filtering (CacheBlend 4.3, figure 9): rows are
                           chosen at several layers, each time among those of the layer before.
                           Layers rise, ratios do not. A row keeps its fresh K, V up to the layer
                           that drops it. NULL: one check layer, of check_layer and ratio. Layer 0
                           means before that layer, for FIRST_K, RANDOM and CONTEXT_IMPACT only.
                           With CASCADE the first is 0 */
  size_t n_check_layers;
  const blend_policy_term *terms; /* UNION: 1 to 16. They choose in this order, each among the rows
                           that the earlier ones left, so the budget is met exactly */
  size_t n_terms;
  blend_score_fn score; /* CALLBACK */
  void *score_user;
  uint64_t seed;        /* of RANDOM: same seed, same rows */
  double ape_temperature; /* APE: attention scores of the rows concerned are divided by it, at most
                           100; 0 (default): 0.9 */
  double ape_scale;     /* APE: multiplies the logarithm of the sum of these rows' exponentials,
                           which decides how much attention they get in total, at most 100; 0
                           (default): 0.9. Both 1: plain attention. Decoded rows attend in the same
                           way. If a fusion is extended, the latest fuse with APE sets both for all
                           such rows. A fusion with APE cannot be saved, and a layerwise fuse
                           cannot use it */
} blend_selection_options;

BLEND_API int32_t blend_selection_options_init(blend_selection_options *options,
                                               size_t struct_size);

/* A schedule for gradual filtering: `*n` check layers from `first_layer` on, evenly spaced over the
 * layers after it, with ratios that fall from about 1.5 `ratio` to 0.5 `ratio` and have the mean
 * `ratio` over those layers. On entry *n is how many are wanted, and `out` has that many elements;
 * on return it may be fewer, if the model has fewer layers. Errors: INVALID_ARGUMENT. */
BLEND_API int32_t blend_model_default_check_layers(const blend_model *model, double ratio,
                                                   uint32_t first_layer, blend_check_layer *out,
                                                   size_t *n, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_EXPERIMENTAL_H */
