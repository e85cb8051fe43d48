/*
 * embed.h - embeddings: a vector for each text, by which a host finds the documents to fuse.
 *
 *   blend_text texts[2] = {{"Ann signs the invoices.", 23}, {"Bo pays them.", 13}};
 *   float *vectors = malloc(2 * d_model * sizeof *vectors);   // d_model: blend_model_get_info
 *   blend_model_embed(model, texts, 2, NULL, vectors, 2 * d_model, NULL, &err);
 *
 * Any model that opens gives vectors. Good ones come from models that were trained for it, such as
 * Qwen3-Embedding or EmbeddingGemma (docs/models.md). Matrices that a file has for the pooled vector
 * are applied to it.
 */
#ifndef BLEND_EMBED_H
#define BLEND_EMBED_H

#include "blend/model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the hidden states of a text's rows, after the final norm, become one vector. */
#define BLEND_POOLING_MODEL 0u /* as the model's file says: the GGUF key <architecture>.pooling_type,
                                  or 1_Pooling/config.json of a directory; if it does not say: MEAN */
#define BLEND_POOLING_MEAN 1u  /* the mean over the rows */
#define BLEND_POOLING_LAST 2u  /* that of the last row */
#define BLEND_POOLING_FIRST 3u /* that of the first row */

typedef struct blend_embed_options {
  uint32_t struct_size;
  uint32_t pooling;      /* BLEND_POOLING_*; default MODEL */
  uint32_t n_dimensions; /* that are kept of a vector: its first ones, as models with Matryoshka
                            representations allow; 0 (default): all, the model's d_model */
  uint32_t unnormalized; /* 1: vectors keep their length; otherwise it becomes 1. Dimensions that
                            are left out do not count for it */
  uint32_t truncate;     /* 1: a text longer than the model's context is cut to it, instead of the
                            error CONTEXT_LENGTH; what stands after a text (EOS) stays. Tokens are
                            cut at their end */
  uint32_t n_threads;    /* of the call; 0: all */
  blend_progress_fn progress; /* texts */
  void *progress_user;
  const blend_cancel *cancel;
} blend_embed_options;

BLEND_API int32_t blend_embed_options_init(blend_embed_options *options, size_t struct_size);

/* Embeds texts of UTF-8. Before a text stands BOS where the model expects it (add_bos), after it
 * what the file asks for (the GGUF key tokenizer.ggml.add_eos_token, or the template of
 * tokenizer.json). Control tokens are not recognized in the texts. Instructions that a model wants
 * before a question or a document are the host's to put into the text.
 *
 * texts: [n_texts]; vectors: [n_texts, n_dimensions], `capacity` floats; n_tokens: [n_texts]
 * receives the length of each text in tokens, or NULL. `options` may be NULL. After an error the
 * content of `vectors` and n_tokens is undefined.
 * Short texts are computed together, about as fast as one long text. Memory beside `vectors` is
 * that of 512 rows (CPU) or of the longest text, whichever is more, and does not grow with n_texts.
 * Which texts are computed together changes no bit of a vector where the weights are PACKED on a
 * CPU; otherwise elements may differ by 1e-5 or so. Calls may run concurrently.
 * Errors: INVALID_ARGUMENT (a text without tokens; more dimensions than the model has),
 * BUFFER_TOO_SMALL, CONTEXT_LENGTH (names the text), UNSUPPORTED (the file asks for a pooling that
 * is not known: give one), NUMERIC (names the text), OUT_OF_MEMORY, CANCELLED, CALLBACK. */
BLEND_API int32_t blend_model_embed(const blend_model *model, const blend_text *texts,
                                    size_t n_texts, const blend_embed_options *options,
                                    float *vectors, size_t capacity, uint32_t *n_tokens,
                                    blend_error **err);

/* The same of texts that the host tokenized. Nothing is put before or after them. tokens: those of
 * all texts, one text after the other; n_tokens: [n_texts], of each. */
BLEND_API int32_t blend_model_embed_tokens(const blend_model *model, const int32_t *tokens,
                                           const size_t *n_tokens, size_t n_texts,
                                           const blend_embed_options *options, float *vectors,
                                           size_t capacity, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_EMBED_H */
