/* Documents to chunks, and BM25 over them: what stands in for a retriever of your own. */
#ifndef EXAMPLE_RETRIEVAL_H
#define EXAMPLE_RETRIEVAL_H

#include "support.h"

struct tokens {
  int32_t* ids;
  size_t n;
};

/* As blend_model_tokenize, with memory for the tokens, which the caller frees. */
int32_t tokenize(const blend_model* model, const char* text, size_t text_bytes, uint32_t flags,
                 struct tokens* out, blend_error** err);

/* A piece of a document, small enough to be stored by itself, and its words for BM25. */
struct chunk {
  char* document;
  struct tokens tokens;
  char* letters; /* what `words` point into */
  char** words;  /* [n_words], sorted */
  size_t n_words;
};

struct chunks {
  struct chunk* items;
  size_t n;
};

void chunks_free(struct chunks* chunks);
/* Moves all of `from` to the end of the others. */
void chunks_move(struct chunks* to, struct chunks* from);

/* Packs the paragraphs of a text, in order, into chunks of at most max_tokens, which are added to
 * `out`. A paragraph that is longer goes by sentences, a sentence that is longer is cut between
 * tokens. The code is that of the call that failed, or BLEND_OK. */
int32_t cut_document(const blend_model* model, const char* name, const char* text,
                     size_t max_tokens, struct chunks* out, blend_error** err);

/* Precomputes chunks after what prompts begin with, in the context of similar ones. *stored: how
 * many were new to the store. */
int32_t store_chunks(const blend_model* model, const blend_store* store,
                     const struct chunks* chunks, size_t* stored, blend_error** err);

/* Okapi BM25: the `top` chunks of the highest score, in the order they were added. `found` [top]
 * has places in `chunks`; how many there are is given back. */
size_t best_chunks(const struct chunks* chunks, const char* query, size_t top, size_t* found);

/* A prompt, and the tokens that are its own. */
struct prompt {
  blend_segment* segments;
  size_t n;
  struct tokens bos;
  struct tokens question;
};

/* BOS where the model wants one, the chunks `found` [n], the question. The tokens of chunks are not
 * copied: they must stay. To be freed, even if it failed. */
int32_t make_prompt(const blend_model* model, const struct tokens* found, size_t n,
                    const char* question, struct prompt* out, blend_error** err);
void prompt_free(struct prompt* prompt);

#endif
