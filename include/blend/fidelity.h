/*
 * fidelity.h - how often fused answers agree with full prefill, as the store's own checks have seen
 * it, and the recompute ratio that follows (BLEND_RATIO_FIDELITY). Include it after
 * "blend/blend.h".
 */
#ifndef BLEND_FIDELITY_H
#define BLEND_FIDELITY_H

#include "blend/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The checked answers of one model that were fused in one way: with one policy, at about one ratio,
 * from prompts whose worst chunk record was of one kind. Each later check multiplies the weight of
 * a check by 255/256, so old ones fade. Tokens of one answer are not independent: the interval is
 * wider where answers differ from each other. */
typedef struct blend_fidelity_row {
  uint32_t struct_size;
  uint32_t policy;    /* BLEND_POLICY_*, as the fusion's info has it */
  uint32_t record;    /* BLEND_RECORD_*: the record farthest from full prefill among the prompts'
                         chunks that are no prefix hits */
  uint32_t in_force;  /* 1: `ratio` is ratio_now */
  double ratio;       /* recomputed share of the reused rows: the nearest step of the list at
                         BLEND_RATIO_FIDELITY; of shorter prompts the share that goes with it */
  double ratio_now;   /* the step that a fuse with BLEND_RATIO_FIDELITY starts from now, for the
                         target of the call */
  uint64_t n_checks;  /* answers compared */
  uint64_t n_tokens;  /* answer tokens compared */
  double agreement;   /* share of tokens at which full prefill prefers the token that the fused
                         cache preferred, after the same tokens; 0 where n_checks is 0, as the next
                         five */
  double agreement_low;  /* its 95 % interval */
  double agreement_high;
  double identical;   /* share of the answers that agree at every token */
  double mean_kl;     /* KL(full prefill || fused) of the first eight tokens, over the 64 likeliest
                         tokens and all others as one: a bound from below */
  uint8_t fingerprint[32]; /* of the model */
} blend_fidelity_row;

/* `row` is valid during the call only. */
typedef int32_t (*blend_fidelity_fn)(void *user, const blend_fidelity_row *row);

/* Calls `fn` for every way of fusing with a checked answer, in the order of model, policy, record
 * and ratio; also for the ratio in force if no answer was checked at it yet. `model` NULL: all
 * models. `agreement_target`, as in blend_fuse_options, is what ratio_now is for. Errors:
 * INVALID_ARGUMENT, IO, CALLBACK, FORKED. */
BLEND_API int32_t blend_store_get_fidelity(const blend_store *store, const blend_model *model,
                                           double agreement_target, blend_fidelity_fn fn,
                                           void *user, blend_error **err);

/* Checks the answers that wait for it now, at once and not only in idle time, and waits until that
 * is done: for hosts that know when they have time, and before a store is closed. Errors:
 * FORKED. */
BLEND_API int32_t blend_store_run_checks(const blend_store *store, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_FIDELITY_H */
