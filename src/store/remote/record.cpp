#include "store/remote/record.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "base/checksum_trailer.h"
#include "base/wire.h"

namespace blend {
namespace {

constexpr uint32_t kMagic = 0x524b4c42;  // "BLKR"
constexpr uint16_t kVersion = 1;
constexpr size_t kHeadBytes = 4 + 2 + 2 + 32 + 8 + 4 + 4;

Status damaged() { return {BLEND_E_CORRUPT, "a manifest in the remote tier is damaged"}; }

}  // namespace

uint32_t count_segments(uint64_t stream_bytes, uint32_t segment_bytes) {
  return static_cast<uint32_t>((stream_bytes + segment_bytes - 1) / segment_bytes);
}

std::string encode_record(const RemoteRecord& record) {
  ByteWriter out;
  out.reserve(kHeadBytes + record.checksums.size() * 12 + record.layout.description_bytes() +
              kTrailerBytes);
  out.put<uint32_t>(kMagic);
  out.put<uint16_t>(kVersion);
  out.put<uint16_t>(static_cast<uint16_t>(record.layout.meta.codec));
  out.bytes(record.layout.meta.id.data(), record.layout.meta.id.size());
  out.put<uint64_t>(record.version);
  out.put<uint32_t>(record.segment_bytes);
  out.put<uint32_t>(record.n_segments());
  for (uint32_t i = 0; i < record.n_segments(); ++i) {
    out.put<uint32_t>(static_cast<uint32_t>(record.bytes_of(i)));
    out.put<uint64_t>(record.checksums[i]);
  }
  const std::string description = encode_description(record.layout);
  out.bytes(description.data(), description.size());
  return with_checksum(std::move(out));
}

Result<Sha256> id_of_record(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes + kTrailerBytes || !checksum_holds(bytes)) return damaged();
  ByteReader in(bytes.subspan(8));
  Sha256 id{};
  in.bytes(id.data(), id.size());
  return id;
}

Result<RemoteRecord> decode_record(std::span<const std::byte> bytes, const Sha256& id) {
  if (bytes.size() < kHeadBytes + kTrailerBytes || !checksum_holds(bytes)) return damaged();
  ByteReader in(bytes.first(bytes.size() - kTrailerBytes));
  if (in.get<uint32_t>() != kMagic) return damaged();
  if (const auto version = in.get<uint16_t>(); version != kVersion) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "a manifest in the remote tier has version %u, and this build reads %u",
                      version, kVersion);
  }
  const auto codec = in.get<uint16_t>();
  RemoteRecord record;
  Sha256 of{};
  in.bytes(of.data(), of.size());
  record.version = in.get<uint64_t>();
  record.segment_bytes = in.get<uint32_t>();
  const auto n = in.get<uint32_t>();
  // Each count is held against what is there before it sizes anything.
  if (of != id || record.segment_bytes < kLeastSegmentBytes ||
      record.segment_bytes > kMostSegmentBytes || n > in.remaining() / 12) {
    return damaged();
  }
  std::vector<uint32_t> lengths(n);
  record.checksums.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    lengths[i] = in.get<uint32_t>();
    record.checksums[i] = in.get<uint64_t>();
  }
  const size_t at = kHeadBytes + size_t{n} * 12;
  BLEND_ASSIGN(record.layout,
               decode_description(bytes.subspan(at, bytes.size() - kTrailerBytes - at), id));
  if (codec != static_cast<uint16_t>(record.layout.meta.codec) ||
      count_segments(record.layout.stream_bytes(), record.segment_bytes) != n ||
      record.layout.version() != record.version) {
    return damaged();
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (lengths[i] != record.bytes_of(i)) return damaged();
  }
  return record;
}

RemoteKeys::RemoteKeys(std::string space, const Encryptor* encryptor)
    : encryptor_(encryptor), prefix_(std::move(space)) {
  // Hosts with different keys, or none, do not see each other's values: none could use them.
  prefix_ += ":1:";
  prefix_ += encryptor == nullptr ? "p" : to_hex(encryptor->name_of("space")).substr(0, 8);
  prefix_ += ":";
}

std::string RemoteKeys::manifest(const Sha256& id) const {
  if (encryptor_ == nullptr) return prefix_ + to_hex(id);
  const std::string_view text(reinterpret_cast<const char*>(id.data()), id.size());
  return prefix_ + to_hex(encryptor_->name_of(text));
}

std::string RemoteKeys::segment(const Sha256& id, uint64_t version, uint32_t index) const {
  char tail[40];
  std::snprintf(tail, sizeof tail, ":%016" PRIx64 ":%" PRIu32, version, index);
  return manifest(id) + tail;
}

bool RemoteKeys::is_manifest(std::string_view key) const {
  return key.size() == prefix_.size() + 64 && key.compare(0, prefix_.size(), prefix_) == 0 &&
         key.find(':', prefix_.size()) == std::string_view::npos;
}

}  // namespace blend
