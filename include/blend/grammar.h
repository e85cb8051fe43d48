/*
 * grammar.h - what a generated text must be: JSON, a JSON schema, a regular expression, a grammar,
 * or a call of a function.
 */
#ifndef BLEND_GRAMMAR_H
#define BLEND_GRAMMAR_H

#include "blend/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLEND_GRAMMAR_JSON 0u        /* any JSON object; no text */
#define BLEND_GRAMMAR_JSON_SCHEMA 1u /* a JSON Schema (2020-12) */
#define BLEND_GRAMMAR_REGEX 2u       /* a regular expression that the whole text matches */
#define BLEND_GRAMMAR_EBNF 3u        /* rules NAME ::= ..., the first one named root */
#define BLEND_GRAMMAR_CALL 4u        /* a call of one of the functions that the text lists, as the
                                        `tools` of a chat. The prompt must end with the beginning
                                        of a call, as a chat whose answer must be one makes it */

typedef struct blend_grammar_options {
  uint32_t struct_size;
  uint32_t language;  /* BLEND_GRAMMAR_*; default JSON */
  const char *text;   /* of the other languages: UTF-8, at most 256 KiB; NULL = "" */
  const blend_cancel *cancel; /* stops the call; may be NULL */
  const char *template_source; /* of a call: the chat template of the prompt, where it is not the
                                  model's own; NULL = "" */
  const char *function; /* of a call: the only function that it may call; default: any of them */
} blend_grammar_options;

BLEND_API int32_t blend_grammar_options_init(blend_grammar_options *options, size_t struct_size);

/* A grammar, compiled for the tokenizer of a model. Immutable: any number of calls and threads may
 * use it, on fusions of every model with that tokenizer. */
typedef struct blend_grammar blend_grammar;

/* Compiles a grammar for blend_generate_options.grammar. A generated text is UTF-8. Where
 * the grammar must end, generation ends. Where it may end, a token that ends generation is allowed.
 * Other control tokens never come.
 *   JSON is written on one line, with ", " and ": " between values, members in the order of the
 * schema. Objects and arrays have only the members and items that the schema describes: others only
 * where additionalProperties or items allows them, or where the schema says nothing of them. A
 * keyword that cannot be kept is refused by name, never passed over; docs/generate.md has what is
 * kept. Numbers may be larger than a double.
 *   A call is a JSON object of the function's name and its arguments, in this order. The arguments
 * are an object that satisfies the function's `parameters`: without them, or where they are null,
 * the object is empty; {} is satisfied by any object. The list may have 256 KiB, as any text, and the
 * schema that is made of it 1 MiB: it repeats the form of a call for each function.
 *   Grammars may come from strangers. This call takes at most 20 seconds of its thread's computing
 * time and 512 MiB; a generated token takes at most 1 second, and a text 256 MiB. A stack of 512 KiB
 * is enough. The first call for a model also prepares its vocabulary, which is kept with the model;
 * docs/generate.md has the times.
 * Errors: INVALID_ARGUMENT (the text cannot be used, or nothing satisfies it), UNSUPPORTED (names
 * what of it cannot be kept, or the bound; also: a build without grammars, BLEND_GRAMMAR=OFF),
 * OUT_OF_MEMORY, CANCELLED; of a call also those of blend_model_get_template_info. */
BLEND_API int32_t blend_grammar_open(blend_grammar **out, const blend_model *model,
                                     const blend_grammar_options *options, blend_error **err);
BLEND_API void blend_grammar_close(blend_grammar *grammar);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_GRAMMAR_H */
