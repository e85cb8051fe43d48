// kill -9, at random moments and in front of every system call that changes the disk: every
// acknowledged put that was not evicted is readable, no chunk is torn, the quota holds.
//
// A child puts, replaces, pins, removes, evicts and compacts, and tells each step and each eviction
// through a pipe; the parent kills it, opens the store and compares everything with what it was
// told. Two rounds of three die in front of the Nth write, sync, truncation or rename, N = 1, 2,
// ...; the third dies by the clock. --rounds N, or the environment variable BLEND_CRASH_ROUNDS,
// asks for more or fewer rounds.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fault/failing_io.h"
#include "store/chunk/text_tag.h"
#include "store/store.h"
#include "support/temp_dir.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

constexpr uint32_t kIds = 24;
constexpr uint32_t kPins = 3;  // at most
// The first slots are chunks of few texts, with different prefixes; each other is a text.
constexpr uint32_t kVaried = 12;
constexpr uint32_t kOfOneText = 4;
constexpr uint32_t kMostVariants = 2;

enum class Kind : uint32_t { put, remove, pin, unpin, evict, compact, evicted };

// What was done to chunk `slot`. `version` is its contents, of a put.
struct Step {
  Kind kind = Kind::put;
  uint32_t slot = 0;
  uint32_t version = 0;
  uint32_t acknowledged = 0;  // 0: about to happen
};

StoreOptions options() {
  StoreOptions o;
  o.quota_bytes = 1500 << 10;  // six or seven chunks
  o.queue_bytes = 1 << 20;
  o.most_variants = kMostVariants;
  return o;
}

Sha256 id_of(uint32_t slot) { return make_record(slot)->meta.id; }

// The contents of a slot's version: all have the slot's id.
std::shared_ptr<ChunkRecord> contents(uint32_t slot, uint32_t version) {
  std::mt19937 rng(slot * 7919 + version);
  const ChunkShape shape{1 + static_cast<uint32_t>(rng() % 3),
                         1 + static_cast<uint32_t>(rng() % 300), 256, DType::f16};
  if (slot >= kVaried) {
    auto r = make_record(version, shape);
    r->meta.id = id_of(slot);
    return r;
  }
  const uint32_t text = slot / kOfOneText;
  auto r = make_record(version, {shape.n_layers, 100 + 60 * text, 256, DType::f16});
  r->meta.tokens = make_record(text, r->meta.shape)->meta.tokens;
  r->meta.n_prefix_tokens = 5 * (slot % kOfOneText);
  r->meta.id = id_of(slot);
  return r;
}

// What the store must say of its texts, counted from what it holds.
TextTotals count_texts(Store& store) {
  std::map<TextTag, std::map<std::pair<uint32_t, Sha256>, uint64_t>> texts;
  (void)store.for_each(false, [&](const ChunkMeta& meta, const std::string&) {
    const auto use = store.use(meta.id);
    texts[text_tag(meta)][{meta.n_prefix_tokens, meta.id}] =
        use.is_ok() ? use.value().footprint : 0;
    return 0;
  });
  TextTotals t;
  for (const auto& [tag, records] : texts) {
    ++t.n_texts;
    t.n_varied += records.size() > 1 ? 1 : 0;
    t.n_variants += records.size() - 1;
    for (auto it = std::next(records.begin()); it != records.end(); ++it) {
      t.variant_bytes += it->second;
    }
  }
  return t;
}

// In a process of its own; ends by being killed, or with 0 when `n_steps` are done.
class Child {
 public:
  Child(std::string path, int out, uint32_t seed) : path_(std::move(path)), out_(out), rng_(seed) {
    for (uint32_t slot = 0; slot < kIds; ++slot) ids_[slot] = to_hex(id_of(slot));
  }

  [[noreturn]] void run(uint32_t first_version, uint32_t n_steps, uint64_t kill_at) {
    // Counting what is done by the open, too.
    const FaultyIo faulty(kill_at == 0 ? IoFault::none : IoFault::kill, kill_at);
    open();
    for (uint32_t i = 0; i < n_steps; ++i) {
      Step step{Kind::put, static_cast<uint32_t>(rng_() % kIds), first_version + 10 * i, 0};
      const uint32_t what = rng_() % 20;
      if (what >= 16) {
        burst(step);
        continue;
      }
      step.kind = what < 2    ? Kind::remove
                  : what < 4  ? Kind::pin
                  : what < 6  ? Kind::unpin
                  : what == 6 ? Kind::evict
                  : what == 7 ? Kind::compact
                              : Kind::put;
      if (step.kind == Kind::pin && pinned_.size() >= kPins) step.kind = Kind::unpin;
      if (step.kind == Kind::unpin && !pinned_.empty())
        step.slot = pinned_[rng_() % pinned_.size()];
      tell(step);
      const Status done = take_step(step);
      // Pinned chunks may leave no room: then nothing came of it.
      const bool full = done.code() == BLEND_E_FULL && !pinned_.empty();
      if (!done.is_ok() && done.code() != BLEND_E_NOT_FOUND && !full) fail(done);
      if (full) step.kind = Kind::evict;
      if (done.code() == BLEND_E_NOT_FOUND && step.kind == Kind::pin) step.kind = Kind::unpin;
      if (step.kind == Kind::pin) pinned_.push_back(step.slot);
      if (step.kind == Kind::unpin || step.kind == Kind::remove) std::erase(pinned_, step.slot);
      step.acknowledged = 1;
      tell(step);
    }
    store_.reset();
    _exit(0);
  }

 private:
  [[noreturn]] static void fail(const Status& status) {
    std::fprintf(stderr, "child: %s\n", status.message().c_str());
    _exit(3);
  }

  void open() {
    const auto told = [this](const LogRecord& record) {
      if (record.code != BLEND_EVENT_EVICTED) return;
      for (uint32_t slot = 0; slot < kIds; ++slot) {
        const bool named = record.message.find(ids_[slot]) != std::string::npos;
        if (named) tell({Kind::evicted, slot, 0, 1});
      }
    };
    auto store = Store::open(path_, options(), Log(BLEND_LOG_INFO, told));
    if (!store.is_ok()) fail(store.status());
    store_ = *store;
    pinned_.clear();
    for (uint32_t slot = 0; slot < kIds; ++slot) {
      const auto use = store_->use(id_of(slot));
      if (use.is_ok() && use.value().pinned) pinned_.push_back(slot);
    }
  }

  Status take_step(const Step& step) {
    const Sha256 id = id_of(step.slot);
    switch (step.kind) {
      case Kind::remove:
        return store_->remove(id);
      case Kind::pin:
        return store_->pin(id, true);
      case Kind::unpin:
        return store_->pin(id, false);
      case Kind::evict: {
        uint64_t n = 0;
        const Status status = store_->evict(options().quota_bytes / 2, &n);
        return status.code() == BLEND_E_FULL ? Status::ok() : status;  // what is pinned stays
      }
      case Kind::compact: {
        store_.reset();
        uint64_t before = 0;
        uint64_t after = 0;
        const Status status = compact_store(path_, &before, &after);
        open();
        return status;
      }
      case Kind::put:
      case Kind::evicted:
        break;
    }
    const auto record = contents(step.slot, step.version);
    if (rng_() % 2 == 0) return store_->put(*record);
    BLEND_RETURN_IF_ERROR(store_->put_async(record));
    bool pending = false;
    return store_->wait(id, std::nullopt, &pending);
  }

  // Three puts at once, of the queue and of a thread: they share transactions.
  void burst(const Step& first) {
    std::array<Step, 3> steps;
    std::array<Status, 3> done;
    std::array<std::shared_ptr<ChunkRecord>, 3> records;
    for (uint32_t i = 0; i < 3; ++i) {
      steps[i] = {Kind::put, (first.slot + 5 * i) % kIds, first.version + i, 0};
      records[i] = contents(steps[i].slot, steps[i].version);
    }
    for (const Step& step : steps) tell(step);
    std::thread other([&] { done[0] = store_->put(*records[0]); });
    for (uint32_t i = 1; i < 3; ++i) done[i] = store_->put_async(records[i]);
    for (uint32_t i = 1; i < 3; ++i) {
      bool pending = false;
      if (done[i].is_ok()) done[i] = store_->wait(records[i]->meta.id, std::nullopt, &pending);
    }
    other.join();
    (void)store_->flush();  // its errors are those of wait()
    for (uint32_t i = 0; i < 3; ++i) {
      const bool full = done[i].code() == BLEND_E_FULL && !pinned_.empty();
      // The next one of the burst may have taken its place by now.
      const bool gone = done[i].code() == BLEND_E_NOT_FOUND;
      if (!done[i].is_ok() && !full && !gone) fail(done[i]);
      if (full) steps[i].kind = Kind::evict;
      if (gone) steps[i].kind = Kind::evicted;
      steps[i].acknowledged = 1;
      tell(steps[i]);
    }
  }

  void tell(Step step) {
    // Not by write(), which may be a place to die at.
    if (syscall(SYS_write, out_, &step, sizeof step) != sizeof step) _exit(2);
  }

  const std::string path_;
  const int out_;
  std::mt19937 rng_;
  std::array<std::string, kIds> ids_;
  std::vector<uint32_t> pinned_;
  std::shared_ptr<Store> store_;
};

// What the parent knows of a slot.
struct Slot {
  uint32_t version = 0;  // 0: not there
  uint64_t age = 0;      // when it was put
  bool pinned = false;
  // It was evicted while a put of it was under way: before that or after.
  bool evicted_in_doubt = false;
  bool may_be_gone = false;
};

class Parent {
 public:
  int run(int rounds) {
    uint64_t kill_at = 0;
    for (int round = 0; round < rounds; ++round) {
      const bool by_clock = round % 3 == 2;
      if (!by_clock) ++kill_at;
      bool killed = false;
      if (!one_round(round, by_clock ? 0 : kill_at, &killed) || !judge(round)) return 1;
      if (!by_clock && !killed) kill_at = 0;  // past the last call of its steps: from the front
    }
    std::printf(
        "%d rounds, %d killed; %u acknowledged steps, %u chunks evicted, %u in doubt, %u variants "
        "seen\n",
        rounds, n_killed_, n_steps_, n_evicted_, n_in_doubt_, n_variants_);
    return n_steps_ > 0 && n_evicted_ > 0 && n_variants_ > 0 && n_killed_ > rounds / 2 ? 0 : 1;
  }

 private:
  bool one_round(int round, uint64_t kill_at, bool* killed) {
    int pipe_fd[2];
    if (pipe(pipe_fd) != 0) return false;
    doubts_.clear();
    const auto seed = static_cast<uint32_t>(rng_());
    const pid_t pid = fork();
    if (pid == 0) {
      close(pipe_fd[0]);
      const auto first_version = static_cast<uint32_t>(round + 1) * 100'000;
      Child(dir_.path(), pipe_fd[1], seed).run(first_version, kill_at == 0 ? 9'000 : 12, kill_at);
    }
    close(pipe_fd[1]);
    Step step;
    const auto next = [&] { return read(pipe_fd[0], &step, sizeof step) == sizeof step; };
    if (kill_at == 0) {
      // After a number of steps rather than a time, so that a busy machine gets as far as an idle
      // one; then at any moment of the next step. Every eighth dies while it opens the store.
      for (uint32_t left = rng_() % 8 == 0 ? 0 : 1 + rng_() % 8; left > 0 && next();) {
        note(step);
        left -= step.acknowledged != 0 && step.kind != Kind::evicted ? 1 : 0;
      }
      usleep(static_cast<useconds_t>(rng_() % 4'000));
      kill(pid, SIGKILL);
    }
    while (next()) note(step);
    close(pipe_fd[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    *killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    n_killed_ += *killed;
    if (*killed || (kill_at != 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)) return true;
    std::fprintf(stderr, "round %d: the child ended by itself (%d)\n", round, status);
    return false;
  }

  void note(const Step& step) {
    Slot& slot = slots_[step.slot];
    if (step.acknowledged == 0) {
      if (doubts_.empty()) ++clock_;  // those of a burst are of one age
      doubts_.push_back(step);
      slot.evicted_in_doubt = false;
      return;
    }
    if (step.kind == Kind::evicted) {
      ++n_evicted_;
      if (step.version != 0) settle(step.slot);  // told by the burst, not by a record
      slot = {};
      slot.evicted_in_doubt = doubt(step.slot) != nullptr;
      return;
    }
    ++n_steps_;
    settle(step.slot);
    switch (step.kind) {
      case Kind::put:
        slot.version = step.version;
        slot.age = clock_;
        slot.may_be_gone = slot.evicted_in_doubt;
        break;
      case Kind::remove:
        slot = {};
        break;
      case Kind::pin:
        slot.pinned = true;
        break;
      case Kind::unpin:
        slot.pinned = false;
        break;
      case Kind::evict:
      case Kind::compact:
      case Kind::evicted:
        break;
    }
  }

  const Step* doubt(uint32_t slot) const {
    for (const Step& step : doubts_) {
      if (step.slot == slot) return &step;
    }
    return nullptr;
  }
  void settle(uint32_t slot) {
    std::erase_if(doubts_, [&](const Step& step) { return step.slot == slot; });
  }

  bool wrong(int round, const char* what, uint32_t slot) {
    std::fprintf(stderr, "round %d: slot %u (version %u%s) %s; in doubt: %d kind %d slot %u\n",
                 round, slot, slots_[slot].version, slots_[slot].pinned ? ", pinned" : "", what,
                 static_cast<int>(doubts_.size()),
                 doubts_.empty() ? -1 : static_cast<int>(doubts_[0].kind),
                 doubts_.empty() ? kIds : doubts_[0].slot);
    return false;
  }

  bool judge(int round) {
    StoreOptions looking = options();
    looking.eviction = Eviction::fifo;  // or what is compared below would be used last
    auto opened = Store::open(dir_.path(), looking, {});
    if (!opened.is_ok()) {
      std::fprintf(stderr, "round %d: %s\n", round, opened.status().message().c_str());
      return false;
    }
    Store& store = **opened;
    n_in_doubt_ += doubts_.empty() ? 0 : 1;
    const bool evicts = std::any_of(doubts_.begin(), doubts_.end(), [](const Step& step) {
      return step.kind == Kind::put || step.kind == Kind::evict;
    });
    uint64_t n_chunks = 0;
    uint64_t youngest_gone = 0;
    uint64_t oldest_left = ~uint64_t{0};
    for (uint32_t i = 0; i < kIds; ++i) {
      Slot& slot = slots_[i];
      const Step* in_doubt = doubt(i);
      const auto holds = [&](uint32_t version) {
        return compare(store, *contents(i, version)).is_ok();
      };
      const bool there = store.contains(id_of(i)).value();
      const bool was_put = in_doubt != nullptr && in_doubt->kind == Kind::put;
      if (was_put && there && holds(in_doubt->version)) {
        slot.version = in_doubt->version;
        slot.age = clock_;
      } else if (in_doubt != nullptr && in_doubt->kind == Kind::remove && !there) {
        slot = {};
      } else if (slot.version == 0) {
        if (there) return wrong(round, "is there, and nobody put it", i);
      } else if (!there) {
        // Only the step under way may have evicted it untold.
        if (!slot.may_be_gone) {
          if (!evicts || slot.pinned) return wrong(round, "was lost", i);
          // An unused variant goes in the place of an older chunk of its text.
          if (i >= kVaried) youngest_gone = std::max(youngest_gone, slot.age);
        }
        slot = {};
      } else if (!holds(slot.version)) {
        return wrong(round, "is damaged or old", i);
      }
      slot.may_be_gone = false;
      if (slot.version == 0) continue;
      ++n_chunks;
      const auto use = store.use(id_of(i));
      if (!use.is_ok()) return wrong(round, "has no record of its use", i);
      const bool pin_in_doubt =
          in_doubt != nullptr && (in_doubt->kind == Kind::pin || in_doubt->kind == Kind::unpin);
      if (use.value().pinned != slot.pinned && !pin_in_doubt) {
        return wrong(round, "has the wrong pin", i);
      }
      slot.pinned = use.value().pinned;
      if (!slot.pinned && in_doubt == nullptr && i >= kVaried) {
        oldest_left = std::min(oldest_left, slot.age);
      }
    }
    if (youngest_gone > oldest_left) return wrong(round, "left before an older chunk", 0);
    const Status verified = store.for_each(true, [](const ChunkMeta&, const std::string& problem) {
      if (!problem.empty()) std::fprintf(stderr, "torn: %s\n", problem.c_str());
      return 0;
    });
    const auto stat = store.stat();
    if (!verified.is_ok() || !stat.is_ok() || stat.value().n_chunks != n_chunks ||
        stat.value().stored_bytes > options().quota_bytes) {
      std::fprintf(stderr, "round %d: %s; the counters or the quota are wrong, or chunks torn\n",
                   round, verified.message().c_str());
      return false;
    }
    const TextTotals texts = count_texts(store);
    TextTotals said = stat.value().texts.value_or(TextTotals{});
    said.variant_hits = said.as_of = 0;
    if (!stat.value().texts.has_value() || said != texts) {
      return wrong(round, "and others have texts that the store counted wrong", 0);
    }
    for (uint32_t text = 0; text < kVaried / kOfOneText; ++text) {
      uint32_t n = 0;
      for (uint32_t i = 0; i < kOfOneText; ++i) {
        n += slots_[text * kOfOneText + i].version == 0 ? 0 : 1;
      }
      if (n > 1 + kMostVariants) return wrong(round, "has too many variants", text * kOfOneText);
      n_variants_ += n > 1 ? n - 1 : 0;
    }
    return true;
  }

  TempDir dir_;
  std::mt19937 rng_{std::random_device{}()};
  std::array<Slot, kIds> slots_;
  std::vector<Step> doubts_;  // told and not acknowledged
  uint64_t clock_ = 0;
  uint32_t n_steps_ = 0, n_evicted_ = 0, n_in_doubt_ = 0, n_variants_ = 0;
  int n_killed_ = 0;
};

int rounds_wanted(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0) return std::atoi(argv[i + 1]);
  }
  const char* env = std::getenv("BLEND_CRASH_ROUNDS");
  return env != nullptr ? std::atoi(env) : 240;
}

}  // namespace

int crash(int argc, char** argv) { return Parent().run(rounds_wanted(argc, argv)); }

}  // namespace blend::test

int main(int argc, char** argv) { return blend::test::crash(argc, argv); }
