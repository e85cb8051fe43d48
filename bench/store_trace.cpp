// How many turns of conversations find their KV cache, by policy and size of the tiers?
//
// AttentionStore's figure 21 on a generated trace: conversations begin as a Poisson process, have a
// geometric number of turns (mean 5.75, as ShareGPT's), log-normal lengths of question and answer,
// and an exponential pause before each next turn. Turns wait in the queue of one server, in the
// order of arrival. A turn looks its conversation up (host memory, disk, or not at all), and stores
// it again with the new text; the hinted runs tell the store who is waiting. Time is simulated, the
// store is real; a token takes 64 bytes.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "bench/json_file.h"
#include "bench/measure.h"
#include "store/store.h"
#include "support/temp_dir.h"

namespace {

using blend::AlignedBuffer;
using blend::ChunkRecord;
using blend::Sha256;
using blend::bench::must;

constexpr uint32_t kContext = 2048;  // longer conversations lose their oldest rows
constexpr size_t kTokenBytes = 64;

struct Turn {
  double arrival = 0;
  uint32_t session = 0;
  uint32_t number = 0;
  uint32_t question = 0, answer = 0;  // tokens
};

struct Settings {
  uint32_t sessions = 1200;
  double arrivals_per_s = 1.0;
  double turns = 5.75;
  double pause_s = 60;
  double load = 0.95;  // of the server
  uint64_t seed = 7;
};

uint32_t draw_length(std::mt19937_64& rng, double median, double sigma) {
  std::lognormal_distribution<double> d(std::log(median), sigma);
  return static_cast<uint32_t>(std::clamp(d(rng), 4.0, 1024.0));
}

// In the order of arrival.
std::vector<Turn> make_trace(const Settings& s) {
  std::mt19937_64 rng(s.seed);
  std::exponential_distribution<double> between(s.arrivals_per_s);
  std::exponential_distribution<double> pause(1 / s.pause_s);
  std::geometric_distribution<uint32_t> more(1 / s.turns);
  std::vector<Turn> turns;
  double begin = 0;
  for (uint32_t session = 0; session < s.sessions; ++session) {
    begin += between(rng);
    double at = begin;
    const uint32_t n = 1 + std::min(more(rng), 40u);
    for (uint32_t number = 0; number < n; ++number) {
      turns.push_back({at, session, number, draw_length(rng, 40, 1.2), draw_length(rng, 180, 0.8)});
      at += 5 + pause(rng);
    }
  }
  std::sort(turns.begin(), turns.end(),
            [](const Turn& a, const Turn& b) { return a.arrival < b.arrival; });
  return turns;
}

Sha256 id_of(uint32_t session) {
  return blend::Sha256Hasher().field("session").field(uint64_t{session}).finish();
}

std::shared_ptr<ChunkRecord> record_of(uint32_t session, uint32_t tokens) {
  auto r = std::make_shared<ChunkRecord>();
  r->meta.id = id_of(session);
  r->meta.shape = {2, tokens, kTokenBytes / 8, blend::DType::f16};
  r->meta.tokens.assign(tokens, static_cast<int32_t>(session));
  r->data = std::move(AlignedBuffer::allocate(r->meta.shape.total_bytes()).value());
  std::memset(r->data.data(), static_cast<int>(session & 0xff), r->data.bytes());
  return r;
}

struct Outcome {
  std::string policy;
  uint64_t ram_bytes = 0, disk_bytes = 0;
  uint64_t ram_hits = 0, disk_hits = 0, turns = 0;  // of turns that had something to find
  uint64_t refused = 0;                             // puts that found no room
  double mean_queue = 0;
};

Outcome run(const std::vector<Turn>& trace, const Settings& settings, const std::string& name,
            blend::Eviction eviction, bool hinted, uint64_t ram_bytes, uint64_t disk_bytes) {
  blend::test::TempDir dir;
  blend::StoreOptions options;
  options.eviction = eviction;
  options.quota_bytes = disk_bytes;
  options.ram_bytes = ram_bytes;
  const auto opened = must(blend::Store::open(dir.path(), options, {}));
  blend::Store& store = *opened;
  Outcome out{name, ram_bytes, disk_bytes, 0, 0, 0, 0, 0};

  double total = 0;
  for (const Turn& t : trace) total += t.question + t.answer;
  // While conversations begin the load is as asked; bursts make the queue.
  const double s_per_token = settings.load * settings.sessions / settings.arrivals_per_s / total;
  std::map<uint32_t, uint32_t> tokens;  // of each conversation, so far
  std::deque<Turn> waiting;
  size_t next = 0;
  double now = 0;
  double queue_sum = 0;
  while (next < trace.size() || !waiting.empty()) {
    if (waiting.empty()) now = std::max(now, trace[next].arrival);
    while (next < trace.size() && trace[next].arrival <= now) waiting.push_back(trace[next++]);
    queue_sum += static_cast<double>(waiting.size());
    if (hinted) {
      std::vector<Sha256> queue;
      queue.reserve(waiting.size());
      for (const Turn& t : waiting) queue.push_back(id_of(t.session));
      (void)store.hint(queue);
      store.wait_for_reading_ahead();  // in the time that the turn before took
    }
    const Turn turn = waiting.front();
    waiting.pop_front();
    if (turn.number > 0) {
      const uint64_t ram_before = store.stat()->ram_hits;
      const auto snapshot = store.snapshot();
      auto source = snapshot.value()->open(id_of(turn.session));
      ++out.turns;
      if (source.is_ok()) {
        std::vector<std::byte> layer((*source)->meta().shape.layer_bytes(0));
        for (uint32_t l = 0; l < 2; ++l) (void)(*source)->read_layer(l, layer.data());
        ++(store.stat()->ram_hits > ram_before ? out.ram_hits : out.disk_hits);
      }
    }
    uint32_t& length = tokens[turn.session];
    length = std::min(kContext, length + turn.question + turn.answer);
    now += s_per_token * (turn.question + turn.answer);
    (void)store.put_async(record_of(turn.session, length));
    if (store.flush().code() == BLEND_E_FULL) ++out.refused;
  }
  out.mean_queue = queue_sum / static_cast<double>(trace.size());
  return out;
}

int measure(int argc, char** argv) {
  Settings settings;
  std::vector<double> shares = {0.05, 0.1, 0.2, 0.4};
  std::string json;
  CLI::App app{"Hit rates of eviction policies on a multi-turn trace"};
  app.add_option("--sessions", settings.sessions)->capture_default_str();
  app.add_option("--arrivals", settings.arrivals_per_s, "Conversations a second")
      ->capture_default_str();
  app.add_option("--pause", settings.pause_s, "Seconds before the next turn, mean")
      ->capture_default_str();
  app.add_option("--load", settings.load, "Of the server")->capture_default_str();
  app.add_option("--disk", shares, "Quotas, as shares of all conversations' final size")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--seed", settings.seed)->capture_default_str();
  app.add_option("--json", json, "File for the figures");
  CLI11_PARSE(app, argc, argv);

  const std::vector<Turn> trace = make_trace(settings);
  std::map<uint32_t, uint32_t> tokens;
  for (const Turn& t : trace) {
    tokens[t.session] = std::min(kContext, tokens[t.session] + t.question + t.answer);
  }
  uint64_t all = 0;
  for (const auto& [session, n] : tokens) all += n * kTokenBytes;
  std::printf("%u conversations, %zu turns over %.0f s, %.1f MiB of KV in the end\n",
              settings.sessions, trace.size(), trace.back().arrival,
              static_cast<double>(all) / (1 << 20));
  struct Kind {
    const char* name;
    blend::Eviction eviction;
    bool hinted;
  };
  const std::vector<Kind> kinds = {{"fifo", blend::Eviction::fifo, false},
                                   {"lru", blend::Eviction::lru, false},
                                   {"reuse", blend::Eviction::reuse, false},
                                   {"hinted", blend::Eviction::lru, true}};
  nlohmann::json lines = nlohmann::json::array();
  std::printf("%8s %8s %8s %10s %10s %10s %8s %8s\n", "disk", "memory", "policy", "memory hit",
              "disk hit", "hit", "refused", "queue");
  for (const double share : shares) {
    const auto disk = static_cast<uint64_t>(share * static_cast<double>(all));
    const uint64_t ram = disk / 8;
    for (const Kind& kind : kinds) {
      const Outcome o = run(trace, settings, kind.name, kind.eviction, kind.hinted, ram, disk);
      const auto rate = [&](uint64_t n) {
        return static_cast<double>(n) / static_cast<double>(o.turns);
      };
      std::printf("%7.0f%% %7.1f%% %8s %9.1f%% %9.1f%% %9.1f%% %8llu %8.1f\n", 100 * share,
                  100 * share / 8, kind.name, 100 * rate(o.ram_hits), 100 * rate(o.disk_hits),
                  100 * rate(o.ram_hits + o.disk_hits), static_cast<unsigned long long>(o.refused),
                  o.mean_queue);
      std::fflush(stdout);
      lines.push_back({{"policy", kind.name},
                       {"disk_share", share},
                       {"ram_share", share / 8},
                       {"ram_hit_rate", rate(o.ram_hits)},
                       {"disk_hit_rate", rate(o.disk_hits)},
                       {"refused", o.refused},
                       {"mean_queue", o.mean_queue}});
    }
  }
  blend::bench::write_json(json, {{"sessions", settings.sessions},
                                  {"turns", trace.size()},
                                  {"arrivals_per_s", settings.arrivals_per_s},
                                  {"pause_s", settings.pause_s},
                                  {"load", settings.load},
                                  {"seed", settings.seed},
                                  {"kv_bytes", all},
                                  {"lines", lines}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_store_trace: %s\n", e.what());
    return 1;
  }
}
