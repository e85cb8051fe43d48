/* What every thread of the process starts with: the program's own pthread_create takes the place of
 * libc's, also in the libraries. */
#ifndef BLEND_TESTS_CAPI_STARTED_H
#define BLEND_TESTS_CAPI_STARTED_H

/* Threads started since the last call, and of these the ones that had an asynchronous signal open
 * or a fault's signal blocked in their first instruction. -1: a sanitizer has that place. */
int started_take(int* n_wrong);

#endif
