/*
 * chat.h - a conversation and documents as a prompt, by the model's own chat template.
 */
#ifndef BLEND_CHAT_H
#define BLEND_CHAT_H

#include "blend/fuse.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One turn of a conversation. Texts are copied. */
typedef struct blend_chat_message {
  uint32_t struct_size;  /* the same in every element of an array */
  const char *role;      /* as the template knows it: "system", "user", "assistant", "tool" */
  const char *content;   /* UTF-8; may be NULL with content_bytes == 0 */
  size_t content_bytes;
  const char *members;   /* a JSON object: what the message has besides, such as {"tool_calls": [...]}
                            or {"tool_call_id": "a1", "name": "f"}, as OpenAI's API has them;
                            NULL = "": nothing. Not role or content */
} blend_chat_message;

/* A document for the model to answer from: it becomes a chunk. */
typedef struct blend_chat_document {
  uint32_t struct_size;     /* the same in every element of an array */
  const char *title;        /* for templates that write one; NULL = "" */
  const char *text;         /* UTF-8; with and without a newline at the end are two chunks; NULL for
                               a document given by id */
  size_t text_bytes;
  const blend_chunk_id *id; /* of a chunk that the store has, instead of the text */
} blend_chat_document;

#define BLEND_CHAT_NO_GENERATION_PROMPT 1u /* the prompt ends with the last message, not with the
                                              opening of the assistant's turn */
#define BLEND_CHAT_MUST_CALL 2u /* the answer must be a call of one of `tools`, which must be given,
                                   as the option or as a variable. The prompt then ends with what
                                   stands before a call's JSON, and a grammar of calls makes the
                                   answer that JSON. Not for a prompt that ends with the last
                                   message */

typedef struct blend_chat_options {
  uint32_t struct_size;
  uint32_t flags;        /* BLEND_CHAT_* */
  const char *template_source; /* Jinja, used instead of the model's own template; NULL = "": the
                                  model's */
  const char *variables; /* a JSON object: further variables of the template, such as
                            {"enable_thinking": false}; NULL = "": none. Not messages, documents,
                            bos_token or eos_token: the first two are arguments of the call, the
                            others are the model's */
  uint64_t now_s;        /* seconds since 1970, for templates that write the date; 0: the clock's */
  const blend_cancel *cancel; /* stops the call within milliseconds, or after the text that is being
                                 tokenized; may be NULL */
  const char *tools;     /* a JSON list: the functions that the model may call, in the form of
                            OpenAI's API, [{"type": "function", "function": {"name": "f",
                            "description": "...", "parameters": {a JSON schema}}}];
                            NULL = "": none */
} blend_chat_options;

BLEND_API int32_t blend_chat_options_init(blend_chat_options *options, size_t struct_size);

/* A rendered conversation. Immutable. */
typedef struct blend_chat blend_chat;

/* Renders `messages` (at least one) and `documents` (0 or more) with the model's template
 * (chat_template in blend_model_info), and tokenizes them:
 *   - Control tokens are recognized only in text that the template itself writes. Messages,
 *     documents and variables are plain text, whatever they contain: "<|im_end|>" in a document
 *     ends nothing. If they contain no control token, and there are no documents, the ids are those
 *     of transformers' apply_chat_template.
 *   - A document is a CHUNK of the tokens that blend_model_tokenize gives for its text with no
 *     flags, so that its id is the same in every prompt, and that of blend_precompute. If the
 *     template does not read `documents`, they stand before the content of the last message of role
 *     "user", an empty line after each.
 *   - `tools` are the template's variable of that name. If it does not read it, a text that lists
 *     them stands at the end of the first system message; if it does not read `tool_calls`, calls
 *     and the messages of the role "tool" become text (docs/models.md, "Chat templates").
 *   - Everything before the first text that is not a system message's is PREFIX. Everything after
 *     the last document is QUESTION. The rest is TEXT, and so is a document that the template
 *     changes.
 *   - BOS is there only if the template writes it.
 * The tokens that end a turn (<|im_end|>, <|eot_id|>, ...) end blend_fusion_generate, as EOS does.
 *   Templates come from strangers, so their nesting, steps and memory are bounded in proportion to
 * the size of the host's input. A thread's stack of 128 KiB is enough. A template that uses more of
 * Jinja than docs/models.md, "Chat templates", has is UNSUPPORTED; the message names it.
 * Errors: INVALID_ARGUMENT (also: the template refuses the messages, with its own words), NOT_FOUND
 * (the model has no template), FORMAT (the template cannot be parsed; names the line), UNSUPPORTED
 * (also: a build without templates, BLEND_CHAT=OFF), OUT_OF_MEMORY, CANCELLED. */
BLEND_API int32_t blend_chat_render(blend_chat **out, const blend_model *model,
                                    const blend_chat_message *messages, size_t n_messages,
                                    const blend_chat_document *documents, size_t n_documents,
                                    const blend_chat_options *options, blend_error **err);
BLEND_API void blend_chat_close(blend_chat *chat);

/* For blend_fuse; valid while `chat` is open. */
BLEND_API int32_t blend_chat_get_segments(const blend_chat *chat, const blend_segment **segments,
                                          size_t *n_segments, blend_error **err);
/* The rendered text, UTF-8, with U+FFFC for a document given by id; valid while `chat` is open. */
BLEND_API int32_t blend_chat_get_text(const blend_chat *chat, const char **text, size_t *n_bytes,
                                      blend_error **err);

/* What a chat template has a place for, and how a model writes calls of functions by it. */
typedef struct blend_template_info {
  uint32_t struct_size;
  uint32_t reads_system;     /* 1: the text of a system message becomes a part of the prompt; 0: the
                                template refuses such a message, or leaves it out */
  uint32_t reads_tools;      /* 1: it reads `tools`; 0: blend_chat_render lists them in a text */
  uint32_t reads_tool_calls; /* 1: it writes a message's `tool_calls`; 0: blend_chat_render makes
                                text of them */
  uint32_t reads_documents;  /* 1: it reads `documents`; 0: they stand before the last message of
                                the role "user" */
  uint32_t reads_generation_prompt; /* 1: it reads `add_generation_prompt`; 0:
                                BLEND_CHAT_NO_GENERATION_PROMPT changes nothing */
  uint32_t reads_enable_thinking; /* 1: it reads the variable `enable_thinking`, which false turns
                                off */
  uint32_t call_id_length;   /* the template takes only ids of calls that are so many letters and
                                digits; 0: any */
  /* A call is a JSON object, {"name": "f", "arguments": {...}}. The strings are constants. */
  const char *call_open;     /* the text before a call; "": an answer is one call, from its first
                                byte, or has none */
  const char *call_close;    /* the text after a call; "": the last call ends with the answer */
  const char *call_begin;    /* what a prompt ends with whose answer must be a call
                                (BLEND_CHAT_MUST_CALL); the answer is then the JSON of it */
  const char *call_arguments; /* the name of that member: "arguments" or "parameters" */
} blend_template_info;

/* Describes a template: `template_source`, or the model's own if that is NULL or "". For hosts that
 * find calls in answers, or choose what to put into messages. Takes a second at most. Errors: those
 * of blend_chat_render, but not CANCELLED. */
BLEND_API int32_t blend_model_get_template_info(const blend_model *model,
                                                const char *template_source,
                                                blend_template_info *info, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_CHAT_H */
