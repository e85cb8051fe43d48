/* Texts that keep to a grammar. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"

typedef struct heard {
  char text[256];
  int32_t tokens[64];
  int n;
  /* Of the last token: the likeliest one of all, and the logarithm of its own probability. */
  int32_t likeliest;
  float own;
} heard;

static int32_t hear(void* user, int32_t token, const char* text, size_t n) {
  heard* h = (heard*)user;
  if (strlen(h->text) + n < sizeof h->text) strcat(h->text, text);
  if (h->n < 64) h->tokens[h->n++] = token;
  return 0;
}

static int32_t hear_logprobs(void* user, const blend_logprob* p, size_t n) {
  heard* h = (heard*)user;
  CHECK(n == 2);
  h->own = p[0].logprob;
  h->likeliest = p[1].token;
  return 0;
}

static int32_t open_grammar(blend_grammar** out, const blend_model* model, uint32_t language,
                            const char* text, blend_error** err) {
  blend_grammar_options o;
  CHECK(blend_grammar_options_init(&o, sizeof o) == BLEND_OK);
  o.language = language;
  o.text = text;
  return blend_grammar_open(out, model, &o, err);
}

static blend_generate_options by(const blend_grammar* grammar, uint32_t max_tokens) {
  blend_generate_options o;
  CHECK(blend_generate_options_init(&o, sizeof o) == BLEND_OK);
  o.max_tokens = max_tokens;
  o.grammar = grammar;
  return o;
}

void grammar_arguments(const fixture* f) {
  blend_ctx* ctx = open_ctx();
  blend_model* model;
  blend_grammar* grammar = (blend_grammar*)(uintptr_t)16;
  blend_cancel* cancel = NULL;
  blend_grammar_options o;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  REQUIRE(model != NULL);
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "out", blend_grammar_open(NULL, model, NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "model", blend_grammar_open(&grammar, NULL, NULL, &err));
  CHECK(grammar == NULL);
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "language 5", open_grammar(&grammar, model, 5, "a", &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "language",
             open_grammar(&grammar, model, BLEND_GRAMMAR_JSON, "{}", &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "JSON",
             open_grammar(&grammar, model, BLEND_GRAMMAR_JSON_SCHEMA, NULL, &err));
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "expression",
             open_grammar(&grammar, model, BLEND_GRAMMAR_REGEX, "(", &err));
  CHECK_SAYS(BLEND_E_UNSUPPORTED, "'not'",
             open_grammar(&grammar, model, BLEND_GRAMMAR_JSON_SCHEMA, "{\"not\": {}}", &err));
  CHECK(grammar == NULL);

  CHECK_OK(blend_cancel_create(&cancel, &err));
  blend_cancel_request(cancel);
  CHECK(blend_grammar_options_init(&o, sizeof o) == BLEND_OK);
  o.language = BLEND_GRAMMAR_REGEX;
  o.text = "(\\w+ ){1000}";
  o.cancel = cancel;
  CHECK_CODE(BLEND_E_CANCELLED, blend_grammar_open(&grammar, model, &o, &err));
  blend_cancel_free(cancel);
  blend_grammar_close(NULL);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

void grammar_ends_the_text(const fixture* f) {
  static const int32_t kBos = CHAIN_BOS;
  blend_ctx* ctx = open_ctx();
  blend_model* model = NULL;
  blend_grammar* grammar = NULL;
  blend_fusion* fusion;
  blend_generate_options o;
  heard h;
  size_t n = 0;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);
  CHECK_OK(open_grammar(&grammar, model, BLEND_GRAMMAR_REGEX, "[bc]{3}", &err));
  REQUIRE(grammar != NULL);
  fusion = fuse_question(model, &kBos, 1, 50);
  REQUIRE(fusion != NULL);

  /* The model would say an emoji: its likeliest token is told, and the grammar's is taken. */
  memset(&h, 0, sizeof h);
  o = by(grammar, 1);
  o.top_logprobs = 1;
  o.logprobs = hear_logprobs;
  o.logprobs_user = &h;
  CHECK_OK(blend_fusion_generate(fusion, &o, hear, &h, &n, &err)); /* cut */
  CHECK(n == 1 && (h.tokens[0] == CHAIN_BYTE('b') || h.tokens[0] == CHAIN_BYTE('c')));
  CHECK(h.likeliest == CHAIN_BYTE(0xF0) && h.own < 0);

  /* Each call begins anew. The last token that there is room for completes it. */
  memset(&h, 0, sizeof h);
  o = by(grammar, 3);
  CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
  CHECK(n == 3 && strlen(h.text) == 3 && strspn(h.text, "bc") == 3);
  memset(&h, 0, sizeof h);
  o = by(grammar, 20);
  CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
  CHECK(n == 3 && strlen(h.text) == 3 && strspn(h.text, "bc") == 3);

  o.ignore_eos = 1;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "ignore_eos",
             blend_fusion_generate(fusion, &o, NULL, NULL, NULL, &err));
  blend_fusion_close(fusion);
  blend_grammar_close(grammar);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

/* The model says "a" and then an e with an accent; only where the grammar may end, EOS. */
void grammar_lets_eos_come(const fixture* f) {
  static const int32_t kA = CHAIN_BYTE('a');
  static const struct {
    const char* text;
    const char* says;
  } kCases[2] = {{"\xC3\xA9?", "\xC3\xA9"}, {"(\xC3\xA9[xy])?", "\xC3\xA9"}};
  blend_ctx* ctx = open_ctx();
  blend_model* model;
  int i;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);
  for (i = 0; i < 2; ++i) {
    blend_grammar* grammar = NULL;
    blend_fusion* fusion = fuse_question(model, &kA, 1, 50);
    blend_generate_options o;
    heard h;
    size_t n = 0;
    CHECK_OK(open_grammar(&grammar, model, BLEND_GRAMMAR_REGEX, kCases[i].text, &err));
    REQUIRE(fusion != NULL && grammar != NULL);
    memset(&h, 0, sizeof h);
    o = by(grammar, 20);
    CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, &n, &err));
    /* After the accented e EOS is the likeliest; the second grammar does not have it yet. */
    CHECK(n == (i == 0 ? 2u : 3u));
    CHECK(strncmp(h.text, kCases[i].says, 2) == 0 && strlen(h.text) == n);
    blend_fusion_close(fusion);
    blend_grammar_close(grammar);
  }
  blend_model_close(model);
  blend_ctx_close(ctx);
}

/* Draft tokens, a batch, and another model with the same tokenizer: the same tokens as without. */
void grammar_in_every_loop(const fixture* f) {
  static const char kSchema[] =
      "{\"type\": \"array\", \"items\": {\"enum\": [\"aba\", \"abab\", 12]}, \"minItems\": 6, "
      "\"maxItems\": 8}";
  blend_ctx* ctx = open_ctx();
  blend_model* model;
  blend_model* other;
  blend_grammar* grammar = NULL;
  blend_generate_request requests[3];
  blend_generate_options options[3];
  blend_fusion* fusions[3] = {NULL, NULL, NULL};
  heard alone[3], together[3];
  int32_t tokens[12], codes[3];
  int i, drafts;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->model);
  other = open_model(ctx, f->other_model);
  REQUIRE(model != NULL && other != NULL);
  CHECK_OK(open_grammar(&grammar, model, BLEND_GRAMMAR_JSON_SCHEMA, kSchema, &err));
  REQUIRE(grammar != NULL);
  memset(requests, 0, sizeof requests);
  for (drafts = 0; drafts <= 8; drafts += 8) {
    for (i = 0; i < 3; ++i) {
      blend_fusion* one;
      fill_tokens(tokens, 12, 3 + i);
      options[i] = by(grammar, 200);
      options[i].temperature = 1;
      options[i].seed = (uint64_t)i;
      one = fuse_question(i == 2 ? other : model, tokens, 12, 200);
      fusions[i] = fuse_question(i == 2 ? other : model, tokens, 12, 200);
      REQUIRE(one != NULL && fusions[i] != NULL);
      memset(&alone[i], 0, sizeof alone[i]);
      memset(&together[i], 0, sizeof together[i]);
      CHECK_CODE(BLEND_STOPPED,
                 blend_fusion_generate(one, &options[i], hear, &alone[i], NULL, &err));
      CHECK(alone[i].text[0] == '[' && alone[i].text[strlen(alone[i].text) - 1] == ']');
      blend_fusion_close(one);
      options[i].draft_tokens = (uint32_t)drafts;
      options[i].draft_match = 2;
      requests[i].struct_size = sizeof requests[i];
      requests[i].fusion = fusions[i];
      requests[i].options = &options[i];
      requests[i].fn = hear;
      requests[i].user = &together[i];
    }
    CHECK_OK(blend_generate_batch(codes, NULL, NULL, requests, 3, &err));
    for (i = 0; i < 3; ++i) {
      CHECK(codes[i] == BLEND_STOPPED);
      CHECK(strcmp(alone[i].text, together[i].text) == 0);
      CHECK(memcmp(alone[i].tokens, together[i].tokens, sizeof alone[i].tokens) == 0);
      blend_fusion_close(fusions[i]);
    }
  }
  /* Closed in any order. */
  blend_model_close(model);
  blend_model_close(other);
  blend_ctx_close(ctx);
  blend_grammar_close(grammar);
}

static int32_t only_x(void* user, float* logits, size_t n) {
  size_t i;
  (void)user;
  for (i = 0; i < n; ++i) logits[i] = i == CHAIN_BYTE('x') ? 100.0f : -5.0f;
  return 0;
}

/* Whatever bias and callback prefer, the grammar has the last word. */
void grammar_has_the_last_word(const fixture* f) {
  static const int32_t kBos = CHAIN_BOS;
  blend_token_bias bias[2];
  blend_ctx* ctx = open_ctx();
  blend_model* model;
  blend_grammar* grammar = NULL;
  blend_fusion* fusion;
  blend_generate_options o;
  heard h;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);
  CHECK_OK(open_grammar(&grammar, model, BLEND_GRAMMAR_REGEX, "[#]", &err));
  fusion = fuse_question(model, &kBos, 1, 50);
  REQUIRE(fusion != NULL && grammar != NULL);
  memset(&h, 0, sizeof h);
  o = by(grammar, 20);
  o.logits = only_x;
  CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &o, hear, &h, NULL, &err));
  CHECK(strcmp(h.text, "#") == 0);
  o = by(grammar, 20);
  bias[0].token = CHAIN_BYTE('#'); /* no other token has it */
  bias[0].bias = -INFINITY;
  o.logit_bias = bias;
  o.n_logit_bias = 1;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "grammar",
             blend_fusion_generate(fusion, &o, NULL, NULL, NULL, &err));
  blend_fusion_close(fusion);
  blend_grammar_close(grammar);
  blend_model_close(model);
  blend_ctx_close(ctx);
}

#define LLAMA "{{ messages[0].content }}{{ tools }}\"parameters\""

/* The list fits in its bound, and the schema that is made of it does not fit in its own. */
static void too_many_functions(const blend_model* model, const blend_grammar_options* given,
                               blend_grammar** out) {
  static char text[14 * 15000 + 2];
  blend_grammar_options o = *given;
  size_t at = 0;
  int i;
  text[at++] = '[';
  for (i = 0; i < 15000; ++i) {
    at += (size_t)snprintf(text + at, sizeof text - at, "%s{\"name\":\"f\"}", i > 0 ? "," : "");
  }
  snprintf(text + at, sizeof text - at, "]");
  o.text = text;
  CHECK_SAYS(BLEND_E_UNSUPPORTED, "list fewer functions", blend_grammar_open(out, model, &o, &err));
}

/* Whichever function is called, its arguments satisfy its schema. */
void grammar_is_of_a_call(const fixture* f) {
  static const char kTools[] =
      "[{\"type\": \"function\", \"function\": {\"name\": \"time\"}}, {\"name\": \"rain\", "
      "\"parameters\": {\"properties\": {\"town\": {\"$ref\": \"#/$defs/t\"}}, \"required\": "
      "[\"town\"], \"$defs\": {\"t\": {\"enum\": [\"ab\", \"ba\"]}}}}]";
  static const char* const kOnly[] = {NULL, "time", "rain"};
  static const int32_t kBos = CHAIN_BOS;
  blend_ctx* ctx = open_ctx();
  blend_model* model;
  blend_grammar* grammar = NULL;
  blend_grammar_options o;
  int i;
  REQUIRE(ctx != NULL);
  model = open_model(ctx, f->chain_model);
  REQUIRE(model != NULL);
  CHECK(blend_grammar_options_init(&o, sizeof o) == BLEND_OK);
  o.language = BLEND_GRAMMAR_CALL;
  o.text = kTools;
  CHECK_SAYS(BLEND_E_NOT_FOUND, "template", blend_grammar_open(&grammar, model, &o, &err));
  o.template_source = LLAMA;
  o.function = "moon";
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "'moon'", blend_grammar_open(&grammar, model, &o, &err));
  o.function = NULL;
  o.text = NULL;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "tools", blend_grammar_open(&grammar, model, &o, &err));
  o.text = "[{\"name\": \"f\", \"parameters\": {\"not\": {}}}]";
  CHECK_SAYS(BLEND_E_UNSUPPORTED, "the function 'f' at #: 'not'",
             blend_grammar_open(&grammar, model, &o, &err));
  o.text = "[{\"name\": \"f\", \"parameters\": {\"$ref\": \"#\"}}]";
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "nothing satisfies",
             blend_grammar_open(&grammar, model, &o, &err));
  o.text =
      "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"x\": {\"$ref\": \"#/$defs/a\"}}, "
      "\"required\": [\"x\"], \"$defs\": {\"a\": {\"$ref\": \"#/$defs/a\"}}}}]";
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "the function 'f' at #/$defs/a: nothing satisfies",
             blend_grammar_open(&grammar, model, &o, &err));
  o.text = "[{\"name\": \"f\", \"parameters\": {\"enum\": [\"a\"]}}]";
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "the function 'f' at #: no value",
             blend_grammar_open(&grammar, model, &o, &err));
  o.text =
      "[{\"name\": \"f\", \"parameters\": {\"properties\": {\"n\": {\"type\": \"integer\", "
      "\"default\": 18446744073709551615}}}}]";
  CHECK_OK(blend_grammar_open(&grammar, model, &o, &err));
  blend_grammar_close(grammar);
  grammar = NULL;
  too_many_functions(model, &o, &grammar);
  o.language = BLEND_GRAMMAR_JSON;
  o.text = NULL;
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "template_source",
             blend_grammar_open(&grammar, model, &o, &err));
  o.template_source = NULL;
  o.function = "time";
  CHECK_SAYS(BLEND_E_INVALID_ARGUMENT, "function", blend_grammar_open(&grammar, model, &o, &err));
  CHECK(grammar == NULL);

  o.language = BLEND_GRAMMAR_CALL;
  o.template_source = LLAMA;
  o.text = kTools;
  for (i = 0; i < 3; ++i) {
    blend_call_reader_options reads;
    blend_call_reader* reader = NULL;
    blend_call_info call = {.struct_size = sizeof call};
    blend_fusion* fusion = fuse_question(model, &kBos, 1, 100);
    blend_generate_options generate;
    const char* shown = NULL;
    size_t n = 0;
    heard h;
    REQUIRE(fusion != NULL);
    o.function = kOnly[i];
    CHECK_OK(blend_grammar_open(&grammar, model, &o, &err));
    memset(&h, 0, sizeof h);
    generate = by(grammar, 90);
    CHECK_CODE(BLEND_STOPPED, blend_fusion_generate(fusion, &generate, hear, &h, NULL, &err));
    CHECK(strstr(h.text, "\"parameters\"") != NULL);
    CHECK(blend_call_reader_options_init(&reads, sizeof reads) == BLEND_OK);
    reads.flags = BLEND_CALLS_MUST_CALL;
    reads.template_source = LLAMA;
    reads.tools = kTools;
    CHECK_OK(blend_call_reader_open(&reader, model, &reads, &err));
    CHECK_OK(blend_call_reader_add(reader, -1, h.text, strlen(h.text), &shown, &n, &err));
    CHECK_OK(blend_call_reader_end(reader, 0, &shown, &n, &err));
    CHECK_OK(blend_call_reader_get_call(reader, 0, &call, &err));
    if (kOnly[i] != NULL) CHECK(strcmp(call.name, kOnly[i]) == 0);
    CHECK(strcmp(call.name, "time") == 0 ? strcmp(call.arguments, "{}") == 0
                                         : strcmp(call.arguments, "{\"town\": \"ab\"}") == 0 ||
                                               strcmp(call.arguments, "{\"town\": \"ba\"}") == 0);
    blend_call_reader_close(reader);
    blend_grammar_close(grammar);
    blend_fusion_close(fusion);
    grammar = NULL;
  }
  blend_model_close(model);
  blend_ctx_close(ctx);
}
