/*
 * text.h - documents and a question in, a fusion out. The library applies the chat template,
 * tokenizes, finds the stored chunks and computes the missing ones:
 *
 *   blend_fusion *fusion = NULL;
 *   // Once, or leave it to the first fuse:
 *   blend_precompute_texts(model, store, documents, n, NULL, NULL, &err);
 *   blend_fuse_texts(&fusion, model, store, documents, n, "Who signs the invoices?", NULL, &err);
 *   blend_fusion_generate(fusion, NULL, print_token, NULL, NULL, &err);
 *
 * Beneath it are chat.h, which makes segments of tokens, and blend_fuse, which takes them.
 */
#ifndef BLEND_TEXT_H
#define BLEND_TEXT_H

#include "blend/chat.h"
#include "blend/precompute.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLEND_TEXT_PLAIN 1u    /* no chat template, though the model has one */
#define BLEND_TEXT_VERBATIM 2u /* documents are taken as they are, white space at their ends
                                  included */
#define BLEND_TEXT_SPECIAL 4u  /* without a template: control tokens such as <|im_end|> are
                                  recognized in `system` and `question_template`; in the question
                                  and the documents never */
#define BLEND_TEXT_MUST_CALL 8u /* the answer must be a call of one of `tools`, which must be given.
                                   The prompt then ends with what stands before a call's JSON, and a
                                   grammar of calls makes the answer that JSON. Needs a chat
                                   template */

/* How a prompt is written. All texts are UTF-8 and end with a NUL. Give the same options to
 * blend_precompute_texts and blend_fuse_texts: the text before the first document is part of a
 * chunk's id, and so is the tenant. So another `system`, template, `variables`, `tools`,
 * `now_s` or `tenant` can make every chunk a miss. Members that are NULL or 0 have their default. */
typedef struct blend_text_options {
  uint32_t struct_size;
  uint32_t flags;       /* BLEND_TEXT_* */
  /* The prompt. */
  const char *system;   /* stands first, the same in every prompt; default: none */
  const char *question_template; /* the text around the question, which replaces {question}.
                           Default: the question alone where there is a chat template, else
                           "Question: {question}", a new line, "Answer:" */
  const char *const *titles; /* [n_documents], for chat templates that write titles;
                           blend_precompute_texts labels the chunks by them. NULL, or an element
                           NULL: none */
  /* The chat template. */
  const char *template_source; /* Jinja, used instead of the model's own template; default: the
                                  model's */
  const char *variables; /* a JSON object: further variables of the template; default: none */
  uint64_t now_s;       /* seconds since 1970, for templates that write the date; 0 (default): the
                           clock's */
  /* The call. */
  const char *tenant;   /* salt of the ids: tenants never share chunks; NULL: that of `fuse`, or
                           of the call's `corpus` */
  const blend_cancel *cancel; /* NULL: that of `fuse` or of `corpus` */
  const blend_fuse_options *fuse; /* of blend_fuse_texts and blend_fuse_messages; NULL: the
                                     defaults */
  const char *tools;    /* the functions that the model may call, as in blend_chat_options; they
                           need a chat template. Default: none */
} blend_text_options;

BLEND_API int32_t blend_text_options_init(blend_text_options *options, size_t struct_size);

/* The prompt of blend_fuse_texts, not fused: its segments are for blend_fuse_batch,
 * blend_fusion_extend and blend_layerwise_create. With a chat template it is the prompt of
 * blend_chat_render for a system message (if `system` is given), the documents, and the question as
 * a message of the role "user". Without a template it is plain text in three kinds of segment
 * (BLEND_SEGMENT_*), each segment tokenized by itself: PREFIX is BOS, if the model expects it, and
 * `system` with a new line after it; each document is a CHUNK; QUESTION is the question in its
 * question_template.
 *   Each document is one chunk. Unless BLEND_TEXT_VERBATIM is set, white space at its ends is
 * removed and one new line is appended, so that a text is the same chunk however it was read. (A
 * paragraph that the command `blend` stores alone is that chunk too.) White space inside stays. A
 * document may occur several times. Invalid UTF-8 becomes byte tokens. Cut long texts into passages
 * of a few hundred tokens: a chunk is reused whole or not at all.
 *   documents: [n_documents], which may be 0. Everything is copied.
 * Errors: INVALID_ARGUMENT (names a document that is NULL or has nothing but white space; or the
 * question is NULL; or the template refuses the messages), FORMAT and UNSUPPORTED as
 * blend_chat_render, OUT_OF_MEMORY, CANCELLED. */
BLEND_API int32_t blend_chat_render_texts(blend_chat **out, const blend_model *model,
                                          const char *const *documents, size_t n_documents,
                                          const char *question, const blend_text_options *options,
                                          blend_error **err);

/* Fuses documents and a question: blend_fuse of the segments of blend_chat_render_texts. A document
 * that the store does not have is computed, and stored afterwards (on_miss of `fuse`). `store` may
 * be NULL: then all is computed and nothing stored. `options` may be NULL.
 *   The chunk prefix of the look-up, unless `fuse` has a chunk_prefix, is the one with which
 * blend_precompute_texts stores documents: the head of a prompt with no title and no earlier turns.
 * So documents are found even if the head of this prompt has more.
 * Errors: those of blend_chat_render_texts and of blend_fuse. CONTEXT_LENGTH: too much text. */
BLEND_API int32_t blend_fuse_texts(blend_fusion **out, const blend_model *model,
                                   const blend_store *store, const char *const *documents,
                                   size_t n_documents, const char *question,
                                   const blend_text_options *options, blend_error **err);

/* The same for a conversation, which blend_chat_render renders: if the template does not read
 * `documents`, they stand before the last message of the role "user". `system` becomes a message
 * before all others, and `question_template` is not used. `messages`: at least one. Errors: also
 * NOT_FOUND (there is no chat template). */
BLEND_API int32_t blend_fuse_messages(blend_fusion **out, const blend_model *model,
                                      const blend_store *store, const blend_chat_message *messages,
                                      size_t n_messages, const char *const *documents,
                                      size_t n_documents, const blend_text_options *options,
                                      blend_error **err);

/* Stores documents for the prompts of blend_fuse_texts and blend_fuse_messages: first the head of
 * these prompts, then the documents as a corpus (blend_precompute_corpus) after that head, so that
 * they serve each other as context. Give all documents at once, or some in each call. `corpus` may
 * be NULL; if its chunk_prefix is NULL, the head of these prompts is meant. `options` may be NULL.
 * `index` of a blend_corpus_record is that of the document.
 *   BLEND_OK when all is on disk; BLEND_EXISTS: it was there already. Called again after a stop, it
 * goes on from there. Errors: those of blend_chat_render_texts and blend_precompute_corpus;
 * UNSUPPORTED if the chat template changes every document, so that none can be a chunk. */
BLEND_API int32_t blend_precompute_texts(const blend_model *model, const blend_store *store,
                                         const char *const *documents, size_t n_documents,
                                         const blend_text_options *options,
                                         const blend_corpus_options *corpus, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_TEXT_H */
