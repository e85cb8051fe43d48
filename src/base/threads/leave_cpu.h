// Moves a thread to another CPU when the system leaves it on one where it is in the way.
#pragma once

#include <sched.h>

namespace blend {

// Where this thread runs; less than 0 where the system does not say.
inline int this_cpu() { return sched_getcpu(); }

// Moves this thread from `cpu`, where it runs, to another CPU of its affinity mask, if possible to
// one that is not in `taken`. The mask is the same afterwards: a change that another process makes
// in the same microseconds is lost. Nothing happens where the mask has no other CPU, or the system
// refuses.
inline void leave_cpu(int cpu, const cpu_set_t& taken) {
  cpu_set_t mask, free, some;
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return;
  CPU_AND(&some, &mask, &taken);
  CPU_XOR(&free, &mask, &some);
  CPU_CLR(cpu, &free);
  if (CPU_COUNT(&free) == 0) {
    free = mask;
    CPU_CLR(cpu, &free);
  }
  if (CPU_COUNT(&free) == 0) return;
  if (sched_setaffinity(0, sizeof free, &free) == 0) sched_setaffinity(0, sizeof mask, &mask);
}

}  // namespace blend
