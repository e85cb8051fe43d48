#include "store/lmdb_snapshot.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace blend {

PieceKey::PieceKey(const Sha256& id, uint32_t piece) {
  std::copy(id.begin(), id.end(), bytes.begin());
  for (size_t i = 0; i < 4; ++i) bytes[32 + i] = static_cast<uint8_t>(piece >> (24 - 8 * i));
}

Result<Manifest> read_manifest(const Txn& txn, const MapView& view, const Sha256& id) {
  MDB_val key = id_val(id);
  MDB_val value{};
  const int rc = mdb_get(txn.get(), txn.env().meta(), &key, &value);
  if (rc == MDB_NOTFOUND) {
    return make_error(BLEND_E_NOT_FOUND, "chunk %s is not in the store", to_hex(id).c_str());
  }
  if (rc != 0) return lmdb_error(rc, "chunk " + to_hex(id));
  if (!view.contains(to_span(value))) {
    return make_error(BLEND_E_CORRUPT, "the description of chunk %s lies outside the data file",
                      to_hex(id).c_str());
  }
  return decode_manifest(to_span(value), id);
}

LmdbSource::LmdbSource(const Txn& txn, const MapView& view, std::mutex& mutex, Manifest manifest)
    : txn_(txn),
      view_(view),
      mutex_(mutex),
      manifest_(std::move(manifest)),
      pieces_(manifest_.n_pieces(), nullptr) {}

Result<std::span<const std::byte>> LmdbSource::piece(uint32_t number) {
  const uint64_t length =
      std::min<uint64_t>(kPieceBytes, manifest_.stream_bytes() - uint64_t{number} * kPieceBytes);
  if (pieces_[number] == nullptr) {
    PieceKey key(manifest_.meta.id, number);
    MDB_val k = key.val();
    MDB_val value{};
    int rc = 0;
    {
      const std::lock_guard lock(mutex_);
      rc = mdb_get(txn_.get(), txn_.env().chunks(), &k, &value);
    }
    const char* problem = rc == MDB_NOTFOUND                ? "is missing"
                          : rc != 0                         ? mdb_strerror(rc)
                          : value.mv_size != length         ? "has the wrong length"
                          : !view_.contains(to_span(value)) ? "lies outside the data file"
                                                            : nullptr;
    if (problem != nullptr) {
      return make_error(BLEND_E_CORRUPT, "piece %u %s", number, problem);
    }
    pieces_[number] = static_cast<const std::byte*>(value.mv_data);
  }
  return std::span(pieces_[number], length);
}

void LmdbSource::prefetch(uint32_t layer) {
  if (layer >= manifest_.layers.size() || txn_.env().forked()) return;
  const LayerExtent& e = manifest_.layers[layer];
  static const auto host_page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (uint64_t at = e.offset; at < e.offset + e.length;) {
    const uint64_t skip = at % kPieceBytes;
    const uint64_t n = std::min(kPieceBytes - skip, e.offset + e.length - at);
    if (auto p = piece(static_cast<uint32_t>(at / kPieceBytes)); p.is_ok()) {
      const auto first = reinterpret_cast<uintptr_t>(p->data() + skip) / host_page * host_page;
      const auto last = reinterpret_cast<uintptr_t>(p->data() + skip + n);
      // Advice: when it fails the read just waits longer.
      (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_WILLNEED);
    }
    at += n;
  }
}

Status LmdbSource::read_layer(uint32_t layer, std::byte* out) {
  BLEND_RETURN_IF_ERROR(txn_.env().check_fork());
  if (layer >= manifest_.layers.size()) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "layer %u of a chunk of %zu layers", layer,
                      manifest_.layers.size());
  }
  const Codec codec = manifest_.meta.codec;
  if (codec == Codec::none) return read_stored(layer, out);
  const LayerExtent& e = manifest_.layers[layer];
  if (encoded_.bytes() < e.length) {
    BLEND_ASSIGN(encoded_, AlignedBuffer::allocate(e.length));
  }
  BLEND_RETURN_IF_ERROR(read_stored(layer, encoded_.data()));
  const Status decoded = decode_layer(codec, manifest_.meta.shape,
                                      std::span(encoded_.data(), e.length), out, scratch_);
  if (decoded.code() == BLEND_E_CORRUPT) return corrupt(layer, decoded.message());
  return decoded;
}

Status LmdbSource::corrupt(uint32_t layer, const std::string& why) const {
  return make_error(BLEND_E_CORRUPT, "chunk %s, layer %u: %s", to_hex(manifest_.meta.id).c_str(),
                    layer, why.c_str());
}

Status LmdbSource::read_stored(uint32_t layer, std::byte* out) {
  const LayerExtent& e = manifest_.layers[layer];
  std::byte* to = out;
  for (uint64_t at = e.offset; at < e.offset + e.length;) {
    const auto p = piece(static_cast<uint32_t>(at / kPieceBytes));
    if (!p.is_ok()) return corrupt(layer, p.status().message());
    const uint64_t skip = at % kPieceBytes;
    const uint64_t n = std::min(kPieceBytes - skip, e.offset + e.length - at);
    std::memcpy(to, p.value().data() + skip, n);
    to += n;
    at += n;
  }
  // Of the copy: what is handed on is what was checked.
  if (checksum64(out, e.length) != e.checksum) return corrupt(layer, "its checksum does not match");
  return Status::ok();
}

Status LmdbSource::check_no_more_pieces() {
  PieceKey key(manifest_.meta.id, manifest_.n_pieces());
  MDB_val k = key.val();
  MDB_val value{};
  const std::lock_guard lock(mutex_);
  const int rc = mdb_get(txn_.get(), txn_.env().chunks(), &k, &value);
  if (rc == MDB_NOTFOUND) return Status::ok();
  return make_error(BLEND_E_CORRUPT, "chunk %s has more pieces than its description",
                    to_hex(manifest_.meta.id).c_str());
}

Result<std::unique_ptr<ChunkSource>> LmdbSnapshot::open(const Sha256& id) {
  BLEND_RETURN_IF_ERROR(common_->env->check_fork());
  if (const auto it = pending_.find(id); it != pending_.end()) {
    common_->hits.fetch_add(1, std::memory_order_relaxed);
    return make_memory_source(it->second);
  }
  Result<Manifest> manifest = [&] {
    const std::lock_guard lock(mutex_);
    return read_manifest(txn_, view_, id);
  }();
  if (!manifest.is_ok()) {
    common_->misses.fetch_add(1, std::memory_order_relaxed);
    if (manifest.status().code() != BLEND_E_NOT_FOUND) common_->damage(manifest.status());
    return manifest.status();
  }
  common_->hits.fetch_add(1, std::memory_order_relaxed);
  return std::unique_ptr<ChunkSource>(
      std::make_unique<LmdbSource>(txn_, view_, mutex_, std::move(manifest.value())));
}

}  // namespace blend
