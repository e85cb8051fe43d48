/*
 * conversation.h - further turns on one fusion: extend, edit, save and restore.
 */
#ifndef BLEND_CONVERSATION_H
#define BLEND_CONVERSATION_H

#include "blend/core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Multi-turn -------------------------------------------------------------------------- */

/* Fuses `segments` behind the rows there are: the prompt, what was generated, and whatever the host
 * decoded. These stay as they are and the new rows see them; of the new segments chunks are reused
 * as by blend_fuse, so a next turn may bring passages of its own. The chunks of all turns may be
 * the same. PREFIX segments are refused: nothing stands before them only at the start. The cache
 * grows as far as needed (`reserve_tokens` counts from the new end; while it grows both sizes are
 * in memory). Segments, `selected` and `deviation` then cover all rows, and rows that were decoded
 * belong to no segment; the info (but n_rows and n_segments) and the layers are those of this fuse.
 * On failure the fusion is as before. Errors: as blend_fuse. */
BLEND_API int32_t blend_fusion_extend(blend_fusion *fusion, const blend_store *store,
                                      const blend_segment *segments, size_t n_segments,
                                      const blend_fuse_options *options, blend_error **err);

/* Keeps the fusion's K (turned back to no position) and V in the store, in its kv_dtype, until the
 * conversation goes on (AttentionStore 3.1). The rows are read before the call returns; writing
 * goes on in the background (blend_store_flush waits for it, and says if it failed). `id`, which
 * may be NULL, is of the model, the dtype, `tenant` and the tokens of all rows; no chunk that was
 * prefilled has it, so an approximate cache never passes for an exact one. Saved fusions count
 * towards the quota and are listed and removed like chunks. Errors: READ_ONLY, NUMERIC (a value too
 * large for the dtype), OUT_OF_MEMORY, CANCELLED, FORKED; FULL and IO come later, from the flush. */
BLEND_API int32_t blend_fusion_save(const blend_fusion *fusion, const blend_store *store,
                                    const char *tenant, const blend_cancel *cancel,
                                    blend_chunk_id *id, blend_error **err);
/* Brings a saved fusion of `tenant` (NULL: "") back, with `reserve_tokens` rows kept free behind it (fewer where the
 * model's context ends sooner). The last row is computed anew, which gives the logits. It can be
 * decoded, extended, edited and saved like any other; its info has BLEND_FUSION_RESTORED, and no
 * segments and no n_threads. Errors: NOT_FOUND (no such fusion, or another tenant's), MISMATCH
 * (another model's), CORRUPT (the saved bytes are damaged; also an event: fuse the tokens anew),
 * CONTEXT_LENGTH, IO, OUT_OF_MEMORY, CANCELLED, FORKED. */
BLEND_API int32_t blend_fusion_restore(blend_fusion **out, const blend_model *model,
                                       const blend_store *store, const blend_chunk_id *id,
                                       const char *tenant, uint32_t reserve_tokens,
                                       const blend_cancel *cancel, blend_error **err);

/* ---- Truncate and edit ------------------------------------------------------------------- */

/* Puts `tokens` [n_tokens] in the place of the n_rows rows from `first_row` on, of the prompt or of
 * what followed it (AttentionStore 3.4). Either may be none: n_rows == 0 inserts, n_tokens == 0
 * erases, both do nothing. A long conversation is kept inside the context by erasing its oldest
 * rows, behind BOS and a system prompt, which are better kept.
 *   The new rows are computed and see all that precedes them. The rows behind keep the V they have,
 * and their K turned to its new place; what they took from the erased rows stays in them, and they
 * do not see the new ones. This is what makes it cheap, and it is not what a prefill of the tokens
 * would give: docs/quality.md, "Truncation", has figures. Only the last row is computed again, as
 * if it had just been decoded, so that logits, decode and generate are right for the rows as they
 * now stand.
 *   The account moves along: in segments, `selected` and `deviation` rows have the numbers of the
 * places they now have. Erased rows leave them; new rows belong to the segment they were put
 * inside of, or between two of them to none, are not selected and have deviation 0. The info and
 * the layers stay those of the fuse, with BLEND_FUSION_EDITED.
 *   `cancel` may be NULL; a cancelled or failed call leaves the fusion as it was. Memory for the
 * call: one layer of the cache and all layers of the computed rows.
 * Errors: INVALID_ARGUMENT (rows that are not there, no row left, a token outside the vocabulary),
 * CONTEXT_LENGTH (more rows than reserve_tokens left), NUMERIC, OUT_OF_MEMORY, CANCELLED. */
BLEND_API int32_t blend_fusion_replace(blend_fusion *fusion, uint64_t first_row, uint64_t n_rows,
                                       const int32_t *tokens, size_t n_tokens,
                                       const blend_cancel *cancel, blend_error **err);
/* blend_fusion_replace without tokens. */
BLEND_API int32_t blend_fusion_erase(blend_fusion *fusion, uint64_t first_row, uint64_t n_rows,
                                     const blend_cancel *cancel, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_CONVERSATION_H */
