/*
 * calibrate.h - what fusing costs: a model's profile, a machine's measurement, advice.
 */
#ifndef BLEND_CALIBRATE_H
#define BLEND_CALIBRATE_H

#include "blend/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Calibration ------------------------------------------------------------------------- */

/* How well fusing keeps full prefill's answers depends on the model: on what its chunks are
 * prefilled after, on the share of rows that is recomputed, and on whether the drift of the other
 * rows can be predicted. blend_calibrate measures that on sample prompts and writes a profile;
 * blend_verify measures a profile on other prompts.
 *
 * The drift correction: a row that is not recomputed keeps stored K and V, which lack what the row
 * would have taken from the chunks before it. At the check layer its fresh K and V are known, and
 * what they differ by there predicts what the stored ones lack later: such a row takes
 * K, V + x A_l at each later layer l, x its inputs (BLEND_DRIFT_*) and A_l a matrix fitted by ridge
 * regression. A row that was left out before layer 0 (CASCADE, PROBE, CONTEXT_IMPACT, FIRST_K, RANDOM)
 * has no fresh K and V at all: maps of its own take its stored K and V of that layer and the
 * statistics that its chunk keeps. */

/* Inputs of the drift maps. The deviation (fresh - stored K and V at the check layer, K before RoPE)
 * is always one. */
#define BLEND_DRIFT_DEVIATION 1u
#define BLEND_DRIFT_FRESH 2u    /* the fresh K and V themselves */
#define BLEND_DRIFT_CONSTANT 4u /* 1 */

/* Opens a profile file. `path` NULL: the one that lies beside the model, FILE.profile of a file and
 * DIRECTORY/blend.profile of a directory. A fuse does not open it by itself, because the chunks must
 * have been precomputed with its chunk prefix: open it, and apply it to both.
 * Errors: NOT_FOUND, IO, FORMAT (not a profile, or truncated), CORRUPT (its checksum fails), MISMATCH
 * (of another model or format version), NUMERIC, OUT_OF_MEMORY. */
BLEND_API int32_t blend_profile_open(blend_profile **out, const blend_model *model,
                                     const char *path, blend_error **err);
BLEND_API void blend_profile_close(blend_profile *profile);

typedef struct blend_profile_info {
  uint32_t struct_size;
  uint32_t trusted;    /* 1: `ratio` kept the limits; 0: no measured ratio did, and `ratio` is 1 */
  uint32_t metric;     /* BLEND_METRIC_*, chosen */
  uint32_t check_layer;
  uint32_t corrected;    /* 1: the drift correction is part of the choice */
  uint32_t drift_inputs; /* BLEND_DRIFT_*; 0: the profile has no maps */
  uint32_t drift_rank;   /* 0: whole matrices */
  uint32_t kv_dtype;     /* what chunks were stored as: BLEND_DTYPE_F32, _F16 or _BF16 */
  double ratio;        /* the least trusted one */
  double max_kl;       /* limits: mean KL(full || fused), nats, */
  double min_top1;     /* and share of positions whose likeliest token is full prefill's */
  const int32_t *chunk_prefix; /* chosen; valid while the profile is open */
  size_t n_chunk_prefix;
  uint64_t drift_bytes;  /* memory the packed maps take */
  uint64_t n_fitted;     /* sample prompts that the maps were fitted on */
  uint64_t n_measured;   /* sample prompts that were measured */
  uint64_t n_measurements;
  uint8_t fingerprint[32]; /* of the model */
  uint32_t policy;       /* BLEND_POLICY_HKVD, _CASCADE or _ATTENTION, chosen */
  uint32_t stored_rank;  /* of the maps of rows that were left out before layer 0; 0: it has none */
  double ridge;          /* that the drift maps were fitted with */
  const float *layer_steps; /* [n_layer_steps], valid while the profile is open: how much coarser or finer than
                               others BLEND_CODEC_RANS is to round each layer (blend_store_use_profile) */
  size_t n_layer_steps;     /* n_layers; 0: all layers alike, and what follows is 0 */
  double steps_kl_alike;    /* mean KL(reuse of exact chunks || of rounded ones) at codec_step 1, nats, */
  double steps_kl_split;    /* all layers alike, and with these steps; */
  double steps_gain_margin; /* half the 95 % interval of the difference; */
  double steps_bits_alike;  /* and bits an element of K and V: all layers alike, */
  double steps_bits_split;  /* and with these steps */
  uint64_t n_steps_measured; /* sample prompts, other than those that the steps were fitted on */
} blend_profile_info;

BLEND_API int32_t blend_profile_get_info(const blend_profile *profile, blend_profile_info *info,
                                         blend_error **err);

/* One line of a measured table: one kind of fusing over all measured prompts. */
typedef struct blend_measurement {
  uint32_t struct_size;
  uint32_t metric;    /* BLEND_METRIC_* */
  uint32_t corrected; /* 1: with the drift correction */
  double ratio;
  double kl_mean; /* KL(full || fused) of the next-token distribution, nats */
  double kl_p95;
  double top1; /* share of positions whose likeliest token is full prefill's */
  uint64_t n_positions;
  const int32_t *chunk_prefix; /* from a profile: valid while it is open; to a callback: during it */
  size_t n_chunk_prefix;
  uint32_t policy;      /* BLEND_POLICY_HKVD, _CASCADE or _ATTENTION */
  uint32_t check_layer;
  double kl_margin;     /* half the 95 % intervals of kl_mean and top1 over the prompts: limits are */
  double top1_margin;   /* kept when kl_mean + kl_margin and top1 - top1_margin keep them */
  double flops;         /* of full prefill's; 0: not known (a profile of an older library) */
} blend_measurement;

/* Line `index` of 0 .. n_measurements-1 of the table that the profile was chosen from. */
BLEND_API int32_t blend_profile_get_measurement(const blend_profile *profile, size_t index,
                                                blend_measurement *measurement, blend_error **err);
/* Shares of the squared drift of K and of V at `layer` that its map took away where it was fitted.
 * NOT_FOUND for a layer without a map. */
BLEND_API int32_t blend_profile_get_drift(const blend_profile *profile, uint32_t layer, double *k,
                                          double *v, blend_error **err);

/* Sets policy (AUTO: the profile's, where it can be), metric, check_layer, ratio, chunk_prefix, n_chunk_prefix, correction (AUTO) and
 * profile of initialised options; members set afterwards hold against the profile. chunk_prefix
 * points into the profile: it must stay open as long as the options are used. Give the same prefix to
 * blend_precompute. */
BLEND_API int32_t blend_profile_apply(const blend_profile *profile, blend_fuse_options *options,
                                      blend_error **err);

/* Has the store round the chunks of the profile's model as the profile says: those that are put from here on with
 * BLEND_CODEC_RANS, by whichever call, have `codec_step` times the profile's layer_steps. For as long as
 * the store is open; a profile without layer_steps, and every store at first, takes all layers alike. Which
 * chunks there are and what their ids are does not change, nor who may read them. `store` and `profile` may be closed
 * in any order. */
BLEND_API int32_t blend_store_use_profile(const blend_store *store, const blend_profile *profile,
                                          blend_error **err);

/* A sample prompt. Chunks must be given as tokens. */
typedef struct blend_sample {
  uint32_t struct_size; /* the same in every element of an array */
  const blend_segment *segments;
  size_t n_segments;
} blend_sample;

/* A line as it is measured. `measurement` is valid during the call only. */
typedef int32_t (*blend_measurement_fn)(void *user, const blend_measurement *measurement);

/* Token ids. A plain pair that will not grow. */
typedef struct blend_token_list {
  const int32_t *tokens;
  size_t n_tokens;
} blend_token_list;

/* A ridge that is chosen by cross-validation: maps fitted on one half of the fitted samples, held
 * against the other. */
#define BLEND_RIDGE_AUTO (-1.0)

typedef struct blend_calibrate_options {
  uint32_t struct_size;
  uint32_t n_threads;    /* of the call; 0 (default): all */
  uint32_t check_layer;  /* 1 .. n_layers-1; default 1 */
  uint32_t kv_dtype;     /* BLEND_DTYPE_*: what chunks are rounded to; default AUTO, as in a store */
  uint32_t score_tokens; /* tokens of full prefill's greedy answer that are compared; default 16 */
  uint32_t correction;   /* BLEND_CORRECTION_*; OFF: no drift maps are fitted */
  uint32_t drift_inputs; /* BLEND_DRIFT_*; default all three */
  uint32_t drift_rank;   /* at most; 0 (default): whole matrices */
  double ridge;          /* of each input's own power; default BLEND_RIDGE_AUTO */
  double max_kl;         /* limits of trust; default 0.02 nats */
  double min_top1;       /* default 0.95 */
  const blend_token_list *chunk_prefixes; /* that are tried; NULL: the prompt head, if all samples
                      have the same, else nothing, and BOS where the model has one */
  size_t n_chunk_prefixes;
  const uint32_t *metrics; /* BLEND_METRIC_*; NULL: V_WEIGHED */
  size_t n_metrics;
  const double *ratios; /* NULL: 0, 0.05, 0.1, 0.15, 0.2, 0.3 */
  size_t n_ratios;
  blend_measurement_fn on_measurement;
  void *measurement_user;
  blend_progress_fn progress; /* prefills and fuses */
  void *progress_user;
  const blend_cancel *cancel;
  const uint32_t *policies; /* that are measured: BLEND_POLICY_HKVD, _CASCADE, _ATTENTION; NULL: ATTENTION and
                               HKVD, or HKVD alone where a sample does not end with a question */
  size_t n_policies;
  const uint32_t *check_layers; /* that are tried; NULL: check_layer */
  size_t n_check_layers;
  uint64_t step_samples; /* that the layers' steps are fitted on, and as many others that they are judged on, at
                            most; default 32. 0: all layers alike */
} blend_calibrate_options;

BLEND_API int32_t blend_calibrate_options_init(blend_calibrate_options *options,
                                               size_t struct_size);

/* Measures every chunk prefix, check layer, policy, metric and ratio, plain and corrected, against
 * full prefill, and writes what it finds to the file `path` (NULL: beside the model, where blend_profile_open looks),
 * atomically. With the correction its maps are fitted on
 * samples 0, 2, 4, ... and everything is measured on samples 1, 3, 5, ...; without it on all. A ratio
 * is trusted when mean KL and top-1 agreement keep the limits, each with the margin of its 95 %
 * interval, there and at every greater measured ratio. Chosen is the kind of fusing whose least
 * trusted ratio costs the fewest FLOPs; of those that cost at most half as much again the one with
 * the least KL. For the chunk prefix that was chosen it finds the layers' steps: rounds one layer at a time on
 * samples 0, 2, ..., reused as they are and fused as was chosen, and gives each a step inverse to the root of its share of
 * the KL in both. They are kept where, on samples 1, 3, ..., they are better than all layers alike at reuse by the 95 %
 * interval, and not worse by it as was chosen; with fewer than 8 of those all layers are alike. Takes as long as some
 * prefills of the samples for every line of the table; chunks stay in memory. Returns BLEND_OK, or BLEND_UNTRUSTED when
 * no ratio kept the limits: the profile then says so and asks for ratio 1.
 * Errors: INVALID_ARGUMENT (names the sample or option), CONTEXT_LENGTH, NUMERIC, IO (of `path`),
 * OUT_OF_MEMORY, CANCELLED, CALLBACK; nothing is written then. */
BLEND_API int32_t blend_calibrate(const blend_model *model, const blend_sample *samples,
                                  size_t n_samples, const blend_calibrate_options *options,
                                  const char *path, blend_error **err);

typedef struct blend_verify_options {
  uint32_t struct_size;
  uint32_t n_threads;    /* of the call; 0 (default): all */
  uint32_t score_tokens; /* as above; default 16 */
  double max_kl;         /* limits; negative (default): the profile's */
  double min_top1;       /* likewise */
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
  uint32_t trusted;   /* 1: at the profile's ratio these prompts keep the limits, with their margins */
  double ratio;       /* the profile's */
  double kl_mean;     /* there */
  double top1;        /* there */
  double least_ratio; /* of those measured, from which on all keep the limits; -1: none */
} blend_verdict;

/* Measures the profile's choice on samples that it was not made from. `verdict` may be NULL. Returns
 * BLEND_OK, or BLEND_UNTRUSTED when the limits are not kept at the profile's ratio. Errors: as
 * blend_calibrate, and MISMATCH (the profile is of another model). */
BLEND_API int32_t blend_verify(const blend_model *model, const blend_profile *profile,
                               const blend_sample *samples, size_t n_samples,
                               const blend_verify_options *options, blend_verdict *verdict,
                               blend_error **err);

/* ---- Check layers ------------------------------------------------------------------------ */

/* A schedule for gradual filtering: `*n` check layers from `first_layer` on, evenly spaced over the
 * layers behind it, with ratios that fall from about 1.5 `ratio` to 0.5 `ratio` and have the mean
 * `ratio` over those layers. On entry *n is how many are wanted and `out` [*n] has room; fewer where
 * the model has fewer layers. Errors: INVALID_ARGUMENT. */
BLEND_API int32_t blend_model_falling_check_layers(const blend_model *model, double ratio,
                                                   uint32_t first_layer, blend_check_layer *out,
                                                   size_t *n, blend_error **err);

/* ---- Controller: what recomputing and loading cost ---------------------------------------- */

#define BLEND_MACHINE_MEASURE 1u /* measure anew, whatever the file holds */

/* All zero: the defaults. */
typedef struct blend_machine_options {
  uint32_t struct_size;
  uint32_t flags;      /* BLEND_MACHINE_* */
  uint32_t n_threads;  /* that are timed; 0: all. For fuses with n_threads: theirs */
  uint64_t max_tokens; /* longest prefill that is timed, at most the context; longer ones are
                          extrapolated. 0: 1024 */
  blend_progress_fn progress; /* prefills */
  void *progress_user;
  const blend_cancel *cancel;
} blend_machine_options;

/* Takes the measurement that the file `path` holds, if it is of this CPU, number of threads and
 * model (returns BLEND_EXISTS); otherwise measures in a few prefills, best on an idle machine, and
 * writes the file (BLEND_OK). A damaged file is replaced. `path` may be NULL: nothing is kept. One
 * file holds one measurement; beside the store's directory is a good place.
 * Errors: INVALID_ARGUMENT, IO (the file cannot be written), OUT_OF_MEMORY, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_machine_open(blend_machine **out, const blend_model *model,
                                     const char *path, const blend_machine_options *options,
                                     blend_error **err);
BLEND_API void blend_machine_close(blend_machine *machine);

typedef struct blend_machine_info {
  uint32_t struct_size;
  uint32_t n_threads;
  uint64_t n_points; /* lengths that were measured */
  int64_t measured_unix_s;
  const char *cpu; /* valid while the machine is open */
} blend_machine_info;

BLEND_API int32_t blend_machine_get_info(const blend_machine *machine, blend_machine_info *info,
                                         blend_error **err);
/* One measured length, point < n_points, ascending. */
BLEND_API int32_t blend_machine_get_point(const blend_machine *machine, uint64_t point,
                                          uint64_t *n_tokens, uint64_t *prefill_ns,
                                          blend_error **err);
/* T_recompute(r, model, L) = r * Prefill(model, L): ratio 1 is the whole prefill. Errors:
 * INVALID_ARGUMENT (a ratio outside [0, 1]). */
BLEND_API int32_t blend_machine_get_recompute_ns(const blend_machine *machine, uint64_t n_tokens,
                                             double ratio, uint64_t *ns, blend_error **err);

/* A place where chunks could be stored. */
typedef struct blend_storage {
  uint32_t struct_size; /* the same in every element of an array */
  double bytes_per_s;      /* reading; > 0 */
  double cost_per_gb_hour; /* of 1e9 bytes, in any currency; >= 0 */
  double latency_s;        /* before the first byte comes; >= 0, default 0 */
} blend_storage;

typedef struct blend_advise_options {
  uint32_t struct_size;
  uint32_t check_layer; /* layers before it are computed for all rows and not loaded; default 1, 0 is
                           the paper's formula */
  uint32_t kv_dtype;    /* BLEND_DTYPE_* of the store; default AUTO */
  uint64_t n_tokens;    /* of the prompt's chunks; default 4096 */
  double ratio;         /* 0 .. 1; default 0.15 */
  uint32_t codec;       /* BLEND_CODEC_* that the chunks are stored with; 0 (default): NONE. Of one whose
                           length hangs on the content the most that it may take */
  uint32_t chunk_tokens; /* of one chunk, which a codec's steps are shared by; 0 (default): 512 */
} blend_advise_options;

BLEND_API int32_t blend_advise_options_init(blend_advise_options *options, size_t struct_size);

#define BLEND_ADVICE_NO_DELAY 1u /* loading hides behind recomputing at the ratio asked for */
#define BLEND_ADVICE_CHEAPEST 2u /* the cheapest of those; ties go to the faster, then the first */
#define BLEND_ADVICE_SLOWER_THAN_PREFILL 4u /* loading takes longer than computing all anew */

typedef struct blend_advice {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t flags;       /* BLEND_ADVICE_* */
  uint64_t load_ns;
  uint64_t recompute_ns; /* at the ratio asked for */
  double hidden_ratio;   /* the largest ratio whose recompute hides behind loading */
  double ratio;          /* the larger of the two: what a fuse from it would better use */
  double cost_per_hour;  /* of keeping the chunks' bytes */
  uint64_t load_bytes;   /* as they are stored */
} blend_advice;

/* Of several storages the cheapest that adds no delay, and the ratio each allows (CacheBlend section
 * 5.1). storages, advice: [n_storages], every element initialised. `options` may be NULL.
 * Errors: INVALID_ARGUMENT (names the storage), INVALID_STRUCT. */
BLEND_API int32_t blend_machine_advise(const blend_machine *machine, const blend_storage *storages,
                               size_t n_storages, const blend_advise_options *options,
                               blend_advice *advice, blend_error **err);

/* How fast the store's remote tier (docs/remote.md) is from here: reads a few chunks of it, up to
 * some 64 MiB, and writes bytes_per_s and latency_s; cost_per_gb_hour stays as it is. Fuses of this
 * store know by it from then on what loading from there takes. What was read is kept unless the store
 * is read-only. out: initialised. Thread-safe.
 * Errors: INVALID_ARGUMENT (there is no remote tier), NOT_FOUND (nothing there yet that can be read),
 * IO (a server is down or too slow), INVALID_STRUCT. */
BLEND_API int32_t blend_store_measure_remote(const blend_store *store, blend_storage *out,
                                             blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_CALIBRATE_H */
