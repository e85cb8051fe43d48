// What needs no server: URLs, the protocol, slots, records, seals.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "store/remote/client/cluster_slots.h"
#include "store/remote/client/resp.h"
#include "store/remote/encrypted_value.h"
#include "store/remote/options.h"
#include "store/remote/record.h"
#include "unit/store/remote/value_text.h"
#include "unit/store/store_testing.h"

namespace blend::test {
namespace {

// Gives `bytes`, at most `step` at a time.
class TextSource final : public ByteSource {
 public:
  TextSource(std::string bytes, size_t step) : bytes_(std::move(bytes)), step_(step) {}
  Result<size_t> read(std::byte* out, size_t bytes) override {
    const size_t n = std::min({bytes, step_, bytes_.size() - at_});
    if (n == 0) return Status{BLEND_E_IO, "the end"};
    std::memcpy(out, bytes_.data() + at_, n);
    at_ += n;
    return n;
  }

 private:
  std::string bytes_;
  size_t step_;
  size_t at_ = 0;
};

TEST(RemoteUrl, IsTakenApart) {
  auto url = take(parse_remote_url("redis+cluster://a:7000,b,[::1]:7002/"));
  EXPECT_TRUE(url.cluster);
  EXPECT_FALSE(url.tls);
  ASSERT_EQ(3u, url.seeds.size());
  EXPECT_EQ(7000, url.seeds[0].port);
  EXPECT_EQ(6379, url.seeds[1].port);
  EXPECT_EQ("::1", url.seeds[2].host);
  url = take(parse_remote_url("rediss://cache.example:6380/3"));
  EXPECT_TRUE(url.tls);
  EXPECT_EQ(3u, url.database);
}

TEST(RemoteUrl, RefusesWhatItCannotMeanAndNeverRepeatsAPassword) {
  for (const char* bad :
       {"", "http://a", "redis://", "redis://a:0", "redis://a:70000", "redis://a:x", "redis://a,b",
        "redis+cluster://a/1", "redis://a b", "redis://[::1", "redis://a/x"}) {
    EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, parse_remote_url(bad).status());
  }
  const Status told = parse_remote_url("redis://me:sesame@host:1").status();
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, told);
  EXPECT_EQ(std::string::npos, told.message().find("sesame"));
  EXPECT_NE(std::string::npos, told.message().find("BLEND_REMOTE_PASSWORD"));
}

TEST(Resp, ReadsRepliesHoweverTheyAreCut) {
  const std::string text =
      "+OK\r\n-ERR no\r\n:-7\r\n$5\r\nhello\r\n$-1\r\n*2\r\n:1\r\n$1\r\nx\r\n_\r\n#t\r\n"
      "%1\r\n+a\r\n:1\r\n>2\r\n+message\r\n+x\r\n|1\r\n+ttl\r\n:9\r\n+behind\r\n";
  for (const size_t step : {1u, 2u, 3u, 7u, 1000u}) {
    TextSource source(text, step);
    RespReader reader(source);
    EXPECT_EQ("OK", take(reader.read({})).text);
    EXPECT_TRUE(take(reader.read({})).is_error("ERR"));
    EXPECT_EQ(-7, take(reader.read({})).integer);
    EXPECT_EQ("hello", take(reader.read({})).text);
    EXPECT_EQ(Reply::Type::null, take(reader.read({})).type);
    EXPECT_EQ(2u, take(reader.read({})).list.size());
    EXPECT_EQ(Reply::Type::null, take(reader.read({})).type);
    EXPECT_EQ(1, take(reader.read({})).integer);
    EXPECT_EQ(2u, take(reader.read({})).list.size());
    // Messages pushed in between are not taken for a reply.
    EXPECT_EQ("behind", take(reader.read({})).text);
    EXPECT_CODE(BLEND_E_IO, reader.read({}).status());
  }
}

TEST(Resp, PutsABulkWhereItBelongsOrStaysInStep) {
  const std::string value(40000, 'v');
  std::string text;
  append_bulk(text, value);
  append_bulk(text, "other");
  text += "$-1\r\n-ERR no\r\n+OK\r\n";
  for (const size_t step : {1u, 4096u, 1000000u}) {
    TextSource source(text, step);
    RespReader reader(source);
    std::string a(10, 0);
    std::string b(value.size() - 10, 0);
    const Place places[] = {{reinterpret_cast<std::byte*>(a.data()), a.size()},
                            {reinterpret_cast<std::byte*>(b.data()), b.size()}};
    bool taken = false;
    EXPECT_OK(reader.read_into(places, &taken, {}).status());
    EXPECT_TRUE(taken);
    EXPECT_EQ(value, a + b);
    const Reply other = take(reader.read_into(places, &taken, {}));
    EXPECT_FALSE(taken);
    EXPECT_EQ(5, other.integer);
    EXPECT_EQ(Reply::Type::null, take(reader.read_into(places, &taken, {})).type);
    EXPECT_EQ(Reply::Type::error, take(reader.read_into(places, &taken, {})).type);
    EXPECT_EQ("OK", take(reader.read({})).text);
  }
}

TEST(Resp, RefusesWhatIsNoReplyOrTooMuch) {
  for (const char* bad :
       {"HTTP/1.1 400\r\n", "$x\r\n", "$-2\r\n", "*-5\r\n", "$5\r\nhelloxx", "+\n", "\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "*99999999\r\n",
        "%9223372036854775807\r\n", ":99999999999999999999\r\n"}) {
    TextSource source(bad, 1000);
    RespReader reader(source);
    EXPECT_CODE(BLEND_E_FORMAT, reader.read({}).status());
  }
  TextSource source("$2000000\r\n", 1000);
  RespReader reader(source);
  EXPECT_CODE(BLEND_E_CORRUPT, reader.read({}).status());
  TextSource endless(std::string(100000, '+'), 1000);
  RespReader lines(endless);
  EXPECT_CODE(BLEND_E_FORMAT, lines.read({}).status());
}

TEST(Slots, AreThoseOfTheClusterSpecification) {
  EXPECT_EQ(0x31C3u, slot_of("123456789"));
  EXPECT_EQ(slot_of("user1000"), slot_of("{user1000}.following"));
  EXPECT_EQ(slot_of("foo{}{bar}"), slot_of("foo{}{bar}"));
  EXPECT_NE(slot_of("foo{}{bar}"), slot_of("bar"));
  EXPECT_EQ(slot_of("{bar"), slot_of("foo{{bar}}zap"));
}

TEST(Slots, RedirectsAreRead) {
  const RemoteAddress from{"10.0.0.1", 7000};
  Reply reply;
  reply.type = Reply::Type::error;
  reply.text = "MOVED 3999 127.0.0.1:6381";
  auto r = read_redirect(reply, from);
  ASSERT_TRUE(r.has_value());
  EXPECT_FALSE(r->ask);
  EXPECT_EQ(3999u, r->slot);
  EXPECT_EQ((RemoteAddress{"127.0.0.1", 6381}), r->to);
  reply.text = "ASK 1 :6381";
  r = read_redirect(reply, from);
  ASSERT_TRUE(r.has_value());
  EXPECT_TRUE(r->ask);
  EXPECT_EQ("10.0.0.1", r->to.host);
  for (const char* none :
       {"MOVED", "MOVED x y", "MOVED 99999 a:1", "MOVED 1 a", "MOVED 1 a:0", "ERR"}) {
    reply.text = none;
    EXPECT_FALSE(read_redirect(reply, from).has_value()) << none;
  }
}

RemoteRecord some_record() {
  const auto chunk = make_record(7, {2, 64, 256, DType::f16});
  RemoteRecord r;
  r.layout.meta = chunk->meta;
  r.layout.meta.tenant = tenant_tag("t");
  uint64_t at = 0;
  for (uint32_t i = 0; i < 2; ++i) {
    r.layout.layers.push_back({at, chunk->meta.shape.layer_bytes(0), i});
    at += chunk->meta.shape.layer_bytes(0);
  }
  r.version = r.layout.version();
  r.segment_bytes = 65536;
  r.checksums.resize(count_segments(at, r.segment_bytes), 5);
  return r;
}

TEST(RemoteRecord, ComesBackAndNoFlippedByteDoes) {
  const RemoteRecord r = some_record();
  const std::string bytes = encode_record(r);
  const auto id = r.layout.meta.id;
  const RemoteRecord back = take(decode_record(std::as_bytes(std::span(bytes)), id));
  EXPECT_EQ(r.version, back.version);
  EXPECT_EQ(r.checksums, back.checksums);
  EXPECT_EQ(r.layout.meta.tokens, back.layout.meta.tokens);
  EXPECT_EQ(r.layout.meta.tenant, back.layout.meta.tenant);
  EXPECT_EQ(id, take(id_of_record(std::as_bytes(std::span(bytes)))));
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string bad = bytes;
    bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
    EXPECT_CODE(BLEND_E_CORRUPT, decode_record(std::as_bytes(std::span(bad)), id).status());
  }
  for (size_t n = 0; n < bytes.size(); n += 13) {
    EXPECT_CODE(BLEND_E_CORRUPT,
                decode_record(std::as_bytes(std::span(bytes).first(n)), id).status());
  }
  Sha256 other = id;
  other[0] ^= 1;
  EXPECT_CODE(BLEND_E_CORRUPT, decode_record(std::as_bytes(std::span(bytes)), other).status());
}

TEST(Encryptor, OpensOnlyWhatItSealedForThatPlace) {
  const auto encryptor = take(Encryptor::create(std::string(32, 'k')));
  const auto other = take(Encryptor::create(std::string(32, 'x')));
  EXPECT_CODE(BLEND_E_INVALID_ARGUMENT, Encryptor::create("short").status());
  // In parts of odd lengths, over several pieces, and nothing at all.
  for (const size_t bytes : {size_t{300001}, size_t{7}, size_t{0}}) {
    std::string text(bytes, 0);
    for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * i % 251);
    const auto in = std::as_bytes(std::span(text));
    const Part parts[] = {in.first(bytes / 3), {}, in.subspan(bytes / 3)};
    EncryptedValue value(*encryptor, parts, "chunk:0");
    EXPECT_EQ(kNonceBytes + bytes + kTagBytes, value.bytes());
    std::string sealed = take(text_of(value));
    ASSERT_EQ(value.bytes(), sealed.size());
    const auto open = [&](const Encryptor& s, const char* bound) {
      std::string copy = sealed;
      auto* const at = reinterpret_cast<std::byte*>(copy.data());
      const Status status = s.open({at + kNonceBytes, bytes}, bound, at, at + kNonceBytes + bytes);
      EXPECT_TRUE(bytes == 0 || status.is_ok() == (copy.substr(kNonceBytes, bytes) == text));
      return status;
    };
    EXPECT_OK(open(*encryptor, "chunk:0"));
    EXPECT_CODE(BLEND_E_CORRUPT, open(*encryptor, "chunk:1"));
    EXPECT_CODE(BLEND_E_CORRUPT, open(*other, "chunk:0"));
    const std::string first = sealed;
    sealed = take(text_of(value));
    EXPECT_NE(first, sealed) << "a nonce came twice";
    EXPECT_OK(open(*encryptor, "chunk:0"));
    sealed[sealed.size() / 2] = static_cast<char>(sealed[sealed.size() / 2] ^ 1);
    EXPECT_CODE(BLEND_E_CORRUPT, open(*encryptor, "chunk:0"));
  }
  EXPECT_NE(encryptor->name_of("a"), other->name_of("a"));
}

}  // namespace
}  // namespace blend::test
