/* What the C tests of the ABI share. Each tests/capi/NAME.c is C99, sees nothing but blend.h, and
 * holds functions that main.cpp runs as one GoogleTest case each. */
#ifndef BLEND_TESTS_CAPI_FIXTURE_H
#define BLEND_TESTS_CAPI_FIXTURE_H

#include <stddef.h>
#include <stdint.h>

#include "blend/admin.h"
#include "blend/blend.h"
#include "blend/experimental.h"
#include "blend/fidelity.h"
#include "blend/remote.h"
#include "blend/report.h"
#include "blend/step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fixture {
  const char* dir;         /* empty, writable, the test's own */
  const char* model;       /* small random Llama: 4 layers, 320 tokens, context 512 */
  const char* other_model; /* the same shape, other weights */
  const char* chain_model; /* whose greedy next token is known: see chain_next() */
  /* Wide enough for products that are cut into blocks; of CAPI_SIGNAL_TESTS only. */
  const char* wide_model;
  const char* quantized_model;
} fixture;

/* The chain model says the emoji U+1F600, "a", U+00E9 in byte tokens, then EOS; 'b' is followed by
 * a lone lead byte and 'a'. */
#define CHAIN_N_VOCAB 320
#define CHAIN_BOS 1
#define CHAIN_EOS 2
#define CHAIN_BYTE(b) (3 + (b))
int32_t chain_next(int32_t token);

void capi_fail(const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) capi_fail(__FILE__, __LINE__, "not: %s", #condition); \
  } while (0)
/* For what the rest of the test stands on. */
#define REQUIRE(condition)                                  \
  do {                                                      \
    if (!(condition)) {                                     \
      capi_fail(__FILE__, __LINE__, "not: %s", #condition); \
      return;                                               \
    }                                                       \
  } while (0)
/* Runs `call`, which must use `&err`, and compares its code; on failure the error object must be
 * there, carry the same code and a sentence; on success it must be NULL. */
#define CHECK_CODE(expected, call)                                       \
  do {                                                                   \
    blend_error* err = (blend_error*)(uintptr_t)16;                      \
    const int32_t code_ = (call);                                        \
    capi_check(__FILE__, __LINE__, #call, (expected), code_, err, NULL); \
  } while (0)
/* The same; the message must also contain `word`. */
#define CHECK_SAYS(expected, word, call)                                   \
  do {                                                                     \
    blend_error* err = (blend_error*)(uintptr_t)16;                        \
    const int32_t code_ = (call);                                          \
    capi_check(__FILE__, __LINE__, #call, (expected), code_, err, (word)); \
  } while (0)
#define CHECK_OK(call) CHECK_CODE(BLEND_OK, call)

/* Compares and frees the error object. `word` may be NULL. */
void capi_check(const char* file, int line, const char* call, int32_t expected, int32_t got,
                blend_error* err, const char* word);

/* ---- Shortcuts; they report failure and give NULL. */
blend_ctx* open_ctx(void);
blend_model* open_model(const blend_ctx* ctx, const char* path);
/* f32 KV; `name` is a directory under f->dir. */
blend_store* open_store(const fixture* f, const blend_ctx* ctx, const char* name);
/* tokens[i] = first + i * 7 % 300, all inside the vocabulary. */
void fill_tokens(int32_t* tokens, size_t n, int32_t first);
blend_segment segment(uint32_t kind, const int32_t* tokens, size_t n);
blend_fuse_options fuse_options(void);
/* One QUESTION of `n` tokens by full prefill. */
blend_fusion* fuse_question(const blend_model* model, const int32_t* tokens, size_t n,
                            uint32_t reserve);
/* f->dir/name; valid until the fourth call after it. Not thread-safe. */
const char* path_in(const fixture* f, const char* name);
/* Last logits equal, bit for bit? */
int same_logits(const blend_fusion* a, const blend_fusion* b);

/* What a test opens, in one place. */
typedef struct world {
  blend_ctx* ctx;
  blend_model* model;
  blend_store* store;
} world;
/* 1 when all three are open. */
int open_world(const fixture* f, world* w);
void close_world(world* w);

/* ---- The tests: X(function) for main.cpp. */
/* clang-format off */
#define CAPI_TESTS(X)                    \
  X(nulls_context)                       \
  X(nulls_model)                         \
  X(nulls_store)                         \
  X(nulls_fusion)                        \
  X(nulls_host)                          \
  X(nulls_layerwise)                          \
  X(nulls_profile)                       \
  X(chat_arguments)                      \
  X(chat_is_cancelled)                   \
  X(chat_has_tools)                      \
  X(chat_describes_templates)            \
  X(chat_calls_arguments)                \
  X(chat_calls_are_found)                \
  X(chat_fits_a_small_stack)             \
  X(chat_is_fused)                       \
  X(texts_without_a_template)            \
  X(texts_by_a_template)                 \
  X(texts_of_a_conversation)             \
  X(texts_stored_are_found)              \
  X(texts_arguments)                     \
  X(texts_of_users)                      \
  X(version_and_codes)                   \
  X(structs_init)                        \
  X(structs_size)                        \
  X(structs_segments_of_a_later_release) \
  X(arguments_of_open)                   \
  X(arguments_tokens)                    \
  X(arguments_absurd)                    \
  X(arguments_fuse_options)              \
  X(arguments_segments)                  \
  X(arguments_context_length)            \
  X(arguments_loras)                     \
  X(arguments_buffers)                   \
  X(chunks_by_id)                        \
  X(chunks_behind_bos)                   \
  X(corpus_is_found)                     \
  X(corpus_arguments)                    \
  X(chunks_of_another_model)             \
  X(chunks_list_and_remove)              \
  X(chunks_have_labels)                  \
  X(chunks_by_label)                     \
  X(chunks_tenants)                      \
  X(chunks_of_another_tenant)            \
  X(chunks_read_only)                    \
  X(chunks_quota)                        \
  X(stays_quota_and_pins)                \
  X(stays_tenants)                       \
  X(stays_care)                          \
  X(stays_where_rows_came_from)          \
  X(lifetime_any_order)                  \
  X(lifetime_many_times)                 \
  X(lifetime_fork)                       \
  X(lifetime_fork_while_fusing)          \
  X(forked_takes_no_lock)                \
  X(lifetime_address_space)              \
  X(stop_cancel_before)                  \
  X(stop_cancel_from_a_thread)           \
  X(stop_callbacks)                      \
  X(stop_extend_changes_nothing)         \
  X(stop_decode_changes_nothing)         \
  X(stop_replace_changes_nothing)        \
  X(grammar_arguments)                   \
  X(grammar_ends_the_text)               \
  X(grammar_lets_eos_come)               \
  X(grammar_in_every_loop)               \
  X(grammar_has_the_last_word)           \
  X(grammar_is_of_a_call)                \
  X(generate_whole_sequences)            \
  X(generate_stops)                      \
  X(generate_resumes)                    \
  X(generate_samples)                    \
  X(generate_to_the_end_of_the_cache)    \
  X(control_machine)                     \
  X(control_advise)                      \
  X(control_of_a_fuse)                   \
  X(trust_beside_the_model)              \
  X(trust_on_untrusted)                  \
  X(log_levels)                          \
  X(log_of_a_fuse)                       \
  X(log_arguments)                       \
  X(damage_of_a_payload)                 \
  X(damage_of_a_description)             \
  X(damage_not_a_store)              \
  X(damage_while_open_is_told_by_a_listing) \
  X(generate_in_parts)                   \
  X(fidelity_is_seen_and_kept)           \
  X(fidelity_of_a_host_that_decodes)     \
  X(fidelity_moves_the_ratio)            \
  X(fidelity_closed_in_any_order)        \
  X(generate_batch_is_each_alone)        \
  X(generate_lookup_is_the_same_text)    \
  X(fork_is_a_fuse_of_its_own)           \
  X(exact_after_a_moment)                \
  X(exact_is_said_until_an_edit)         \
  X(exact_changes_nothing_where_it_fails) \
  X(embed_texts_as_tokens)               \
  X(embed_poolings)                      \
  X(embed_refuses)                       \
  X(sampling_stop_texts)                 \
  X(sampling_rules)                      \
  X(sampling_logprobs)                   \
  X(sampling_refuses)
#define CAPI_SIGNAL_TESTS(X)             \
  X(signals_blocked_in_our_threads)      \
  X(signals_storm_packed)                \
  X(signals_storm_quantized)             \
  X(signals_storm_int8)
/* clang-format on */
#define CAPI_DECLARE(name) void name(const fixture* f);
CAPI_TESTS(CAPI_DECLARE)
CAPI_SIGNAL_TESTS(CAPI_DECLARE)

#ifdef __cplusplus
}
#endif

#endif
