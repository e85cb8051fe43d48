// kill -9 at random moments: every acknowledged put is readable, no chunk is torn.
//
// A child puts, replaces and removes chunks and tells each acknowledged step through a pipe; the
// parent kills it, opens the store and compares everything. --rounds N, or the environment
// variable BLEND_CRASH_ROUNDS, asks for more rounds than the default.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>

#include "../unit/store_testing.h"
#include "support/temp_dir.h"

namespace blend::test {
namespace {

constexpr uint32_t kIds = 24;

// What was done to chunk `slot`: `version` 0 is a removal, others are its contents.
struct Step {
  uint32_t slot = 0;
  uint32_t version = 0;
  uint32_t acknowledged = 0;  // 0: about to happen
};

// The contents of a slot's version: all have the slot's id.
std::shared_ptr<ChunkRecord> contents(uint32_t slot, uint32_t version) {
  std::mt19937 rng(slot * 7919 + version);
  const ChunkShape shape{1 + static_cast<uint32_t>(rng() % 3),
                         1 + static_cast<uint32_t>(rng() % 300), 256, DType::f16};
  auto r = make_record(version, shape);
  r->meta.id = make_record(slot)->meta.id;
  return r;
}

[[noreturn]] void child(const std::string& path, int out, uint32_t first_version) {
  auto store = open_lmdb_store(path, {}, {});
  if (!store.is_ok()) {
    std::fprintf(stderr, "child: %s\n", store.status().message().c_str());
    _exit(1);
  }
  std::mt19937 rng(first_version);
  const auto tell = [&](Step s) {
    if (write(out, &s, sizeof s) != sizeof s) _exit(2);
  };
  for (uint32_t version = first_version;; ++version) {
    Step step{static_cast<uint32_t>(rng() % kIds), version, 0};
    if (rng() % 4 == 0) step.version = 0;
    tell(step);
    Status s;
    if (step.version == 0) {
      s = (*store)->remove(contents(step.slot, 1)->meta.id);
      if (s.code() == BLEND_E_NOT_FOUND) s = Status::ok();
    } else if (rng() % 2 == 0) {
      s = (*store)->put(*contents(step.slot, version));
    } else {
      s = (*store)->put_async(contents(step.slot, version));
      if (s.is_ok()) s = (*store)->flush();
    }
    if (!s.is_ok()) {
      std::fprintf(stderr, "child: %s\n", s.message().c_str());
      _exit(3);
    }
    step.acknowledged = 1;
    tell(step);
  }
}

// Versions that a slot may hold after the crash: the last acknowledged, or the one under way.
struct Expected {
  uint32_t acknowledged = 0;
  uint32_t under_way = 0;
  bool in_doubt = false;
};

int rounds_wanted(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0) return std::atoi(argv[i + 1]);
  }
  const char* env = std::getenv("BLEND_CRASH_ROUNDS");
  return env != nullptr ? std::atoi(env) : 60;
}

int run(int rounds) {
  TempDir dir;
  std::map<uint32_t, Expected> expected;
  std::mt19937 rng(std::random_device{}());
  uint32_t n_steps = 0;
  uint32_t n_in_doubt = 0;
  for (int round = 0; round < rounds; ++round) {
    int pipe_fd[2];
    if (pipe(pipe_fd) != 0) return 1;
    const uint32_t first_version = static_cast<uint32_t>(round + 1) * 100'000;
    const pid_t pid = fork();
    if (pid == 0) {
      close(pipe_fd[0]);
      child(dir.path(), pipe_fd[1], first_version);
    }
    close(pipe_fd[1]);
    const auto note = [&](const Step& step) {
      Expected& e = expected[step.slot];
      if (step.acknowledged != 0) {
        e = {step.version, 0, false};
        ++n_steps;
      } else {
        e.under_way = step.version;
        e.in_doubt = true;
      }
    };
    // After a number of steps rather than a time, so that a busy machine gets as far as an idle
    // one; then at any moment of the next step. Every eighth dies while it opens the store.
    Step step;
    for (uint32_t left = round % 8 == 0 ? 0 : 1 + rng() % 12; left > 0; left -= step.acknowledged) {
      if (read(pipe_fd[0], &step, sizeof step) != sizeof step) break;
      note(step);
    }
    usleep(static_cast<useconds_t>(rng() % 8'000));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFSIGNALED(status)) {
      std::fprintf(stderr, "round %d: the child ended by itself (%d)\n", round, status);
      return 1;
    }
    while (read(pipe_fd[0], &step, sizeof step) == sizeof step) note(step);
    close(pipe_fd[0]);

    auto store = open_lmdb_store(dir.path(), {}, {});
    if (!store.is_ok()) {
      std::fprintf(stderr, "round %d: %s\n", round, store.status().message().c_str());
      return 1;
    }
    uint64_t n_chunks = 0;
    for (auto& [slot, e] : expected) {
      const auto holds = [&](uint32_t version) {
        const Status s = compare(**store, *contents(slot, version == 0 ? 1 : version));
        return version == 0 ? s.code() == BLEND_E_NOT_FOUND : s.is_ok();
      };
      n_in_doubt += e.in_doubt;
      if (e.in_doubt && holds(e.under_way)) e.acknowledged = e.under_way;
      e.in_doubt = false;
      if (!holds(e.acknowledged)) {
        std::fprintf(stderr, "round %d: slot %u lost version %u\n", round, slot, e.acknowledged);
        return 1;
      }
      n_chunks += e.acknowledged != 0;
    }
    const Status verified =
        (*store)->for_each(true, [](const ChunkMeta&, const std::string& problem) {
          if (!problem.empty()) std::fprintf(stderr, "torn: %s\n", problem.c_str());
          return 0;
        });
    const auto stat = (*store)->stat();
    if (!verified.is_ok() || !stat.is_ok() || stat.value().n_chunks != n_chunks) {
      std::fprintf(stderr, "round %d: %s; the counters are wrong or chunks are torn\n", round,
                   verified.message().c_str());
      return 1;
    }
  }
  std::printf("%d rounds, %u acknowledged steps kept, %u in doubt at the kill\n", rounds, n_steps,
              n_in_doubt);
  return n_steps > 0 ? 0 : 1;
}

}  // namespace
}  // namespace blend::test

int main(int argc, char** argv) { return blend::test::run(blend::test::rounds_wanted(argc, argv)); }
