/* The C++ library, as distributions with glibc 2.36 and newer build it, asks for arc4random
   (std::random_device). Packages that contain that library contain this too, and run where glibc
   is older. */
#include <errno.h>
#include <stdint.h>
#include <sys/random.h>

__attribute__((visibility("hidden"))) uint32_t arc4random(void);

/* 0 where the kernel refuses. Any thread. */
uint32_t arc4random(void) {
  uint32_t bits = 0;
  while (getrandom(&bits, sizeof bits, 0) < 0 && errno == EINTR) {
  }
  return bits;
}
