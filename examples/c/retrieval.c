#define _XOPEN_SOURCE 700
#include "retrieval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t tokenize(const blend_model* model, const char* text, size_t text_bytes, uint32_t flags,
                 struct tokens* out, blend_error** err) {
  size_t capacity = text_bytes + 2; /* enough at the first try, nearly always */
  for (;;) {
    out->ids = need(realloc(out->ids, capacity * sizeof *out->ids));
    const int32_t code =
        blend_model_tokenize(model, text, text_bytes, flags, out->ids, capacity, &out->n, err);
    if (code != BLEND_E_BUFFER_TOO_SMALL) return code;
    if (err != NULL) blend_error_free(*err);
    capacity = out->n;
  }
}

/* ---- Documents to pieces ---- */

struct texts {
  struct text* items;
  size_t n;
};

static struct text* texts_add(struct texts* texts) {
  texts->items = need(realloc(texts->items, (texts->n + 1) * sizeof *texts->items));
  memset(&texts->items[texts->n], 0, sizeof *texts->items);
  text_add(&texts->items[texts->n], "", 0);
  return &texts->items[texts->n++];
}

static void texts_free(struct texts* texts) {
  for (size_t i = 0; i < texts->n; ++i) text_free(&texts->items[i]);
  free(texts->items);
  memset(texts, 0, sizeof *texts);
}

static int is_blank(char c) { return c != '\0' && strchr(" \t\n\v\f\r", c) != NULL; }

/* Paragraphs, which are cut at blank lines; runs of blanks become one. */
static struct texts paragraphs_of(const char* text) {
  struct texts paragraphs = {0};
  struct text* last = NULL;
  while (*text != '\0') {
    if (is_blank(*text)) {
      int lines = 0;
      for (; is_blank(*text); ++text) lines += *text == '\n';
      if (lines > 1) {
        last = NULL;
      } else if (last != NULL && *text != '\0') {
        text_add(last, " ", 1);
      }
    } else {
      if (last == NULL) last = texts_add(&paragraphs);
      text_add(last, text++, 1);
    }
  }
  return paragraphs;
}

/* The number of tokens, or a negative code. */
static int64_t count_tokens(const blend_model* model, const struct text* text, blend_error** err) {
  struct tokens tokens = {0};
  const int32_t code = tokenize(model, text->data, text->size, 0, &tokens, err);
  free(tokens.ids);
  return code < 0 ? code : (int64_t)tokens.n;
}

/* What chunks are packed of: paragraphs, or the sentences of those that are too long. */
static int32_t pieces_of(const blend_model* model, const char* text, size_t max_tokens,
                         struct texts* pieces, blend_error** err) {
  struct texts paragraphs = paragraphs_of(text);
  int64_t n = 0;
  for (size_t i = 0; i < paragraphs.n && n >= 0; ++i) {
    struct text* paragraph = &paragraphs.items[i];
    text_add(paragraph, "\n", 1);
    n = count_tokens(model, paragraph, err);
    if (n < 0) break;
    struct text* piece = texts_add(pieces);
    for (size_t c = 0; c < paragraph->size; ++c) {
      const int ends = c > 0 && paragraph->data[c] == ' ' &&
                       strchr(".!?", paragraph->data[c - 1]) != NULL && (size_t)n > max_tokens;
      text_add(piece, ends ? "\n" : &paragraph->data[c], 1);
      if (ends) piece = texts_add(pieces);
    }
  }
  texts_free(&paragraphs);
  return n < 0 ? (int32_t)n : BLEND_OK;
}

/* ---- Words ---- */

static int by_word(const void* a, const void* b) {
  return strcmp(*(char* const*)a, *(char* const*)b);
}

/* Letters and digits in lower case; bytes of other scripts stay together as they are. The words
 * point into `letters`, a copy of the text. Not sorted. */
static size_t words_of(const char* text, char** letters, char*** words) {
  const size_t size = strlen(text);
  size_t n = 0;
  char* copy = *letters = need(malloc(size + 1));
  *words = need(malloc((size / 2 + 1) * sizeof **words));
  for (size_t i = 0; i <= size; ++i) {
    const unsigned char c = (unsigned char)text[i];
    const int upper = c >= 'A' && c <= 'Z';
    const int inside =
        c >= 0x80 || upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    copy[i] = '\0';
    if (!inside) continue;
    if (i == 0 || copy[i - 1] == '\0') (*words)[n++] = &copy[i];
    copy[i] = (char)(upper ? c - 'A' + 'a' : c);
  }
  return n;
}

/* How often a sorted list has a word. */
static size_t count_word(const struct chunk* chunk, const char* word) {
  size_t low = 0;
  size_t high = chunk->n_words;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (strcmp(chunk->words[middle], word) < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  size_t n = 0;
  while (low + n < chunk->n_words && strcmp(chunk->words[low + n], word) == 0) ++n;
  return n;
}

/* ---- Chunks ---- */

static void chunk_free(struct chunk* chunk) {
  free(chunk->document);
  free(chunk->tokens.ids);
  free(chunk->letters);
  free(chunk->words);
}

void chunks_free(struct chunks* chunks) {
  for (size_t i = 0; i < chunks->n; ++i) chunk_free(&chunks->items[i]);
  free(chunks->items);
  memset(chunks, 0, sizeof *chunks);
}

void chunks_move(struct chunks* to, struct chunks* from) {
  if (from->n == 0) return;
  to->items = need(realloc(to->items, (to->n + from->n) * sizeof *to->items));
  memcpy(to->items + to->n, from->items, from->n * sizeof *to->items);
  to->n += from->n;
  free(from->items);
  memset(from, 0, sizeof *from);
}

static int32_t text_of(const blend_model* model, const int32_t* ids, size_t n, struct text* out,
                       blend_error** err) {
  size_t bytes = 0;
  int32_t code = blend_model_detokenize(model, ids, n, 0, NULL, 0, &bytes, NULL);
  if (code < 0 && code != BLEND_E_BUFFER_TOO_SMALL) bytes = 0;
  char* text = need(malloc(bytes + 1));
  code = blend_model_detokenize(model, ids, n, 0, text, bytes, &bytes, err);
  if (code >= 0) text_add(out, text, bytes);
  free(text);
  return code;
}

/* One packed text as a chunk, or, where it is a sentence that is too long, as several. */
static int32_t add_chunks(const blend_model* model, const char* name, const struct text* packed,
                          size_t max_tokens, struct chunks* out, blend_error** err) {
  struct tokens tokens = {0};
  int32_t code = tokenize(model, packed->data, packed->size, 0, &tokens, err);
  for (size_t begin = 0; code >= 0 && begin < tokens.n; begin += max_tokens) {
    const size_t n = tokens.n - begin < max_tokens ? tokens.n - begin : max_tokens;
    struct chunk chunk = {0};
    struct text text = {0};
    if (n == tokens.n) {
      text_add(&text, packed->data, packed->size);
    } else {
      code = text_of(model, tokens.ids + begin, n, &text, err);
      if (code < 0) break;
    }
    chunk.document = need(strdup(name));
    chunk.tokens.ids = need(malloc(n * sizeof *tokens.ids));
    chunk.tokens.n = n;
    memcpy(chunk.tokens.ids, tokens.ids + begin, n * sizeof *tokens.ids);
    chunk.n_words = words_of(text.data, &chunk.letters, &chunk.words);
    qsort(chunk.words, chunk.n_words, sizeof *chunk.words, by_word);
    text_free(&text);
    out->items = need(realloc(out->items, (out->n + 1) * sizeof *out->items));
    out->items[out->n++] = chunk;
  }
  free(tokens.ids);
  return code;
}

int32_t cut_document(const blend_model* model, const char* name, const char* text,
                     size_t max_tokens, struct chunks* out, blend_error** err) {
  struct texts pieces = {0};
  struct text packed = {0};
  int32_t code = pieces_of(model, text, max_tokens, &pieces, err);
  for (size_t i = 0; code >= 0 && i < pieces.n; ++i) {
    const size_t before = packed.size;
    text_add(&packed, pieces.items[i].data, pieces.items[i].size);
    const int64_t n = before == 0 ? 0 : count_tokens(model, &packed, err);
    if (n < 0) {
      code = (int32_t)n;
    } else if ((size_t)n > max_tokens) { /* it was full without this piece */
      packed.data[packed.size = before] = '\0';
      code = add_chunks(model, name, &packed, max_tokens, out, err);
      packed.size = 0;
      text_add(&packed, pieces.items[i].data, pieces.items[i].size);
    }
  }
  if (code >= 0 && packed.size != 0) code = add_chunks(model, name, &packed, max_tokens, out, err);
  text_free(&packed);
  texts_free(&pieces);
  return code;
}

/* ---- BM25 ---- */

struct scored {
  double score;
  size_t place;
};

static int by_score(const void* a, const void* b) {
  const struct scored* x = a;
  const struct scored* y = b;
  if (x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->place < y->place ? -1 : 1;
}

static int by_place(const void* a, const void* b) {
  const size_t x = *(const size_t*)a;
  const size_t y = *(const size_t*)b;
  return x < y ? -1 : x > y;
}

size_t best_chunks(const struct chunks* chunks, const char* query, size_t top, size_t* found) {
  const double k1 = 1.2;
  const double b = 0.75;
  struct scored* ranked = need(calloc(chunks->n + 1, sizeof *ranked));
  char* letters;
  char** words;
  const size_t n_words = words_of(query, &letters, &words);
  double length = 0;
  for (size_t i = 0; i < chunks->n; ++i) {
    ranked[i].place = i;
    length += (double)chunks->items[i].n_words;
  }
  const double n = (double)chunks->n;
  const double mean = (length > 0 ? length : 1) / (n > 0 ? n : 1);
  for (size_t w = 0; w < n_words; ++w) {
    double df = 0;
    for (size_t i = 0; i < chunks->n; ++i) df += count_word(&chunks->items[i], words[w]) != 0;
    const double idf = log(1 + (n - df + 0.5) / (df + 0.5));
    for (size_t i = 0; i < chunks->n; ++i) {
      const struct chunk* chunk = &chunks->items[i];
      const double f = (double)count_word(chunk, words[w]);
      ranked[i].score +=
          idf * f * (k1 + 1) / (f + k1 * (1 - b + b * (double)chunk->n_words / mean));
    }
  }
  free(letters);
  free(words);
  qsort(ranked, chunks->n, sizeof *ranked, by_score);
  if (top > chunks->n) top = chunks->n;
  for (size_t i = 0; i < top; ++i) found[i] = ranked[i].place;
  qsort(found, top, sizeof *found, by_place);
  free(ranked);
  return top;
}

/* ---- Prompts ---- */

static int32_t count_new(void* user, const blend_corpus_record* record) {
  *(size_t*)user += record->existed == 0;
  return 0;
}

int32_t store_chunks(const blend_model* model, const blend_store* store,
                     const struct chunks* chunks, size_t* stored, blend_error** err) {
  blend_corpus_chunk* corpus = need(calloc(chunks->n + 1, sizeof *corpus));
  blend_corpus_options options = {.struct_size = sizeof options};
  struct tokens head = {0};
  for (size_t i = 0; i < chunks->n; ++i) {
    corpus[i].struct_size = sizeof corpus[i];
    corpus[i].tokens = chunks->items[i].tokens.ids;
    corpus[i].n_tokens = chunks->items[i].tokens.n;
  }
  *stored = 0;
  options.on_record = count_new;
  options.record_user = stored;
  int32_t code = tokenize(model, "", 0, BLEND_TOKENIZE_BOS, &head, err);
  options.chunk_prefix = head.ids;
  options.n_chunk_prefix = head.n;
  if (code >= 0) code = blend_precompute_corpus(model, store, corpus, chunks->n, &options, err);
  free(head.ids);
  free(corpus);
  return code;
}

int32_t make_prompt(const blend_model* model, const struct tokens* found, size_t n,
                    const char* question, struct prompt* out, blend_error** err) {
  struct text text = {0};
  int32_t code = tokenize(model, "", 0, BLEND_TOKENIZE_BOS, &out->bos, err);
  text_print(&text, "Question: %s\nAnswer:", question);
  if (code >= 0) code = tokenize(model, text.data, text.size, 0, &out->question, err);
  text_free(&text);
  if (code < 0) return code;
  out->segments = need(calloc(n + 2, sizeof *out->segments));
  for (size_t i = 0; i < n + 2; ++i) {
    const struct tokens* tokens = i == 0 ? &out->bos : i <= n ? &found[i - 1] : &out->question;
    blend_segment* segment = &out->segments[out->n];
    if (tokens == &out->bos && tokens->n == 0) continue;
    memset(segment, 0, sizeof *segment);
    segment->struct_size = sizeof *segment;
    segment->kind = i == 0   ? BLEND_SEGMENT_PREFIX
                    : i <= n ? BLEND_SEGMENT_CHUNK
                             : BLEND_SEGMENT_QUESTION;
    segment->tokens = tokens->ids;
    segment->n_tokens = tokens->n;
    ++out->n;
  }
  return BLEND_OK;
}

void prompt_free(struct prompt* prompt) {
  free(prompt->segments);
  free(prompt->bos.ids);
  free(prompt->question.ids);
  memset(prompt, 0, sizeof *prompt);
}
