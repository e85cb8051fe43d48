// What changes while a host is at work: names, users, certificates, the server's data, its memory.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "store/remote/options.h"
#include "store/store.h"
#include "support/certificates.h"
#include "support/cutting_proxy.h"
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
  r.retry_ms = 200;
  return r;
}

std::shared_ptr<Store> open(const TempDir& directory, const RemoteOptions& remote,
                            const StoreOptions& options = {}) {
  return take(Store::open(directory.path() + "/store", options, remote, {}));
}

bool eventually(const std::function<bool()>& so) {
  for (int i = 0; i < 400; ++i, std::this_thread::sleep_for(20ms)) {
    if (so()) return true;
  }
  return false;
}

std::string label_there(const RemoteOptions& remote, const Sha256& id) {
  const TempDir directory;
  const auto store = open(directory, remote);
  bool here = false;
  EXPECT_OK(store->remote()->pull(id, &here));
  auto stored = store->stored(id);
  return stored.is_ok() ? (*stored)->layout().meta.name.label.value_or("") : "?";
}

// The last name that was said here is the one that lies there, though the chunk was on its way up
// under another.
TEST(RemoteMeanwhile, ANameThatChangesDuringTheUploadGoesUp) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  CuttingProxy link(server.port());
  RemoteOptions slow = remote_of("redis://127.0.0.1:" + std::to_string(link.port()));
  slow.timeout_ms = 20000;
  // The replies trickle: each round trip of the upload takes its time.
  link.set_bytes_per_s(400);
  for (uint32_t seed = 0; seed < 3; ++seed) {
    const TempDir directory;
    const auto store = open(directory, slow);
    auto record = make_record(seed, kShape);
    record->meta.name = take(read_chunk_name("first", nullptr));
    EXPECT_OK(store->put(*record));
    ASSERT_TRUE(eventually([&] { return !server.keys().empty(); }));
    bool changed = false;
    EXPECT_OK(store->rename(record->meta.id, take(read_chunk_name("second", nullptr)), &changed));
    EXPECT_TRUE(changed);
    EXPECT_OK(store->rename(record->meta.id, take(read_chunk_name("third", nullptr)), &changed));
    EXPECT_OK(store->flush());
    EXPECT_EQ("third", label_there(remote_of(server.url()), record->meta.id));
    (void)server.command({"FLUSHALL"});
  }
}

TEST(RemoteMeanwhile, APasswordThatChangesIsAMissUntilItIsBack) {
  SKIP_WITHOUT_REDIS();
  RedisServer server({"--user", "blend", "on", ">sesame", "~blend:*", "+@all", "--user", "default",
                      "on", "nopass", "~*", "+@all"});
  ASSERT_TRUE(server.start()) << server.log();
  RemoteOptions remote = remote_of(server.url());
  remote.user = "blend";
  remote.password = "sesame";
  const TempDir a_directory, b_directory;
  const auto a = open(a_directory, remote);
  const auto record = make_record(1, kShape);
  EXPECT_OK(a->put(*record));
  EXPECT_OK(a->flush());
  const auto b = open(b_directory, remote);
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*b, *make_record(2, kShape)));  // it is connected
  EXPECT_EQ("OK", server.command({"ACL", "SETUSER", "blend", "resetpass", ">other"}));
  (void)server.command({"CLIENT", "KILL", "USER", "blend"});
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*b, *record));
  EXPECT_FALSE(take(b->stat()).remote.reachable);
  EXPECT_EQ("OK", server.command({"ACL", "SETUSER", "blend", "resetpass", ">sesame"}));
  EXPECT_TRUE(eventually([&] { return take(b->stat()).remote.reachable; }));
  EXPECT_OK(compare(*b, *record));
  // A user who may no longer read is refused, which is a miss and no outage.
  EXPECT_OK(b->flush());
  (void)b->remove(record->meta.id);
  EXPECT_EQ("OK", server.command({"ACL", "SETUSER", "blend", "-getex", "-get"}));
  EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*b, *record));
  EXPECT_TRUE(take(b->stat()).remote.reachable);
}

// The description was read from one server. That server was restarted before the layers are read.
TEST(RemoteMeanwhile, AServerWithOtherDataIsAMiss) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  const RemoteOptions remote = remote_of(server.url());
  const auto record = make_record(1, kShape);
  const auto other = make_record(2, kShape);
  const TempDir a_directory;
  const auto a = open(a_directory, remote);
  EXPECT_OK(a->put(*record));
  EXPECT_OK(a->flush());
  for (const bool restarted : {true, false}) {
    bool existed = false;
    EXPECT_OK(a->remote()->push(record->meta.id, &existed));
    const TempDir b_directory;
    const auto b = open(b_directory, remote);
    const auto snapshot = take(b->snapshot());
    const auto source = take(snapshot->open(record->meta.id));
    if (restarted) {
      server.kill9();
      ASSERT_TRUE(server.start()) << server.log();
    } else {
      // Another chunk's bytes under its keys.
      const TempDir c_directory;
      const auto c = open(c_directory, remote);
      EXPECT_OK(c->put(*other));
      EXPECT_OK(c->flush());
      std::vector<std::string> theirs, its;
      for (const std::string& key : server.keys()) {
        if (std::count(key.begin(), key.end(), ':') != 5) continue;
        (key.find(to_hex(record->meta.id)) != std::string::npos ? its : theirs).push_back(key);
      }
      ASSERT_EQ(its.size(), theirs.size());
      for (size_t i = 0; i < its.size(); ++i) {
        EXPECT_EQ("1", server.command({"COPY", theirs[i], its[i], "REPLACE"}));
      }
    }
    const Status read = compare(*source, *record);
    EXPECT_TRUE(read.code() == BLEND_E_CORRUPT || read.code() == BLEND_E_IO) << read.message();
    EXPECT_OK(b->flush());
    EXPECT_CODE(BLEND_E_NOT_FOUND, b->stored(record->meta.id).status());  // nor was it kept
  }
}

TEST(RemoteMeanwhile, WhatExpiresIsAMissAndWhatIsReadLivesOn) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  RemoteOptions remote = remote_of(server.url());
  remote.ttl_s = 100;
  const TempDir a_directory, b_directory;
  const auto a = open(a_directory, remote);
  const auto record = make_record(1, kShape);
  EXPECT_OK(a->put(*record));
  EXPECT_OK(a->flush());
  for (const std::string& key : server.keys()) {
    EXPECT_EQ("1", server.command({"EXPIRE", key, "5"}));
  }
  const auto b = open(b_directory, remote);
  EXPECT_OK(compare(*b, *record));
  EXPECT_EQ(9u, server.keys().size());
  for (const std::string& key : server.keys()) {
    EXPECT_GT(std::stoi(server.command({"TTL", key})), 50) << key;
  }
  // The description lives, what it names does not.
  for (const std::string& key : server.keys()) {
    if (std::count(key.begin(), key.end(), ':') == 5) {
      (void)server.command({"PEXPIRE", key, "1"});
    }
  }
  std::this_thread::sleep_for(20ms);
  (void)b->flush();
  (void)b->remove(record->meta.id);
  EXPECT_CODE(BLEND_E_CORRUPT, compare(*b, *record));
  EXPECT_TRUE(eventually([&] { return server.keys().empty(); })) << "its manifest stays";
}

// What is thrown out while it is read: right bytes or a miss.
TEST(RemoteMeanwhile, AServerThatEvictsWhileItIsRead) {
  SKIP_WITHOUT_REDIS();
  RedisServer server({"--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru"});
  ASSERT_TRUE(server.start()) << server.log();
  const RemoteOptions remote = remote_of(server.url());
  std::atomic<bool> done{false};
  std::thread writer([&] {
    const TempDir directory;
    const auto store = open(directory, remote);
    for (uint32_t i = 0; !done; ++i) {
      EXPECT_OK(store->put(*make_record(i % 24, kShape)));
      EXPECT_OK(store->flush());
      (void)store->remove(make_record(i % 24, kShape)->meta.id);
    }
  });
  int n_read = 0;
  int n_missed = 0;
  const TempDir directory;
  const auto store = open(directory, remote);
  for (uint32_t i = 0; i < 300 || n_read == 0 || n_missed == 0; ++i) {
    if (i > 5000) break;
    const auto record = make_record(i * 7 % 24, kShape);
    const Status read = compare(*store, *record);
    (read.is_ok() ? n_read : n_missed) += 1;
    EXPECT_TRUE(read.is_ok() || read.code() == BLEND_E_NOT_FOUND || read.code() == BLEND_E_CORRUPT)
        << read.message();
    (void)store->flush();
    (void)store->remove(record->meta.id);
  }
  done = true;
  writer.join();
  EXPECT_GT(n_read, 0);
  EXPECT_GT(n_missed, 0);
  EXPECT_EQ(0u, take(store->stat()).remote.downs);
}

// A read-only store reads from there, keeps nothing, and writes nothing there.
TEST(RemoteMeanwhile, AReadOnlyStoreReadsAndWritesNothing) {
  SKIP_WITHOUT_REDIS();
  RedisServer server;
  ASSERT_TRUE(server.start()) << server.log();
  const RemoteOptions remote = remote_of(server.url());
  const TempDir a_directory, b_directory;
  const auto record = make_record(1, kShape);
  {
    const auto a = open(a_directory, remote);
    EXPECT_OK(a->put(*record));
    EXPECT_OK(a->flush());
  }
  { (void)open(b_directory, remote); }
  StoreOptions options;
  options.read_only = true;
  const auto b = open(b_directory, remote, options);
  EXPECT_OK(compare(*b, *record));
  EXPECT_OK(compare(*b, *record));
  EXPECT_OK(b->flush());
  EXPECT_EQ(0u, take(b->stat()).n_chunks);
  EXPECT_FALSE(take(b->contains(record->meta.id)));
  bool existed = false;
  EXPECT_CODE(BLEND_E_READ_ONLY, b->remote()->pull(record->meta.id, &existed));
  EXPECT_CODE(BLEND_E_READ_ONLY, b->put(*make_record(2, kShape)));
  EXPECT_EQ(9u, server.keys().size());
}

// ---- TLS

TEST(RemoteMeanwhile, CertificatesThatDoNotFitAreRefusedByName) {
  SKIP_WITHOUT_REDIS();
  if (std::getenv("BLEND_TLS_MODULE") == nullptr) GTEST_SKIP() << "libblend_tls.so is not built";
  Certificates certificates;
  ASSERT_TRUE(certificates.make()) << "openssl(1) cannot make certificates";
  const auto told_of = [&](const char* of_server, const std::string& host) {
    std::vector<std::string> arguments = certificates.of_server();
    arguments[1] = certificates.file(std::string(of_server) + ".pem");
    RedisServer server(arguments);
    server.set_tls(true);
    EXPECT_TRUE(server.start()) << server.log();
    RemoteOptions remote = remote_of("rediss://" + host + ":" + std::to_string(server.port()));
    remote.ca_file = certificates.file("ca.pem");
    remote.certificate_file = certificates.file("client.pem");
    remote.key_file = certificates.file("client.key");
    const TempDir directory;
    const auto store = open(directory, remote);
    const Status told = store->remote()->check();
    EXPECT_CODE(BLEND_E_NOT_FOUND, compare(*store, *make_record(1, kShape)));
    return told;
  };
  EXPECT_OK(told_of("server", "127.0.0.1"));
  EXPECT_OK(told_of("server", "localhost"));
  ASSERT_TRUE(certificates.make_misfits()) << "openssl(1) cannot make certificates";
  const Status expired = told_of("expired", "127.0.0.1");
  EXPECT_CODE(BLEND_E_IO, expired);
  EXPECT_NE(std::string::npos, expired.message().find("expired")) << expired.message();
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const Status foreign = told_of("elsewhere", host);
    EXPECT_CODE(BLEND_E_IO, foreign);
    EXPECT_NE(std::string::npos, foreign.message().find("mismatch")) << foreign.message();
  }
}

}  // namespace
}  // namespace blend::test
