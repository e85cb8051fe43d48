/*
 * fidelity.h - how often fused answers agree with full prefill, as measured by the store's checks
 * in idle time, and the recompute ratio that follows (BLEND_RATIO_FIDELITY). Include it after
 * "blend/blend.h".
 */
#ifndef BLEND_FIDELITY_H
#define BLEND_FIDELITY_H

#include "blend/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The checks of one model's answers that were fused in one way: with one policy, at about one
 * ratio, from prompts whose worst chunk record was of one kind, either short prompts or long ones.
 * Each later check multiplies the weight of a check by 255/256, so old ones fade. Tokens of one
 * answer are not independent, so the interval is wider the more the answers differ from each
 * other. */
typedef struct blend_fidelity_row {
  uint32_t struct_size;
  uint32_t policy;    /* BLEND_POLICY_*, as the fusion's info has it */
  uint32_t record;    /* BLEND_RECORD_*: the record farthest from full prefill among the prompts'
                         chunks, prefix hits excluded */
  uint32_t in_force;  /* 1: `ratio` is ratio_now */
  uint32_t short_prompts; /* 1: of prompts with fewer than 800 reused rows; 0: with 800 or more */
  uint32_t reserved;      /* 0 */
  double ratio;       /* recomputed share of the reused rows, rounded to the list at
                         BLEND_RATIO_FIDELITY; for prompts of fewer than 800 reused rows the r
                         from which their share follows */
  double ratio_now;   /* the ratio of that list from which a fuse with BLEND_RATIO_FIDELITY starts
                         now, for the agreement_target of the call */
  uint64_t n_checks;  /* answers compared */
  uint64_t n_tokens;  /* answer tokens compared */
  double agreement;   /* share of tokens at which full prefill prefers the token that the fused
                         cache preferred, after the same tokens. This and the following figures are
                         0 if n_checks is 0 */
  double agreement_low;  /* its 95 % interval */
  double agreement_high;
  double identical;   /* share of the answers that agree at every token */
  double mean_kl;     /* KL(full prefill || fused) of the first eight tokens. It counts the 64
                         likeliest tokens and all others as one, so it is a lower bound */
  uint8_t fingerprint[32]; /* of the model */
} blend_fidelity_row;

/* `row` is valid during the call only. */
typedef int32_t (*blend_fidelity_fn)(void *user, const blend_fidelity_row *row);

/* Calls `fn` for every way of fusing with a checked answer, in the order of model, policy, record,
 * short_prompts and ratio; also for the ratio in force if no answer was checked at it yet. `model`
 * NULL: all models. `agreement_target` as in blend_fuse_options: ratio_now is for this target.
 * Errors: INVALID_ARGUMENT, IO, CALLBACK, FORKED. */
BLEND_API int32_t blend_store_get_fidelity(const blend_store *store, const blend_model *model,
                                           double agreement_target, blend_fidelity_fn fn,
                                           void *user, blend_error **err);

/* Checks all waiting answers now, without waiting for idle time, and returns when that is done: for
 * hosts that know when they have time, and before a store is closed. Errors: FORKED. */
BLEND_API int32_t blend_store_run_checks(const blend_store *store, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_FIDELITY_H */
