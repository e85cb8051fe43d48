/*
 * step.h - for hosts that run the model themselves: chunks of their own K and V, and the step API.
 */
#ifndef BLEND_STEP_H
#define BLEND_STEP_H

#include "blend/precompute.h"
#include "blend/report.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- A model that the host runs ------------------------------------------------------------ */

#define BLEND_ROPE_INTERLEAVED 1u /* pairs (0,1), (2,3), ...: GGUF `llama` files */
#define BLEND_ROPE_HALF_SPLIT 2u  /* pairs (0,d/2), (1,d/2+1), ...: Hugging Face transformers */

/* The facts that libblend needs of a model that the host runs itself. The frequency of pair i is
 * rope_theta^(-2i/rotary_dim) / rope_linear_scale / rope_freq_factors[i]; rotations that also
 * change the length of K (YaRN's attention factor) are not covered. */
typedef struct blend_model_description {
  uint32_t struct_size;
  uint32_t n_layers;
  uint32_t n_heads; /* query heads, a multiple of n_kv_heads */
  uint32_t n_kv_heads;
  uint32_t head_dim;
  uint32_t n_vocab;
  uint32_t context_length;  /* rows a layerwise fuse may have */
  uint32_t weight_dtype;    /* BLEND_DTYPE_F32 (default), _F16 or _BF16: decides what AUTO means for
                               kv_dtype of a store */
  uint32_t rope_layout;     /* BLEND_ROPE_*; default HALF_SPLIT */
  uint32_t rotary_dim;      /* elements of a head that rotate; 0 (default) = head_dim */
  double rope_theta;        /* default 10000 */
  double rope_linear_scale; /* default 1 */
  const float *rope_freq_factors; /* [rotary_dim / 2]; NULL (default): all 1 */
  size_t n_rope_freq_factors;
  const char *name; /* names the weights, e.g. "org/model@revision"; NULL = "" */
  uint8_t fingerprint[32]; /* all zero (default): made of the name and all the numbers above */
} blend_model_description;

BLEND_API int32_t blend_model_description_init(blend_model_description *description,
                                               size_t struct_size);

/* A model that the host runs itself: no weights, no tokenizer. For blend_chunk_put,
 * blend_chunk_find and the step API (blend_layerwise_create). Functions that need weights or a
 * tokenizer (blend_model_tokenize, blend_precompute, blend_fuse, ...) refuse it with
 * INVALID_ARGUMENT. Two models with one fingerprint share their chunks, so weights that differ must
 * differ in name or fingerprint. The description is copied. Errors: INVALID_ARGUMENT (names the
 * member; or there is neither a name nor a fingerprint), INVALID_STRUCT, OUT_OF_MEMORY. */
BLEND_API int32_t blend_model_create_from_description(blend_model **out, const blend_ctx *ctx,
                                                      const blend_model_description *description,
                                                      blend_error **err);

/* ---- Chunks that the host prefilled ------------------------------------------------------- */

#define BLEND_KV_VIEW_UNROTATED 1u /* K is before RoPE; otherwise it is rotated to its row's
                                      position */

/* K and V of consecutive rows of one layer in the host's memory. Element e of head h of row i lies
 * at k + i * row_stride + h * head_stride + e, the same for v: [rows, n_kv_heads, head_dim] (the
 * default) and [n_kv_heads, rows, head_dim] (row_stride = head_dim, head_stride = rows * head_dim)
 * both fit. Only blend_layerwise_fetch_kv writes through it. */
typedef struct blend_kv_view {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t flags;       /* BLEND_KV_VIEW_* */
  uint32_t dtype;       /* BLEND_DTYPE_F32 (also AUTO), _F16 or _BF16 */
  void *k;
  void *v;
  size_t row_stride;  /* elements from row to row; 0: n_kv_heads * head_dim */
  size_t head_stride; /* elements from head to head; 0: head_dim */
} blend_kv_view;

/* Stores a chunk whose K and V the host's own engine computed, as blend_precompute does with the
 * built-in one: the rows of `tokens`, prefilled after options.chunk_prefix (which is not stored).
 * layers: [n_layers], each the chunk's n_tokens rows. If K is rotated, its positions are
 * first_position, first_position + 1, ...; first_position is usually
 * options.n_chunk_prefix + options.n_predecessor. When
 * it returns BLEND_OK the chunk is on disk; one of the same id is replaced. `id` and `options` may
 * be NULL.
 * Errors: INVALID_ARGUMENT, CONTEXT_LENGTH, NUMERIC (names layer and row; or a value that does not
 * fit the store's kv_dtype), UNSUPPORTED (not all layers of the model have K and V of their own and
 * of one width; its rows are latent; it normalises K after RoPE; or it only embeds), FULL,
 * READ_ONLY, IO, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_chunk_put(const blend_model *model, const blend_store *store,
                               const int32_t *tokens, size_t n_tokens,
                               const blend_kv_view *layers, size_t n_layers,
                               uint32_t first_position, const blend_precompute_options *options,
                               blend_chunk_id *id, blend_error **err);

/* ---- Step API ---------------------------------------------------------------------------- */

/* For hosts that run the model themselves (the paper's fetch_kv, synchronize and prefill_layer,
 * CacheBlend section 5). The host computes the rows of blend_layerwise_get_rows, layer by layer;
 * the layerwise fuse brings the stored K and V of all other rows into the host's cache meanwhile:
 *
 *   blend_layerwise_create
 *   for each layer l = 0 .. n_layers-1:
 *     blend_layerwise_fetch_kv(l)     tells where the layer's K and V go. May be called for later
 *                                     layers too, in order and as early as their memory exists, so
 *                                     that loading runs ahead
 *     (host: K and V of the rows of blend_layerwise_get_rows, into its cache at those rows)
 *     blend_layerwise_synchronize(l)  waits until the stored rows are in the cache
 *     blend_layerwise_select(l)       takes fresh K and V of those rows, gives the rows to go on
 *                                     with
 *     (host: attention and the rest of the layer, for the rows that go on or for all of them)
 *     blend_layerwise_commit(l)
 *
 * PROBE, CASCADE and ATTENTION, alone or in a union, choose rows by the question's attention, so
 * the question's rows are computed first. At the beginning blend_layerwise_get_rows has no row of a
 * chunk. The first layers are computed twice, up to A = last_asked_layer of
 * blend_layerwise_get_report (1 with PROBE and CASCADE):
 *
 *   layers 0 .. A-1    as above, for the question's rows over the stored ones
 *   layer A            blend_layerwise_fetch_kv, K and V of these rows, blend_layerwise_synchronize
 *   blend_layerwise_probe   takes the question's attention, gives the rows to begin with
 *   layers 0 .. n_layers-1 as above; layers 0 .. A need no blend_layerwise_fetch_kv any more
 *
 * A call out of this order is refused; the message names the call that must come next. Each row
 * must attend to the rows that it sees in full prefill, none of them after it. */
typedef struct blend_layerwise blend_layerwise;

/* Looks the segments up and starts loading. Arguments are those of blend_fuse:
 *   - With a described model on_miss must not be BLEND_MISS_PRECOMPUTE: the host computes the rows
 *     of missing chunks. reserve_tokens is not used.
 *   - options.cancel, options.progress (called by blend_layerwise_commit, in layers) and `score` of
 *     options.selection (called by blend_layerwise_select) are kept and must outlive the layerwise
 *     fuse; `profile` need not.
 *   - With a profile the drift correction is applied, as in blend_fuse, to rows that are not
 *     computed, before they are written into the host's cache. It uses the fresh K and V that
 *     blend_layerwise_select receives at the check layer. Its maps fit the K and V of the
 *     calibrated model element by element: a host that orders the elements in another way
 *     (BLEND_ROPE_HALF_SPLIT for a model calibrated as GGUF) must not use it.
 *   - BLEND_RATIO_AUTO fits only a host that computes as fast as `machine`.
 * The layerwise fuse keeps the store open and reads from one snapshot of it until the last layer is
 * committed or the layerwise fuse is closed, so close it soon. After fork() the child's calls on it
 * give BLEND_E_FORKED. Errors: as blend_fuse; UNSUPPORTED for APE, for QUESTION, which needs the
 * attention at the check layer, and for models that only embed, whose rows are latent, or with
 * layers that do not attend, share K and V or have heads of different sizes: use blend_fuse where
 * the model can be fused. */
BLEND_API int32_t blend_layerwise_create(blend_layerwise **out, const blend_model *model,
                                         const blend_store *store, const blend_segment *segments,
                                         size_t n_segments, const blend_fuse_options *options,
                                         blend_error **err);
/* Allowed at any time. Waits for a read that is running; after it nothing is written to the memory
 * given to blend_layerwise_fetch_kv. */
BLEND_API void blend_layerwise_close(blend_layerwise *layerwise);

/* Starts again at layer 0 with the same look-up; everything fetched so far is void. After
 * BLEND_E_CORRUPT the damaged chunk is now a miss (and the log is told): it is precomputed,
 * computed by the host, or BLEND_E_NOT_FOUND, as on_miss says. Refused once the last layer is committed. */
BLEND_API int32_t blend_layerwise_restart(blend_layerwise *layerwise, blend_error **err);

/* Tokens of the prompt, [*n_tokens]. Valid while the layerwise fuse is open. */
BLEND_API int32_t blend_layerwise_get_tokens(const blend_layerwise *layerwise,
                                             const int32_t **tokens, size_t *n_tokens,
                                             blend_error **err);
/* Rows that the host computes at this point, ascending; [*n]. Valid until the next
 * blend_layerwise_select, blend_layerwise_probe, blend_layerwise_restart or close. */
BLEND_API int32_t blend_layerwise_get_rows(const blend_layerwise *layerwise, const uint32_t **rows,
                                           size_t *n, blend_error **err);

/* Says where K and V of `layer` go, [n_rows of the prompt] rows, and starts writing them there in
 * the background. Rows that the host does not compute at this layer are decoded, rotated to their
 * position (unless BLEND_KV_VIEW_UNROTATED) and written; the other rows are not touched. Returns at
 * once. The memory must stay valid until blend_layerwise_synchronize of the layer has returned, or
 * the layerwise fuse is restarted or closed. Errors: INVALID_ARGUMENT, INVALID_STRUCT. */
BLEND_API int32_t blend_layerwise_fetch_kv(blend_layerwise *layerwise, uint32_t layer,
                                           const blend_kv_view *layer_kv, blend_error **err);

/* Waits until the stored rows of `layer` are in the cache. Before this call the host must have
 * written its own rows into the memory given to blend_layerwise_fetch_kv: after the check layer the
 * guard of the drift correction reads the recomputed ones there. (With BLEND_CORRECTION_UNGUARDED
 * nothing is read, and the stored rows are written without waiting for this call.) Errors: CORRUPT
 * (a chunk is damaged: blend_layerwise_restart), IO, NUMERIC (a stored value does not fit the
 * host's dtype), CANCELLED, INVALID_ARGUMENT. */
BLEND_API int32_t blend_layerwise_synchronize(blend_layerwise *layerwise, uint32_t layer,
                                              blend_error **err);

/* For PROBE, CASCADE and ATTENTION: takes what the question attends to over the stored rows,
 * chooses rows by it, and begins again at layer 0. `rows`, and blend_layerwise_get_rows from now
 * on, are the rows to compute there.
 *   attention: [n_rows of the prompt], the probability that the question's rows put on each row:
 * the mean over heads, over these rows, and over the layers first_asked_layer .. last_asked_layer
 * of blend_layerwise_get_report (layer 1 alone with PROBE and CASCADE). The layerwise fuse only
 * ranks by it, so with ATTENTION a host may leave layers out of the mean.
 *   The stored rows fetched so far stay in the cache. Only the drift correction of rows that are
 * left out is still missing: blend_layerwise_synchronize of the last of these layers adds it, so
 * the memory given for that layer must stay valid until then. `rows` is valid as in
 * blend_layerwise_select. Errors: INVALID_ARGUMENT (another number of rows; a value that is
 * negative or not finite). */
BLEND_API int32_t blend_layerwise_probe(blend_layerwise *layerwise, const float *attention,
                                        size_t n_rows, const uint32_t **rows, size_t *n,
                                        blend_error **err);

/* The rows to go on with after this layer's K and V, ascending, [*n]: a subset of
 * blend_layerwise_get_rows, which gives these rows from now on. At a check layer, where the call is
 * needed, they are the policy's choice by deviation; at the last layer the prompt's last row alone;
 * elsewhere the same rows as before. The prompt's last row is always among them. Fresh K and V of
 * this layer stay in the cache also for rows that are dropped.
 * fresh: its row i is row i of blend_layerwise_get_rows as it was before this call; may be NULL
 * where nothing is measured. `rows` is valid until the next blend_layerwise_select,
 * blend_layerwise_restart or close.
 * Errors: INVALID_ARGUMENT, NUMERIC (names the row), CALLBACK, CANCELLED. */
BLEND_API int32_t blend_layerwise_select(blend_layerwise *layerwise, uint32_t layer,
                                         const blend_kv_view *fresh, const uint32_t **rows,
                                         size_t *n, blend_error **err);

/* Finishes the layer and its report. After the last layer the layerwise fuse releases its snapshot
 * of the store. Errors: INVALID_ARGUMENT, CALLBACK, CANCELLED. */
BLEND_API int32_t blend_layerwise_commit(blend_layerwise *layerwise, uint32_t layer,
                                         blend_error **err);

/* The report so far; complete when the last layer is committed. ttft_ns ends with the last commit;
 * compute_ns is the host's time between the calls, with which place_ns overlaps. */
BLEND_API int32_t blend_layerwise_get_report(const blend_layerwise *layerwise,
                                             blend_fusion_report *report, blend_error **err);
BLEND_API int32_t blend_layerwise_get_layer(const blend_layerwise *layerwise, uint32_t layer,
                                            blend_layer_info *info, blend_error **err);
BLEND_API int32_t blend_layerwise_get_segment(const blend_layerwise *layerwise, size_t segment,
                                              blend_segment_info *info, blend_error **err);
/* As blend_fusion_get_selected and blend_fusion_get_deviation. Valid until the next
 * blend_layerwise_select, blend_layerwise_probe, blend_layerwise_restart or close. */
BLEND_API int32_t blend_layerwise_get_selected(const blend_layerwise *layerwise,
                                               const uint32_t **rows, size_t *n, blend_error **err);
BLEND_API int32_t blend_layerwise_get_deviation(const blend_layerwise *layerwise,
                                                const float **deviation, size_t *n_rows,
                                                blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_STEP_H */
