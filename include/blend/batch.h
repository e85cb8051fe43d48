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

/* Fuses n prompts together, layer by layer: for several users or questions over the same documents.
 * A chunk that several of them have (or one has twice) is prefilled once if it is missing, and
 * read, checked and decoded once. All other work is done for each prompt, and each fusion equals
 * that of its own blend_fuse bit for bit. All are done at about the same time, so the first one is
 * done later than by single calls. Memory: n fused caches and n times the scratch of a fuse, one
 * ring of layers in flight.
 *   out: [n], a fusion (blend_fusion_close) or NULL. errors: [n], the error of each prompt that
 * failed (blend_error_free) or NULL. A prompt that fails, or that its own options cancel, does not
 * affect the others, and the call returns BLEND_PARTIAL. With errors == NULL it is all or nothing:
 * the call fails with the first failure's code and a message that names the request.
 *   The call has as many threads as the request with most; each fusion keeps its own n_threads. n
 * == 0 does nothing. Errors: as blend_fuse for each prompt. The call itself may fail with
 * INVALID_ARGUMENT, INVALID_STRUCT or OUT_OF_MEMORY; nothing is in `out` then. */
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

/* Generates for n fusions on one calling thread, a token of each at a time. They share the pass
 * over the weights, as concurrent calls of blend_fusion_generate do, and share it with such calls
 * too. All callbacks are called on the calling thread; a slow one holds up the others of its batch.
 * Each request's tokens are those of its own blend_fusion_generate bit for bit. A request that
 * ends, fails or is cancelled does not affect the others; the call returns when all have ended.
 *   codes: [n], what blend_fusion_generate would return for each; n_generated: [n], tokens
 * reported; errors: [n], the error of each request that failed (blend_error_free) or NULL. Each may
 * be NULL.
 *   The call has as many threads as the request with most. Returns BLEND_OK, or BLEND_PARTIAL if a
 * request failed. n == 0 does nothing. The call itself may fail with INVALID_ARGUMENT (also: a
 * fusion in two requests), INVALID_STRUCT or OUT_OF_MEMORY; nothing is generated then. */
BLEND_API int32_t blend_generate_batch(int32_t *codes, size_t *n_generated, blend_error **errors,
                                       const blend_generate_request *requests, size_t n,
                                       blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_BATCH_H */
