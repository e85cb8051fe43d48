// What a remote tier reads from its server, of any content (libFuzzer): replies, values that go to
// their places, redirects, slots, and manifests. The first byte says which, and in how small steps
// the bytes come. Manifests are sealed again after the fuzzer's changes, since after a checksum
// every field may be hostile.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/checksum_trailer.h"
#include "store/remote/client/cluster_slots.h"
#include "store/remote/client/resp.h"
#include "store/remote/record.h"

namespace {

void check(bool right) {
  if (!right) std::abort();
}

class Source final : public blend::ByteSource {
 public:
  Source(const uint8_t* data, size_t size, size_t step) : data_(data), left_(size), step_(step) {}
  blend::Result<size_t> read(std::byte* out, size_t bytes) override {
    const size_t n = std::min({bytes, step_, left_});
    if (n == 0) return blend::Status{BLEND_E_IO, "the end"};
    std::memcpy(out, data_, n);
    data_ += n;
    left_ -= n;
    return n;
  }

 private:
  const uint8_t* data_;
  size_t left_;
  const size_t step_;
};

size_t text_in(const blend::Reply& reply) {
  size_t n = reply.text.size();
  for (const blend::Reply& item : reply.list) n += text_in(item);
  return n;
}

void read_replies(Source& source, bool into) {
  blend::RespReader reader(source);
  const blend::RespReader::Limits limits{4096, 256, 6};
  std::vector<std::byte> a(7);
  std::vector<std::byte> b(5);
  for (;;) {
    const blend::Place places[] = {{a.data(), a.size()}, {b.data(), b.size()}};
    bool taken = false;
    auto reply = into ? reader.read_into(places, &taken, limits) : reader.read(limits);
    if (!reply.is_ok()) return;
    check(text_in(*reply) <= limits.most_bytes);
    if (taken) check(reply->integer == 12);
    const blend::RemoteAddress from{"host", 1};
    if (const auto redirect = read_redirect(*reply, from)) check(redirect->slot < blend::kSlots);
    if (const auto slots = read_slots(*reply, from)) {
      for (const auto& range : *slots)
        check(range.first <= range.last && range.last < blend::kSlots);
    }
  }
}

void read_record(std::string bytes) {
  blend::Sha256 id{};
  if (bytes.size() >= 40) std::memcpy(id.data(), bytes.data() + 8, id.size());
  const uint64_t sum = blend::checksum64(bytes.data(), bytes.size());
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof sum);
  const auto record = blend::decode_record(std::as_bytes(std::span(bytes)), id);
  if (!record.is_ok()) return;
  const blend::RemoteRecord& r = record.value();
  uint64_t all = 0;
  for (uint32_t i = 0; i < r.n_segments(); ++i) all += r.bytes_of(i);
  check(all == r.layout.stream_bytes());
  check(blend::encode_record(r) == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const uint8_t how = data[0];
  if ((how & 1) != 0) {
    read_record(std::string(reinterpret_cast<const char*>(data + 1), size - 1));
    return 0;
  }
  Source source(data + 1, size - 1, (how & 4) != 0 ? 1 + how / 8 : 65536);
  read_replies(source, (how & 2) != 0);
  return 0;
}
