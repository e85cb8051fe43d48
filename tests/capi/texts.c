/* Documents and a question as text: the prompt is the one of segments, to the last bit, and what
 * was stored for it is found. */
#include <stdio.h>
#include <string.h>

#include "fixture.h"

#define INVALID BLEND_E_INVALID_ARGUMENT
#define N_TOKENS 128
#define TEMPLATE                                                           \
  "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n" \
  "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
/* Has a place for documents, and a title before each. */
#define TITLED                                                                              \
  "{{ bos_token }}{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}" \
  "{% for d in documents %}<{{ d.title }}>{{ d.text }}{% endfor %}"                         \
  "{{ messages[-1].content }}"

static const char* const kDocuments[] = {" \tthe cat sat on the mat\r\n\n", "a dog ran home",
                                         "the cat sat on the mat"};
static const char* const kTrimmed[] = {"the cat sat on the mat\n", "a dog ran home\n",
                                       "the cat sat on the mat\n"};
#define N_DOCUMENTS 3
#define QUESTION "who sat"

static blend_text_options text_options(const blend_fuse_options* fuse) {
  blend_text_options o;
  CHECK(blend_text_options_init(&o, sizeof o) == BLEND_OK);
  o.fuse = fuse;
  return o;
}

/* The head of the prompt, whatever it is; nothing may be missing. */
static blend_fuse_options found_options(void) {
  blend_fuse_options o = fuse_options();
  o.chunk_prefix = NULL;
  o.on_miss = BLEND_MISS_FAIL;
  return o;
}

static blend_chat_message message(const char* role, const char* content) {
  blend_chat_message m = {.struct_size = sizeof m};
  m.role = role;
  m.content = content;
  m.content_bytes = strlen(content);
  return m;
}

/* `segments` are those of `texts`, and blend_fuse gives the same logits for them. */
static void check_same(const world* w, const blend_chat* texts, const blend_segment* segments,
                       size_t n, const blend_text_options* o) {
  const blend_segment* ours = NULL;
  blend_fuse_options fuse = fuse_options();
  blend_text_options with = *o;
  blend_fusion *a = NULL, *b = NULL;
  size_t i, n_ours = 0;
  CHECK_OK(blend_chat_get_segments(texts, &ours, &n_ours, &err));
  REQUIRE(n_ours == n);
  for (i = 0; i < n; ++i) {
    CHECK(ours[i].kind == segments[i].kind);
    REQUIRE(ours[i].n_tokens == segments[i].n_tokens);
    CHECK(memcmp(ours[i].tokens, segments[i].tokens, segments[i].n_tokens * sizeof(int32_t)) == 0);
  }
  fuse.chunk_prefix = NULL;
  fuse.on_miss = BLEND_MISS_COMPUTE;
  with.fuse = &fuse;
  CHECK_OK(blend_fuse(&a, w->model, NULL, segments, n, &fuse, &err));
  fuse.on_miss = BLEND_MISS_COMPUTE_STORE; /* without a store there is one way alone */
  CHECK_OK(blend_fuse_texts(&b, w->model, NULL, kDocuments, N_DOCUMENTS, QUESTION, &with, &err));
  CHECK(same_logits(a, b));
  blend_fusion_close(a);
  blend_fusion_close(b);
  /* And what blend_fuse would find is what this one stores and finds. */
  a = b = NULL;
  fuse.on_miss = BLEND_MISS_PRECOMPUTE;
  CHECK_OK(
      blend_fuse_texts(&b, w->model, w->store, kDocuments, N_DOCUMENTS, QUESTION, &with, &err));
  blend_fusion_close(b);
  b = NULL;
  CHECK_OK(blend_store_flush(w->store, &err));
  fuse.on_miss = BLEND_MISS_FAIL;
  CHECK_OK(blend_fuse(&a, w->model, w->store, segments, n, &fuse, &err));
  CHECK_OK(
      blend_fuse_texts(&b, w->model, w->store, kDocuments, N_DOCUMENTS, QUESTION, &with, &err));
  CHECK(same_logits(a, b));
  blend_fusion_close(a);
  blend_fusion_close(b);
}

void texts_without_a_template(const fixture* f) {
  world w;
  int32_t tokens[N_DOCUMENTS + 2][N_TOKENS];
  size_t n[N_DOCUMENTS + 2], i;
  blend_segment segments[N_DOCUMENTS + 2];
  blend_text_options o = text_options(NULL);
  blend_chat* texts = NULL;
  const char* text = NULL;
  size_t n_bytes = 0;
  REQUIRE(open_world(f, &w));
  /* BOS and the system text, the documents, the question, each by itself. */
  CHECK_OK(blend_model_tokenize(w.model, "be brief\n", 9, BLEND_TOKENIZE_BOS, tokens[0], N_TOKENS,
                                &n[0], &err));
  segments[0] = segment(BLEND_SEGMENT_PREFIX, tokens[0], n[0]);
  for (i = 0; i < N_DOCUMENTS; ++i) {
    CHECK_OK(blend_model_tokenize(w.model, kTrimmed[i], strlen(kTrimmed[i]), 0, tokens[i + 1],
                                  N_TOKENS, &n[i + 1], &err));
    segments[i + 1] = segment(BLEND_SEGMENT_CHUNK, tokens[i + 1], n[i + 1]);
  }
  CHECK_OK(blend_model_tokenize(w.model, "Question: who sat\nAnswer:", 25, 0,
                                tokens[N_DOCUMENTS + 1], N_TOKENS, &n[N_DOCUMENTS + 1], &err));
  segments[N_DOCUMENTS + 1] =
      segment(BLEND_SEGMENT_QUESTION, tokens[N_DOCUMENTS + 1], n[N_DOCUMENTS + 1]);
  o.system = "be brief";
  CHECK_OK(blend_chat_render_texts(&texts, w.model, kDocuments, N_DOCUMENTS, QUESTION, &o, &err));
  REQUIRE(texts != NULL);
  CHECK_OK(blend_chat_get_text(texts, &text, &n_bytes, &err));
  CHECK(strcmp(text,
               "be brief\nthe cat sat on the mat\na dog ran home\nthe cat sat on the mat\n"
               "Question: who sat\nAnswer:") == 0);
  check_same(&w, texts, segments, N_DOCUMENTS + 2, &o);
  blend_chat_close(texts);
  /* Without a system text BOS alone; verbatim the white space stays; the question may be put so. */
  o.system = NULL;
  o.flags = BLEND_TEXT_VERBATIM;
  o.question_template = "{question}? {question}!";
  CHECK_OK(blend_chat_render_texts(&texts, w.model, kDocuments, 1, QUESTION, &o, &err));
  REQUIRE(texts != NULL);
  CHECK_OK(blend_chat_get_text(texts, &text, &n_bytes, &err));
  CHECK(strcmp(text, " \tthe cat sat on the mat\r\n\nwho sat? who sat!") == 0);
  {
    const blend_segment* ours = NULL;
    size_t n_ours = 0;
    CHECK_OK(blend_chat_get_segments(texts, &ours, &n_ours, &err));
    CHECK(n_ours == 3 && ours[0].n_tokens == 1 && ours[0].tokens[0] == CHAIN_BOS);
  }
  blend_chat_close(texts);
  close_world(&w);
}

void texts_by_a_template(const fixture* f) {
  world w;
  blend_chat_message m[2];
  blend_chat_document d[N_DOCUMENTS];
  const char* const titles[N_DOCUMENTS] = {"one", NULL, "three"};
  blend_chat_options chat_options = {.struct_size = sizeof chat_options};
  blend_text_options o = text_options(NULL);
  blend_chat *chat = NULL, *texts = NULL;
  const blend_segment* segments = NULL;
  size_t i, n = 0;
  REQUIRE(open_world(f, &w));
  m[0] = message("system", "be brief");
  m[1] = message("user", "who sat");
  memset(d, 0, sizeof d);
  for (i = 0; i < N_DOCUMENTS; ++i) {
    d[i].struct_size = sizeof d[i];
    d[i].text = kTrimmed[i];
    d[i].text_bytes = strlen(kTrimmed[i]);
    d[i].title = titles[i];
  }
  chat_options.template_source = TEMPLATE;
  o.template_source = TEMPLATE;
  o.titles = titles;
  o.system = "be brief";
  CHECK_OK(blend_chat_render(&chat, w.model, m, 2, d, N_DOCUMENTS, &chat_options, &err));
  CHECK_OK(blend_chat_render_texts(&texts, w.model, kDocuments, N_DOCUMENTS, QUESTION, &o, &err));
  REQUIRE(chat != NULL && texts != NULL);
  CHECK_OK(blend_chat_get_segments(chat, &segments, &n, &err));
  CHECK(segments[0].kind == BLEND_SEGMENT_PREFIX);
  check_same(&w, texts, segments, n, &o);
  blend_chat_close(chat);
  blend_chat_close(texts);
  /* The template that was given says what is plain and what is not; and how the question is put. */
  o.titles = NULL;
  o.question_template = "Tell: {question}";
  CHECK_OK(blend_chat_render_texts(&texts, w.model, NULL, 0, QUESTION, &o, &err));
  REQUIRE(texts != NULL);
  {
    const char* text = NULL;
    CHECK_OK(blend_chat_get_text(texts, &text, &n, &err));
    CHECK(strstr(text, "[user] Tell: who sat\n[assistant]") != NULL);
  }
  blend_chat_close(texts);
  o.question_template = NULL;
  o.template_source = TITLED;
  o.titles = titles;
  CHECK_OK(blend_chat_render_texts(&texts, w.model, kDocuments, N_DOCUMENTS, QUESTION, &o, &err));
  REQUIRE(texts != NULL);
  {
    const char* text = NULL;
    CHECK_OK(blend_chat_get_text(texts, &text, &n, &err));
    CHECK(strstr(text, "<one>the cat sat on the mat\n<>a dog ran home\n<three>the cat") != NULL);
  }
  blend_chat_close(texts);
  close_world(&w);
}

/* Chunks that came from the store. A prefix may be another in a later turn. */
static size_t n_found(const blend_fusion* fusion) {
  blend_fusion_report info = {.struct_size = sizeof info};
  blend_segment_info segment_info = {.struct_size = sizeof segment_info};
  size_t i, n = 0;
  CHECK_OK(blend_fusion_get_report(fusion, &info, &err));
  for (i = 0; i < info.n_segments; ++i) {
    CHECK_OK(blend_fusion_get_segment(fusion, i, &segment_info, &err));
    if (segment_info.kind == BLEND_SEGMENT_CHUNK && segment_info.source == BLEND_SOURCE_STORE) ++n;
  }
  return n;
}

static size_t n_found_by(const world* w, const char* const documents[2],
                         const blend_text_options* o) {
  blend_fusion* fusion = NULL;
  size_t n = SIZE_MAX;
  CHECK_OK(blend_fuse_texts(&fusion, w->model, w->store, documents, 2, QUESTION, o, &err));
  if (fusion != NULL) n = n_found(fusion);
  blend_fusion_close(fusion);
  return n;
}

/* Documents of precompute_texts are found by every prompt of the form, first turn or later. */
void texts_of_a_conversation(const fixture* f) {
  world w;
  blend_chat_message m[4];
  blend_fuse_options fuse = found_options();
  blend_text_options o = text_options(&fuse);
  blend_fusion *asked = NULL, *told = NULL, *later = NULL;
  REQUIRE(open_world(f, &w));
  m[0] = message("system", "be brief");
  m[1] = message("user", QUESTION);
  m[2] = message("assistant", "the cat");
  m[3] = message("user", "and where");
  CHECK_SAYS(BLEND_E_NOT_FOUND, "template",
             blend_fuse_messages(&told, w.model, w.store, m, 2, kDocuments, 2, &o, &err));
  o.template_source = TEMPLATE;
  o.system = "be brief";
  CHECK_OK(blend_precompute_texts(w.model, w.store, kDocuments, 2, &o, NULL, &err));
  /* A question is a conversation of one turn. */
  CHECK_OK(blend_fuse_texts(&asked, w.model, w.store, kDocuments, 2, QUESTION, &o, &err));
  o.system = NULL;
  CHECK_OK(blend_fuse_messages(&told, w.model, w.store, m, 2, kDocuments, 2, &o, &err));
  REQUIRE(asked != NULL && told != NULL);
  CHECK(same_logits(asked, told));
  CHECK(n_found(told) == 2);
  blend_fusion_close(told);
  /* In a later turn they stand after other text, and are found after the head that all prompts
   * have. */
  fuse.on_miss = BLEND_MISS_COMPUTE;
  CHECK_OK(blend_fuse_messages(&later, w.model, w.store, m, 4, kDocuments, 2, &o, &err));
  REQUIRE(later != NULL);
  CHECK(n_found(later) == 2);
  blend_fusion_close(later);
  /* Without the system message it is another head. */
  CHECK_OK(blend_fuse_messages(&later, w.model, w.store, m + 1, 3, kDocuments, 2, &o, &err));
  REQUIRE(later != NULL);
  CHECK(n_found(later) == 0);
  blend_fusion_close(later);
  /* `system` is a message before all others. */
  o.system = "be brief";
  CHECK_OK(blend_fuse_messages(&later, w.model, w.store, m + 1, 1, kDocuments, 2, &o, &err));
  REQUIRE(later != NULL);
  CHECK(same_logits(asked, later));
  blend_fusion_close(later);
  blend_fusion_close(asked);
  close_world(&w);
}

typedef struct seen {
  size_t n, n_existed;
} seen;

static int32_t on_record(void* user, const blend_corpus_record* record) {
  seen* s = user;
  CHECK(record->index == s->n);
  ++s->n;
  s->n_existed += record->existed;
  return 0;
}

static int32_t count_titles(void* user, const blend_chunk_info* info, const char* problem) {
  size_t* n = user;
  CHECK(problem == NULL);
  if (strcmp(info->label, "one") == 0) ++*n;
  return 0;
}

void texts_stored_are_found(const fixture* f) {
  world w;
  const char* const titles[N_DOCUMENTS] = {"one", NULL, ""};
  const char* const turned[2] = {kDocuments[1], kDocuments[2]};
  const char* const turned_titles[2] = {"another", "two"};
  blend_fuse_options fuse = found_options();
  blend_text_options o = text_options(&fuse);
  blend_corpus_options corpus = {.struct_size = sizeof corpus};
  seen s = {0};
  size_t n = 0;
  REQUIRE(open_world(f, &w));
  corpus.on_record = on_record;
  corpus.record_user = &s;
  o.system = "be brief";
  o.template_source = TITLED; /* what stands before the first document is not always the same */
  o.titles = titles;
  o.tenant = "ada";
  CHECK_OK(blend_precompute_texts(w.model, w.store, kDocuments, N_DOCUMENTS, &o, &corpus, &err));
  CHECK(s.n == N_DOCUMENTS && s.n_existed == 1); /* the third is the first again */
  CHECK_OK(blend_store_list(w.store, "ada", NULL, 0, count_titles, &n, &err));
  CHECK(n > 0);
  s.n = s.n_existed = 0;
  CHECK_CODE(BLEND_EXISTS,
             blend_precompute_texts(w.model, w.store, kDocuments, N_DOCUMENTS, &o, &corpus, &err));
  CHECK(s.n_existed == N_DOCUMENTS);
  o.titles = turned_titles;
  fuse.on_miss = BLEND_MISS_COMPUTE;
  CHECK(n_found_by(&w, turned, &o) == 2);
  o.tenant = NULL; /* another's */
  CHECK(n_found_by(&w, turned, &o) == 0);
  fuse.tenant = "ada";
  CHECK(n_found_by(&w, turned, &o) == 2);
  o.flags = BLEND_TEXT_VERBATIM; /* other chunks */
  CHECK(n_found_by(&w, turned, &o) == 0);
  o.flags = 0;
  o.system = "be long"; /* another head */
  CHECK(n_found_by(&w, turned, &o) == 0);
  close_world(&w);
}

void texts_arguments(const fixture* f) {
  world w;
  const char* documents[2] = {"the cat sat", NULL};
  blend_text_options o = text_options(NULL);
  blend_chat_message m = message("user", QUESTION);
  blend_fusion* fusion = NULL;
  blend_chat* chat = NULL;
  REQUIRE(open_world(f, &w));
#define FUSE(n) blend_fuse_texts(&fusion, w.model, NULL, documents, n, QUESTION, &o, &err)
  CHECK_CODE(INVALID, blend_fuse_texts(NULL, w.model, NULL, documents, 1, QUESTION, &o, &err));
  CHECK_CODE(INVALID, blend_fuse_texts(&fusion, NULL, NULL, documents, 1, QUESTION, &o, &err));
  CHECK_SAYS(INVALID, "documents",
             blend_fuse_texts(&fusion, w.model, NULL, NULL, 1, QUESTION, &o, &err));
  CHECK_SAYS(INVALID, "question",
             blend_fuse_texts(&fusion, w.model, NULL, documents, 1, NULL, &o, &err));
  CHECK_CODE(INVALID, blend_chat_render_texts(NULL, w.model, documents, 1, QUESTION, &o, &err));
  CHECK_CODE(INVALID, blend_chat_render_texts(&chat, NULL, documents, 1, QUESTION, &o, &err));
  CHECK_SAYS(INVALID, "question",
             blend_chat_render_texts(&chat, w.model, documents, 1, NULL, &o, &err));
  CHECK_CODE(INVALID, blend_fuse_messages(NULL, w.model, NULL, &m, 1, documents, 1, &o, &err));
  CHECK_CODE(INVALID, blend_fuse_messages(&fusion, NULL, NULL, &m, 1, documents, 1, &o, &err));
  CHECK_CODE(INVALID, blend_fuse_messages(&fusion, w.model, NULL, NULL, 1, documents, 1, &o, &err));
  CHECK_SAYS(INVALID, "no messages",
             blend_fuse_messages(&fusion, w.model, NULL, &m, 0, documents, 1, &o, &err));
  CHECK_CODE(INVALID, blend_precompute_texts(NULL, w.store, documents, 1, &o, NULL, &err));
  CHECK_CODE(INVALID, blend_precompute_texts(w.model, NULL, documents, 1, &o, NULL, &err));
  CHECK_CODE(INVALID, blend_precompute_texts(w.model, w.store, NULL, 1, &o, NULL, &err));
  CHECK_SAYS(INVALID, "document 1 is NULL", FUSE(2));
  documents[1] = " \n\t \xE2\x80\xA9"; /* a paragraph separator is white space too */
  CHECK_SAYS(INVALID, "document 1 has no text", FUSE(2));
  CHECK_SAYS(INVALID, "document 1 has no text",
             blend_precompute_texts(w.model, w.store, documents, 2, &o, NULL, &err));
  documents[1] = "";
  o.flags = BLEND_TEXT_VERBATIM;
  CHECK_SAYS(INVALID, "document 1 has no text", FUSE(2));
  o.flags = 64;
  CHECK_SAYS(INVALID, "flags", FUSE(1));
  o.flags = BLEND_TEXT_PLAIN;
  o.template_source = TEMPLATE;
  CHECK_SAYS(INVALID, "plain", FUSE(1));
  o.flags = 0;
  o.template_source = "{% if %}";
  CHECK_SAYS(BLEND_E_FORMAT, "line 1", FUSE(1));
  o.template_source = NULL;
  o.question_template = "Q:";
  CHECK_SAYS(INVALID, "{question}", FUSE(1));
  o.template_source = TEMPLATE;
  CHECK_SAYS(INVALID, "{question}", FUSE(1));
  o.question_template = NULL;
  o.template_source = "{% for m in messages %}{{ m.content | upper }}{% endfor %}";
  CHECK_SAYS(BLEND_E_UNSUPPORTED, "changes every document",
             blend_precompute_texts(w.model, w.store, documents, 1, &o, NULL, &err));
  o.template_source = NULL;
  CHECK_SAYS(INVALID, "documents", FUSE(SIZE_MAX / 16));
  o.struct_size = 8;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, FUSE(1));
  o.struct_size = sizeof o;
  CHECK(fusion == NULL && chat == NULL);
  close_world(&w);
#undef FUSE
}

/* Inputs as users give them: no document, bytes that are not UTF-8, too many documents, no options.
 */
void texts_of_users(const fixture* f) {
  static const char* many[2000];
  world w;
  const char* const broken[] = {"\xFF\xFE caf\xE9", "<|im_end|>"};
  blend_fuse_options fuse = fuse_options();
  blend_text_options o = text_options(&fuse);
  blend_cancel* cancel = NULL;
  blend_fusion* fusion = NULL;
  size_t i;
  REQUIRE(open_world(f, &w));
  CHECK_OK(blend_fuse_texts(&fusion, w.model, NULL, NULL, 0, QUESTION, NULL, &err));
  blend_fusion_close(fusion);
  fusion = NULL;
  CHECK_OK(blend_fuse_texts(&fusion, w.model, w.store, broken, 2, "\xC3?", NULL, &err));
  blend_fusion_close(fusion);
  CHECK_OK(blend_store_flush(w.store, &err));
  for (i = 0; i < sizeof many / sizeof *many; ++i) many[i] = "the cat sat on the mat";
  fusion = NULL;
  CHECK_SAYS(BLEND_E_CONTEXT_LENGTH, "2000 documents",
             blend_fuse_texts(&fusion, w.model, w.store, many, sizeof many / sizeof *many, QUESTION,
                              &o, &err));
  /* Either place of a cancel stops it, before anything is stored. */
  CHECK_OK(blend_cancel_create(&cancel, &err));
  blend_cancel_request(cancel);
  o.cancel = cancel;
  CHECK_CODE(BLEND_E_CANCELLED,
             blend_fuse_texts(&fusion, w.model, w.store, many, 2, QUESTION, &o, &err));
  CHECK_CODE(BLEND_E_CANCELLED, blend_precompute_texts(w.model, w.store, many, 2, &o, NULL, &err));
  o.cancel = NULL;
  fuse.cancel = cancel;
  CHECK_CODE(BLEND_E_CANCELLED,
             blend_fuse_texts(&fusion, w.model, w.store, many, 2, QUESTION, &o, &err));
  o.template_source = TEMPLATE;
  CHECK_CODE(BLEND_E_CANCELLED,
             blend_fuse_texts(&fusion, w.model, w.store, many, 2, QUESTION, &o, &err));
  CHECK(fusion == NULL);
  blend_cancel_free(cancel);
  close_world(&w);
}
