/*
 * log.h - what the library tells the host's log: records with a level, a code and fields.
 */
#ifndef BLEND_LOG_H
#define BLEND_LOG_H

#include "blend/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The level of a record, and the least important level that a context passes on. */
#define BLEND_LOG_DEFAULT 0u /* as INFO */
#define BLEND_LOG_ERROR 1u   /* something was lost: a background write that failed */
#define BLEND_LOG_WARNING 2u /* the library dealt with a problem by itself: damage that became a
                                miss, a server of the remote tier that does not answer, a CPU
                                without fast kernels */
#define BLEND_LOG_INFO 3u    /* what happens now and then: a model or a store was opened, a chunk
                                was evicted */
#define BLEND_LOG_DEBUG 4u   /* every fuse too, but those of step.h */

/* Codes of records about what happened, besides the BLEND_E_* of what failed. */
#define BLEND_EVENT_EVICTED 101      /* a chunk left the store to make room, or expired */
#define BLEND_EVENT_REMOTE_DOWN 102  /* a server of the remote tier failed; it is not asked for a
                                        while */
#define BLEND_EVENT_REMOTE_UP 103    /* that server answers again */
#define BLEND_EVENT_MODEL_OPENED 104
#define BLEND_EVENT_STORE_OPENED 105
#define BLEND_EVENT_STORE_REBUILT 106 /* a store's lists of uses or texts were made again from its
                                         chunks: they were damaged, or an older version's */
#define BLEND_EVENT_FUSED 107
#define BLEND_EVENT_UNTRUSTED 108    /* a profile was opened that trusts no ratio */

#define BLEND_FIELD_TEXT 1u    /* UTF-8 */
#define BLEND_FIELD_INTEGER 2u
#define BLEND_FIELD_NUMBER 3u

/* A part of a record that a program can use. A plain value that will not grow. */
typedef struct blend_log_field {
  const char *key;   /* lower-case letters and _ */
  const char *text;  /* BLEND_FIELD_TEXT; otherwise "" */
  int64_t integer;   /* BLEND_FIELD_INTEGER; otherwise 0 */
  double number;     /* BLEND_FIELD_NUMBER; otherwise 0 */
  uint32_t type;     /* BLEND_FIELD_* */
  uint32_t reserved; /* 0 */
} blend_log_field;

/* One record. What it points to is valid during the call of blend_log_fn. */
typedef struct blend_log_record {
  uint32_t struct_size; /* of this struct, as the library has it */
  uint32_t level;       /* BLEND_LOG_ERROR .. _DEBUG */
  int32_t code;         /* BLEND_EVENT_*, or BLEND_E_* of what failed */
  uint32_t n_fields;
  uint64_t time_unix_ns; /* when it was made */
  const char *component; /* "context", "model", "profile", "store", "remote" or "fuse" */
  const char *message;   /* one sentence, UTF-8 */
  const blend_log_field *fields; /* [n_fields]: details for programs. They have no text of
                                    documents, prompts or answers */
} blend_log_record;

/* Receives a record. Called from any thread, several at once, possibly while locks of the library
 * are held: it must not call the library, must not throw, and should return soon. The return value
 * is ignored. Records of a context come until everything that was opened on it is closed. A record
 * for which there is no memory is lost. */
typedef int32_t (*blend_log_fn)(void *user, const blend_log_record *record);

#ifdef __cplusplus
}
#endif

#endif /* BLEND_LOG_H */
