/*
 * session.h - what can be done with a fusion after the fuse: fork, make exact, further turns, save,
 * restore, edit.
 */
#ifndef BLEND_SESSION_H
#define BLEND_SESSION_H

#include "blend/generate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Fork and make exact ------------------------------------------------------------------ */

/* A second fusion with the rows, logits and report that `fusion` has now, for several answers to
 * one prompt. From here on the two are independent: each gives the bits that a fuse of its own and
 * the same calls would have given. K and V are shared copy-on-write in pages of 16 rows per head: a
 * fork costs memory only for rows appended later. The first fork copies them once, to memory that
 * can be shared, and needs twice the memory meanwhile. On a CUDA device, and on a host that forbids
 * memfd_create, every fork copies them. The two may be closed in any order, and each may be forked
 * again.
 * Errors: OUT_OF_MEMORY, FORKED. */
BLEND_API int32_t blend_fusion_fork(blend_fusion **out, blend_fusion *fusion, blend_error **err);

/* Makes a fusion exact. Call it on a fusion from which nothing was generated; generate from a fork.
 * It replaces K and V of all rows by those of full prefill, unless it has done so before
 * (BLEND_FUSION_EXACT). Then it checks `tokens` [n_tokens], several a pass, as draft tokens are
 * checked: it appends those that greedy decoding would give, and stops before the first that it
 * would not give. *n_kept is how many it appended. blend_fusion_generate at temperature 0, with no
 * penalties, bias or callback, goes on from there: the kept tokens and what it generates are full
 * prefill's answer.
 *
 * So a host can show an answer at once and correct it a moment later:
 *   1. Fork the fusion, and generate from the fork.
 *   2. Meanwhile, on another thread, call this on the fusion with no tokens.
 *   3. Call this once more with the tokens that the fork gave.
 *   4. If *n_kept is less than n_tokens, take the other tokens back and generate from the fusion.
 * Sampled tokens cannot be checked in this way: after a call with no tokens append them by
 * blend_fusion_decode.
 *
 * It costs a full prefill, and memory for a second cache meanwhile, unless nothing was reused.
 * `n_kept` and `cancel` may be NULL. A call that fails in full prefill leaves the fusion as it was;
 * one that fails later leaves it exact, with *n_kept of the tokens.
 * Errors: INVALID_ARGUMENT, CONTEXT_LENGTH (more tokens than reserved rows), NUMERIC,
 * OUT_OF_MEMORY, CANCELLED, FORKED. */
BLEND_API int32_t blend_fusion_make_exact(blend_fusion *fusion, const int32_t *tokens,
                                          size_t n_tokens, size_t *n_kept,
                                          const blend_cancel *cancel, blend_error **err);

/* ---- Further turns ------------------------------------------------------------------------ */

/* Fuses `segments` after the rows that the fusion has: the prompt, the generated tokens, and those
 * that the host decoded. These rows stay as they are and the new rows attend to them. Chunks among
 * the new segments are reused as by blend_fuse, so each turn may have passages of its own; a chunk
 * may come in several turns. PREFIX segments are refused: they can only stand at the start. The
 * cache grows as far as needed; `reserve_tokens` counts from the new end, and while the cache grows
 * both sizes are in memory. Segments, `selected` and `deviation` then cover all rows; decoded rows
 * belong to no segment. The report and the layers are those of this fuse, except that n_rows and
 * n_segments count all. On failure the fusion is as before. Errors: as blend_fuse. */
BLEND_API int32_t blend_fusion_extend(blend_fusion *fusion, const blend_store *store,
                                      const blend_segment *segments, size_t n_segments,
                                      const blend_fuse_options *options, blend_error **err);

/* Saves the fusion's K (before RoPE) and V in the store, in its kv_dtype, until the conversation
 * goes on (AttentionStore 3.1). The rows are read before the call returns; writing goes on in the
 * background (blend_store_flush waits for it, and says if it failed). `id`, which may be NULL,
 * depends on the model, the dtype, `tenant` and the tokens of all rows. It differs from the id of
 * any prefilled chunk, so an approximate cache is never taken for an exact one. Saved fusions count
 * towards the quota and are listed and removed like chunks. Errors: READ_ONLY, NUMERIC (a value too
 * large for the dtype), OUT_OF_MEMORY, CANCELLED, FORKED; FULL and IO come later, from the flush.
 * */
BLEND_API int32_t blend_fusion_save(const blend_fusion *fusion, const blend_store *store,
                                    const char *tenant, const blend_cancel *cancel,
                                    blend_chunk_id *id, blend_error **err);
/* Opens a saved fusion of `tenant` (NULL: ""), with `reserve_tokens` rows kept free after it (fewer
 * if the model's context ends sooner). The last row is computed again, which gives the
 * logits. The fusion can be decoded, extended, edited and saved like any other. Its info has
 * BLEND_FUSION_RESTORED, and it has no segments and no n_threads. Errors: NOT_FOUND (no such
 * fusion, or another tenant's), MISMATCH (another model's), CORRUPT (the saved bytes are damaged;
 * the log is told too: fuse the tokens again), CONTEXT_LENGTH, IO, OUT_OF_MEMORY, CANCELLED, FORKED. */
BLEND_API int32_t blend_fusion_restore(blend_fusion **out, const blend_model *model,
                                       const blend_store *store, const blend_chunk_id *id,
                                       const char *tenant, uint32_t reserve_tokens,
                                       const blend_cancel *cancel, blend_error **err);

/* ---- Truncate and edit ------------------------------------------------------------------- */

/* Replaces the n_rows rows from `first_row` on by `tokens` [n_tokens], in the prompt or in what
 * followed it (AttentionStore 3.4). n_rows == 0 inserts, n_tokens == 0 erases; if both are 0,
 * nothing happens. To keep a long conversation inside the context, erase its oldest rows after BOS
 * and the system prompt.
 *   The new rows are computed and attend to all rows before them. The rows after them keep their V;
 * their K is rotated to the new position. These rows still contain what they took from the erased
 * rows, and have not seen the new ones. So the call is cheap, but the result is not that of a
 * prefill of the tokens: docs/quality.md has figures ("Truncation"). Only the last row is computed
 * again, as if it had just been decoded, so that logits, decode and generate fit the rows as they
 * are now.
 *   Segments, `selected` and `deviation` are renumbered to the new positions, and erased rows leave
 * them. Rows inserted inside a segment belong to it; rows inserted between segments belong to none.
 * New rows are not selected and have deviation 0. The report and the layers stay those of the fuse,
 * with BLEND_FUSION_EDITED.
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

#endif /* BLEND_SESSION_H */
