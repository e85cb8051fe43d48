// Reading the store's records and export files, of any content (libFuzzer). The first byte chooses
// the record; the rest is its bytes, to which the checksum is added that a reader wants to see
// first (unless the byte says not to): after it every field may be hostile.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/wire.h"
#include "store/evict/use_record.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/transfer.h"

namespace {

using Bytes = std::span<const std::byte>;

void check(bool right) {
  if (!right) std::abort();
}

std::span<const std::byte> as_bytes(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

std::string seal(std::string bytes) {
  blend::ByteWriter tail;
  tail.put<uint64_t>(blend::checksum64(bytes.data(), bytes.size()));
  return bytes + tail.view();
}

// What was understood is written and understood the same way again.
template <typename Decode, typename Encode>
void round_trip(const std::string& bytes, Decode decode, Encode encode) {
  const auto first = decode(as_bytes(bytes));
  if (!first.is_ok()) {
    check(first.status().code() == BLEND_E_CORRUPT);
    return;
  }
  const auto second = decode(as_bytes(encode(first.value())));
  check(second.is_ok() && second.value() == first.value());
}

void read_manifest(const std::string& bytes) {
  blend::Sha256 id{};
  constexpr size_t kId = 8;  // after magic, version, codec and dtype
  if (bytes.size() >= kId + id.size()) std::memcpy(id.data(), bytes.data() + kId, id.size());
  auto manifest = blend::decode_manifest(as_bytes(bytes), id);
  if (!manifest.is_ok()) {
    const int32_t code = manifest.status().code();
    check(code == BLEND_E_CORRUPT || code == BLEND_E_UNSUPPORTED);
    return;
  }
  check(blend::encode_manifest(*manifest) == bytes);
  check(manifest->meta.tokens.size() == manifest->meta.shape.n_tokens);
  check(manifest->layers.size() == manifest->meta.shape.n_layers);
  check(manifest->footprint() >= manifest->stream_bytes());
}

// Takes whatever import puts, and looks at it as a store would.
class Sink final : public blend::ChunkStore {
 public:
  blend::Result<std::unique_ptr<blend::StoreSnapshot>> snapshot() override { return none(); }
  blend::Result<bool> contains(const blend::Sha256& id) override { return (id[0] & 1) != 0; }
  blend::Status put(const blend::ChunkRecord& record) override {
    check(blend::check_record(record).is_ok());
    return blend::Status::ok();
  }
  blend::Status put_async(std::shared_ptr<const blend::ChunkRecord>) override { return none(); }
  void report_damage(const blend::Sha256&, const blend::Status&) override {}

 private:
  static blend::Status none() { return {BLEND_E_UNSUPPORTED, "not here"}; }
};

// A description whose layers follow: their checksums are put where it has them.
std::string fit_checksums(std::string description, const std::string& layers) {
  constexpr size_t kShape = 4 + 4 + 32 + 32;
  if (description.size() < kShape + 12) return description;
  blend::ByteReader in(as_bytes(description).subspan(4));
  const auto dtype = in.get<uint32_t>() % 3;
  blend::ByteReader shape(as_bytes(description).subspan(kShape));
  const uint64_t n_layers = shape.get<uint32_t>(), n_tokens = shape.get<uint32_t>();
  const uint64_t kv_dim = shape.get<uint32_t>();
  const uint64_t n = 2 * n_tokens * kv_dim *
                     static_cast<uint64_t>(blend::dtype_size(static_cast<blend::DType>(dtype)));
  if (n_layers > 16 || n_tokens > 256 || kv_dim > 256 || n * n_layers > layers.size()) {
    return description;
  }
  if (description.size() < kShape + n_layers * 8) return description;
  for (uint64_t layer = 0; layer < n_layers; ++layer) {
    const uint64_t sum = blend::checksum64(layers.data() + layer * n, n);
    std::memcpy(description.data() + description.size() - (n_layers - layer) * 8, &sum, 8);
  }
  return description;
}

// A file of parts: each says in its first byte what it is and in its second how long.
std::string make_export(const uint8_t* data, size_t size) {
  blend::ByteWriter head;
  head.bytes("BLENDCX\n", 8);
  head.put<uint32_t>(1);
  std::string file = seal(head.take());
  while (size >= 2) {
    const uint8_t kind = data[0] & 3;
    const size_t n = std::min<size_t>(data[1] + (data[0] >> 2), size - 2);
    std::string part(reinterpret_cast<const char*>(data + 2), n);
    data += 2 + n;
    size -= 2 + n;
    if (kind == 0) {
      file += part;
      continue;
    }
    if (kind == 1) {
      part = fit_checksums(part, std::string(reinterpret_cast<const char*>(data), size));
    }
    part = seal(part);
    blend::ByteWriter length;
    length.put<uint64_t>(part.size());
    file += length.view() + part;
    // The layers of a description are what follows it, as it is.
    if (kind == 1) {
      const size_t layers = std::min<size_t>(size, part.size() % 97 * 16);
      file.append(reinterpret_cast<const char*>(data), layers);
    }
  }
  return file;
}

void read_export(const std::string& file) {
  static const int fd = memfd_create("export", MFD_CLOEXEC);
  check(fd >= 0 && ftruncate(fd, 0) == 0 &&
        pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()));
  Sink sink;
  blend::Transfer done;
  const blend::Status status = blend::import_chunks(sink, "/proc/self/fd/" + std::to_string(fd),
                                                    (file.size() & 1) != 0, {}, &done);
  const int32_t code = status.code();
  check(status.is_ok() || code == BLEND_E_FORMAT || code == BLEND_E_CORRUPT ||
        code == BLEND_E_MISMATCH);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const uint8_t what = data[0];
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if ((what & 8) == 0 && (what & 7) != 7) bytes = seal(bytes);
  switch (what & 7) {
    case 0:
      read_manifest(bytes);
      break;
    case 1:
      round_trip(bytes, blend::decode_counters, blend::encode_counters);
      break;
    case 2:
      round_trip(bytes, blend::decode_use, blend::encode_use);
      break;
    case 3:
      round_trip(bytes, blend::decode_tenant, blend::encode_tenant);
      break;
    case 4:
      round_trip(bytes, blend::decode_totals, blend::encode_totals);
      break;
    case 5: {
      const int32_t code = blend::decode_format(as_bytes(bytes)).status().code();
      check(code == BLEND_OK || code == BLEND_E_FORMAT || code == BLEND_E_CORRUPT ||
            code == BLEND_E_MISMATCH);
      break;
    }
    case 6:
      read_export(make_export(data + 1, size - 1));
      break;
    case 7:
      read_export(bytes);
      break;
    default:
      break;
  }
  return 0;
}
