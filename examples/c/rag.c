/*
 * rag.c - retrieval-augmented generation: documents in, an answer out, and what fusing saved.
 *
 *   rag [--docs FOLDER] [--question TEXT] [--model MODEL.gguf] [--store DIR] ...
 *
 * The table compares three ways to the first token of the same prompt: full prefill, the stored
 * caches as they are, and those with the rows of highest KV deviation recomputed. Agreement is the
 * share of full prefill's answer tokens that are also the likeliest there; KL is of the
 * distributions at those tokens, in nats.
 */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "retrieval.h"

#ifndef EXAMPLES
#define EXAMPLES "examples"
#endif

/* What is open, and how prompts are fused. */
struct rag {
  blend_ctx* ctx;
  blend_model* model;
  blend_store* store;
  size_t n_vocab;
  int32_t eos_token;
  double ratio;
  uint32_t max_tokens;
};

static int is_document(const struct dirent* entry) {
  const char* dot = strrchr(entry->d_name, '.');
  return dot != NULL && (strcmp(dot, ".txt") == 0 || strcmp(dot, ".md") == 0);
}

/* Cuts the .txt and .md files of a folder, by name, and stores their chunks. */
static int add_folder(const struct rag* rag, const char* folder, size_t chunk_tokens,
                      struct chunks* chunks) {
  blend_error* error = NULL;
  struct dirent** names = NULL;
  int status = 0;
  size_t stored = 0;
  const int n = scandir(folder, &names, is_document, alphasort);
  if (n <= 0) {
    fprintf(stderr, "no .txt or .md files in %s\n", folder);
    return -1;
  }
  for (int i = 0; i < n && status == 0; ++i) {
    struct text path = {0};
    struct text text = {0};
    text_print(&path, "%s/%s", folder, names[i]->d_name);
    if (text_read(&text, path.data) != 0) {
      fprintf(stderr, "%s: cannot be read\n", path.data);
      status = -1;
    } else {
      status = failed(
          path.data,
          cut_document(rag->model, names[i]->d_name, text.data, chunk_tokens, chunks, &error),
          &error);
    }
    text_free(&path);
    text_free(&text);
  }
  if (status == 0) {
    status =
        failed("precompute", store_chunks(rag->model, rag->store, chunks, &stored, &error), &error);
  }
  printf("%d documents, %zu chunks, %zu stored now\n", n, chunks->n, stored);
  for (int i = 0; i < n; ++i) free(names[i]);
  free(names);
  return status;
}

static int fuse(const struct rag* rag, const struct prompt* prompt, uint32_t policy,
                blend_fusion** fusion, blend_fusion_info* info) {
  blend_error* error = NULL;
  blend_fuse_options options;
  blend_fuse_options_init(&options, sizeof options);
  options.policy = policy;
  options.ratio = rag->ratio;
  options.reserve_tokens = rag->max_tokens;
  if (failed(
          "fuse",
          blend_fuse(fusion, rag->model, rag->store, prompt->segments, prompt->n, &options, &error),
          &error))
    return -1;
  memset(info, 0, sizeof *info);
  info->struct_size = sizeof *info;
  return failed("info", blend_fusion_get_info(*fusion, info, &error), &error);
}

/* An answer as it comes: its tokens, and, if it is to be seen, its text on stdout. */
struct answer {
  struct tokens tokens;
  struct text text;
  int print;
};

static int32_t on_token(void* user, int32_t token, const char* text, size_t text_bytes) {
  struct answer* answer = user;
  answer->tokens.ids =
      need(realloc(answer->tokens.ids, (answer->tokens.n + 1) * sizeof *answer->tokens.ids));
  answer->tokens.ids[answer->tokens.n++] = token;
  text_add(&answer->text, text, text_bytes);
  if (answer->print) {
    fwrite(text, 1, text_bytes, stdout);
    fflush(stdout);
  }
  return 0;
}

static void answer_free(struct answer* answer) {
  free(answer->tokens.ids);
  text_free(&answer->text);
}

static int generate(const struct rag* rag, blend_fusion* fusion, struct answer* answer) {
  blend_error* error = NULL;
  blend_generate_options options;
  blend_generate_options_init(&options, sizeof options);
  options.max_tokens = rag->max_tokens;
  return failed("generate", blend_fusion_generate(fusion, &options, on_token, answer, NULL, &error),
                &error);
}

/* ---- The table ---- */

static void log_softmax(const float* logits, size_t n, double* out) {
  double top = logits[0];
  double sum = 0;
  for (size_t i = 1; i < n; ++i) top = logits[i] > top ? logits[i] : top;
  for (size_t i = 0; i < n; ++i) sum += exp(logits[i] - top);
  for (size_t i = 0; i < n; ++i) out[i] = logits[i] - top - log(sum);
}

static size_t likeliest(const double* logs, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; ++i) best = logs[i] > logs[best] ? i : best;
  return best;
}

/* The log probabilities before each of the tokens, which are decoded: rows [tokens->n, n_vocab]. */
static int follow(blend_fusion* fusion, const struct tokens* tokens, double* rows) {
  blend_error* error = NULL;
  for (size_t i = 0; i < tokens->n; ++i) {
    const float* logits = NULL;
    size_t n = 0;
    if (failed("logits", blend_fusion_get_logits(fusion, &logits, &n, &error), &error)) return -1;
    log_softmax(logits, n, rows + i * n);
    if (failed("decode", blend_fusion_decode(fusion, &tokens->ids[i], 1, NULL, &error), &error))
      return -1;
  }
  return 0;
}

/* What one line is compared with: full prefill's answer and its distributions. */
struct reference {
  struct tokens tokens;
  double* rows; /* [tokens.n, n_vocab] */
};

static int by_time(const void* a, const void* b) {
  const uint64_t x = *(const uint64_t*)a;
  const uint64_t y = *(const uint64_t*)b;
  return x < y ? -1 : x > y;
}

/* One line. The first, which is full prefill's, makes the reference. */
static int compare_policy(const struct rag* rag, const struct prompt* prompt, const char* name,
                          uint32_t policy, struct reference* reference) {
  struct answer answer = {0};
  blend_fusion* fusion = NULL;
  blend_fusion_info info;
  uint64_t times[3];
  double* rows = NULL;
  int status = 0;
  for (int i = 0; i < 3 && status == 0; ++i) {
    status = fuse(rag, prompt, policy, &fusion, &info);
    times[i] = info.ttft_ns;
    if (status == 0 && i == 2) status = generate(rag, fusion, &answer);
    blend_fusion_close(fusion);
    fusion = NULL;
  }
  if (status != 0) goto done;
  qsort(times, 3, sizeof *times, by_time);
  if (reference->tokens.n == 0) {
    const struct tokens* tokens = &answer.tokens;
    reference->tokens.n = tokens->n == 0 ? 1 : tokens->n;
    reference->tokens.ids = need(malloc(reference->tokens.n * sizeof *tokens->ids));
    reference->tokens.ids[0] = rag->eos_token;
    if (tokens->n != 0) memcpy(reference->tokens.ids, tokens->ids, tokens->n * sizeof *tokens->ids);
  }
  const size_t n = reference->tokens.n;
  rows = need(calloc(n * rag->n_vocab, sizeof *rows));
  status = fuse(rag, prompt, policy, &fusion, &info);
  if (status == 0) status = follow(fusion, &reference->tokens, rows);
  if (status != 0) goto done;
  if (reference->rows == NULL) {
    reference->rows = need(malloc(n * rag->n_vocab * sizeof *rows));
    memcpy(reference->rows, rows, n * rag->n_vocab * sizeof *rows);
  }
  size_t agreed = 0;
  double kl = 0;
  for (size_t i = 0; i < n; ++i) {
    const double* p = reference->rows + i * rag->n_vocab;
    const double* q = rows + i * rag->n_vocab;
    agreed += likeliest(p, rag->n_vocab) == likeliest(q, rag->n_vocab);
    for (size_t j = 0; j < rag->n_vocab; ++j) kl += exp(p[j]) * (p[j] - q[j]);
  }
  text_strip(&answer.text);
  printf("%-8s %8.2f %11" PRIu64 " %9.0f%% %8.4f  %s\n", name, (double)times[1] / 1e6,
         info.n_rows_selected, 100.0 * (double)agreed / (double)n, kl / (double)n,
         answer.text.data);
done:
  blend_fusion_close(fusion);
  answer_free(&answer);
  free(rows);
  return status;
}

static int compare(const struct rag* rag, const struct prompt* prompt) {
  struct reference reference = {0};
  printf("%-8s %8s %11s %10s %8s  answer\n", "policy", "TTFT ms", "recomputed", "agreement", "KL");
  const int status = compare_policy(rag, prompt, "full", BLEND_POLICY_FULL, &reference) != 0 ||
                     compare_policy(rag, prompt, "reuse", BLEND_POLICY_REUSE, &reference) != 0 ||
                     compare_policy(rag, prompt, "hkvd", BLEND_POLICY_HKVD, &reference) != 0;
  free(reference.tokens.ids);
  free(reference.rows);
  return status;
}

/* ---- The program ---- */

/* Finds, fuses, answers and compares. */
static int ask(const struct rag* rag, const struct chunks* chunks, const char* question,
               size_t top) {
  size_t* places = need(malloc((top + 1) * sizeof *places));
  struct tokens* found = need(malloc((top + 1) * sizeof *found));
  struct prompt prompt = {0};
  struct answer answer = {.print = 1};
  blend_error* error = NULL;
  blend_fusion* fusion = NULL;
  blend_fusion_info info;

  const size_t n = best_chunks(chunks, question, top, places);
  printf("found in");
  for (size_t i = 0; i < n; ++i) {
    found[i] = chunks->items[places[i]].tokens;
    printf(" %s", chunks->items[places[i]].document);
  }
  printf("\n\n%s\n", question);
  int status =
      failed("prompt", make_prompt(rag->model, found, n, question, &prompt, &error), &error);
  if (status == 0) status = fuse(rag, &prompt, BLEND_POLICY_HKVD, &fusion, &info);
  if (status == 0) status = generate(rag, fusion, &answer);
  if (status == 0) {
    printf("\n\n%" PRIu64 " rows, %" PRIu64 " of them from the store\n\n", info.n_rows,
           info.n_rows_reused);
    status = compare(rag, &prompt);
  }
  blend_fusion_close(fusion);
  answer_free(&answer);
  prompt_free(&prompt);
  free(found);
  free(places);
  return status;
}

static int open_all(struct rag* rag, const char* model, const char* store) {
  blend_error* error = NULL;
  blend_model_info info = {.struct_size = sizeof info};
  if (failed("context", blend_ctx_create(&rag->ctx, NULL, &error), &error)) return -1;
  if (failed(model, blend_model_open(&rag->model, rag->ctx, model, NULL, &error), &error))
    return -1;
  if (failed(store, blend_store_open(&rag->store, rag->ctx, store, NULL, &error), &error))
    return -1;
  if (failed(model, blend_model_get_info(rag->model, &info, &error), &error)) return -1;
  rag->n_vocab = info.n_vocab;
  rag->eos_token = info.eos_token;
  return 0;
}

int main(int argc, char** argv) {
  struct option options[] = {
      {"--model", EXAMPLES "/models/blend-qa.gguf"},
      {"--docs", EXAMPLES "/data/documents"},
      {"--question", ""},
      {"--store", ""}, /* kept between runs; a temporary folder without it */
      {"--chunk-tokens", "96"},
      {"--top", "6"},
      {"--ratio", "0.15"},
      {"--max-tokens", "32"},
  };
  struct rag rag = {0};
  struct chunks chunks = {0};
  struct text question = {0};
  char* folder = NULL;
  int status = -1;

  if (parse_options(argc, argv, options, sizeof options / sizeof *options) != 0) return 2;
  rag.ratio = strtod(option(options, "--ratio"), NULL);
  rag.max_tokens = (uint32_t)strtoul(option(options, "--max-tokens"), NULL, 10);
  const size_t chunk_tokens = strtoul(option(options, "--chunk-tokens"), NULL, 10);
  const size_t top = strtoul(option(options, "--top"), NULL, 10);
  const char* store = option(options, "--store");
  text_print(&question, "%s", option(options, "--question"));

  if (chunk_tokens == 0) {
    fprintf(stderr, "--chunk-tokens must be above 0\n");
    goto done;
  }
  if (question.size == 0 && text_read(&question, EXAMPLES "/data/question.txt") != 0) {
    fprintf(stderr, EXAMPLES "/data/question.txt: cannot be read; give --question\n");
    goto done;
  }
  text_strip(&question);
  if (*store == '\0') store = folder = temporary_folder();
  if (store == NULL) goto done;
  if (open_all(&rag, option(options, "--model"), store) != 0) goto done;
  if (add_folder(&rag, option(options, "--docs"), chunk_tokens, &chunks) != 0) goto done;
  status = ask(&rag, &chunks, question.data, top);

done: /* any order, NULL included */
  blend_store_close(rag.store);
  blend_model_close(rag.model);
  blend_ctx_close(rag.ctx);
  chunks_free(&chunks);
  text_free(&question);
  remove_folder(folder);
  return status == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
