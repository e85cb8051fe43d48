#define _XOPEN_SOURCE 700
#include "support.h"

#include <errno.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void* need(void* memory) {
  if (memory == NULL) {
    fprintf(stderr, "out of memory\n");
    exit(EXIT_FAILURE);
  }
  return memory;
}

/* Room for n more bytes and a NUL. */
static void text_grow(struct text* text, size_t n) {
  if (text->size + n + 1 <= text->room) return;
  text->room = 2 * text->room > text->size + n + 1 ? 2 * text->room : text->size + n + 1;
  text->data = need(realloc(text->data, text->room));
}

void text_add(struct text* text, const char* bytes, size_t n) {
  text_grow(text, n);
  if (n != 0) memcpy(text->data + text->size, bytes, n);
  text->size += n;
  text->data[text->size] = '\0';
}

void text_print(struct text* text, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(NULL, 0, format, args);
  va_end(args);
  text_grow(text, (size_t)n);
  va_start(args, format);
  vsnprintf(text->data + text->size, (size_t)n + 1, format, args);
  va_end(args);
  text->size += (size_t)n;
}

void text_strip(struct text* text) {
  const char* blanks = " \t\r\n";
  size_t begin = 0;
  text_add(text, "", 0);
  while (text->size > 0 && strchr(blanks, text->data[text->size - 1]) != NULL) --text->size;
  while (begin < text->size && strchr(blanks, text->data[begin]) != NULL) ++begin;
  text->size -= begin;
  memmove(text->data, text->data + begin, text->size);
  text->data[text->size] = '\0';
}

void text_free(struct text* text) {
  free(text->data);
  memset(text, 0, sizeof *text);
}

int text_read(struct text* text, const char* path) {
  char buffer[4096];
  size_t n;
  FILE* file = fopen(path, "rb");
  if (file == NULL) return -1;
  text_add(text, "", 0);
  while ((n = fread(buffer, 1, sizeof buffer, file)) != 0) text_add(text, buffer, n);
  const int bad = ferror(file);
  fclose(file);
  return bad ? -1 : 0;
}

int failed(const char* what, int32_t code, blend_error** error) {
  if (code >= 0) return 0;
  fprintf(stderr, "%s: %s (%s)\n", what, blend_error_message(*error), blend_code_name(code));
  blend_error_free(*error);
  *error = NULL;
  return -1;
}

int parse_options(int argc, char** argv, struct option* options, size_t n) {
  for (int i = 1; i < argc; i += 2) {
    size_t o = 0;
    while (o < n && strcmp(options[o].name, argv[i]) != 0) ++o;
    if (o == n || i + 1 == argc) {
      fprintf(stderr, "%s: usage: %s", argv[i], argv[0]);
      for (o = 0; o < n; ++o) fprintf(stderr, " [%s VALUE]", options[o].name);
      fprintf(stderr, "\n");
      return -1;
    }
    options[o].value = argv[i + 1];
  }
  return 0;
}

const char* option(const struct option* options, const char* name) {
  while (strcmp(options->name, name) != 0) ++options;
  return options->value;
}

char* temporary_folder(void) {
  const char* parent = getenv("TMPDIR");
  struct text path = {0};
  text_print(&path, "%s/blend-XXXXXX", parent == NULL || *parent == '\0' ? "/tmp" : parent);
  if (mkdtemp(path.data) == NULL) {
    fprintf(stderr, "%s: %s\n", path.data, strerror(errno));
    text_free(&path);
  }
  return path.data;
}

static int remove_one(const char* path, const struct stat* status, int kind, struct FTW* place) {
  (void)status;
  (void)kind;
  (void)place;
  return remove(path);
}

void remove_folder(char* path) {
  if (path != NULL) nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  free(path);
}
