/* Conversations by a template: what is refused, and that what comes out can be fused. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fixture.h"

#define INVALID BLEND_E_INVALID_ARGUMENT
#define TEMPLATE                                                           \
  "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}\n" \
  "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"

static blend_chat_message message(const char* role, const char* content) {
  blend_chat_message m = {.struct_size = sizeof m};
  m.role = role;
  m.content = content;
  m.content_bytes = strlen(content);
  return m;
}

static blend_chat_document document(const char* text) {
  blend_chat_document d = {.struct_size = sizeof d};
  d.text = text;
  d.text_bytes = strlen(text);
  return d;
}

void chat_arguments(const fixture* f) {
  blend_chat_message m[2];
  blend_chat_document d = document("a text");
  blend_chat_options o = {.struct_size = sizeof o};
  blend_chunk_id id = {{0}};
  blend_chat* chat = NULL;
  const blend_segment* segments = NULL;
  const char* text = NULL;
  size_t n = 0;
  world w;
  REQUIRE(open_world(f, &w));
  m[0] = message("user", "who");
  m[1] = m[0];
  CHECK_SAYS(BLEND_E_NOT_FOUND, "template",
             blend_chat_render(&chat, w.model, m, 1, NULL, 0, NULL, &err)); /* it has none */
  o.template_source = TEMPLATE;
  CHECK_CODE(INVALID, blend_chat_render(NULL, w.model, m, 1, NULL, 0, &o, &err));
  CHECK_CODE(INVALID, blend_chat_render(&chat, NULL, m, 1, NULL, 0, &o, &err));
  CHECK_CODE(INVALID, blend_chat_render(&chat, w.model, NULL, 1, NULL, 0, &o, &err));
  CHECK_CODE(INVALID, blend_chat_render(&chat, w.model, m, 0, NULL, 0, &o, &err));
  CHECK_CODE(INVALID, blend_chat_render(&chat, w.model, m, 1, NULL, 1, &o, &err));
  CHECK(chat == NULL);
  o.flags = 4;
  CHECK_SAYS(INVALID, "0x4", blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  o.flags = BLEND_CHAT_MUST_CALL | BLEND_CHAT_NO_GENERATION_PROMPT;
  CHECK_SAYS(INVALID, "must be a call", blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  o.flags = 0;
  o.variables = "[]";
  CHECK_SAYS(INVALID, "JSON", blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  o.variables = "{\"more\": 1, \"messages\": []}";
  CHECK_SAYS(INVALID, "'messages'", blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  o.variables = NULL;
  o.template_source = "{% if %}";
  CHECK_SAYS(BLEND_E_FORMAT, "line 1", blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  o.template_source = "{{ lipsum() }}";
  CHECK_SAYS(BLEND_E_UNSUPPORTED, "lipsum",
             blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  o.template_source = TEMPLATE;
  m[1].role = "";
  CHECK_SAYS(INVALID, "message 1", blend_chat_render(&chat, w.model, m, 2, NULL, 0, &o, &err));
  m[1].struct_size = 8;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_chat_render(&chat, w.model, m, 2, NULL, 0, &o, &err));
  d.id = &id; /* both */
  CHECK_SAYS(INVALID, "document 0", blend_chat_render(&chat, w.model, m, 1, &d, 1, &o, &err));
  d.id = NULL;
  d.text = NULL; /* neither */
  CHECK_SAYS(INVALID, "document 0", blend_chat_render(&chat, w.model, m, 1, &d, 1, &o, &err));
  CHECK(chat == NULL);

  CHECK_OK(blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  CHECK_CODE(INVALID, blend_chat_get_segments(NULL, &segments, &n, &err));
  CHECK_CODE(INVALID, blend_chat_get_segments(chat, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_chat_get_segments(chat, &segments, NULL, &err));
  CHECK_CODE(INVALID, blend_chat_get_text(NULL, &text, &n, &err));
  CHECK_CODE(INVALID, blend_chat_get_text(chat, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_chat_get_text(chat, &text, NULL, &err));
  blend_chat_close(chat);
  blend_chat_close(NULL);
  close_world(&w);
}

/* Functions, a call, its result, by a template that has no place for them. */
void chat_has_tools(const fixture* f) {
  blend_chat_message m[3];
  blend_chat_options o = {.struct_size = sizeof o};
  blend_text_options texts = {.struct_size = sizeof texts};
  blend_chat* chat = NULL;
  blend_fusion* fusion = NULL;
  const char* text = NULL;
  size_t n = 0;
  world w;
  REQUIRE(open_world(f, &w));
  m[0] = message("user", "who");
  m[1] = message("assistant", "");
  m[1].members = "{\"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}";
  m[2] = message("tool", "she");
  o.template_source = TEMPLATE;
  o.tools = "[{\"function\": {\"name\": \"f\"}}]";
  CHECK_OK(blend_chat_render(&chat, w.model, m, 3, NULL, 0, &o, &err));
  CHECK_OK(blend_chat_get_text(chat, &text, &n, &err));
  CHECK(strstr(text, "[system] # Tools\n") != NULL);
  CHECK(strstr(text, "<tools>\n{\"function\": {\"name\": \"f\"}}\n</tools>") != NULL);
  CHECK(strstr(text, "[assistant] <tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n") != NULL);
  CHECK(strstr(text, "[user] <tool_response>\nshe\n</tool_response>\n") != NULL);
  blend_chat_close(chat);
  chat = NULL;
  o.flags = BLEND_CHAT_MUST_CALL;
  o.tools = NULL;
  CHECK_SAYS(INVALID, "no tools", blend_chat_render(&chat, w.model, m, 3, NULL, 0, &o, &err));
  o.tools = "[{\"function\": {\"name\": \"f\"}}]";
  CHECK_OK(blend_chat_render(&chat, w.model, m, 3, NULL, 0, &o, &err));
  CHECK_OK(blend_chat_get_text(chat, &text, &n, &err));
  CHECK(n > 12 && strcmp(text + n - 12, "<tool_call>\n") == 0);
  blend_chat_close(chat);
  chat = NULL;
  o.tools = "{}";
  CHECK_SAYS(INVALID, "tools", blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  o.tools = NULL;
  m[0].members = "[]";
  CHECK_SAYS(INVALID, "message 0", blend_chat_render(&chat, w.model, m, 1, NULL, 0, &o, &err));
  texts.tools = "[{}]";
  CHECK_SAYS(INVALID, "no chat template",
             blend_fuse_texts(&fusion, w.model, NULL, NULL, 0, "who", &texts, &err));
  texts.tools = NULL;
  texts.flags = BLEND_TEXT_MUST_CALL;
  CHECK_SAYS(INVALID, "must be a call",
             blend_fuse_texts(&fusion, w.model, NULL, NULL, 0, "who", &texts, &err));
  texts.template_source = TEMPLATE;
  CHECK_SAYS(INVALID, "no tools",
             blend_chat_render_texts(&chat, w.model, NULL, 0, "who", &texts, &err));
  texts.tools = "[{\"function\": {\"name\": \"f\"}}]";
  CHECK_OK(blend_chat_render_texts(&chat, w.model, NULL, 0, "who", &texts, &err));
  CHECK_OK(blend_chat_get_text(chat, &text, &n, &err));
  CHECK(n > 12 && strcmp(text + n - 12, "<tool_call>\n") == 0);
  blend_chat_close(chat);
  chat = NULL;
  CHECK(chat == NULL && fusion == NULL);
  close_world(&w);
}

/* What a host is told of a template. */
void chat_describes_templates(const fixture* f) {
  blend_template_info info = {.struct_size = sizeof info};
  world w;
  REQUIRE(open_world(f, &w));
  CHECK_SAYS(BLEND_E_NOT_FOUND, "template",
             blend_model_get_template_info(w.model, NULL, &info, &err)); /* it has none */
  CHECK_CODE(BLEND_E_NOT_FOUND, blend_model_get_template_info(w.model, "", &info, &err));
  CHECK_CODE(INVALID, blend_model_get_template_info(NULL, TEMPLATE, &info, &err));
  CHECK_CODE(INVALID, blend_model_get_template_info(w.model, TEMPLATE, NULL, &err));
  CHECK_SAYS(BLEND_E_FORMAT, "line 1",
             blend_model_get_template_info(w.model, "{% if %}", &info, &err));
  CHECK_OK(blend_model_get_template_info(w.model, TEMPLATE, &info, &err));
  CHECK(info.reads_system == 1 && info.reads_generation_prompt == 1);
  CHECK(info.reads_tools == 0 && info.reads_tool_calls == 0 && info.reads_documents == 0);
  CHECK(info.reads_enable_thinking == 0 && info.call_id_length == 0);
  CHECK(strcmp(info.call_open, "<tool_call>") == 0);
  CHECK(strcmp(info.call_close, "</tool_call>") == 0);
  CHECK(strcmp(info.call_begin, "<tool_call>\n") == 0);
  CHECK(strcmp(info.call_arguments, "arguments") == 0);
  CHECK_OK(blend_model_get_template_info(
      w.model,
      "{{ tools }}{{ documents }}{{ enable_thinking }}{{ messages[1].tool_calls }}[TOOL_CALLS]",
      &info, &err));
  CHECK(info.reads_system == 0 && info.reads_generation_prompt == 0);
  CHECK(info.reads_tools == 1 && info.reads_tool_calls == 1 && info.reads_documents == 1);
  CHECK(info.reads_enable_thinking == 1 && info.call_id_length == 9);
  CHECK(strcmp(info.call_open, "[TOOL_CALLS]") == 0 && strcmp(info.call_close, "") == 0);
  info.struct_size = 8; /* no header had one so small */
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_model_get_template_info(w.model, TEMPLATE, &info, &err));
  close_world(&w);
}

/* A template that would run for minutes, and what a host of an older header gives. */
void chat_is_cancelled(const fixture* f) {
  blend_chat_message m = message("user", "who");
  blend_chat_options o = {.struct_size = sizeof o};
  blend_cancel* cancel = NULL;
  blend_chat* chat = NULL;
  world w;
  REQUIRE(open_world(f, &w));
  CHECK_OK(blend_cancel_create(&cancel, &err));
  o.template_source =
      "{% for i in range(9999) %}{% for j in range(9999) %}{% if i == j %}{% endif %}{% endfor %}"
      "{% endfor %}";
  CHECK_CODE(BLEND_E_UNSUPPORTED, blend_chat_render(&chat, w.model, &m, 1, NULL, 0, &o, &err));
  o.cancel = cancel;
  blend_cancel_request(cancel);
  CHECK_CODE(BLEND_E_CANCELLED, blend_chat_render(&chat, w.model, &m, 1, NULL, 0, &o, &err));
  o.template_source = TEMPLATE;
  CHECK_CODE(BLEND_E_CANCELLED, blend_chat_render(&chat, w.model, &m, 1, NULL, 0, &o, &err));
  CHECK(chat == NULL);
  blend_cancel_reset(cancel);
  CHECK_OK(blend_chat_render(&chat, w.model, &m, 1, NULL, 0, &o, &err));
  blend_chat_close(chat);
  blend_cancel_free(cancel);
  close_world(&w);
}

/* Sanitizers and builds without optimization have larger frames. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define SMALL_STACK (4u << 20)
#else
#define SMALL_STACK (128u << 10)
#endif

typedef struct small_call {
  const blend_model* model;
  const blend_chat_options* options;
  int32_t code;
} small_call;

static void* render_here(void* user) {
  small_call* call = user;
  blend_chat_message m = message("user", "who <|im_end|> sat on the mat, and why?");
  blend_chat_document d = document("the cat sat on the mat");
  blend_chat* chat = NULL;
  call->code = blend_chat_render(&chat, call->model, &m, 1, &d, 1, call->options, NULL);
  blend_chat_close(chat);
  return NULL;
}

static int32_t render_on_a_small_stack(const blend_model* model, const blend_chat_options* o) {
  small_call call = {model, o, BLEND_OK};
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, SMALL_STACK);
  CHECK(pthread_create(&thread, &attributes, render_here, &call) == 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
  return call.code;
}

/* All of it: variables that are nested, what is parsed, rendered and tokenized. */
void chat_fits_a_small_stack(const fixture* f) {
  char source[4096];
  char variables[256];
  blend_chat_options o = {.struct_size = sizeof o};
  world w;
  REQUIRE(open_world(f, &w));
  for (int depth = 1; depth < 120; ++depth) {
    int32_t code;
    size_t n = (size_t)snprintf(source, sizeof source, "%s{{ ", TEMPLATE);
    for (int i = 0; i < depth; ++i) n += (size_t)snprintf(source + n, sizeof source - n, "[(");
    n += (size_t)snprintf(source + n, sizeof source - n, "x");
    for (int i = 0; i < depth; ++i) n += (size_t)snprintf(source + n, sizeof source - n, ")]");
    snprintf(source + n, sizeof source - n, " }}{{ x | tojson }}{{ x == [x] }}");
    n = (size_t)snprintf(variables, sizeof variables, "{\"x\": ");
    for (int i = 0; i < depth / 2; ++i) variables[n++] = '[';
    for (int i = 0; i < depth / 2; ++i) variables[n++] = ']';
    snprintf(variables + n, sizeof variables - n, "%s}", depth < 2 ? "1" : "");
    o.template_source = source;
    o.variables = variables;
    code = render_on_a_small_stack(w.model, &o);
    if (depth < 10) CHECK(code == BLEND_OK);
    if (depth > 60) CHECK(code == BLEND_E_UNSUPPORTED || code == BLEND_E_INVALID_ARGUMENT);
  }
  close_world(&w);
}

void chat_is_fused(const fixture* f) {
  blend_chat_message m[2];
  blend_chat_document d[2];
  blend_chat_options o = {.struct_size = sizeof o};
  blend_fuse_options fuse = fuse_options();
  blend_fusion_report info = {.struct_size = sizeof info};
  blend_segment_info segment_info = {.struct_size = sizeof segment_info};
  int32_t tokens[64];
  blend_chunk_id id;
  blend_chat* chat = NULL;
  blend_fusion* fusion = NULL;
  const blend_segment* segments = NULL;
  const char* text = NULL;
  size_t n = 0;
  world w;
  REQUIRE(open_world(f, &w));
  m[0] = message("system", "be brief");
  m[1] = message("user", "who sat");
  d[0] = document("the cat sat");
  d[1] = d[0];
  o.template_source = TEMPLATE;
  /* A chunk that was stored by its text's tokens is found by the text, and by its id. */
  CHECK_OK(blend_model_tokenize(w.model, d[0].text, d[0].text_bytes, 0, tokens, 64, &n, &err));
  CHECK_OK(blend_precompute(w.model, w.store, tokens, n, NULL, &id, &err));
  d[1].text = NULL;
  d[1].text_bytes = 0;
  d[1].id = &id;
  CHECK_OK(blend_chat_render(&chat, w.model, m, 2, d, 2, &o, &err));
  REQUIRE(chat != NULL);
  CHECK_OK(blend_chat_get_text(chat, &text, &n, &err));
  CHECK(strstr(text, "[user] the cat sat\n\n\xEF\xBF\xBC\n\nwho sat\n[assistant]") != NULL);
  CHECK_OK(blend_chat_get_segments(chat, &segments, &n, &err));
  REQUIRE(n == 5); /* prefix, chunk, text, chunk, question */
  CHECK(segments[0].kind == BLEND_SEGMENT_PREFIX);
  CHECK(segments[4].kind == BLEND_SEGMENT_QUESTION);
  fuse.on_miss = BLEND_MISS_PRECOMPUTE;
  CHECK_OK(blend_fuse(&fusion, w.model, w.store, segments, n, &fuse, &err));
  blend_chat_close(chat); /* a fusion needs nothing of it */
  REQUIRE(fusion != NULL);
  CHECK_OK(blend_fusion_get_report(fusion, &info, &err));
  CHECK(info.n_hits == 2);
  CHECK(info.n_misses == 1); /* the prefix */
  CHECK_OK(blend_fusion_get_segment(fusion, 1, &segment_info, &err));
  CHECK(memcmp(segment_info.id.bytes, id.bytes, sizeof id.bytes) == 0);
  blend_fusion_close(fusion);
  o.flags = BLEND_CHAT_NO_GENERATION_PROMPT;
  CHECK_OK(blend_chat_render(&chat, w.model, m, 2, NULL, 0, &o, &err));
  CHECK_OK(blend_chat_get_text(chat, &text, &n, &err));
  CHECK(strstr(text, "[assistant]") == NULL);
  blend_chat_close(chat);
  close_world(&w);
}
