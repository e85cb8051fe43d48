/*
 * batch.h - several prompts fused together, and the text of several generated together.
 */
#ifndef BLEND_BATCH_H
#define BLEND_BATCH_H

#include "blend/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One prompt of a batch. */
typedef struct blend_fuse_request {
  uint32_t struct_size; /* the same in every element of an array */
  const blend_segment *segments;
  size_t n_segments;
  const blend_fuse_options *options; /* may be NULL, and shared by several requests */
} blend_fuse_request;

/* Fuses n prompts together, all at the same layer at a time: for several users or questions over
 * the same documents. A chunk that several of them have (or one has twice) is prefilled once if it
 * is missing, and read, checked and decoded once; the rest is work of each prompt, and each fusion
 * equals that of its own blend_fuse bit for bit. All are complete at about the same time, later
 * than the first of as many single calls would be. Memory: n fused caches and n times the scratch
 * of a fuse, one ring of layers in flight.
 *   out: [n], a fusion (blend_fusion_close) or NULL. errors: [n], the error of each prompt that
 * failed (blend_error_free) or NULL; a prompt that fails, or that its own options cancel, leaves
 * the others alone, and the call returns BLEND_PARTIAL. With errors == NULL it is all or nothing:
 * the call fails with the first failure's code and a message that names the request.
 *   The call has as many threads as the request with most; each fusion keeps its own n_threads. n
 * == 0 does nothing. Errors: as blend_fuse for each prompt; of the call INVALID_ARGUMENT,
 * INVALID_STRUCT and OUT_OF_MEMORY, then with nothing in `out`. */
BLEND_API int32_t blend_fuse_batch(blend_fusion **out, blend_error **errors,
                                   const blend_model *model, const blend_store *store,
                                   const blend_fuse_request *requests, size_t n,
                                   blend_error **err);

/* One generation of a batch. */
typedef struct blend_generate_request {
  uint32_t struct_size; /* the same in every element of an array */
  blend_fusion *fusion; /* of any model; each in one request only */
  const blend_generate_options *options; /* may be NULL, and shared by several requests */
  blend_token_fn fn; /* may be NULL, as `user` */
  void *user;
} blend_generate_request;

/* Generates for n fusions on one thread, a token of each at a time, which share the pass over the
 * weights as calls of blend_fusion_generate on as many threads do, and with those. All callbacks
 * are called on the calling thread; a slow one holds up the others of its batch. Each request's
 * tokens are those of its own blend_fusion_generate bit for bit. One that ends, fails or is
 * cancelled leaves the others alone; the call returns when all have ended.
 *   codes: [n], what blend_fusion_generate would return for each; n_generated: [n], tokens
 * reported; errors: [n], the error of each request that failed (blend_error_free) or NULL. Each may
 * be NULL.
 *   The call has as many threads as the request with most. Returns BLEND_OK, or BLEND_PARTIAL if a
 * request failed. n == 0 does nothing. Errors of the call, by which nothing is generated:
 * INVALID_ARGUMENT (also: a fusion in two requests), INVALID_STRUCT; and OUT_OF_MEMORY. */
BLEND_API int32_t blend_generate_batch(int32_t *codes, size_t *n_generated, blend_error **errors,
                                       const blend_generate_request *requests, size_t n,
                                       blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_BATCH_H */
