/*
 * blend.h - the C ABI of libblend.
 *
 * libblend keeps the KV caches of text chunks in a store. For a prompt it fuses the caches of any
 * chunks in any order, and recomputes only a part of their rows. (A row is the K and V of one token
 * position of the prompt.) The first token then comes several times sooner than by full prefill,
 * and slightly fewer answers are right; docs/quality.md has figures, and docs/architecture.md the
 * terms. The method is CacheBlend (Yao et al., EuroSys '25); the storage follows AttentionStore
 * (Gao et al., ATC '24).
 *
 * A PROGRAM
 *   #include <blend/blend.h>
 *   #include <stdio.h>
 *   #define TRY(call) if ((call) < 0) return puts(blend_error_message(error)), 1
 *
 *   static int32_t print_token(void *user, int32_t token, const char *text, size_t n) {
 *     return (void)token, fwrite(text, 1, n, user) != n;
 *   }
 *
 *   int main(void) {
 *     const char *docs[] = {"Ann signs the invoices.", "Bo pays them on Fridays."};
 *     blend_ctx *ctx = NULL;
 *     blend_model *model = NULL;
 *     blend_store *store = NULL;
 *     blend_fusion *fusion = NULL;
 *     blend_error *error = NULL;
 *     TRY(blend_ctx_create(&ctx, NULL, &error));
 *     TRY(blend_model_open(&model, ctx, "model.gguf", NULL, &error));
 *     TRY(blend_store_open(&store, ctx, "store", NULL, &error));
 *     TRY(blend_fuse_texts(&fusion, model, store, docs, 2, "Who signs?", NULL, &error));
 *     TRY(blend_fusion_generate(fusion, NULL, print_token, stdout, NULL, &error));
 *     blend_fusion_close(fusion);
 *     blend_store_close(store);
 *     blend_model_close(model);
 *     blend_ctx_close(ctx);
 *     return 0;
 *   }
 *
 * HOW THE PARTS FIT TOGETHER
 *   context -> model, store -> precompute (chunks into a store) -> fuse (segments) -> generate.
 *   The context owns the compute threads. A model is immutable once open. A store is a directory
 *   that several processes may share. A fusion is one prompt's fused KV cache and the logits of
 *   its last row.
 *
 * RULES THAT HOLD EVERYWHERE
 *   Names           A function of one handle begins with its name: blend_fusion_*, blend_store_*.
 *                   Verbs that take a model have short names: blend_precompute, blend_fuse,
 *                   blend_calibrate. blend_x_get_y may fail and gives an error code;
 *                   blend_x_y of an error or a context gives the value itself.
 *   Return values   int32_t if a call may fail: BLEND_OK (0); a positive BLEND_* is success with a
 *                   remark, such as BLEND_EXISTS; a negative BLEND_E_* is an error. New codes may
 *                   be added: treat an unknown negative value as an error.
 *   Errors          The trailing `blend_error **err` may be NULL. On failure *err receives an
 *                   object that the caller owns (blend_error_free) and may read on any thread. On
 *                   success *err is set to NULL. There is no thread-local last error.
 *   Threads         Functions that take `const blend_x *` may run concurrently on one handle. A
 *                   function that takes `blend_x *` needs the handle for itself: no other call on
 *                   it may run meanwhile. That includes closing, after which no call may follow.
 *   n_threads       An option of many calls: the maximum number of the context's compute threads
 *                   that the call uses at a time, the calling one included. 0 (default), and more
 *                   than there are: all. Values above INT32_MAX are INVALID_ARGUMENT. Calls run
 *                   side by side as long as their threads fit; the others take turns in order of
 *                   arrival. The number of threads does not change a bit of any result. Threads
 *                   that only read or write are not counted. docs/threads.md has more.
 *   Lifetime        Handles may be closed in any order: what a fusion needs of its model, or a
 *                   model of its context, stays alive until the last user is closed. Every close
 *                   and free accepts NULL.
 *   Structs         Options and info structs begin with `struct_size`. Every blend_*_options has a
 *                   function *_init(ptr, sizeof *ptr) that sets all members to their defaults. 0
 *                   is the default of every enumeration. Info structs need only their size, as in
 *                   `blend_model_info i = {.struct_size = sizeof i}`. Members are only ever
 *                   appended. A host may be compiled for a later or an earlier release than the
 *                   library: the library reads the members that it knows. It refuses a struct
 *                   that is smaller than in the first release, and options whose unknown tail is
 *                   not zero. It sets the unknown tail of an info struct to zero.
 *   Callbacks       Unless said otherwise they run on the calling thread, and a non-zero return
 *                   stops the work: the call fails with BLEND_E_CALLBACK and blend_error_detail()
 *                   has the value. A callback must not throw and must not close the handle it was
 *                   called for.
 *   Signals         Threads that the library starts block all signals, SIGPROF too, except those
 *                   of a fault in the thread itself (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP,
 *                   SIGSYS, SIGABRT). So handlers run on threads of the host. A call that a handler
 *                   interrupts goes on; its result is the same. A handler may call
 *                   blend_cancel_request and nothing else of the library.
 *   Tensors         "[a, b, c]" is row-major, last index fastest. A tensor's row is a token
 *                   position. Times are nanoseconds of a monotonic clock, sizes are bytes.
 *   Host            The library never prints, exits, aborts, changes signal handlers or the
 *                   locale, and has no global state except the registry of open LMDB environments
 *                   that LMDB itself demands (one per process, device and inode).
 */
#ifndef BLEND_BLEND_H
#define BLEND_BLEND_H

#include "blend/types.h"      /* codes, errors, cancellation, progress */
#include "blend/log.h"        /* records for the host's log */
#include "blend/context.h"    /* compute threads and devices */
#include "blend/model.h"      /* weights and tokenizer */
#include "blend/embed.h"      /* vectors of texts, to find documents by */
#include "blend/store.h"      /* the directory of chunks */
#include "blend/precompute.h" /* chunks and whole corpora into a store */
#include "blend/fuse.h"       /* stored chunks into one KV cache */
#include "blend/grammar.h"    /* what a generated text must be: JSON, a schema, a pattern */
#include "blend/generate.h"   /* logits, decode, generate */
#include "blend/session.h"    /* fork, make exact, further turns, save, restore, edit */
#include "blend/text.h"       /* documents and a question in, a fusion out: begin here */
#include "blend/chat.h"       /* conversations and documents, by the model's template */
#include "blend/calls.h"      /* calls of functions in an answer */
#include "blend/batch.h"      /* several prompts at once */
#include "blend/profile.h"    /* calibrate and verify a model */
#include "blend/machine.h"    /* what recomputing and loading cost here */

/* Apart from these, for those who need them:
 *   blend/admin.h         list, label, pin, evict, repair, export and import
 *   blend/remote.h        a Valkey or Redis that many machines share
 *   blend/report.h        everything a fuse and a store tell about themselves
 *   blend/fidelity.h      how answers agreed with full prefill, as the store's checks saw it
 *   blend/step.h          for hosts with an engine of their own
 *   blend/experimental.h  how rows are chosen, for research */
#ifdef BLEND_EXPERIMENTAL
#include "blend/experimental.h"
#endif

#endif /* BLEND_BLEND_H */
