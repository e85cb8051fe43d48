/*
 * fuse_call.c - how long one blend_fuse takes, seen from C: what bindings are compared with.
 *
 *   fuse_call MODEL.gguf STORE_DIR CHUNKS TOKENS CALLS
 *
 * CHUNKS chunks of TOKENS token ids and a question of 16, one thread, everything stored beforehand.
 * Prints, for every call (fuse and close together), a line of nanoseconds: by the clock, and of the
 * calling thread's CPU time, which other programs do not disturb as much. As a library it gives a
 * binding's process the same call, so that the two can take turns there (fuse_call.py --turns).
 */
#define _POSIX_C_SOURCE 200809L
#include <blend/blend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static blend_ctx* ctx;
static blend_model* model;
static blend_store* store;
static int32_t* ids;
static blend_segment* segments;
static size_t n_segments;

static void must(int32_t code, blend_error* error) {
  if (code >= 0) return;
  fprintf(stderr, "fuse_call: %s\n", blend_error_message(error));
  exit(1);
}

static long long now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Opens everything and stores the chunks. 0, or 1 without memory; other failures end the process.
 */
int fuse_call_open(const char* model_path, const char* store_path, int chunks, int tokens) {
  blend_error* error = NULL;
  blend_ctx_options options = {.struct_size = sizeof options};
  options.n_threads = 1;
  must(blend_ctx_create(&ctx, &options, &error), error);
  must(blend_model_open(&model, ctx, model_path, NULL, &error), error);
  must(blend_store_open(&store, ctx, store_path, NULL, &error), error);

  n_segments = (size_t)chunks + 1;
  ids = malloc(sizeof *ids * (size_t)(chunks * tokens + 16));
  segments = malloc(sizeof *segments * n_segments);
  if (ids == NULL || segments == NULL) return 1;
  for (int i = 0; i < chunks * tokens + 16; ++i) ids[i] = 5 + (int32_t)(i * 7919LL % 800);
  for (int i = 0; i <= chunks; ++i) {
    memset(&segments[i], 0, sizeof segments[i]);
    segments[i].struct_size = sizeof segments[i];
    segments[i].kind = i < chunks ? BLEND_SEGMENT_CHUNK : BLEND_SEGMENT_QUESTION;
    segments[i].tokens = ids + (size_t)i * (size_t)tokens;
    segments[i].n_tokens = i < chunks ? (size_t)tokens : 16;
    if (i == chunks) continue;
    must(blend_precompute(model, store, segments[i].tokens, segments[i].n_tokens, NULL, NULL,
                          &error),
         error);
  }
  return 0;
}

/* One fuse and its close: nanoseconds of this thread's CPU time; by the clock to *wall_ns. */
long long fuse_call_once(long long* wall_ns) {
  blend_error* error = NULL;
  blend_fusion* fusion = NULL;
  const long long begin = now_ns(CLOCK_MONOTONIC), cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
  must(blend_fuse(&fusion, model, store, segments, n_segments, NULL, &error), error);
  blend_fusion_close(fusion);
  const long long cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
  *wall_ns = now_ns(CLOCK_MONOTONIC) - begin;
  return cpu_ns;
}

void fuse_call_close(void) {
  free(ids);
  free(segments);
  blend_store_close(store);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

int main(int argc, char** argv) {
  if (argc != 6) {
    fprintf(stderr, "usage: %s MODEL.gguf STORE_DIR CHUNKS TOKENS CALLS\n", argv[0]);
    return 2;
  }
  if (fuse_call_open(argv[1], argv[2], atoi(argv[3]), atoi(argv[4])) != 0) return 1;
  const int calls = atoi(argv[5]);
  for (int i = -3; i < calls; ++i) { /* three to warm up */
    long long wall_ns = 0;
    const long long cpu_ns = fuse_call_once(&wall_ns);
    if (i >= 0) printf("%lld %lld\n", wall_ns, cpu_ns);
  }
  fuse_call_close();
  return 0;
}
