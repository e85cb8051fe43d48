// The remote tier on real servers.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "store/remote/options.h"
#include "store/store.h"
#include "support/certificates.h"
#include "support/redis_server.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

using namespace std::chrono_literals;

constexpr ChunkShape kShape{4, 64, 512, DType::f16};  // 512 KiB: 8 segments of 64 KiB

RemoteOptions remote_of(const std::string& url) {
  RemoteOptions r;
  r.url = take(parse_remote_url(url));
  r.segment_bytes = 64 << 10;
  r.timeout_ms = 2000;
  r.retry_ms = 300;
  return r;
}

// A host: a store of its own below the remote tier that all share.
struct Host {
  explicit Host(const RemoteOptions& remote, StoreOptions options = {}) {
    const Told told = [this](int32_t code, const std::string& message) {
      const std::lock_guard lock(mutex);
      events.emplace_back(code, message);
    };
    auto opened = Store::open(directory.path() + "/store", options, remote, log_to(told));
    EXPECT_TRUE(opened.is_ok()) << opened.status().message();
    if (opened.is_ok()) store = std::move(opened.value());
  }
  RemoteStat stat() const { return take(store->stat()).remote; }
  size_t count(int32_t code) {
    const std::lock_guard lock(mutex);
    return static_cast<size_t>(std::count_if(events.begin(), events.end(),
                                             [&](const auto& e) { return e.first == code; }));
  }
  TempDir directory;
  std::mutex mutex;
  std::vector<std::pair<int32_t, std::string>> events;  // mutex
  std::shared_ptr<Store> store;
};

void put_and_flush(Host& host, const ChunkRecord& record) {
  EXPECT_OK(host.store->put(record));
  EXPECT_OK(host.store->flush());
}

// What one host put the other finds, byte for byte, and keeps on its disk.
void expect_shared(const RemoteOptions& remote, Codec codec = Codec::none) {
  StoreOptions options;
  options.codec = codec;
  Host a(remote, options);
  Host b(remote, options);
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const auto record = make_record(seed, kShape);
    EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*b.store, *record));
    put_and_flush(a, *record);
    EXPECT_OK(compare(*b.store, *record));
    EXPECT_OK(b.store->flush());
    EXPECT_OK(b.store->stored(record->meta.id).status());
    EXPECT_OK(compare(*b.store, *record));
  }
  EXPECT_EQ(5u, a.stat().written);
  EXPECT_EQ(5u, b.stat().hits);
  EXPECT_EQ(0u, b.stat().written) << "what came from there goes up again";
  EXPECT_EQ(0u, a.stat().errors + b.stat().errors);
  EXPECT_GT(b.stat().look_up_p99_us, 0u);
}

TEST(RemoteStore, TwoHostsShareAServer) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  expect_shared(remote_of(server.url()));
  expect_shared(remote_of(server.url() + "/1"), Codec::zstd);
  EXPECT_NE("-1", server.command({"TTL", server.keys().at(0)}));
}

TEST(RemoteStore, QuantizedBytesAreTheSameOnBothHosts) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  for (const Codec codec : {Codec::int8, Codec::int4}) {
    StoreOptions options;
    options.codec = codec;
    RemoteOptions remote = remote_of(server.url());
    remote.space = codec_name(codec);
    Host a(remote, options);
    Host b(remote);  // that would store it otherwise
    auto record = make_record(3, kShape);
    for (size_t i = 0; i < record->data.bytes() / 2; ++i) {
      record->data.as<uint16_t>()[i] = static_cast<uint16_t>(0x3000 + i % 997);
    }
    put_and_flush(a, *record);
    const auto read = [&](Host& host) {
      const auto snapshot = take(host.store->snapshot());
      const auto source = take(snapshot->open(record->meta.id));
      EXPECT_EQ(codec, source->meta().codec);
      std::string all(kShape.total_bytes(), 0);
      for (uint32_t l = 0; l < kShape.n_layers; ++l) {
        EXPECT_OK(source->read_layer(
            l, reinterpret_cast<std::byte*>(all.data() + l * kShape.layer_bytes(0))));
      }
      return all;
    };
    const std::string want = read(a);
    EXPECT_EQ(want, read(b));
    EXPECT_OK(b.store->flush());
    EXPECT_EQ(want, read(b)) << "from the disk";
  }
}

TEST(RemoteStore, StagedLayersAreRead) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  Host a(remote_of(server.url()));
  const auto record = make_record(9, kShape);
  put_and_flush(a, *record);
  Host b(remote_of(server.url()));
  const auto snapshot = take(b.store->snapshot());
  const auto source = take(snapshot->open(record->meta.id));
  EXPECT_EQ(source->origin(), Origin::remote);
  EXPECT_OK(compare_staged(*source, *record, 3));
}

// A chunk's label is part of its description on the server: it moves with the chunk, and is
// encrypted with it.
TEST(RemoteStore, LabelsTravelWithTheirChunks) {
  SKIP_WITHOUT_REDIS();
  const auto label_at = [](Host& host, const Sha256& id) {
    bool here = false;
    EXPECT_OK(host.store->remote()->pull(id, &here));
    auto stored = host.store->stored(id);
    EXPECT_OK(stored.status());
    if (!stored.is_ok()) return std::string();
    const ChunkName& name = (*stored)->layout().meta.name;
    return name.label.value_or("") + "|" + name.tags.value_or("");
  };
  for (const bool sealed : {false, true}) {
    RedisServer server;
    ASSERT_TRUE(server.start()) << server.log();
    RemoteOptions remote = remote_of(server.url());
    if (sealed) remote.seal_key = std::string(32, 's');
    auto record = make_record(1, kShape);
    record->meta.name = take(read_chunk_name("secret-manual.pdf#1", "lang=en"));
    Host a(remote), b(remote), c(remote);
    put_and_flush(a, *record);
    EXPECT_EQ("secret-manual.pdf#1|lang=en", label_at(b, record->meta.id));
    // A new name follows; the segments stay there.
    const uint64_t written = a.stat().written_bytes;
    bool changed = false;
    EXPECT_OK(a.store->rename(record->meta.id, take(read_chunk_name("secret-two.pdf#1", nullptr)),
                              &changed));
    EXPECT_OK(a.store->flush());
    EXPECT_LT(a.stat().written_bytes - written, 8192u);
    EXPECT_EQ(1u, a.stat().written);
    EXPECT_EQ("secret-two.pdf#1|lang=en", label_at(c, record->meta.id));
    EXPECT_OK(compare(*c.store, *record));
    // A host that gives no label leaves the label of the others.
    const auto plain = make_record(1, kShape);
    Host d(remote), e(remote);
    put_and_flush(d, *plain);
    EXPECT_EQ("secret-two.pdf#1|lang=en", label_at(e, record->meta.id));
    bool any = false;
    for (const std::string& key : server.keys()) {
      any = any || server.command({"GET", key}).find("secret-") != std::string::npos;
    }
    EXPECT_EQ(!sealed, any);
  }
}

// A chunk is not written there twice, so a draft would stay in the place of what replaces it.
TEST(RemoteStore, DraftsAreNotUploaded) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  Host a(remote_of(server.url()));
  auto draft = make_record(1, kShape);
  draft->meta.contexts = {Sha256{1}};
  draft->meta.draft = true;
  put_and_flush(a, *draft);
  EXPECT_OK(compare(*a.store, *draft));
  EXPECT_EQ(0u, a.stat().written);
  const auto record = make_record(1, kShape);
  record->meta.contexts = {Sha256{1}, Sha256{2}};
  put_and_flush(a, *record);
  EXPECT_EQ(1u, a.stat().written);
  Host b(remote_of(server.url()));
  EXPECT_OK(compare(*b.store, *record));
}

TEST(RemoteStore, SealedValuesTellTheServerNothing) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  RemoteOptions remote = remote_of(server.url());
  remote.seal_key = std::string(32, 's');
  expect_shared(remote);
  const auto record = make_record(1, kShape);
  const std::string id = to_hex(record->meta.id);
  const std::string row(reinterpret_cast<const char*>(record->data.data()), 64);
  const std::string tokens(reinterpret_cast<const char*>(record->meta.tokens.data()), 32);
  ASSERT_FALSE(server.keys().empty());
  for (const std::string& key : server.keys()) {
    EXPECT_EQ(std::string::npos, key.find(id));
    const std::string value = server.command({"GET", key});
    EXPECT_EQ(std::string::npos, value.find(row));
    EXPECT_EQ(std::string::npos, value.find(tokens));
  }
  // Another key, or none, meets nothing of it, and spoils nothing.
  for (const char other : {'o', '\0'}) {
    RemoteOptions theirs = remote;
    theirs.seal_key = other == '\0' ? "" : std::string(32, other);
    Host host(theirs);
    EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*host.store, *record));
    put_and_flush(host, *record);
  }
  Host again(remote);
  EXPECT_OK(compare(*again.store, *record));
}

TEST(RemoteStore, TenantsNeverMeet) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  Host a(remote_of(server.url()));
  Host b(remote_of(server.url()));
  auto record = make_record(4, kShape);
  record->meta.tenant = tenant_tag("alice");
  put_and_flush(a, *record);
  const auto snapshot = take(b.store->snapshot());
  EXPECT_CODE(BLEND_E_NOT_FOUND, snapshot->open(record->meta.id, tenant_tag("bob")).status());
  EXPECT_CODE(BLEND_E_NOT_FOUND, snapshot->open(record->meta.id, tenant_tag("")).status());
  EXPECT_OK(snapshot->open(record->meta.id, tenant_tag("alice")).status());
}

TEST(RemoteStore, DamageThereIsAMissAndHealsWithTheNextPut) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  for (const std::string& seal : {std::string(), std::string(32, 's')}) {
    RemoteOptions remote = remote_of(server.url());
    remote.seal_key = seal;
    enum { kManifest = 4 };
    for (int what = 0; what < 8; ++what) {
      SCOPED_TRACE(what);
      (void)server.command({"FLUSHALL"});
      const auto record = make_record(5, kShape);
      Host a(remote);
      put_and_flush(a, *record);
      std::string segment;
      std::string manifest;
      for (const std::string& key : server.keys()) {
        (std::count(key.begin(), key.end(), ':') == 3 ? manifest : segment) = key;
      }
      ASSERT_FALSE(segment.empty() || manifest.empty());
      const std::string& key = what < kManifest ? segment : manifest;
      switch (what % 4) {
        case 0:
          (void)server.command({"DEL", key});  // evicted
          break;
        case 1:
          (void)server.command({"SETRANGE", key, "20", "?!"});
          break;
        case 2:
          (void)server.command({"APPEND", key, "x"});
          break;
        default:
          (void)server.command({"DEL", key});
          (void)server.command({"LPUSH", key, "x"});
      }
      Host b(remote);
      const Status read = compare(*b.store, *record);
      EXPECT_TRUE(read.code() == BLEND_E_NOT_FOUND || read.code() == BLEND_E_CORRUPT)
          << read.message();
      // The host that missed it computes and puts it, and it is complete again.
      std::this_thread::sleep_for(50ms);
      put_and_flush(b, *record);
      Host c(remote);
      EXPECT_OK(compare(*c.store, *record));
      EXPECT_EQ(0u, b.stat().downs + c.stat().downs);
    }
  }
}

TEST(RemoteStore, ADeadServerCostsOneTimeoutAndComesBack) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  RemoteOptions remote = remote_of(server.url());
  Host a(remote);
  std::vector<std::shared_ptr<ChunkRecord>> records;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    records.push_back(make_record(100 + seed, kShape));
    put_and_flush(a, *records.back());
  }
  remote.timeout_ms = 300;
  remote.retry_ms = 1500;
  Host b(remote);
  EXPECT_OK(compare(*b.store, *records[0]));
  server.pause(true);  // it hangs, and says nothing
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 1; i < 6; ++i) EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*b.store, *records[i]));
  const auto took = std::chrono::steady_clock::now() - begin;
  // One wait for all five. Not asserted as a time but as a count of timeouts.
  EXPECT_LT(took / 300ms, 4);
  EXPECT_FALSE(b.stat().reachable);
  // Told once, whoever finds out first, and once more for each new try that this slow a machine
  // leaves time for.
  std::this_thread::sleep_for(200ms);  // the connection's own timeout is over by now
  const uint64_t downs = b.count(BLEND_EVENT_REMOTE_DOWN);
  const auto until_here = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(downs, 1u);
  EXPECT_LE(downs, 1u + static_cast<uint64_t>(until_here / 1500ms));
  server.pause(false);
  for (int i = 0; i < 200 && !b.stat().reachable; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(b.stat().reachable);
  for (int i = 1; i < 6; ++i) EXPECT_OK(compare(*b.store, *records[i]));
}

TEST(RemoteStore, AServerThatIsNotThereIsNoError) {
  RemoteOptions remote = remote_of("redis://127.0.0.1:1");
  Host host(remote);
  const auto record = make_record(1, kShape);
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*host.store, *record));
  put_and_flush(host, *record);
  EXPECT_OK(compare(*host.store, *record));
  EXPECT_EQ(1u, host.stat().dropped);
  EXPECT_GE(host.count(BLEND_EVENT_REMOTE_DOWN), 1u);
}

TEST(RemoteStore, AFullServerTakesNothingAndHarmsNothing) {
  SKIP_WITHOUT_REDIS();
  RedisServer server({"--maxmemory", "3mb", "--maxmemory-policy", "noeviction"});
  ASSERT_TRUE(server.start()) << server.log();
  Host a(remote_of(server.url()));
  for (uint32_t seed = 0; seed < 12; ++seed) put_and_flush(a, *make_record(seed, kShape));
  EXPECT_GT(a.stat().dropped, 0u);
  EXPECT_EQ(0u, a.stat().downs);
  Host b(remote_of(server.url()));
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const Status read = compare(*b.store, *make_record(seed, kShape));
    EXPECT_TRUE(read.is_ok() || read.code() == BLEND_E_NOT_FOUND) << read.message();
  }
}

TEST(RemoteStore, AccessIsByUserAndPassword) {
  SKIP_WITHOUT_REDIS();
  RedisServer server({"--user", "default", "off", "--user", "blend", "on", ">sesame", "~blend:*",
                      "+get", "+getex", "+set", "+strlen", "+expire", "+unlink", "+scan", "+ping"});
  ASSERT_TRUE(server.start()) << server.log();
  RemoteOptions remote = remote_of(server.url());
  remote.user = "blend";
  remote.password = "sesame";
  expect_shared(remote);
  remote.password = "wrong";
  Host stranger(remote);
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*stranger.store, *make_record(1, kShape)));
  const Status told = stranger.store->remote()->check();
  EXPECT_CODE(BLEND_E_IO, told);
  EXPECT_EQ(std::string::npos, told.message().find("wrong"));
}

TEST(RemoteStore, OperatorsPushPullVerifyAndRemove) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  for (const std::string& seal : {std::string(), std::string(32, 's')}) {
    RemoteOptions remote = remote_of(server.url());
    remote.seal_key = seal;
    Host a(remote);
    const auto record = make_record(6, kShape);
    put_and_flush(a, *record);
    const Sha256 id = record->meta.id;
    RemoteAdmin& shelf = *a.store->remote();
    EXPECT_OK(shelf.check());
    const auto problem = [](const std::string& key, const Status& why) {
      ADD_FAILURE() << key << ": " << why.message();
    };
    EXPECT_EQ(std::vector<Sha256>{id}, take(shelf.list(problem)));
    EXPECT_OK(shelf.verify(id));
    bool existed = false;
    EXPECT_OK(shelf.push(id, &existed));
    EXPECT_TRUE(existed);
    Host b(remote);
    EXPECT_OK(b.store->remote()->pull(id, &existed));
    EXPECT_FALSE(existed);
    EXPECT_OK(b.store->stored(id).status());
    EXPECT_OK(shelf.remove(id));
    EXPECT_CODE(BLEND_E_NOT_FOUND, shelf.verify(id));
    EXPECT_CODE(BLEND_E_NOT_FOUND, shelf.remove(id));
    EXPECT_OK(a.store->stored(id).status());
    EXPECT_OK(shelf.push(id, &existed));
    EXPECT_FALSE(existed);
    EXPECT_OK(shelf.verify(id));
  }
}

TEST(RemoteStore, HintsBringChunksBeforeTheyAreAskedFor) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  Host a(remote_of(server.url()));
  StoreOptions options;
  options.ram_bytes = 64 << 20;
  Host b(remote_of(server.url()), options);
  std::vector<Sha256> ids;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const auto record = make_record(seed, kShape);
    put_and_flush(a, *record);
    ids.push_back(record->meta.id);
  }
  EXPECT_OK(b.store->hint(ids));
  for (int i = 0; i < 200 && take(b.store->stat()).n_chunks < 4; ++i) {
    std::this_thread::sleep_for(20ms);
  }
  server.kill9();
  for (uint32_t seed = 0; seed < 4; ++seed) {
    EXPECT_OK(compare(*b.store, *make_record(seed, kShape)));
  }
  EXPECT_GT(take(b.store->stat()).ram_bytes, 0u);
}

TEST(RemoteStore, AForkedChildIsToldAndClosesInPeace) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  Host a(remote_of(server.url()));
  put_and_flush(a, *make_record(1, kShape));
  const pid_t child = fork();
  if (child == 0) {
    const bool told = a.store->snapshot().status().code() == BLEND_E_FORKED &&
                      a.store->flush().code() == BLEND_E_FORKED;
    a.store.reset();  // Hangs if broken.
    _exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_EQ(0, status);
  put_and_flush(a, *make_record(2, kShape));
  EXPECT_EQ(2u, a.stat().written);
}

TEST(RemoteStore, ClosesWhileChunksAreOnTheirWay) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  {
    Host a(remote_of(server.url()));
    for (uint32_t seed = 0; seed < 8; ++seed) put_and_flush(a, *make_record(seed, kShape));
  }
  for (int round = 0; round < 10; ++round) {
    Host b(remote_of(server.url()));
    if (round % 2 == 1) server.pause(true);
    {
      const auto snapshot = take(b.store->snapshot());
      for (uint32_t seed = 0; round % 2 == 0 && seed < 8; ++seed) {
        const auto source = take(snapshot->open(make_record(seed, kShape)->meta.id));
        source->prefetch(0);
      }
    }
    std::vector<Sha256> ids = {make_record(1, kShape)->meta.id};
    EXPECT_OK(b.store->hint(ids));
    b.store.reset();
    server.pause(false);
  }
}

// ---- Clusters

TEST(RemoteCluster, TwoHostsShareIt) {
  SKIP_WITHOUT_REDIS();
  RedisCluster cluster;
  ASSERT_TRUE(cluster.start());
  expect_shared(remote_of(cluster.url()));
  // Keys of a chunk lie on several nodes.
  size_t n_with_keys = 0;
  for (const size_t i : cluster.masters()) n_with_keys += cluster.nodes[i]->keys().empty() ? 0 : 1;
  EXPECT_GE(n_with_keys, 2u);
}

TEST(RemoteCluster, SlotsThatMoveAreFollowed) {
  SKIP_WITHOUT_REDIS();
  RedisCluster cluster;
  ASSERT_TRUE(cluster.start());
  RemoteOptions remote = remote_of(cluster.url());
  Host a(remote);
  Host b(remote);
  const auto record = make_record(8, kShape);
  put_and_flush(a, *record);
  // b has asked once: it knows the slots as they were.
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*b.store, *make_record(77, kShape)));
  // Every slot of the chunk goes to another node; half of them stay on the way (ASK).
  std::vector<std::pair<std::string, size_t>> keys;
  for (size_t i = 0; i < 3; ++i) {
    for (const std::string& key : cluster.nodes[i]->keys()) keys.emplace_back(key, i);
  }
  ASSERT_EQ(9u, keys.size());
  bool finish = true;
  for (const auto& [key, from] : keys) {
    const size_t to = (from + 1) % 3;
    const std::string slot = cluster.nodes[0]->command({"CLUSTER", "KEYSLOT", key});
    const std::string from_id = cluster.nodes[from]->command({"CLUSTER", "MYID"});
    const std::string to_id = cluster.nodes[to]->command({"CLUSTER", "MYID"});
    EXPECT_EQ("OK", cluster.nodes[to]->command({"CLUSTER", "SETSLOT", slot, "IMPORTING", from_id}));
    EXPECT_EQ("OK", cluster.nodes[from]->command({"CLUSTER", "SETSLOT", slot, "MIGRATING", to_id}));
    EXPECT_EQ("OK", cluster.nodes[from]->command({"MIGRATE", "127.0.0.1",
                                                  std::to_string(cluster.nodes[to]->port()), key,
                                                  "0", "5000"}));
    finish = !finish;
    if (!finish) continue;
    for (const size_t node : {to, from}) {
      EXPECT_EQ("OK", cluster.nodes[node]->command({"CLUSTER", "SETSLOT", slot, "NODE", to_id}));
    }
  }
  EXPECT_OK(compare(*b.store, *record));
  EXPECT_EQ(0u, b.stat().errors);
}

TEST(RemoteCluster, AMasterIsLostAndItsReplicaTakesOver) {
  SKIP_WITHOUT_REDIS();
  RedisCluster cluster;
  ASSERT_TRUE(cluster.start());
  RemoteOptions remote = remote_of(cluster.url());
  remote.timeout_ms = 500;
  Host a(remote);
  std::vector<std::shared_ptr<ChunkRecord>> records;
  for (uint32_t seed = 0; seed < 8; ++seed) {
    records.push_back(make_record(seed, kShape));
    put_and_flush(a, *records.back());
  }
  // What was acknowledged by the master reaches its replica a little later.
  std::this_thread::sleep_for(500ms);
  Host b(remote);
  EXPECT_OK(compare(*b.store, *records[0]));
  cluster.nodes[1]->kill9();
  for (int i = 1; i < 4; ++i) {
    const Status read = compare(*b.store, *records[i]);
    EXPECT_TRUE(read.is_ok() || read.code() == BLEND_E_NOT_FOUND || read.code() == BLEND_E_CORRUPT)
        << read.message();
  }
  // Hangs for a while if broken.
  bool back = false;
  for (int i = 0; i < 100 && !back; ++i) {
    std::this_thread::sleep_for(200ms);
    back = true;
    for (int k = 4; k < 8; ++k) back = back && compare(*b.store, *records[k]).is_ok();
  }
  EXPECT_TRUE(back);
  EXPECT_GE(b.count(BLEND_EVENT_REMOTE_DOWN), 1u);
}

// ---- TLS

TEST(RemoteTls, ClientsAndServersKnowEachOther) {
  SKIP_WITHOUT_REDIS();
  if (std::getenv("BLEND_TLS_MODULE") == nullptr) GTEST_SKIP() << "libblend_tls.so is not built";
  Certificates certificates;
  ASSERT_TRUE(certificates.make()) << "openssl(1) cannot make certificates";
  RedisServer server(certificates.of_server());
  server.set_tls(true);
  ASSERT_TRUE(server.start()) << server.log();
  RemoteOptions remote = remote_of("rediss://127.0.0.1:" + std::to_string(server.port()));
  remote.ca_file = certificates.file("ca.pem");
  remote.certificate_file = certificates.file("client.pem");
  remote.key_file = certificates.file("client.key");
  expect_shared(remote);

  const auto refused = [&](const RemoteOptions& options) {
    Host host(options);
    const Status told = host.store->remote()->check();
    EXPECT_CODE(BLEND_E_IO, told);
    EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*host.store, *make_record(1, kShape)));
    return told.message();
  };
  RemoteOptions stranger = remote;  // the server does not know us
  stranger.certificate_file = stranger.key_file = "";
  refused(stranger);
  RemoteOptions fooled = remote;  // we do not know the server
  fooled.ca_file = certificates.file("other.pem");
  EXPECT_NE(std::string::npos, refused(fooled).find("certificate"));
  RemoteOptions plain = remote_of("redis://127.0.0.1:" + std::to_string(server.port()));
  refused(plain);

  RemoteOptions missing = remote;
  missing.ca_file = "/nowhere.pem";
  TempDir directory;
  const auto opened = Store::open(directory.path() + "/s", {}, missing, {});
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, opened.status());
  EXPECT_NE(std::string::npos, opened.status().message().find("/nowhere.pem"));
}

}  // namespace
}  // namespace blend::test
