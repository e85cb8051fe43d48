/* Watches what a forked child does with locks of its parent. */
#ifndef BLEND_TESTS_CAPI_LOCK_WATCH_H
#define BLEND_TESTS_CAPI_LOCK_WATCH_H

#ifdef __cplusplus
extern "C" {
#endif

/* In the child. 0: this build cannot watch. */
int lock_watch_begin(void);
/* How many were seen; each is on standard error. */
int lock_watch_end(void);

#ifdef __cplusplus
}
#endif

#endif
