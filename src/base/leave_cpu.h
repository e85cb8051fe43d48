// How a thread goes to another CPU when the system leaves it where it is in the way.
#pragma once

#include <sched.h>

namespace blend {

// Where this thread runs; less than 0 where the system does not say.
inline int this_cpu() { return sched_getcpu(); }

// This thread goes to another CPU of its affinity mask than `cpu`, where it runs, and if there is
// one to none of `taken`. The mask is what it was behind that: a change that another process makes
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
