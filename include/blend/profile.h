/*
 * profile.h - calibrate a model: which fuses keep full prefill's answers; and verify it.
 */
#ifndef BLEND_PROFILE_H
#define BLEND_PROFILE_H

#include "blend/fuse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The share of full prefill's answers that fusing keeps depends on the model, on the chunk prefix,
 * on the recomputed share of the rows, and on whether the drift of the other rows can be predicted.
 * blend_calibrate measures that on sample prompts and writes a profile; blend_verify measures a
 * profile on other prompts.
 *
 * The drift correction: a row that is not recomputed keeps stored K and V, which lack what the row
 * would have taken from the chunks before it (its drift). At the check layer its fresh K and V are
 * known, and their difference from the stored ones predicts the drift at later layers. So at each
 * later layer l the row gets K, V + x A_l. Here x are its inputs (BLEND_DRIFT_*) and A_l, the drift
 * map, is a matrix fitted by ridge regression. A row that was left out before layer 0 (CASCADE,
 * PROBE, CONTEXT_IMPACT, FIRST_K, RANDOM) has no fresh K and V. Such rows have maps of their own,
 * whose inputs are the stored K and V of that layer and the statistics that the chunk keeps. */

/* Inputs of the drift maps. The deviation (fresh - stored K and V at the check layer, K before
 * RoPE) is always one. */
#define BLEND_DRIFT_DEVIATION 1u
#define BLEND_DRIFT_FRESH 2u    /* the fresh K and V themselves */
#define BLEND_DRIFT_CONSTANT 4u /* a constant, 1 */

/* ---- A profile ---------------------------------------------------------------------------- */

/* Opens a profile file. `path` NULL: the one beside the model, FILE.profile for a file and
 * DIRECTORY/blend.profile for a directory; with LoRA adapters another one, ".lora-" and twelve
 * digits of the model's fingerprint before ".profile". A fuse does not open it by itself, because the chunks
 * must have been precomputed with the profile's chunk prefix. Give that prefix to blend_precompute,
 * and apply the profile to the fuse (blend_profile_apply).
 * Errors: NOT_FOUND, IO, FORMAT (not a profile, or truncated), CORRUPT (its checksum fails),
 * MISMATCH (of another model or format version), NUMERIC, OUT_OF_MEMORY. */
BLEND_API int32_t blend_profile_open(blend_profile **out, const blend_model *model,
                                     const char *path, blend_error **err);
BLEND_API void blend_profile_close(blend_profile *profile);

typedef struct blend_profile_info {
  uint32_t struct_size;
  uint32_t trusted;    /* 1: `ratio` kept the limits; 0: no measured ratio did, and `ratio` is 1 */
  /* The choice. */
  uint32_t policy;     /* BLEND_POLICY_HKVD, _CASCADE or _ATTENTION */
  uint32_t metric;     /* BLEND_METRIC_* */
  uint32_t check_layer;
  uint32_t corrected;  /* 1: the drift correction is part of the choice */
  double ratio;        /* the least ratio that is trusted */
  const int32_t *chunk_prefix; /* valid while the profile is open */
  size_t n_chunk_prefix;
  /* The limits and the samples. */
  double max_kl;       /* limit of the mean KL(full || fused), nats */
  double min_top1;     /* limit of the share of positions whose likeliest token is full prefill's */
  uint64_t n_fitted;   /* sample prompts that the maps were fitted on */
  uint64_t n_measured; /* sample prompts that were measured */
  uint64_t n_measurements;
  uint8_t fingerprint[32]; /* of the model */
  /* Drift maps. */
  uint32_t kv_dtype;     /* what chunks were stored as: BLEND_DTYPE_F32, _F16 or _BF16 */
  uint32_t drift_inputs; /* BLEND_DRIFT_*; 0: the profile has no maps */
  uint32_t drift_rank;   /* 0: whole matrices */
  uint32_t stored_rank;  /* of the maps for rows left out before layer 0; 0: there are no such
                            maps */
  uint64_t drift_bytes;  /* memory the packed maps take */
  double ridge;          /* of the regression that fitted the drift maps */
  /* Rounding by layer (blend_store_set_codec_profile). */
  const float *layer_steps; /* [n_layer_steps], valid while the profile is open: factor on the
                               quantization step of BLEND_CODEC_RANS of each layer */
  size_t n_layer_steps;     /* n_layers; 0: all layers alike, and the following members are 0 */
  double steps_kl_alike;    /* mean KL(reuse of exact chunks || of rounded ones), nats, at
                               codec_step 1 with all layers alike */
  double steps_kl_split;    /* the same with these factors */
  double steps_gain_margin; /* half the 95 % interval of the difference */
  double steps_bits_alike;  /* bits an element of K and V with all layers alike */
  double steps_bits_split;  /* the same with these factors */
  uint64_t n_steps_measured; /* sample prompts of these measurements; the factors were fitted on
                                others */
  uint32_t n_contexts;       /* the most contexts that the measured chunks had
                                (blend_precompute_corpus). Not 0: a fuse with a chunk that was
                                stored without context is not trusted */
  uint32_t reserved;         /* 0 */
} blend_profile_info;

BLEND_API int32_t blend_profile_get_info(const blend_profile *profile, blend_profile_info *info,
                                         blend_error **err);

/* One line of a measured table: one way of fusing, over all measured prompts. */
typedef struct blend_measurement {
  uint32_t struct_size;
  uint32_t policy;    /* BLEND_POLICY_HKVD, _CASCADE or _ATTENTION */
  uint32_t metric;    /* BLEND_METRIC_* */
  uint32_t check_layer;
  uint32_t corrected; /* 1: with the drift correction */
  uint32_t reserved;  /* 0 */
  double ratio;
  double kl_mean; /* KL(full || fused) of the next-token distribution, nats */
  double kl_p95;
  double kl_margin;   /* half the 95 % interval of kl_mean over the prompts. Limits are kept when
                         kl_mean + kl_margin and top1 - top1_margin keep them */
  double top1;        /* share of positions whose likeliest token is full prefill's */
  double top1_margin; /* half the 95 % interval of top1 over the prompts */
  double flops;       /* as a share of full prefill's; 0: not known (a profile of an older
                         library) */
  uint64_t n_positions;
  const int32_t *chunk_prefix; /* from a profile: valid while it is open; to a callback: during
                                  it */
  size_t n_chunk_prefix;
} blend_measurement;

/* Line `index` of 0 .. n_measurements-1 of the table that the profile was chosen from. */
BLEND_API int32_t blend_profile_get_measurement(const blend_profile *profile, size_t index,
                                                blend_measurement *measurement, blend_error **err);
/* Shares of the squared drift of K and of V at `layer` that its map explains on the samples that it
 * was fitted on. Errors: NOT_FOUND (a layer without a map). */
BLEND_API int32_t blend_profile_get_drift(const blend_profile *profile, uint32_t layer, double *k,
                                          double *v, blend_error **err);

/* What storing chunks with a codec that rounds costs, beside the fuse itself. KLs are in nats,
 * means over tokens of full prefill's answers and over the prompts. */
typedef struct blend_codec_cost {
  uint32_t struct_size;
  uint32_t codec;    /* BLEND_CODEC_INT8, _INT4 or _RANS, at codec_step 1 */
  double kl;         /* KL(fused from exact chunks || from rounded ones), as the profile fuses */
  double kl_margin;  /* half its 95 % interval over the prompts */
  double kl_fuse;    /* KL(full prefill || fused from exact chunks). If `kl` is greater, the codec
                        costs more than the fuse: take one that rounds less, or ZSTD */
  double bits;       /* an element of K and V */
  uint64_t n_measured; /* sample prompts */
} blend_codec_cost;

/* NOT_FOUND for a codec that was not measured: one that is lossless, one that cannot keep a value
 * of this model, and every codec where the profile recomputes everything or is of an older
 * library. */
BLEND_API int32_t blend_profile_get_codec_cost(const blend_profile *profile, uint32_t codec,
                                               blend_codec_cost *cost, blend_error **err);

/* Sets initialised options to the profile's choice: `policy` to AUTO, which takes the profile's
 * policy if the prompt allows it; `ratio`, `chunk_prefix`, `n_chunk_prefix` and `profile`. Metric,
 * check layer and correction follow the profile unless `selection` sets them. Members that are set
 * afterwards override the profile.
 * chunk_prefix points into the profile: it must stay open as long as the options are used. Give the
 * same prefix to blend_precompute. */
BLEND_API int32_t blend_profile_apply(const blend_profile *profile, blend_fuse_options *options,
                                      blend_error **err);

/* ---- Calibrate ---------------------------------------------------------------------------- */

/* A sample prompt. Chunks must be given as tokens. */
typedef struct blend_sample {
  uint32_t struct_size; /* the same in every element of an array */
  const blend_segment *segments;
  size_t n_segments;
} blend_sample;

/* Called with each line when it has been measured. `measurement` is valid during the call only. */
typedef int32_t (*blend_measurement_fn)(void *user, const blend_measurement *measurement);

/* Token ids. A plain pair that will not grow. */
typedef struct blend_token_list {
  const int32_t *tokens;
  size_t n_tokens;
} blend_token_list;

/* A ridge that is chosen by cross-validation: maps fitted on one half of the samples are judged on
 * the other half. */
#define BLEND_RIDGE_AUTO (-1.0)

typedef struct blend_calibrate_options {
  uint32_t struct_size;
  uint32_t n_threads;    /* of the call; 0 (default): all */
  /* Limits of trust, and what is compared. */
  double max_kl;         /* default 0.02 nats */
  double min_top1;       /* default 0.95 */
  uint32_t score_tokens; /* tokens of full prefill's greedy answer that are compared; default 16 */
  uint32_t kv_dtype;     /* BLEND_DTYPE_*: what chunks are rounded to; default AUTO, as in a
                            store */
  /* What to try. */
  const blend_token_list *chunk_prefixes; /* NULL: the prompt head, if all samples have the same
                      one. Otherwise two: no prefix, and BOS if the model has one */
  size_t n_chunk_prefixes;
  const double *ratios; /* NULL: 0, 0.05, 0.1, 0.15, 0.2, 0.3 */
  size_t n_ratios;
  const uint32_t *policies; /* BLEND_POLICY_HKVD, _CASCADE, _ATTENTION; NULL: ATTENTION and HKVD, or
                      HKVD alone where a sample does not end with a question */
  size_t n_policies;
  const uint32_t *metrics; /* BLEND_METRIC_*; NULL: V_WEIGHED */
  size_t n_metrics;
  const uint32_t *check_layers; /* NULL: check_layer */
  size_t n_check_layers;
  uint32_t check_layer;  /* 1 .. n_layers-1; default 1 */
  uint32_t correction;   /* BLEND_CORRECTION_*; OFF: no drift maps are fitted */
  uint32_t drift_inputs; /* BLEND_DRIFT_*; default all three */
  uint32_t drift_rank;   /* at most; 0 (default): whole matrices */
  double ridge;          /* relative to each input's own size; default BLEND_RIDGE_AUTO */
  uint64_t step_samples; /* maximum number of samples on which the layers' rounding factors are
                            fitted, and the same number on which they are judged; default 32. 0: all
                            layers alike */
  /* The call. */
  blend_measurement_fn on_measurement;
  void *measurement_user;
  blend_progress_fn progress; /* prefills and fuses */
  void *progress_user;
  const blend_cancel *cancel;
  uint32_t n_contexts; /* 0 (default): chunks are measured as stored after the chunk prefix alone.
                          Else as blend_precompute_corpus stores them: in the context of as many of
                          the samples' chunks that are most similar */
  uint32_t reserved;   /* 0 */
} blend_calibrate_options;

BLEND_API int32_t blend_calibrate_options_init(blend_calibrate_options *options,
                                               size_t struct_size);

/* Measures every chunk prefix, check layer, policy, metric and ratio, plain and corrected, against
 * full prefill, and writes the result atomically to the file `path` (NULL: beside the model, where
 * blend_profile_open looks). Drift maps are fitted on samples 0, 2, 4, ..., and then only samples
 * 1, 3, 5, ... are measured; without drift maps all samples are.
 *   A ratio is trusted if mean KL and top-1 agreement keep the limits, each with the margin of its
 * 95 % interval, at this ratio and at every greater measured one. Each way of fusing counts at its
 * least trusted ratio. The choice is, among the ways that cost at most 1.5 times the FLOPs of the
 * cheapest, the one with the least KL.
 *   For the chosen chunk prefix it then finds the layers' rounding factors. On samples 0, 2, ... it
 * rounds one layer at a time, and measures the KL both with chunks reused as they are and with the
 * chosen way of fusing. Each layer gets a factor inverse to the root of its share of that KL. The
 * factors are kept if on samples 1, 3, ... they are better than equal factors for reuse, and not
 * worse for the chosen way, both by the 95 % interval. With fewer than 8 of those samples all
 * layers are alike.
 *   For the chosen way of fusing it measures the error that each rounding codec adds, on up to 16
 * of the measured samples (blend_profile_get_codec_cost).
 *   Takes a few prefills of the samples for every line of the table; chunks stay in memory. Returns
 * BLEND_OK, or BLEND_BELOW_LIMITS if no ratio kept the limits: the profile then says so and asks
 * for ratio 1.
 * Errors: INVALID_ARGUMENT (names the sample or option), CONTEXT_LENGTH, NUMERIC, IO (of `path`),
 * OUT_OF_MEMORY, CANCELLED, CALLBACK; nothing is written then. */
BLEND_API int32_t blend_calibrate(const blend_model *model, const blend_sample *samples,
                                  size_t n_samples, const blend_calibrate_options *options,
                                  const char *path, blend_error **err);

/* ---- Verify ------------------------------------------------------------------------------- */

typedef struct blend_verify_options {
  uint32_t struct_size;
  uint32_t n_threads;    /* of the call; 0 (default): all */
  double max_kl;         /* limits; negative (default): the profile's */
  double min_top1;       /* likewise */
  uint32_t score_tokens; /* as above; default 16 */
  uint32_t reserved;     /* 0 */
  const double *ratios;  /* besides the profile's own; NULL: 0, 0.05, 0.1, 0.15, 0.2, 0.3 */
  size_t n_ratios;
  blend_measurement_fn on_measurement;
  void *measurement_user;
  blend_progress_fn progress; /* prefills and fuses */
  void *progress_user;
  const blend_cancel *cancel;
} blend_verify_options;

BLEND_API int32_t blend_verify_options_init(blend_verify_options *options, size_t struct_size);

typedef struct blend_verdict {
  uint32_t struct_size;
  uint32_t trusted;   /* 1: at the profile's ratio these prompts keep the limits, with their
                         margins; 0 if the profile trusts no ratio */
  double ratio;       /* the profile's */
  double kl_mean;     /* at the profile's ratio */
  double top1;        /* at the profile's ratio */
  double least_ratio; /* the least measured ratio from which on all keep the limits; -1: none */
} blend_verdict;

/* Measures the profile's choice on other samples than those of the calibration. `verdict` may be
 * NULL. Returns BLEND_OK, or BLEND_BELOW_LIMITS when the limits are not kept at the profile's
 * ratio.
 * Errors: as blend_calibrate, and MISMATCH (the profile is of another model). */
BLEND_API int32_t blend_verify(const blend_model *model, const blend_profile *profile,
                               const blend_sample *samples, size_t n_samples,
                               const blend_verify_options *options, blend_verdict *verdict,
                               blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_PROFILE_H */
