#include "store/lmdb/snapshot/source.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "base/files/host_page.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/keys.h"
#include "store/lmdb/page_format.h"
#include "store/lmdb/transaction.h"

namespace blend {
namespace {

size_t round_up(size_t n) {
  return (n + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

// Start of the host's page that holds the byte.
uintptr_t host_page_of(const std::byte* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  return at - at % host_page_bytes();
}

}  // namespace

LmdbSource::LmdbSource(const Txn& txn, const MapView& view, Mutex& mutex, PageReader* reader,
                       bool cache_first, Manifest manifest)
    : txn_(txn),
      view_(view),
      mutex_(mutex),
      reader_(reader),
      cache_first_(cache_first),
      manifest_(std::move(manifest)),
      pieces_(manifest_.n_pieces(), nullptr) {
  stage_bytes_ = count_stage_bytes();
}

LmdbSource::~LmdbSource() { abandon(); }

uint64_t LmdbSource::version() const { return manifest_.version(); }

// ---- From the map

Result<std::span<const std::byte>> LmdbSource::piece(uint32_t number) {
  const uint64_t length =
      std::min<uint64_t>(kPieceBytes, manifest_.stream_bytes() - uint64_t{number} * kPieceBytes);
  if (pieces_[number] == nullptr) {
    PieceKey key(manifest_.meta.id, number);
    MDB_val k = key.val();
    MDB_val value{};
    int rc = 0;
    {
      const MutexLock lock(mutex_);
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

template <typename Fn>
Status LmdbSource::for_each_part(uint32_t layer, Fn&& fn) {
  const LayerExtent& e = manifest_.layers[layer];
  for (uint64_t at = e.offset; at < e.offset + e.length;) {
    BLEND_ASSIGN(const auto p, piece(static_cast<uint32_t>(at / kPieceBytes)));
    const uint64_t skip = at % kPieceBytes;
    const uint64_t n = std::min(kPieceBytes - skip, e.offset + e.length - at);
    fn(p.subspan(skip, n), skip == 0);
    at += n;
  }
  return Status::ok();
}

void LmdbSource::prefetch(uint32_t layer) {
  if (layer >= manifest_.layers.size() || txn_.env().forked() || reader_ != nullptr) return;
  // Damage is reported by the read.
  (void)for_each_part(layer, [](std::span<const std::byte> bytes, bool) {
    const uintptr_t first = host_page_of(bytes.data());
    const auto last = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
    // Best effort: if it fails the read takes longer.
    (void)madvise(reinterpret_cast<void*>(first), last - first, MADV_WILLNEED);
  });
}

Status LmdbSource::check_layer(uint32_t layer) const {
  BLEND_RETURN_IF_ERROR(txn_.env().check_fork());
  if (layer < manifest_.layers.size()) return Status::ok();
  return make_error(BLEND_E_INVALID_ARGUMENT, "layer %u of a chunk of %zu layers", layer,
                    manifest_.layers.size());
}

Status LmdbSource::corrupt(uint32_t layer, const std::string& why) const {
  return make_error(BLEND_E_CORRUPT, "chunk %s, layer %u: %s", to_hex(manifest_.meta.id).c_str(),
                    layer, why.c_str());
}

Status LmdbSource::copy_stored(uint32_t layer, std::byte* out) {
  std::byte* to = out;
  const Status found = for_each_part(layer, [&](std::span<const std::byte> bytes, bool) {
    std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  });
  if (!found.is_ok()) return corrupt(layer, found.message());
  const LayerExtent& e = manifest_.layers[layer];
  // Checks the copy: the bytes returned are then those that were checked.
  if (checksum64(out, e.length) != e.checksum) {
    return corrupt(layer, "its checksum does not match");
  }
  return Status::ok();
}

Status LmdbSource::read_layer(uint32_t layer, std::byte* out) {
  BLEND_RETURN_IF_ERROR(check_layer(layer));
  const Codec codec = manifest_.meta.codec;
  if (codec == Codec::none) return copy_stored(layer, out);
  const LayerExtent& e = manifest_.layers[layer];
  if (encoded_.bytes() < e.length) {
    BLEND_ASSIGN(encoded_, AlignedBuffer::allocate(e.length));
  }
  BLEND_RETURN_IF_ERROR(copy_stored(layer, encoded_.data()));
  Status decoded = decode_layer(codec, manifest_.meta.shape, layer,
                                std::span(encoded_.data(), e.length), out, scratch_);
  if (decoded.code() == BLEND_E_CORRUPT) return corrupt(layer, decoded.message());
  return decoded;
}

Status LmdbSource::check_no_more_pieces() {
  PieceKey key(manifest_.meta.id, manifest_.n_pieces());
  MDB_val k = key.val();
  MDB_val value{};
  const MutexLock lock(mutex_);
  const int rc = mdb_get(txn_.get(), txn_.env().chunks(), &k, &value);
  if (rc == MDB_NOTFOUND) return Status::ok();
  return make_error(BLEND_E_CORRUPT, "chunk %s has more pieces than its description",
                    to_hex(manifest_.meta.id).c_str());
}

// ---- Past the page cache

size_t LmdbSource::pages_at() const {
  return manifest_.meta.codec == Codec::none ? 0
                                             : round_up(manifest_.meta.shape.most_layer_bytes());
}

size_t LmdbSource::count_stage_bytes() const {
  const ChunkShape& shape = manifest_.meta.shape;
  size_t most = shape.most_layer_bytes();
  if (reader_ == nullptr) {
    // Packed, few tokens may take more than decoded: every channel of K has a scale.
    if (packed_codec(manifest_.meta.codec) == nullptr) return most;
    for (const LayerExtent& e : manifest_.layers) most = std::max<size_t>(most, e.length);
    return most;
  }
  most = 0;
  for (uint32_t layer = 0; layer < manifest_.layers.size(); ++layer) {
    const LayerExtent& e = manifest_.layers[layer];
    const size_t n_parts = e.length / kPieceBytes + 2;
    size_t bytes = e.length + n_parts * 2 * kDirectAlignment;
    if (manifest_.meta.codec == Codec::none) {
      bytes += 2 * n_parts * shape.row_bytes(layer);
    }
    most = std::max(most, bytes);
  }
  return std::max(shape.most_layer_bytes(), pages_at() + most);
}

Result<std::vector<LmdbSource::Part>> LmdbSource::plan_parts(uint32_t layer) {
  std::vector<Part> parts;
  size_t space_at = pages_at();
  BLEND_RETURN_IF_ERROR(
      for_each_part(layer, [&](std::span<const std::byte> bytes, bool begins_piece) {
        Part part;
        part.mapped = bytes.data();
        part.bytes = bytes.size();
        part.begins_piece = begins_piece;
        const auto at = static_cast<uint64_t>(bytes.data() - view_.base);
        part.skip = at % kDirectAlignment;
        part.file_offset = at - part.skip;
        part.page_bytes = round_up(part.skip + part.bytes);
        part.space_at = space_at;
        space_at += part.page_bytes;
        parts.push_back(part);
      }));
  return parts;
}

bool LmdbSource::in_page_cache(const std::vector<Part>& parts) const {
  std::vector<unsigned char> resident;
  for (const Part& part : parts) {
    const uintptr_t first = host_page_of(part.mapped);
    const size_t bytes = reinterpret_cast<uintptr_t>(part.mapped) + part.bytes - first;
    resident.assign((bytes + host_page_bytes() - 1) / host_page_bytes(), 0);
    if (mincore(reinterpret_cast<void*>(first), bytes, resident.data()) != 0) return false;
    if (std::any_of(resident.begin(), resident.end(), [](auto r) { return (r & 1) == 0; })) {
      return false;
    }
  }
  return true;
}

void LmdbSource::start_layer(uint32_t layer, std::byte* space) {
  if (reader_ == nullptr || !check_layer(layer).is_ok()) return;
  auto parts = plan_parts(layer);
  // Errors in the pieces are reported by the read from the map.
  if (!parts.is_ok()) return;
  if (cache_first_ && in_page_cache(*parts)) return;
  auto pending = std::make_unique<Pending>();
  pending->parts = std::move(*parts);
  std::vector<ReadBatch::Read> reads;
  for (const Part& part : pending->parts) {
    // A short last piece lies inside a tree page, at any offset.
    if (part.skip % alignof(float) != 0 || part.file_offset + part.page_bytes > view_.bytes) return;
    reads.push_back({part.file_offset, space + part.space_at, part.page_bytes});
  }
  Pending& kept = *(pending_[layer] = std::move(pending));
  reader_->start(kept.batch, reads);
}

bool LmdbSource::is_sound(uint32_t layer, const std::vector<Part>& parts,
                          const std::byte* space) const {
  Checksum64 checksum;
  for (const Part& part : parts) {
    const std::byte* bytes = space + part.space_at + part.skip;
    // The page's header in front of an overflow value names the page: what was read is the page
    // that LMDB meant. Reads begin at multiples of kDirectAlignment, of which a page may have
    // several.
    const uint64_t at = part.file_offset + part.skip;
    if (part.begins_piece && page_format::begins_overflow(at, view_.page_size)) {
      const std::byte* page = bytes - page_format::kHeaderBytes;
      if (page_format::header_at(page).number != at / view_.page_size) return false;
    }
    checksum.add(bytes, part.bytes);
  }
  return checksum.value() == manifest_.layers[layer].checksum;
}

// Rows of one part are returned in place; a row that two parts share is put together.
void LmdbSource::lay_out_rows(uint32_t layer, const std::vector<Part>& parts, std::byte* space,
                              std::vector<RowRun>& rows) {
  const ChunkShape& shape = manifest_.meta.shape;
  const size_t row_bytes = shape.row_bytes(layer);
  const uint32_t n_rows = shape.rows(layer);
  std::byte* spare = space + parts.back().space_at + parts.back().page_bytes;
  // One plane, walked in parallel with the other.
  struct Walk {
    size_t part = 0;
    size_t at = 0;  // inside the part
  };
  const auto skip_to = [&](Walk& w, size_t bytes) {
    w.at += bytes;
    while (w.part < parts.size() && w.at >= parts[w.part].bytes) w.at -= parts[w.part++].bytes;
  };
  const auto whole_rows = [&](const Walk& w) { return (parts[w.part].bytes - w.at) / row_bytes; };
  const auto take = [&](Walk& w, size_t n) -> const std::byte* {
    const std::byte* from = space + parts[w.part].space_at + parts[w.part].skip + w.at;
    if (n > 0) {
      skip_to(w, n * row_bytes);
      return from;
    }
    std::byte* row = spare;
    spare += row_bytes;
    for (size_t done = 0; done < row_bytes;) {
      const size_t piece_bytes = std::min(row_bytes - done, parts[w.part].bytes - w.at);
      std::memcpy(row + done, space + parts[w.part].space_at + parts[w.part].skip + w.at,
                  piece_bytes);
      done += piece_bytes;
      skip_to(w, piece_bytes);
    }
    return row;
  };
  Walk k;
  Walk v;
  skip_to(v, shape.plane_bytes(layer));
  for (uint32_t row = 0; row < n_rows;) {
    const size_t k_rows = whole_rows(k);
    const size_t v_rows = whole_rows(v);
    const size_t n =
        k_rows == 0 || v_rows == 0 ? 1 : std::min({k_rows, v_rows, size_t{n_rows - row}});
    const std::byte* k_at = take(k, k_rows == 0 ? 0 : n);
    const std::byte* v_at = take(v, v_rows == 0 ? 0 : n);
    rows.push_back({k_at, v_at, row, static_cast<uint32_t>(n)});
    row += static_cast<uint32_t>(n);
  }
}

Status LmdbSource::decode_parts(uint32_t layer, const std::vector<Part>& parts, std::byte* space,
                                std::vector<RowRun>& rows) {
  const ChunkShape& shape = manifest_.meta.shape;
  // Put together: codecs read without gaps.
  std::byte* begin = space + parts.front().space_at + parts.front().skip;
  std::byte* to = begin + parts.front().bytes;
  for (size_t i = 1; i < parts.size(); ++i) {
    std::memmove(to, space + parts[i].space_at + parts[i].skip, parts[i].bytes);
    to += parts[i].bytes;
  }
  const std::span<const std::byte> in(begin, to);
  if (packed_) return hand_on_packed(layer, in, rows);
  const Status decoded = decode_layer(manifest_.meta.codec, shape, layer, in, space, scratch_);
  if (decoded.code() == BLEND_E_CORRUPT) return corrupt(layer, decoded.message());
  BLEND_RETURN_IF_ERROR(decoded);
  rows.push_back({space, space + shape.plane_bytes(layer), 0, shape.rows(layer)});
  return Status::ok();
}

Status LmdbSource::hand_on_packed(uint32_t layer, std::span<const std::byte> in,
                                  std::vector<RowRun>& rows) {
  auto planes = check_packed_layer(manifest_.meta.codec, manifest_.meta.shape, layer, in, scratch_);
  if (planes.status().code() == BLEND_E_CORRUPT) return corrupt(layer, planes.status().message());
  if (!planes.is_ok()) return planes.status();
  rows.push_back(
      {in.data(), in.data() + planes->k_bytes, 0, manifest_.meta.shape.rows(layer), *planes});
  return Status::ok();
}

Status LmdbSource::finish_from_map(uint32_t layer, std::byte* space, std::vector<RowRun>& rows) {
  if (!packed_) return ChunkSource::finish_layer(layer, space, rows);
  BLEND_RETURN_IF_ERROR(check_layer(layer));
  BLEND_RETURN_IF_ERROR(copy_stored(layer, space));
  return hand_on_packed(layer, {space, manifest_.layers[layer].length}, rows);
}

Status LmdbSource::finish_layer(uint32_t layer, std::byte* space, std::vector<RowRun>& rows) {
  rows.clear();
  const auto found = pending_.find(layer);
  if (found == pending_.end()) return finish_from_map(layer, space, rows);
  const std::unique_ptr<Pending> pending = std::move(found->second);
  pending_.erase(found);
  const Status read = reader_->wait(pending->batch);
  BLEND_RETURN_IF_ERROR(txn_.env().check_fork());
  if (!read.is_ok() || !is_sound(layer, pending->parts, space)) {
    // Damage, or direct reads that give other bytes: the map decides.
    return finish_from_map(layer, space, rows);
  }
  if (manifest_.meta.codec != Codec::none) return decode_parts(layer, pending->parts, space, rows);
  lay_out_rows(layer, pending->parts, space, rows);
  return Status::ok();
}

void LmdbSource::abandon() {
  for (auto& [layer, pending] : pending_) {
    if (txn_.env().forked()) {
      (void)pending.release();  // the kernel answers the parent
    } else {
      (void)reader_->wait(pending->batch);
    }
  }
  pending_.clear();
}

}  // namespace blend
