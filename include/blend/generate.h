/*
 * generate.h - decode and generate from a fusion.
 */
#ifndef BLEND_GENERATE_H
#define BLEND_GENERATE_H

#include "blend/fuse.h"
#include "blend/grammar.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Logits of the last row, [*n_vocab]. Valid until the next decode, generate, make_exact, extend,
 * replace, erase or close. */
BLEND_API int32_t blend_fusion_get_logits(const blend_fusion *fusion, const float **logits,
                                          size_t *n_vocab, blend_error **err);
/* Tokens of all rows there are now, the prompt's and those appended since, [*n_rows]. Valid until
 * the next decode, generate, make_exact, extend, replace, erase or close. */
BLEND_API int32_t blend_fusion_get_tokens(const blend_fusion *fusion, const int32_t **tokens,
                                          size_t *n_rows, blend_error **err);

/* Appends tokens [n_tokens] to the fusion's cache and computes the logits of the last of them.
 * `cancel` may be NULL; a cancelled or failed call leaves the fusion as it was before.
 * Errors: INVALID_ARGUMENT, CONTEXT_LENGTH (more rows than reserve_tokens left), NUMERIC,
 * CANCELLED. */
BLEND_API int32_t blend_fusion_decode(blend_fusion *fusion, const int32_t *tokens, size_t n_tokens,
                                      const blend_cancel *cancel, blend_error **err);

/* A value that is added to a token's logit; -INFINITY: never this token. Several for one token add
 * up. A plain pair that will not grow. */
typedef struct blend_token_bias {
  int32_t token;
  float bias;
} blend_token_bias;

/* Natural logarithm of a token's probability, as the model gave it: before penalties, bias,
 * callback, temperature and truncation of the tail. A plain pair that will not grow. */
typedef struct blend_logprob {
  int32_t token;
  float logprob;
} blend_logprob;

/* May change the logits from which the next token is sampled, after penalties and bias; -INFINITY
 * is allowed (for grammars of the host). logits: [n_vocab], valid during the call. Non-zero stops
 * with BLEND_E_CALLBACK. Called on the calling thread. */
typedef int32_t (*blend_logits_fn)(void *user, float *logits, size_t n_vocab);

/* Called for a token that is about to be reported: logprobs[0] is its own, then come the
 * top_logprobs likeliest tokens in falling order, ties by the lower id. Valid during the call.
 * Otherwise as blend_logits_fn. */
typedef int32_t (*blend_logprobs_fn)(void *user, const blend_logprob *logprobs, size_t n);

typedef struct blend_generate_options {
  uint32_t struct_size;
  uint32_t n_threads;   /* of this call; 0 (default): the fusion's, that of blend_fuse_options */
  /* Where it ends. */
  uint32_t max_tokens;  /* default 128, at most 2^31 - 1; generation ends sooner if no reserved row
                           is left (reserve_tokens of blend_fuse_options) */
  uint32_t ignore_eos;  /* 1: generate past EOS */
  const int32_t *stop_tokens; /* besides EOS */
  size_t n_stop_tokens;
  const blend_text *stop_texts; /* the text ends before the first of them, also in the middle of a
                           token */
  size_t n_stop_texts;
  /* Sampling. */
  uint64_t seed;        /* of the sampler; same seed, same tokens */
  float temperature;    /* 0 (default): greedy, ties to the lowest id */
  float top_p;          /* 1 (default): off */
  float min_p;          /* tokens less likely than this share of the likeliest one's probability are
                           left out; 0 (default): off */
  uint32_t top_k;       /* 0 (default): off */
  float repetition_penalty; /* divides the logit of a token that was seen, or multiplies it if it is
                           negative; 1 (default): off */
  float frequency_penalty; /* subtracted from a logit for each time that its token was seen; 0
                           (default): off */
  float presence_penalty; /* subtracted from a logit if its token was seen; 0 (default): off */
  uint32_t penalty_context; /* number of rows before this call whose tokens count as seen, besides
                           those that it generates; 0 (default): none, so quoting the documents is
                           not penalized */
  const blend_token_bias *logit_bias;
  size_t n_logit_bias;
  blend_logits_fn logits;
  void *logits_user;
  /* Reports. */
  uint32_t top_logprobs; /* how many of the likeliest tokens `logprobs` receives with each token; 0
                           (default): it is not called */
  /* Prompt-lookup decoding. */
  uint32_t draft_tokens; /* maximum draft tokens per step. Drafts are the tokens that followed the
                           longest earlier match of the current suffix (the latest of equals). The
                           output is the same bits; answers that quote their documents are faster,
                           others a little slower. 0 (default): off; at most 16 */
  uint32_t draft_match; /* minimum suffix length to match, at least 1; default 3. A match of n
                           tokens drafts at most n */
  uint32_t reserved;    /* 0 */
  blend_logprobs_fn logprobs;
  void *logprobs_user;
  const blend_cancel *cancel;
  const blend_grammar *grammar; /* that the text of this call keeps to, from its first byte on; NULL
                           (default): none. Applied after `logits`, to draft tokens too. Not with
                           ignore_eos */
} blend_generate_options;

BLEND_API int32_t blend_generate_options_init(blend_generate_options *options, size_t struct_size);

/* A token and the text it completes: whole UTF-8 sequences, NUL-terminated (text_bytes does not
 * count the NUL). It is "" while a sequence is incomplete or a stop text may have begun. The text
 * that was held back comes with a later token, or, if a stop token comes next, with token -1, which
 * is not counted. Valid during the call only. */
typedef int32_t (*blend_token_fn)(void *user, int32_t token, const char *text, size_t text_bytes);

/* Generates from the fusion's logits, one callback a token, and appends what it generates to the
 * cache, so that a later call continues. The stop token is not reported. A token is reported and
 * counted before it is appended. So the last token is counted but not appended if a callback or a
 * cancel stopped the call, or a stop text was complete. A stop text is found only within the text
 * of one call. `fn` and `n_generated` may be NULL. Returns BLEND_OK (max_tokens or the end of the
 * cache) or BLEND_STOPPED. With a grammar, BLEND_STOPPED says that the text is complete, unless a
 * stop text or one of stop_tokens came first; BLEND_OK, that it was cut. Errors: CANCELLED,
 * CALLBACK, NUMERIC (also: `logits` left a NaN or +infinity), INVALID_ARGUMENT (also: bias and
 * `logits` leave no token that the grammar allows), UNSUPPORTED (the grammar takes too much time or
 * memory, blend_grammar_open). Calls on fusions of one
 * model that run at the same time share the pass over the weights at each token (continuous
 * batching); the bits that a call computes do not depend on the others. */
BLEND_API int32_t blend_fusion_generate(blend_fusion *fusion,
                                        const blend_generate_options *options, blend_token_fn fn,
                                        void *user, size_t *n_generated, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_GENERATE_H */
