// Servers that are broken or mean harm: every call ends, soon and with a code; what they say cannot
// spoil a log, take memory or descriptors without bound, or make us call on whom we should not.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "store/remote/client/redis.h"
#include "store/remote/options.h"
#include "store/store.h"
#include "support/certificates.h"
#include "support/redis_server.h"
#include "support/scripted_server.h"
#include "unit/store/store_testing.h"

// A resolver that hangs: for names of .hangs only.
namespace {
std::atomic<bool> resolver_hangs{false};
}
extern "C" int getaddrinfo(const char* host, const char* port, const addrinfo* wanted,
                           addrinfo** found) {
  static const auto own = reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const std::string_view name = host == nullptr ? "" : host;
  if (!name.ends_with(".hangs") || (wanted->ai_flags & AI_NUMERICHOST) != 0) {
    return own(host, port, wanted, found);
  }
  while (resolver_hangs) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return own("127.0.0.1", port, wanted, found);
}

namespace blend::test {
namespace {

using namespace std::chrono_literals;
using Peer = ScriptedServer::Peer;
using Command = std::vector<std::string>;

constexpr ChunkShape kShape{4, 64, 512, DType::f16};

// timeout_ms: short where it is to pass, long where a busy machine is not to be taken for a slow
// server.
RemoteOptions options_of(const std::string& url, uint32_t timeout_ms = 300) {
  RemoteOptions r;
  r.url = take(parse_remote_url(url));
  r.segment_bytes = 64 << 10;
  r.timeout_ms = timeout_ms;
  r.retry_ms = 200;
  return r;
}

std::string at(uint16_t port, const char* scheme = "redis") {
  return std::string(scheme) + "://127.0.0.1:" + std::to_string(port);
}

std::string bulk(std::string_view text) {
  std::string out;
  append_bulk(out, text);
  return out;
}

// [first, last, [host, port]] for each.
std::string slots_reply(const std::vector<std::tuple<int, int, std::string, int>>& ranges) {
  std::string out = "*" + std::to_string(ranges.size()) + "\r\n";
  for (const auto& [first, last, host, port] : ranges) {
    out += "*3\r\n:" + std::to_string(first) + "\r\n:" + std::to_string(last) + "\r\n*2\r\n" +
           bulk(host) + ":" + std::to_string(port) + "\r\n";
  }
  return out;
}

struct Engine {
  explicit Engine(const RemoteOptions& options)
      : engine(
            take(RedisEngine::create(options, [this](const std::string& server, const Status& s) {
              const std::lock_guard lock(mutex);
              (s.is_ok() ? ups : downs).push_back(server + ": " + s.message());
            }))) {}
  size_t n_downs() {
    const std::lock_guard lock(mutex);
    return downs.size();
  }
  std::mutex mutex;
  std::vector<std::string> downs, ups;  // mutex
  std::unique_ptr<RedisEngine> engine;
};

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; });
}

size_t n_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                           std::filesystem::directory_iterator()));
}

// Every call once, each with a code of the engine's, a sentence that may be printed, and an end.
void expect_codes(RemoteEngine& engine) {
  std::byte space[64];
  const Place place{space, sizeof space};
  const Part part{space, sizeof space};
  PartsValue value({&part, 1});
  const Status all[] = {engine.get("k", 1000).status(),
                        engine.get_into("k", {&place, 1}),
                        engine.put("k", value),
                        engine.length("k").status(),
                        engine.remove("k"),
                        engine.scan("k", {}, [](std::string_view) { return Status::ok(); }),
                        engine.check()};
  for (const Status& s : all) {
    EXPECT_TRUE(s.is_ok() || s.code() == BLEND_E_IO || s.code() == BLEND_E_NOT_FOUND ||
                s.code() == BLEND_E_CORRUPT || s.code() == BLEND_E_FULL)
        << s.code() << ": " << s.message();
    EXPECT_TRUE(is_printable(s.message())) << s.message();
    EXPECT_LE(s.message().size(), 1000u);
  }
}

TEST(RemoteHostile, RepliesOfEveryKindEndEveryCall) {
  const std::string zeros(100, '\0');
  for (const std::string& reply : {std::string(":1\r\n"),
                                   std::string(":-5\r\n"),
                                   std::string("*0\r\n"),
                                   std::string("*-1\r\n"),
                                   std::string("$-1\r\n"),
                                   std::string("$-7\r\n"),
                                   std::string("+OK\r\n"),
                                   std::string("+\x1b[2J\r\n"),
                                   std::string("-ERR \x1b[31m\x07 no\r\n"),
                                   std::string("!9\r\nERR\nroot:\r\n"),
                                   std::string("-OOM \x01\r\n"),
                                   std::string("-LOADING \x1b]0;x\r\n"),
                                   std::string("-NOAUTH\r\n"),
                                   std::string("-MOVED\r\n"),
                                   std::string("-MOVED 1 h:1\r\n"),
                                   std::string("-ASK 1 h:1\r\n"),
                                   std::string("%1\r\n:1\r\n"),
                                   std::string("$99999999999999\r\nxx"),
                                   std::string("$64\r\n"),
                                   std::string("$64\r\n" + zeros),
                                   std::string("*3\r\n:1\r\n"),
                                   std::string("*2\r\n$1\r\n0\r\n:1\r\n"),
                                   std::string("_\r\n"),
                                   std::string("#t\r\n"),
                                   std::string("\r\n"),
                                   zeros,
                                   std::string("HTTP/1.1 400\r\n\r\n"),
                                   std::string()}) {
    SCOPED_TRACE(reply.substr(0, 30));
    ScriptedServer server([&](const Peer& peer, const Command&) { return peer.send(reply); });
    Engine e(options_of(at(server.port())));
    expect_codes(*e.engine);
    const std::lock_guard lock(e.mutex);
    for (const std::string& down : e.downs) EXPECT_TRUE(is_printable(down)) << down;
  }
}

// Pushed messages are not replies, and an endless series of them must not keep a call waiting.
// Hangs if broken.
TEST(RemoteHostile, EndlessPushesEndWithTheDeadline) {
  std::string pushes;
  for (int i = 0; i < 1000; ++i) pushes += ">0\r\n";
  for (const std::string& more :
       {pushes, std::string("|0\r\n|0\r\n"), std::string(">1\r\n+x\r\n")}) {
    ScriptedServer server([&](const Peer& peer, const Command&) {
      while (peer.send(more)) {
      }
      return false;
    });
    Engine e(options_of(at(server.port())));
    EXPECT_CODE(BLEND_E_IO, e.engine->get("k", 1000).status());
  }
}

TEST(RemoteHostile, ADripIsTooSlowAndIsToldOnce) {
  ScriptedServer server([](const Peer& peer, const Command&) {
    if (!peer.send("$64\r\n")) return false;
    while (peer.send("x") && peer.pause(40ms)) {
    }
    return false;
  });
  RemoteOptions options = options_of(at(server.port()));
  options.retry_ms = 60000;
  Engine e(options);
  std::byte space[64];
  const Place place{space, sizeof space};
  EXPECT_CODE(BLEND_E_IO, e.engine->get_into("k", {&place, 1}));
  EXPECT_EQ(1u, e.n_downs());
  EXPECT_FALSE(e.engine->reachable());
  const uint64_t before = server.n_connections();
  EXPECT_CODE(BLEND_E_IO, e.engine->get("k", 1000).status());
  EXPECT_EQ(before, server.n_connections()) << "it is left alone";
}

// One server is not sent anywhere else, whatever it says.
TEST(RemoteHostile, WhatIsNoClusterIsNotFollowed) {
  ScriptedServer stranger(
      [](const Peer& peer, const Command&) { return peer.send("$1\r\nx\r\n"); });
  for (const char* way : {"MOVED", "ASK"}) {
    ScriptedServer server([&](const Peer& peer, const Command&) {
      return peer.send("-" + std::string(way) + " 1 127.0.0.1:" + std::to_string(stranger.port()) +
                       "\r\n");
    });
    Engine e(options_of(at(server.port())));
    EXPECT_CODE(BLEND_E_IO, e.engine->get("k", 1000).status());
  }
  EXPECT_EQ(0u, stranger.n_connections());
}

// ---- Clusters

std::string own_slots(uint16_t port) { return slots_reply({{0, 16383, "127.0.0.1", port}}); }

TEST(RemoteHostile, RedirectsInCirclesEnd) {
  for (const char* way : {"MOVED", "ASK"}) {
    std::atomic<uint16_t> port{0};
    std::atomic<int> n_asked{0};
    ScriptedServer server([&](const Peer& peer, const Command& command) {
      if (command[0] == "CLUSTER") return peer.send(own_slots(port));
      if (command[0] == "ASKING") return peer.send("+OK\r\n");
      ++n_asked;
      return peer.send("-" + std::string(way) + " 7 127.0.0.1:" + std::to_string(port) + "\r\n");
    });
    port = server.port();
    Engine e(options_of(at(port, "redis+cluster"), 5000));
    EXPECT_CODE(BLEND_E_IO, e.engine->get("k", 1000).status());
    EXPECT_LE(n_asked, 16);
    EXPECT_EQ(0u, e.n_downs()) << "it answers";
  }
}

TEST(RemoteHostile, NamesThatAreNoHostsAreNotCalledOn) {
  for (const std::string& host : {std::string("a\nb"), std::string("x\x1b[31m"), std::string("a b"),
                                  std::string("a\0b", 3), std::string(5000, 'a')}) {
    std::atomic<uint16_t> port{0};
    ScriptedServer server([&](const Peer& peer, const Command& command) {
      if (command[0] == "CLUSTER") return peer.send(slots_reply({{0, 16383, host, 1}}));
      return peer.send("+OK\r\n");
    });
    Engine e(options_of(at(server.port(), "redis+cluster"), 5000));
    const Status told = e.engine->get("k", 1000).status();
    EXPECT_CODE(BLEND_E_IO, told);
    EXPECT_TRUE(is_printable(told.message()));
    EXPECT_NE(std::string::npos, told.message().find("is no node of a cluster")) << told.message();

    ScriptedServer mover([&](const Peer& peer, const Command& command) {
      if (command[0] == "CLUSTER") return peer.send(own_slots(port));
      return peer.send("!" + std::to_string(host.size() + 10) + "\r\nMOVED 7 " + host + ":1\r\n");
    });
    port = mover.port();
    Engine moved(options_of(at(port, "redis+cluster"), 5000));
    const Status refused = moved.engine->get("k", 100000).status();
    EXPECT_CODE(BLEND_E_IO, refused);
    EXPECT_TRUE(is_printable(refused.message()));
    EXPECT_EQ(0u, moved.n_downs()) << moved.downs.at(0).substr(0, 200);
  }
}

// A cluster that names ever more nodes, all of which answer, is not kept connections to.
TEST(RemoteHostile, EndlessNodesAreNotKept) {
  for (const std::string way : {"MOVED", "ASK"}) {
    SCOPED_TRACE(way);
    std::atomic<uint16_t> port{0};
    std::atomic<int> n{0};
    ScriptedServer server([&](const Peer& peer, const Command& command) {
      if (command[0] == "CLUSTER") return peer.send(own_slots(port));
      if (command[0] == "ASKING") return peer.send("+OK\r\n");
      const int i = ++n;
      return peer.send("-" + way + " 7 127.1." + std::to_string(i / 250) + "." +
                       std::to_string(1 + i % 250) + ":" + std::to_string(port) + "\r\n");
    });
    port = server.port();
    Engine e(options_of(at(port, "redis+cluster"), 5000));
    size_t most = 0;
    const size_t theirs = n_descriptors();
    for (int i = 0; i < 60; ++i) {
      EXPECT_CODE(BLEND_E_IO, e.engine->get("k", 1000).status());
      // The server's side has as many again, which it keeps.
      const size_t ours = n_descriptors() - theirs - server.n_connections();
      most = std::max(most, ours < 100000 ? ours : 0);
      std::this_thread::sleep_for(20ms);
    }
    EXPECT_GT(n, 200);
    EXPECT_LT(most, 200u);
  }
}

// A reply that nobody asked for would be taken for that of the next call, and so on for ever.
TEST(RemoteHostile, AReplyTooManyIsNotTheNextCalls) {
  for (const auto& [name, pause] : {std::pair{"at once", 0ms}, std::pair{"later", 50ms}}) {
    SCOPED_TRACE(name);
    ScriptedServer server([&, pause = pause](const Peer& peer, const Command& command) {
      const std::string own = bulk("of " + command[1]);
      if (command[1] != "first") return peer.send(own);
      if (pause == 0ms) return peer.send(own + bulk("more"));
      return peer.send(own) && peer.pause(pause) && peer.send(bulk("more"));
    });
    Engine e(options_of(at(server.port()), 5000));
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ("of first", take(e.engine->get("first", 1000)));
      std::this_thread::sleep_for(2 * pause);
      EXPECT_EQ("of second", take(e.engine->get("second", 1000)));
      EXPECT_EQ("of third", take(e.engine->get("third", 1000)));
    }
  }
}

TEST(RemoteHostile, SlotsThatAreGivenTwiceAreNone) {
  std::vector<std::tuple<int, int, std::string, int>> ranges(20000, {0, 16383, "127.0.0.1", 1});
  const std::string reply = slots_reply(ranges);
  ScriptedServer server([&](const Peer& peer, const Command&) { return peer.send(reply); });
  RemoteOptions options = options_of(at(server.port(), "redis+cluster"));
  options.timeout_ms = 20000;
  Engine e(options);
  const Status told = e.engine->get("k", 1000).status();
  EXPECT_NE(std::string::npos, told.message().find("is no node of a cluster")) << told.message();
}

// A node that hangs says nothing of the others, which are asked with what it left of a deadline.
TEST(RemoteHostile, ANodeThatHangsDoesNotCloseTheOthers) {
  std::atomic<uint16_t> first{0}, second{0};
  std::atomic<bool> hangs{false};
  const auto answer = [&](std::atomic<uint16_t>& own) {
    return [&](const Peer& peer, const Command& command) {
      if (hangs && own == first) return peer.pause(60s);
      if (command[0] == "CLUSTER") {
        return peer.send(
            slots_reply({{0, 8191, "127.0.0.1", first}, {8192, 16383, "127.0.0.1", second}}));
      }
      return peer.send("$1\r\nx\r\n");
    };
  };
  std::atomic<uint16_t> port_of_one{0}, port_of_two{0};
  ScriptedServer one(answer(port_of_one));
  ScriptedServer two(answer(port_of_two));
  // The one that is asked for the slots first hangs.
  const auto name = [](const ScriptedServer& server) {
    return "127.0.0.1:" + std::to_string(server.port());
  };
  port_of_one = one.port();
  port_of_two = two.port();
  first = name(one) < name(two) ? one.port() : two.port();
  second = name(one) < name(two) ? two.port() : one.port();
  RemoteOptions options = options_of("redis+cluster://" + name(one) + "," + name(two), 500);
  options.retry_ms = 60000;
  std::string of_a, of_b;
  for (int i = 0; of_a.empty() || of_b.empty(); ++i) {
    const std::string key = "k" + std::to_string(i);
    (slot_of(key) < 8192 ? of_a : of_b) = key;
  }
  Engine e(options);
  EXPECT_EQ("x", take(e.engine->get(of_a, 10)));
  EXPECT_EQ("x", take(e.engine->get(of_b, 10)));
  hangs = true;
  EXPECT_CODE(BLEND_E_IO, e.engine->get(of_a, 10).status());
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ("x", take(e.engine->get(of_b, 10)));
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(1u, e.n_downs());
  // Nor where the slots are asked for while it hangs and nobody knows.
  Engine late(options);
  EXPECT_CODE(BLEND_E_IO, late.engine->get(of_b, 10).status());
  EXPECT_EQ("x", take(late.engine->get(of_b, 10)));
  EXPECT_EQ(1u, late.n_downs());
}

// Through TLS a cluster cannot send us, and our password, to who has no certificate for it.
TEST(RemoteHostile, AStrangerHearsNoPassword) {
  SKIP_WITHOUT_REDIS();
  if (std::getenv("BLEND_TLS_MODULE") == nullptr) GTEST_SKIP() << "libblend_tls.so is not built";
  Certificates certificates;
  ASSERT_TRUE(certificates.make()) << "openssl(1) cannot make certificates";
  ScriptedServer stranger([](const Peer& peer, const Command&) { return peer.send("+OK\r\n"); });
  RemoteOptions options =
      options_of("rediss+cluster://127.0.0.1:" + std::to_string(stranger.port()));
  options.ca_file = certificates.file("ca.pem");
  options.password = "sesame";
  Engine e(options);
  EXPECT_CODE(BLEND_E_IO, e.engine->get("k", 10).status());
  EXPECT_GT(stranger.n_connections(), 0u);
  EXPECT_FALSE(stranger.heard().empty());
  EXPECT_EQ(std::string::npos, stranger.heard().find("sesame"));
}

// ---- SCAN

TEST(RemoteHostile, AScanWithoutEndEnds) {
  for (const bool same : {true, false}) {
    std::atomic<int> n{1};
    ScriptedServer server([&](const Peer& peer, const Command&) {
      n += same ? 0 : 1;
      return peer.send("*2\r\n" + bulk(std::to_string(n)) + "*1\r\n" +
                       bulk("blend:" + std::to_string(n)));
    });
    Engine e(options_of(at(server.port()), 5000));
    uint64_t n_keys = 0;
    const Status told = e.engine->scan("blend:", {}, [&](std::string_view) {
      // The callback may stop the scan.
      return ++n_keys < 3000 ? Status::ok() : Status{BLEND_E_FULL, "enough"};
    });
    EXPECT_CODE(same ? BLEND_E_CORRUPT : BLEND_E_FULL, told);
  }
}

TEST(RemoteHostile, AScanHasItsLimits) {
  std::atomic<uint64_t> n{0};
  ScriptedServer server([&](const Peer& peer, const Command&) {
    return peer.send("*2\r\n" + bulk(std::to_string(++n)) + "*1\r\n" + bulk("blend:a key"));
  });
  Engine e(options_of(at(server.port()), 5000));
  const auto all = [](std::string_view) { return Status::ok(); };
  EXPECT_CODE(BLEND_E_CORRUPT, e.engine->scan("blend:", {.rounds = 50}, all));
  EXPECT_EQ(50u, n.exchange(0));
  EXPECT_CODE(BLEND_E_CORRUPT, e.engine->scan("blend:", {.bytes = 100}, all));
  EXPECT_EQ(10u, n.exchange(0));
  EXPECT_CODE(BLEND_E_CORRUPT, e.engine->scan("blend:", {.time = 1ms}, all));
}

// An operator's measurement of a server that has more keys to name whenever it is asked.
TEST(RemoteHostile, AMeasurementOfAServerThatNamesKeysForEverEnds) {
  std::atomic<uint64_t> n{0};
  ScriptedServer server([&](const Peer& peer, const Command& command) {
    if (command[0] != "SCAN") return peer.send("+PONG\r\n");
    return peer.send("*2\r\n" + bulk(std::to_string(++n)) + "*0\r\n");
  });
  TempDir directory;
  const auto store =
      take(Store::open(directory.path() + "/s", {}, options_of(at(server.port()), 5000), {}));
  EXPECT_CODE(BLEND_E_CORRUPT, store->remote()->measure().status());
  EXPECT_LE(n, 1u << 14);
}

// ---- Names

// The system's resolver knows no deadline, and may take half a minute: neither who reads nor who
// closes waits for it.
TEST(RemoteHostile, ANameThatIsNotResolvedKeepsNobody) {
  resolver_hangs = true;
  const auto begin = std::chrono::steady_clock::now();
  {
    TempDir directory;
    RemoteOptions options = options_of("redis://cache.hangs:6379");
    std::shared_ptr<Store> store = take(Store::open(directory.path() + "/s", {}, options, {}));
    for (uint32_t seed = 0; seed < 5; ++seed) {
      EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*store, *make_record(seed, kShape)));
      EXPECT_OK(store->put(*make_record(seed, kShape)));
    }
    EXPECT_OK(store->flush());
    EXPECT_FALSE(take(store->stat()).remote.reachable);
  }
  // Hangs if broken; a count of timeouts rather than a time.
  EXPECT_LT((std::chrono::steady_clock::now() - begin) / 300ms, 40);
  resolver_hangs = false;
}

TEST(RemoteHostile, ANameThatIsResolvedAtLastServes) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  resolver_hangs = true;
  Engine e(options_of("redis://cache.hangs:" + std::to_string(server.port())));
  EXPECT_CODE(BLEND_E_IO, e.engine->get("k", 10).status());
  resolver_hangs = false;
  Status now = e.engine->get("k", 10).status();
  for (int i = 0; i < 200 && now.code() != BLEND_E_NOT_FOUND; ++i) {
    std::this_thread::sleep_for(50ms);
    now = e.engine->get("k", 10).status();
  }
  EXPECT_CODE(BLEND_E_NOT_FOUND, now);
}

}  // namespace
}  // namespace blend::test
