// After a tier is closed its secrets are nowhere in this process's memory.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "store/remote/options.h"
#include "store/store.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

// Made again each time, so that the test itself does not keep them. The password is longer than a
// register, which the loader of a program puts on the stack where a function is called first.
constexpr size_t kMostBytes = 100;
size_t bytes_of(char which) { return which == 's' ? 32 : kMostBytes; }
char byte_of(char which, size_t i) {
  return static_cast<char>('!' + (which * 31 + i * i * 7) % 90);
}

Secret secret_of(char which) {
  std::array<char, kMostBytes> text{};
  for (size_t i = 0; i < bytes_of(which); ++i) text[i] = byte_of(which, i);
  Secret secret(std::string_view(text.data(), bytes_of(which)));
  explicit_bzero(text.data(), text.size());
  return secret;
}

bool is_here(const char* at, char which) {
  for (size_t i = 0; i < bytes_of(which); ++i) {
    if (at[i] != byte_of(which, i)) return false;
  }
  return true;
}

// How often it stands in memory that this process may write to.
size_t count_in_memory(char which) {
  size_t n = 0;
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  const int memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  if (maps == nullptr || memory < 0) return 0;
  std::vector<char> piece(1u << 20);
  char line[512];
  while (std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long first = 0;
    unsigned long last = 0;
    char access[8] = {};
    if (std::sscanf(line, "%lx-%lx %7s", &first, &last, access) != 3) continue;
    if (access[1] != 'w' || last - first > (1ul << 30)) continue;
    const auto own = reinterpret_cast<unsigned long>(piece.data());
    for (unsigned long at = first; at < last; at += piece.size() - kMostBytes) {
      if (at < own + piece.size() && own < at + piece.size()) continue;  // what was read before
      const ssize_t got =
          pread(memory, piece.data(), std::min(piece.size(), last - at), static_cast<off_t>(at));
      for (ssize_t i = 0; i + static_cast<ssize_t>(bytes_of(which)) <= got; ++i) {
        n += is_here(piece.data() + i, which) ? 1 : 0;
      }
    }
  }
  explicit_bzero(piece.data(), piece.size());  // or the next look would find it here
  (void)std::fclose(maps);
  close(memory);
  return n;
}

TEST(RemoteSecrets, NothingOfThemIsLeftInMemory) {
  // It takes what comes and never reads it: what was sent lies in the kernel.
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(0, bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof at));
  ASSERT_EQ(0, listen(listener, 64));
  ASSERT_EQ(0, getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size));
  {
    TempDir dir;
    RemoteOptions remote;
    remote.url = take(parse_remote_url("redis://127.0.0.1:" + std::to_string(ntohs(at.sin_port))));
    remote.timeout_ms = 200;
    remote.password = secret_of('p');
    remote.seal_key = secret_of('s');
    EXPECT_GE(count_in_memory('p'), 1u) << "this test would find nothing";
    const auto store = take(Store::open(dir.file("store"), {}, remote, {}));
    EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*store, *make_record(1)));
    EXPECT_CODE(BLEND_E_IO, store->remote()->check());
  }
  close(listener);
  EXPECT_EQ(0u, count_in_memory('p'));
  EXPECT_EQ(0u, count_in_memory('s'));
}

}  // namespace
}  // namespace blend::test
