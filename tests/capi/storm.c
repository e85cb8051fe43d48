#define _GNU_SOURCE
#include "storm.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 256

static uint64_t handled, trampled;
static int stop;
static pthread_t sender;
static struct sigaction before_user, before_alarm;

/* More than the red zone and a small frame: where the stack pointer is somewhere in the heap, what
 * lies below it there is gone. */
static void on_signal(int signal) {
  const int error = errno;
  volatile unsigned char piece[4096];
  size_t i;
  int wrong = 0;
  for (i = 0; i < sizeof piece; ++i) piece[i] = (unsigned char)(0xA5 ^ i ^ (size_t)signal);
  for (i = 0; i < sizeof piece; ++i) {
    wrong |= piece[i] != (unsigned char)(0xA5 ^ i ^ (size_t)signal);
  }
  __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
  if (wrong) __atomic_fetch_add(&trampled, 1, __ATOMIC_RELAXED);
  errno = error;
}

static size_t threads_of_process(pid_t* ids) {
  size_t n = 0;
  struct dirent* entry;
  DIR* dir = opendir("/proc/self/task");
  if (dir == NULL) return 0;
  while (n < MOST_THREADS && (entry = readdir(dir)) != NULL) {
    const pid_t id = (pid_t)atoi(entry->d_name);
    if (id > 0) ids[n++] = id;
  }
  closedir(dir);
  return n;
}

static void* send_all(void* unused) {
  const pid_t self = (pid_t)syscall(SYS_gettid);
  uint32_t random = 1;
  pid_t ids[MOST_THREADS];
  (void)unused;
  while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
    const size_t n = threads_of_process(ids);
    size_t i;
    for (i = 0; i < n; ++i) {
      /* Threads end: ESRCH says nothing. */
      if (ids[i] != self) syscall(SYS_tgkill, getpid(), ids[i], SIGUSR1);
    }
    {
      struct timespec pause = {0, 0};
      random = random * 1664525u + 1013904223u;
      pause.tv_nsec = 50000 + (long)(random >> 8) % 150000;
      nanosleep(&pause, NULL);
    }
  }
  return NULL;
}

static void set_timer(long microseconds) {
  struct itimerval timer;
  memset(&timer, 0, sizeof timer);
  timer.it_value.tv_usec = timer.it_interval.tv_usec = microseconds;
  setitimer(ITIMER_REAL, &timer, NULL);
}

int storm_begin(int flags) {
  struct sigaction action;
  sigset_t all, mask;
  int failed;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_signal;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  handled = trampled = 0;
  stop = 0;
  if (sigaction(SIGUSR1, &action, &before_user) != 0) return 0;
  if (sigaction(SIGALRM, &action, &before_alarm) != 0) return 0;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &mask);
  failed = pthread_create(&sender, NULL, send_all, NULL);
  pthread_sigmask(SIG_SETMASK, &mask, NULL);
  if (failed) return 0;
  set_timer(130);
  return 1;
}

void storm_end(void) {
  struct sigaction ignore;
  set_timer(0);
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  pthread_join(sender, NULL);
  /* Drops what is still pending, which would end the process under the handlers of before. */
  memset(&ignore, 0, sizeof ignore);
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGUSR1, &ignore, NULL);
  sigaction(SIGALRM, &ignore, NULL);
  sigaction(SIGUSR1, &before_user, NULL);
  sigaction(SIGALRM, &before_alarm, NULL);
}

uint64_t storm_handled(void) { return __atomic_load_n(&handled, __ATOMIC_RELAXED); }
uint64_t storm_trampled(void) { return __atomic_load_n(&trampled, __ATOMIC_RELAXED); }
