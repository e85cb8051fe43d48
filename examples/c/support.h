/* What the programs share besides the library: memory, growing text, options, folders. */
#ifndef EXAMPLE_SUPPORT_H
#define EXAMPLE_SUPPORT_H

#include <blend/blend.h>
#include <blend/report.h>
#include <stddef.h>

/* Gives back what an allocator gave; without memory the program ends. */
void* need(void* memory);

/* Text that grows; NUL-terminated once something was added. {0} is empty. */
struct text {
  char* data;
  size_t size;
  size_t room;
};

void text_add(struct text* text, const char* bytes, size_t n);
/* As printf. */
void text_print(struct text* text, const char* format, ...) __attribute__((format(printf, 2, 3)));
/* Takes blanks from both ends. */
void text_strip(struct text* text);
void text_free(struct text* text);
/* A whole file; -1 if it cannot be read, with errno. */
int text_read(struct text* text, const char* path);

/* Says why a call failed and frees its error: 0 for a call that did not fail, otherwise -1. */
int failed(const char* what, int32_t code, blend_error** error);

struct option {
  const char* name; /* "--model" */
  const char* value;
};
/* Takes "--name value" pairs; -1, with a line on stderr, for a name that is not among them. */
int parse_options(int argc, char** argv, struct option* options, size_t n);
const char* option(const struct option* options, const char* name);

/* A new folder, to be removed and freed; NULL if there is none to be had. */
char* temporary_folder(void);
/* With all that is in it. Accepts NULL. */
void remove_folder(char* path);

#endif
