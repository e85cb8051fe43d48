/* A storm of signals on every thread of the process, as hosts with profilers, timers and
 * garbage collectors have them. */
#ifndef BLEND_TESTS_CAPI_STORM_H
#define BLEND_TESTS_CAPI_STORM_H

#include <stdint.h>

/* From here on SIGUSR1 is sent to each thread in turn, every 50 to 200 us, and SIGALRM to the
 * process. The handler runs on the stack that it meets (no SA_ONSTACK) and uses a good piece of it.
 * `flags`: of sigaction, 0 or SA_RESTART. One storm at a time; 0 when it could not be started. */
int storm_begin(int flags);
void storm_end(void);
/* Handlers that ran since storm_begin, and how many of them found their own stack overwritten. */
uint64_t storm_handled(void);
uint64_t storm_trampled(void);

#endif
