/*
 * calls.h - calls of functions in an answer, however its model writes them.
 */
#ifndef BLEND_CALLS_H
#define BLEND_CALLS_H

#include "blend/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BLEND_CALLS_MUST_CALL 1u /* the answer is one call, from its first byte: the chat said that
                                    it must be, and a grammar of calls made it */

typedef struct blend_call_reader_options {
  uint32_t struct_size;
  uint32_t flags;              /* BLEND_CALLS_* */
  const char *template_source; /* the chat template of the prompt, where it is not the model's
                                  own; NULL = "" */
  const char *tools;           /* the functions, in the form of OpenAI's API: calls of others are text.
                                  Without them a call may have any name; NULL = "" */
} blend_call_reader_options;

BLEND_API int32_t blend_call_reader_options_init(blend_call_reader_options *options,
                                                 size_t struct_size);

/* One call. */
typedef struct blend_call_info {
  uint32_t struct_size;
  uint32_t is_cut;       /* 1: the answer ended inside the call: the arguments may end anywhere */
  const char *name;      /* of the function, UTF-8; valid while the reader is open */
  const char *arguments; /* JSON of an object, as the model wrote it; where it wrote none, "{}" of a
                            whole call and "" of a cut one; valid while the reader is open */
} blend_call_info;

/* Finds the calls in one answer while it is generated, in the form of the chat template
 * (blend_template_info). It copies what it needs: model and options may go. One thread at a time. */
typedef struct blend_call_reader blend_call_reader;

/* Errors: those of blend_model_get_template_info; INVALID_ARGUMENT (also: `tools` are not a list of
 * functions, or the flags are unknown). */
BLEND_API int32_t blend_call_reader_open(blend_call_reader **out, const blend_model *model,
                                         const blend_call_reader_options *options,
                                         blend_error **err);
BLEND_API void blend_call_reader_close(blend_call_reader *reader);

/* Takes the next piece of the answer, as blend_fusion_generate gives it: its token (-1: none) and
 * text, which may end inside a character and may be empty. *shown receives the text that is now
 * known to be no part of a call and was not given before: *n_shown bytes, with no NUL after them,
 * valid until the next call with this handle.
 *   Text that may become a call is held back. What turns out to be none is shown as it was written:
 * a call of a function that `tools` does not have, one that is not JSON, one whose arguments are no
 * object. A call is JSON by RFC 8259, nested at most 64 deep, with no name twice in an object and
 * with numbers in a double's range.
 *   A model may write anything: all calls for one answer take time and memory in proportion to it.
 * After an error the reader is as it was before the call, which may be made again.
 * Errors: INVALID_ARGUMENT (also: the answer has ended), OUT_OF_MEMORY. */
BLEND_API int32_t blend_call_reader_add(blend_call_reader *reader, int32_t token, const char *text,
                                        size_t n_bytes, const char **shown, size_t *n_shown,
                                        blend_error **err);
/* The same at the end of the answer. is_cut: 1 if it ended before the model ended it (max_tokens):
 * the last call is then one as far as it was written, if its name was; 0: only whole calls are. */
BLEND_API int32_t blend_call_reader_end(blend_call_reader *reader, int32_t is_cut,
                                        const char **shown, size_t *n_shown, blend_error **err);

/* The calls so far, in their order; index < *n. */
BLEND_API int32_t blend_call_reader_get_n_calls(const blend_call_reader *reader, size_t *n,
                                                blend_error **err);
BLEND_API int32_t blend_call_reader_get_call(const blend_call_reader *reader, size_t index,
                                             blend_call_info *info, blend_error **err);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_CALLS_H */
