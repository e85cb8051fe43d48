/* Handles closed in any order, many times, and across fork(). */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

enum { CTX, MODEL, STORE, FUSION };

static void close_one(int which, world* w, blend_fusion* fusion) {
  if (which == CTX) blend_ctx_close(w->ctx);
  if (which == MODEL) blend_model_close(w->model);
  if (which == STORE) blend_store_close(w->store);
  if (which == FUSION) blend_fusion_close(fusion);
}

/* Uses what is still open. */
static void use(const int* closed, world* w, blend_fusion* fusion) {
  const int32_t tokens[2] = {7, 8};
  blend_model_info info = {.struct_size = sizeof info};
  blend_store_report stat = {.struct_size = sizeof stat};
  if (!closed[MODEL]) {
    CHECK_OK(blend_model_get_info(w->model, &info, &err));
    CHECK(strcmp(info.architecture, "llama") == 0);
  }
  if (!closed[STORE]) {
    CHECK_OK(blend_store_get_report(w->store, &stat, &err));
    CHECK_OK(blend_store_flush(w->store, &err));
  }
  if (!closed[FUSION]) CHECK_OK(blend_fusion_decode(fusion, tokens, 2, NULL, &err));
  if (!closed[MODEL] && !closed[STORE]) {
    const blend_segment s = segment(BLEND_SEGMENT_QUESTION, tokens, 2);
    blend_fusion* another = NULL;
    blend_fuse_options o = fuse_options();
    CHECK_OK(blend_fuse(&another, w->model, w->store, &s, 1, &o, &err));
    blend_fusion_close(another);
  }
}

void lifetime_any_order(const fixture* f) {
  int order, i, j, k;
  for (order = 0; order < 24; ++order) {
    int left[4] = {CTX, MODEL, STORE, FUSION};
    int closed[4] = {0, 0, 0, 0};
    world w;
    int32_t tokens[30];
    blend_segment s[3];
    blend_fusion* fusion = NULL;
    blend_fuse_options o = fuse_options();
    REQUIRE(open_world(f, &w));
    fill_tokens(tokens, 30, order);
    s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 10);
    s[1] = segment(BLEND_SEGMENT_CHUNK, tokens + 8, 10);
    s[2] = segment(BLEND_SEGMENT_QUESTION, tokens + 20, 10);
    CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 3, &o, &err));
    REQUIRE(fusion != NULL);
    for (i = 4, k = order; i > 0; k /= i, --i) {
      const int pick = k % i;
      close_one(left[pick], &w, fusion);
      closed[left[pick]] = 1;
      for (j = pick; j + 1 < i; ++j) left[j] = left[j + 1];
      use(closed, &w, fusion);
    }
  }
}

static int count_entries(const char* dir) {
  DIR* d = opendir(dir);
  int n = 0;
  if (d == NULL) return -1;
  while (readdir(d) != NULL) ++n;
  closedir(d);
  return n;
}

/* Nothing may pile up: neither descriptors nor threads; the sanitizer builds watch the memory. */
void lifetime_many_times(const fixture* f) {
  int i, fds = 0, threads = 0;
  for (i = 0; i < 1000; ++i) {
    blend_ctx* ctx = open_ctx();
    blend_model* model;
    REQUIRE(ctx != NULL);
    if (i == 10) { /* past whatever is made once */
      fds = count_entries("/proc/self/fd");
      threads = count_entries("/proc/self/task");
    }
    if (i % 10 == 0) {
      const int32_t tokens[3] = {1, 2, 3};
      blend_store* store = open_store(f, ctx, "many");
      blend_fusion* fusion;
      model = open_model(ctx, f->model);
      REQUIRE(model != NULL && store != NULL);
      fusion = fuse_question(model, tokens, 3, 4);
      blend_fusion_close(fusion);
      blend_store_close(store);
    } else {
      model = open_model(ctx, f->model);
    }
    blend_model_close(model);
    blend_ctx_close(ctx);
  }
  {
    blend_ctx* ctx = open_ctx();
    CHECK(count_entries("/proc/self/fd") == fds);
    CHECK(count_entries("/proc/self/task") == threads);
    blend_ctx_close(ctx);
  }
}

static int32_t count_chunks(void* user, const blend_chunk_info* info, const char* problem) {
  (void)info;
  if (problem == NULL) *(int*)user += 1;
  return 0;
}

/* Whether a forked child is let at the threads that it has not. */
static int uses_the_context(const world* w, blend_fusion* fusion, const int32_t* tokens) {
  const blend_segment s = segment(BLEND_SEGMENT_QUESTION, tokens, 4);
  blend_fuse_options o = fuse_options();
  blend_fusion* mine = NULL;
  blend_model* model = NULL;
  int32_t token = 0;
  size_t n = 0;
  o.policy = BLEND_POLICY_FULL;
  return blend_fuse(&mine, w->model, NULL, &s, 1, &o, NULL) != BLEND_E_FORKED ||
         blend_fusion_decode(fusion, tokens, 1, NULL, NULL) != BLEND_E_FORKED ||
         blend_fusion_generate(fusion, NULL, NULL, NULL, &n, NULL) != BLEND_E_FORKED ||
         blend_fusion_extend(fusion, NULL, &s, 1, &o, NULL) != BLEND_E_FORKED ||
         blend_fusion_erase(fusion, 0, 1, NULL, NULL) != BLEND_E_FORKED ||
         blend_model_tokenize(w->model, "a", 1, 0, &token, 1, &n, NULL) != BLEND_E_FORKED ||
         blend_model_open(&model, w->ctx, "x", NULL, NULL) != BLEND_E_FORKED;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
typedef struct fuser {
  const world* w;
  const blend_segment* s;
  int stop; /* by __atomic_ */
} fuser;

static void* fuse_on(void* user) {
  fuser* f = (fuser*)user;
  blend_fuse_options o = fuse_options();
  o.policy = BLEND_POLICY_FULL;
  while (!__atomic_load_n(&f->stop, __ATOMIC_ACQUIRE)) {
    blend_fusion* fusion = NULL;
    if (blend_fuse(&fusion, f->w->model, NULL, f->s, 1, &o, NULL) != BLEND_OK) break;
    blend_fusion_close(fusion);
  }
  return NULL;
}
#endif

/* Other threads are inside calls at the fork: what they hold is held for ever in the child. */
void lifetime_fork_while_fusing(const fixture* f) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)f; /* a sanitizer's own lock is what the child would wait for */
#else
  enum { kFusers = 3 };
  world w;
  int32_t tokens[200];
  blend_segment s;
  blend_fusion* fusion;
  pthread_t threads[kFusers];
  fuser user;
  int i;
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 200, 3);
  s = segment(BLEND_SEGMENT_QUESTION, tokens, 200);
  fusion = fuse_question(w.model, tokens, 20, 4);
  user.w = &w;
  user.s = &s;
  user.stop = 0;
  for (i = 0; i < kFusers; ++i) CHECK(pthread_create(&threads[i], NULL, fuse_on, &user) == 0);
  for (i = 0; i < 40; ++i) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
      int bad;
      alarm(20);
      bad = uses_the_context(&w, fusion, tokens);
      blend_fusion_close(fusion);
      blend_store_close(w.store);
      blend_model_close(w.model);
      blend_ctx_close(w.ctx);
      _exit(bad);
    }
    REQUIRE(child > 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  __atomic_store_n(&user.stop, 1, __ATOMIC_RELEASE);
  for (i = 0; i < kFusers; ++i) pthread_join(threads[i], NULL);
  blend_fusion_close(fusion);
  close_world(&w);
#endif
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* The process may take `more` bytes of addresses than it has. */
static int limit_addresses(uint64_t more) {
  unsigned long pages = 0;
  struct rlimit limit;
  FILE* statm = fopen("/proc/self/statm", "r");
  const int n = statm == NULL ? 0 : fscanf(statm, "%lu", &pages);
  if (statm != NULL) fclose(statm);
  if (n != 1 || getrlimit(RLIMIT_AS, &limit) != 0) return 0;
  limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + more;
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

static int lift_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0) return 0;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_AS, &limit) == 0;
}

/* Counts what failed; another code than that of memory is wrong. */
static int judged(int32_t code, int* n_failed) {
  if (code >= 0) return 1;
  ++*n_failed;
  if (code != BLEND_E_OUT_OF_MEMORY) fprintf(stderr, "under a limit: %s\n", blend_code_name(code));
  return code == BLEND_E_OUT_OF_MEMORY;
}

/* A child: a context, a model and a fuse while addresses are short, and once more when they are
 * not. 0, and how many calls failed meanwhile in 1 to 99; 100: another code, or other logits. */
static int in_few_addresses(const fixture* f, uint64_t more, int early) {
  int32_t tokens[60];
  blend_segment s;
  blend_ctx* ctx = NULL;
  blend_model* model = NULL;
  blend_fusion *fusion = NULL, *expected = NULL, *after = NULL;
  blend_ctx_options c = {.struct_size = sizeof c};
  blend_fuse_options o = fuse_options();
  int failed = 0, good;
  c.n_threads = 3;
  o.policy = BLEND_POLICY_FULL; /* without a store */
  fill_tokens(tokens, 60, 3);
  s = segment(BLEND_SEGMENT_QUESTION, tokens, 60);
  if (!early && (blend_ctx_create(&ctx, &c, NULL) < 0 ||
                 blend_model_open(&model, ctx, f->model, NULL, NULL) < 0 ||
                 blend_fuse(&expected, model, NULL, &s, 1, &o, NULL) < 0)) {
    return 100;
  }
  if (!limit_addresses(more)) return 100;
  good = ctx != NULL || judged(blend_ctx_create(&ctx, &c, NULL), &failed);
  if (ctx != NULL && model == NULL) {
    good = good && judged(blend_model_open(&model, ctx, f->model, NULL, NULL), &failed);
  }
  if (model != NULL) {
    good = good && judged(blend_fuse(&fusion, model, NULL, &s, 1, &o, NULL), &failed);
    if (fusion != NULL) {
      good = good && judged(blend_fusion_decode(fusion, tokens, 5, NULL, NULL), &failed);
    }
  }
  if (!lift_limit()) return 100;
  if (ctx == NULL && blend_ctx_create(&ctx, &c, NULL) < 0) return 100;
  if (model == NULL && blend_model_open(&model, ctx, f->model, NULL, NULL) < 0) return 100;
  if (blend_fuse(&after, model, NULL, &s, 1, &o, NULL) < 0) return 100;
  good = good && (expected == NULL || same_logits(after, expected));
  blend_fusion_close(after);
  blend_fusion_close(expected);
  blend_fusion_close(fusion);
  blend_model_close(model);
  blend_ctx_close(ctx);
  return good ? failed : 100;
}
#endif

/* Wherever the addresses end, a call fails and the process does not. */
void lifetime_address_space(const fixture* f) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  (void)f; /* a sanitizer takes terabytes of them */
#else
  int n_failed = 0, n_whole = 0, early;
  uint64_t more;
  for (early = 0; early < 2; ++early) {
    for (more = 0; more < (uint64_t)1 << 30; more = more == 0 ? 4096 : more + more / 2) {
      int status = 0;
      const pid_t child = fork();
      if (child == 0) _exit(in_few_addresses(f, more, early));
      REQUIRE(child > 0);
      CHECK(waitpid(child, &status, 0) == child);
      if (!WIFEXITED(status) || WEXITSTATUS(status) >= 100) {
        capi_fail(__FILE__, __LINE__, "%llu more bytes of addresses%s: status %d",
                  (unsigned long long)more, early ? ", before the context" : "", status);
      }
      if (WEXITSTATUS(status) > 0) ++n_failed;
      if (WEXITSTATUS(status) == 0) ++n_whole;
    }
  }
  CHECK(n_failed > 5 && n_whole > 5);
#endif
}

/* In the child, every use of the inherited store says so and nothing hangs; the parent goes on. */
void lifetime_fork(const fixture* f) {
  world w;
  int32_t tokens[30];
  blend_segment s[2];
  blend_fusion *fusion = NULL, *after = NULL;
  blend_layerwise* layerwise = NULL;
  blend_kv_view view = {.struct_size = sizeof view};
  blend_fuse_options o = fuse_options();
  blend_chunk_id id;
  pid_t child;
  int status = 0, n_chunks = 0;
  REQUIRE(open_world(f, &w));
  fill_tokens(tokens, 30, 3);
  s[0] = segment(BLEND_SEGMENT_CHUNK, tokens, 12);
  s[1] = segment(BLEND_SEGMENT_QUESTION, tokens + 12, 8);
  CHECK_OK(blend_precompute(w.model, w.store, tokens, 12, NULL, &id, &err));
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, s, 2, &o, &err));
  CHECK_OK(blend_layerwise_create(&layerwise, w.model, w.store, s, 2, &o, &err));
  view.k = view.v = calloc(20 * 32, sizeof(float));
  CHECK_OK(blend_layerwise_fetch_kv(layerwise, 0, &view, &err));
  child = fork();
  if (child == 0) {
    blend_store_report stat = {.struct_size = sizeof stat};
    blend_fusion* mine = NULL;
    blend_ctx* ctx = NULL;
    blend_store* store = NULL;
    blend_store_options options;
    int bad = 0;
    alarm(30); /* a hang ends as a signal */
    if (blend_store_get_report(w.store, &stat, NULL) != BLEND_E_FORKED) bad |= 1;
    if (blend_fuse(&mine, w.model, w.store, s, 2, &o, NULL) != BLEND_E_FORKED) bad |= 2;
    if (blend_precompute(w.model, w.store, tokens, 12, NULL, NULL, NULL) != BLEND_E_FORKED)
      bad |= 4;
    if (blend_store_flush(w.store, NULL) != BLEND_E_FORKED) bad |= 8;
    if (blend_store_remove(w.store, &id, NULL, NULL) != BLEND_E_FORKED) bad |= 16;
    if (blend_store_list(w.store, NULL, NULL, 0, count_chunks, &n_chunks, NULL) != BLEND_E_FORKED)
      bad |= 32;
    if (blend_layerwise_synchronize(layerwise, 0, NULL) != BLEND_E_FORKED) bad |= 128;
    if (uses_the_context(&w, fusion, tokens)) bad |= 4;
    blend_layerwise_close(layerwise); /* its threads are not here: must not wait for them */
    blend_store_close(w.store);       /* must neither hang nor touch the parent's store */
    blend_fusion_close(fusion);
    blend_model_close(w.model);
    blend_ctx_close(w.ctx);
    /* The way out that the header names: open it again. */
    blend_store_options_init(&options, sizeof options);
    options.kv_dtype = BLEND_DTYPE_F32;
    if (blend_ctx_create(&ctx, NULL, NULL) != BLEND_OK ||
        blend_store_open(&store, ctx, path_in(f, "store"), &options, NULL) != BLEND_OK ||
        blend_store_list(store, NULL, NULL, 1, count_chunks, &n_chunks, NULL) != BLEND_OK ||
        n_chunks != 1) {
      bad |= 64;
    }
    blend_store_close(store);
    blend_ctx_close(ctx);
    _exit(bad);
  }
  REQUIRE(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    capi_fail(__FILE__, __LINE__, "in the child, these failed (bits): %d", WEXITSTATUS(status));
  }
  CHECK_OK(blend_layerwise_synchronize(layerwise, 0, &err)); /* here it goes on */
  blend_layerwise_close(layerwise);
  free(view.k);
  o.on_miss = BLEND_MISS_FAIL;
  CHECK_OK(blend_fuse(&after, w.model, w.store, s, 2, &o, &err));
  CHECK(same_logits(fusion, after));
  blend_fusion_close(after);
  blend_fusion_close(fusion);
  close_world(&w);
}
