/*
 * precompute.h - put chunks into a store: one by one, or a whole corpus in context.
 */
#ifndef BLEND_PRECOMPUTE_H
#define BLEND_PRECOMPUTE_H

#include "blend/store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLEND_PUT_BACKGROUND 1u /* return once the chunk is queued; blend_store_wait says when it is
                                   on disk, or why it is not */
#define BLEND_PUT_AFTER_BOS 2u  /* blend_precompute only: also stores a copy prefilled after BOS
                                   alone, so that the chunk is a prefix hit when it comes first. No
                                   effect where the model has no BOS, or BOS is the chunk prefix */
#define BLEND_PUT_DRAFT 4u      /* blend_precompute only, with `contexts`: makes a draft of the
                                   contextual record, by one prefill after the first of them, up to
                                   about BLEND_CONTEXT_TOKENS. A fuse takes it as any other record.
                                   A later call without this flag makes it again */

/* A passage that stands before a chunk while the chunk is prefilled; it is not stored with the
 * chunk. Passages of fewer than BLEND_CONTEXT_TOKENS stand one after the other in one prefill, until
 * they come to about as many; a longer one has a prefill of its own. A plain pair that will not
 * grow. */
typedef struct blend_context_passage {
  const int32_t *tokens; /* [n_tokens] */
  size_t n_tokens;
} blend_context_passage;

#define BLEND_MOST_CONTEXTS 16u   /* passages of one record */
#define BLEND_CONTEXT_TOKENS 192u /* of the passages of one prefill */
#define BLEND_PRECEDED_TOKENS 192u /* a predecessor of so many tokens needs no passages */

typedef struct blend_precompute_options {
  uint32_t struct_size;
  uint32_t flags;     /* BLEND_PUT_* */
  uint32_t codec;     /* BLEND_CODEC_* */
  uint32_t n_threads; /* of the call; 0: all */
  const int32_t *chunk_prefix; /* tokens that stand before the chunk while it is prefilled: not
                                  stored, part of the id. Give the prompt head, that is all tokens
                                  before the first chunk of your prompts (BOS, the opening of the
                                  chat template, the system text). Without it the first token of the
                                  chunk becomes an attention sink, which it is in no prompt, and
                                  many answers are wrong (docs/quality.md) */
  size_t n_chunk_prefix;
  const blend_context_passage *contexts; /* [n_contexts] passages for a contextual record, which
                                  brings answers nearer to full prefill's. The chunk is prefilled
                                  after chunk_prefix and a passage, once for each, or after several
                                  short ones (blend_context_passage), and the mean of these K and V
                                  is stored. Give the most similar texts first, enough for two to
                                  four prefills; blend_precompute_corpus finds them. Passages that
                                  the store holds after the same chunk_prefix are loaded. Every
                                  second prefill loads their contextual records, if they have any.
                                  So make a draft of each text first (BLEND_PUT_DRAFT): that lowers
                                  the error of prompts of many chunks. The id is not that of the record
                                  without passages, and does not depend on
                                  which passages they are. blend_fuse prefers the contextual record,
                                  except where the chunk stands first. With a predecessor, see
                                  below. blend_precompute only */
  size_t n_contexts;  /* at most BLEND_MOST_CONTEXTS; 0: none */
  const int32_t *predecessor; /* tokens that stand directly before the chunk in the prompts that
                                 the record is for: the chunk before it and what stands between.
                                 The chunk is prefilled after chunk_prefix, passages and these.
                                 They are part of the id: without `contexts` it is that of a chunk
                                 prefix that ends with them. blend_fuse takes the record where they
                                 stand directly before the chunk. After a short predecessor alone a
                                 chunk has seen less than it does in prompts. So give other texts of
                                 such prompts in `contexts`, the best first. The call then makes up
                                 to two prefills. Each puts texts before the predecessor until both
                                 together have about BLEND_PRECEDED_TOKENS tokens. A predecessor
                                 with that many tokens gets none. These prefills compute the rows of
                                 the texts, even where the store holds them. Not with
                                 BLEND_PUT_DRAFT */
  size_t n_predecessor;       /* 0: none */
  const char *tenant; /* salt of the id, so that tenants never share chunks; NULL = "" */
  const char *label;  /* a name for the chunk, usually "document#part"; if given, it replaces the
                         label that the chunk has */
  const char *tags;   /* words with one space between, "lang=en draft"; if given, they replace the
                         tags that the chunk has */
  blend_progress_fn progress; /* layers */
  void *progress_user;
  const blend_cancel *cancel;
} blend_precompute_options;

BLEND_API int32_t blend_precompute_options_init(blend_precompute_options *options,
                                                size_t struct_size);

/* Labels and tags are stored with a chunk but do not count for its id: putting the same tokens with
 * another label gives the same chunk the new label. NULL, the default, leaves the label or the tags
 * as they are; "" removes them. Both are UTF-8 without control characters. */
#define BLEND_LABEL_BYTES 1024u /* the longest label */
#define BLEND_TAGS_BYTES 1024u  /* the longest list of tags */

/* Prefills one chunk after chunk_prefix, contexts and predecessor, and stores its K (before RoPE)
 * and V (CacheBlend section 4; AttentionStore section 3.4.1 for the order of K and RoPE). BLEND_OK:
 * the chunk is on disk.
 * BLEND_EXISTS: it was there already. Then nothing was computed, and it has the label and tags of
 * `options` now. (Where a draft was there and no draft is asked for, it is computed again, and the
 * result is BLEND_OK.) Its bytes were not read: if they are damaged, the next fuse notices and
 * computes the chunk again.
 * `options` and `id` may be NULL. tokens: [n_tokens].
 * Errors: INVALID_ARGUMENT (no tokens, one outside the vocabulary, or a label or tags that are too
 * long or not a line of UTF-8), CONTEXT_LENGTH, FULL, READ_ONLY, IO, NUMERIC, CANCELLED,
 * CALLBACK. */
BLEND_API int32_t blend_precompute(const blend_model *model, const blend_store *store,
                                   const int32_t *tokens, size_t n_tokens,
                                   const blend_precompute_options *options, blend_chunk_id *id,
                                   blend_error **err);

/* Whether a chunk is in the store: the look-up of a fuse, but it does not count as a use. `options`
 * (chunk_prefix, contexts, predecessor, tenant) as for blend_precompute, may be NULL. `id`, if not
 * NULL, is written whether the chunk is found or not. tokens: [n_tokens]. Errors: NOT_FOUND,
 * INVALID_ARGUMENT, CONTEXT_LENGTH, IO. */
BLEND_API int32_t blend_chunk_find(const blend_model *model, const blend_store *store,
                                   const int32_t *tokens, size_t n_tokens,
                                   const blend_precompute_options *options, blend_chunk_id *id,
                                   blend_error **err);

/* ---- A corpus ---------------------------------------------------------------------------- */

/* One text of a corpus. */
typedef struct blend_corpus_chunk {
  uint32_t struct_size; /* the same in every element of an array */
  uint32_t reserved;    /* 0 */
  const int32_t *tokens; /* [n_tokens] */
  size_t n_tokens;
  const char *label; /* as in blend_precompute_options */
  const char *tags;
} blend_corpus_chunk;

/* The result for one text. Valid during the call of `on_record` only. */
typedef struct blend_corpus_record {
  uint32_t struct_size;
  uint32_t n_contexts; /* chunks that the contextual record names as its context, at most
                          BLEND_MOST_CONTEXTS; 0: there is no contextual record, since no other
                          chunk is similar */
  uint64_t index;      /* of the text */
  uint64_t existed;    /* 1: nothing was computed */
  blend_chunk_id id;   /* of the contextual record, or of the one after the head alone */
} blend_corpus_record;

/* Non-zero stops with BLEND_E_CALLBACK. On the calling thread. */
typedef int32_t (*blend_corpus_fn)(void *user, const blend_corpus_record *record);

#define BLEND_CORPUS_REFRESH 1u     /* also compute those records again whose context has changed */
#define BLEND_CORPUS_HEAD_ONLY 2u   /* no records in context */
#define BLEND_CORPUS_NO_CLUSTERS 4u /* no cluster records: less time and fewer bytes, and answers of
                                       prompts with many chunks that differ more */

typedef struct blend_corpus_options {
  uint32_t struct_size;
  uint32_t flags;      /* BLEND_CORPUS_* */
  uint32_t codec;      /* BLEND_CODEC_* */
  uint32_t n_threads;  /* of the call; 0: all */
  const int32_t *chunk_prefix; /* the prompt head, as in blend_precompute_options */
  size_t n_chunk_prefix;
  const char *tenant;  /* chunks of other tenants are not used as context */
  uint32_t n_contexts; /* prefills of a contextual record and of a cluster record, at most
                          BLEND_MOST_CONTEXTS; 0 (default): 4. Each costs a prefill of the text's
                          own rows. The record after the head costs one more, and so does the
                          draft of a contextual record */
  uint32_t reserved;   /* 0 */
  double min_similarity; /* 0 to 0.9: less similar chunks are not used as context; default 0 */
  blend_progress_fn progress; /* records: for each text the one after the head, the draft if there
                                 are drafts, the cluster record and the contextual one */
  void *progress_user;
  const blend_cancel *cancel;
  blend_corpus_fn on_record; /* called for each text, in order; may be NULL */
  void *record_user;
} blend_corpus_options;

BLEND_API int32_t blend_corpus_options_init(blend_corpus_options *options, size_t struct_size);

/* Stores the chunks of a corpus so that they serve each other as context. Each gets up to three
 * records (docs/fusion.md, "The record of a chunk"). The one after the prompt head alone is exact
 * where the chunk stands first in a prompt. The contextual record is prefilled after the chunks
 * most similar to it, for places near a prompt's beginning. The cluster record is prefilled
 * together with similar chunks, for places after that. Fuses take the record that fits the place.
 * Similar chunks are sought among `chunks` and, for contextual records, also among those that the
 * store holds after the same head. Similarity is the cosine of TF-IDF weights over token ids. Not
 * used as context: chunks with a similarity of 0.9 or more, which say the same, and chunks of ten
 * tokens or fewer.
 * Contextual records: n_contexts prefills after similar texts, as with `contexts` of
 * blend_precompute. Where n_contexts is 2 or more, several texts first get drafts, by one prefill
 * each. Then every second prefill of a record loads its passages from drafts, or from finished
 * records.
 * Cluster records: texts of up to 256 tokens are prefilled with similar ones as one text of up to
 * 2,048 tokens (1,024 of texts shorter than 128), n_contexts times in other orders. K and V are
 * summed meanwhile, in at most 512 MiB. Fewer than eight new texts are no cluster.
 * BLEND_OK when all is on disk; BLEND_EXISTS: it was there already. Called again after a stop, it
 * goes on from there. Removing a chunk does not change the records that were made with it, until
 * they are refreshed. blend_store_remove takes one record of a chunk; the others have its label and
 * tags, and blend_store_remove_matching takes all of them. chunks: [n]. Errors name the chunk; they
 * are those of blend_precompute. */
BLEND_API int32_t blend_precompute_corpus(const blend_model *model, const blend_store *store,
                                          const blend_corpus_chunk *chunks, size_t n,
                                          const blend_corpus_options *options, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_PRECOMPUTE_H */
