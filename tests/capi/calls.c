/* Calls of functions in an answer: what is refused, and what is found. */
#include <stddef.h>
#include <string.h>

#include "fixture.h"

#define INVALID BLEND_E_INVALID_ARGUMENT
#define HERMES "{{ messages[0].content }}{{ tools }}<tool_call>"
#define LLAMA "{{ messages[0].content }}{{ tools }}\"parameters\""
#define TOOLS                                                       \
  "[{\"type\": \"function\", \"function\": {\"name\": \"time\"}}, " \
  "{\"name\": \"weather\"}]"

static char text[1024];

static int32_t add(blend_call_reader* reader, const char* piece, blend_error** err) {
  const char* shown = NULL;
  size_t n = 0;
  const int32_t code = blend_call_reader_add(reader, -1, piece, strlen(piece), &shown, &n, err);
  if (code >= 0) strncat(text, shown, n);
  return code;
}

static int32_t end(blend_call_reader* reader, int32_t is_cut, blend_error** err) {
  const char* shown = NULL;
  size_t n = 0;
  const int32_t code = blend_call_reader_end(reader, is_cut, &shown, &n, err);
  if (code >= 0) strncat(text, shown, n);
  return code;
}

static blend_call_reader* open_reader(const blend_model* model, const char* source,
                                      const char* tools, uint32_t flags) {
  blend_call_reader* reader = NULL;
  blend_call_reader_options o;
  CHECK(blend_call_reader_options_init(&o, sizeof o) == BLEND_OK);
  o.template_source = source;
  o.tools = tools;
  o.flags = flags;
  CHECK_OK(blend_call_reader_open(&reader, model, &o, &err));
  text[0] = '\0';
  return reader;
}

static void expect_call(const blend_call_reader* reader, size_t index, const char* name,
                        const char* arguments, uint32_t is_cut) {
  blend_call_info info = {.struct_size = sizeof info};
  CHECK_OK(blend_call_reader_get_call(reader, index, &info, &err));
  CHECK(info.name != NULL && strcmp(info.name, name) == 0);
  CHECK(info.arguments != NULL && strcmp(info.arguments, arguments) == 0);
  CHECK(info.is_cut == is_cut);
}

void chat_calls_arguments(const fixture* f) {
  static const char* const wrong[] = {"{}", "[", "[1]", "[{\"function\": {}}]",
                                      "[{\"function\": {\"name\": 1}}]"};
  blend_call_reader_options o = {.struct_size = sizeof o};
  blend_call_info info = {.struct_size = sizeof info};
  blend_call_reader* reader = NULL;
  const char* shown = NULL;
  size_t n = 0;
  world w;
  REQUIRE(open_world(f, &w));
  CHECK_SAYS(BLEND_E_NOT_FOUND, "template",
             blend_call_reader_open(&reader, w.model, NULL, &err)); /* it has none */
  o.template_source = HERMES;
  CHECK_CODE(INVALID, blend_call_reader_open(NULL, w.model, &o, &err));
  CHECK_CODE(INVALID, blend_call_reader_open(&reader, NULL, &o, &err));
  o.flags = 2;
  CHECK_SAYS(INVALID, "0x2", blend_call_reader_open(&reader, w.model, &o, &err));
  o.flags = 0;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    o.tools = wrong[i];
    CHECK_SAYS(INVALID, "tool", blend_call_reader_open(&reader, w.model, &o, &err));
  }
  o.tools = NULL;
  o.template_source = "{% if %}";
  CHECK_SAYS(BLEND_E_FORMAT, "line 1", blend_call_reader_open(&reader, w.model, &o, &err));
  o.template_source = HERMES;
  o.struct_size = 8;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_call_reader_open(&reader, w.model, &o, &err));
  CHECK(reader == NULL);
  reader = open_reader(w.model, HERMES, "", 0);
  close_world(&w); /* it needs nothing of the model */
  REQUIRE(reader != NULL);
  CHECK_CODE(INVALID, blend_call_reader_add(NULL, -1, "a", 1, &shown, &n, &err));
  CHECK_CODE(INVALID, blend_call_reader_add(reader, -1, NULL, 1, &shown, &n, &err));
  CHECK_CODE(INVALID, blend_call_reader_add(reader, -1, "a", 1, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_call_reader_add(reader, -1, "a", 1, &shown, NULL, &err));
  CHECK_CODE(INVALID, blend_call_reader_end(NULL, 0, &shown, &n, &err));
  CHECK_CODE(INVALID, blend_call_reader_end(reader, 0, NULL, &n, &err));
  CHECK_CODE(INVALID, blend_call_reader_end(reader, 0, &shown, NULL, &err));
  CHECK_CODE(INVALID, blend_call_reader_get_n_calls(NULL, &n, &err));
  CHECK_CODE(INVALID, blend_call_reader_get_n_calls(reader, NULL, &err));
  CHECK_CODE(INVALID, blend_call_reader_get_call(NULL, 0, &info, &err));
  CHECK_CODE(INVALID, blend_call_reader_get_call(reader, 0, NULL, &err));
  CHECK_SAYS(INVALID, "call 0", blend_call_reader_get_call(reader, 0, &info, &err));
  CHECK_OK(blend_call_reader_add(reader, -1, NULL, 0, &shown, &n, &err));
  CHECK(shown != NULL && n == 0);
  CHECK_OK(add(reader, "<tool_call>{\"name\": \"any\"}</tool_call>", &err));
  info.struct_size = 8;
  CHECK_CODE(BLEND_E_INVALID_STRUCT, blend_call_reader_get_call(reader, 0, &info, &err));
  CHECK_OK(end(reader, 0, &err));
  CHECK_SAYS(INVALID, "ended", add(reader, "more", &err));
  CHECK_SAYS(INVALID, "ended", end(reader, 0, &err));
  expect_call(reader, 0, "any", "{}", 0); /* it stays */
  blend_call_reader_close(reader);
  blend_call_reader_close(NULL);
}

void chat_calls_are_found(const fixture* f) {
  blend_call_reader* reader = NULL;
  blend_call_info first = {.struct_size = sizeof first};
  size_t n = 0;
  world w;
  REQUIRE(open_world(f, &w));
  reader = open_reader(w.model, HERMES, TOOLS, 0);
  REQUIRE(reader != NULL);
  CHECK_OK(add(reader, "I look. <tool_", &err));
  CHECK(strcmp(text, "I look.") == 0); /* the rest may become a call */
  CHECK_OK(
      add(reader, "call>{\"arguments\": {\"b\": 1, \"a\": 1.50}, \"name\": \"time\"}</tool", &err));
  CHECK_OK(blend_call_reader_get_n_calls(reader, &n, &err));
  CHECK(n == 0);
  CHECK_OK(add(reader, "_call>\n", &err));
  CHECK_OK(blend_call_reader_get_call(reader, 0, &first, &err));
  for (int i = 0; i < 100; ++i) {
    CHECK_OK(add(reader, "<tool_call>{\"name\": \"weather\"}</tool_call>", &err));
  }
  CHECK_OK(add(reader, " <tool_call>{\"name\": \"delete\"}</tool_call>", &err));
  CHECK_OK(end(reader, 0, &err));
  CHECK(strcmp(text, "I look. <tool_call>{\"name\": \"delete\"}</tool_call>") == 0);
  CHECK_OK(blend_call_reader_get_n_calls(reader, &n, &err));
  CHECK(n == 101);
  expect_call(reader, 0, "time", "{\"b\": 1, \"a\": 1.50}", 0);
  expect_call(reader, 100, "weather", "{}", 0);
  CHECK(strcmp(first.name, "time") == 0); /* valid while the reader is open */
  blend_call_reader_close(reader);

  reader = open_reader(w.model, LLAMA, TOOLS, 0);
  CHECK_OK(add(reader, "{\"name\": \"time\", \"parameters\": {\"zone\": \"Eu", &err));
  CHECK_OK(end(reader, 1, &err));
  CHECK(text[0] == '\0');
  expect_call(reader, 0, "time", "{\"zone\": \"Eu", 1);
  blend_call_reader_close(reader);

  reader = open_reader(w.model, HERMES, TOOLS, BLEND_CALLS_MUST_CALL);
  CHECK_OK(add(reader, "{\"name\": \"time\", \"arguments\": {\"a\": \"</tool_call>\"}}", &err));
  CHECK_OK(end(reader, 0, &err));
  expect_call(reader, 0, "time", "{\"a\": \"</tool_call>\"}", 0);
  blend_call_reader_close(reader);
  close_world(&w);
}
