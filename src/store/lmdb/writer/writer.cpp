#include "store/lmdb/writer/writer.h"

#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>

#include "base/files/host_page.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/catalog/read_records.h"
#include "store/lmdb/error.h"

namespace blend {
namespace {

using ull = unsigned long long;

// Freed pages become usable two transactions later, so the map has room for the quota, the pages of
// two transactions, and the trees.
constexpr uint64_t kLargestTransaction = 512ull << 20;
constexpr uint64_t kTreeRoom = 16ull << 20;
constexpr uint64_t kLargestMap = 16ull << 40;
}  // namespace

uint64_t map_bytes_for(uint64_t quota, uint64_t chunk) {
  const uint64_t capped = std::min(quota, kLargestMap / 2);
  const uint64_t transaction = std::max(chunk, std::min(quota, kLargestTransaction));
  // The quota counts in pages of 4 KiB (Manifest::footprint()). LMDB makes files with the machine's
  // and keeps a value of more than half a page in pages of its own: where those are larger, small
  // chunks take up to 1.6 times what is counted.
  const uint64_t rounding = host_page_bytes() > 4096 ? capped : capped / 10;
  return capped + rounding + 2 * std::min(transaction, kLargestMap / 8) + kTreeRoom;
}

Writer::Writer(StoreCommon& common, Retention& retention, const StoreOptions& options, OnPut on_put)
    : common_(common),
      retention_(retention),
      quota_bytes_(options.quota_bytes),
      codec_(options.codec),
      codec_step_(options.codec_step),
      on_put_(std::move(on_put)),
      group_commit_(options.quota_bytes / 2) {}

Status Writer::set_layer_steps(const Sha256& fingerprint, std::vector<float> steps) {
  BLEND_RETURN_IF_ERROR(common_.env->check_fork());
  auto shared = std::make_shared<const std::vector<float>>(std::move(steps));
  const MutexLock lock(mutex_);
  layer_steps_[fingerprint] = std::move(shared);
  return Status::ok();
}

std::shared_ptr<const std::vector<float>> Writer::layer_steps_of(const Sha256& fingerprint) const {
  const MutexLock lock(mutex_);
  const auto found = layer_steps_.find(fingerprint);
  return found == layer_steps_.end() ? nullptr : found->second;
}

Status Writer::write(const ChunkRecord& record) {
  const Record one{&record, nullptr};
  Status status;
  write_all({&one, 1}, {&status, 1});
  return status;
}

void Writer::write_all(std::span<const Record> records, std::span<Status> statuses) {
  // Encoded before the transaction, for which other writers wait.
  std::vector<EncodedChunk> chunks;
  std::vector<size_t> of;  // [chunks]: which record
  chunks.reserve(records.size());
  of.reserve(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const ChunkRecord& record = *records[i].record;
    const auto layer_steps = layer_steps_of(record.meta.fingerprint);
    auto encoded = encode_chunk(
        record, record.codec.value_or(codec_), codec_step_,
        layer_steps != nullptr ? std::span<const float>(*layer_steps) : std::span<const float>());
    if (!encoded.is_ok()) {
      statuses[i] = encoded.status().with_context("put chunk " + to_hex(record.meta.id));
      continue;
    }
    common_.env->want_map(map_bytes_for(quota_bytes_, encoded->manifest.footprint()));
    chunks.push_back(std::move(*encoded));
    of.push_back(i);
  }
  if (chunks.empty()) return;
  // The snapshot of a process that died would keep the pages that evictions free.
  common_.env->clear_dead_readers();
  std::deque<GroupCommit::Put> puts;
  for (size_t i = 0; i < chunks.size(); ++i) {
    puts.emplace_back(chunks[i], records[of[i]].record->meta.tenant);
  }
  std::vector<GroupCommit::Put*> waiting;
  waiting.reserve(puts.size());
  for (GroupCommit::Put& put : puts) waiting.push_back(&put);
  commit_in_groups(waiting);
  for (size_t i = 0; i < chunks.size(); ++i) {
    statuses[of[i]] = conclude(puts[i].status(), records[of[i]], chunks[i].manifest);
    if (statuses[of[i]].is_ok()) on_put_(chunks[i].manifest.meta.id);
  }
}

void Writer::commit_in_groups(std::span<GroupCommit::Put* const> puts) {
  const auto transaction = [this] { return put_waiting(); };
  group_commit_.run(puts, transaction);
  for (GroupCommit::Put* const& put : puts) {
    // A larger map may be waiting for our own snapshots to end.
    if (put->status().detail() == MDB_MAP_FULL && common_.env->grow_map()) {
      group_commit_.run({&put, 1}, transaction);
    }
  }
}

Status Writer::conclude(const Status& status, const Record& record, const Manifest& manifest) {
  if (status.is_ok()) {
    common_.written.fetch_add(1, std::memory_order_relaxed);
    if (common_.ram != nullptr && record.shared != nullptr) keep_in_ram(record.shared, manifest);
    return status;
  }
  const std::string what = "put chunk " + to_hex(manifest.meta.id);
  const uint64_t needed = manifest.footprint();
  const auto full = [&](const char* why) {
    return make_error(BLEND_E_FULL,
                      "%s: %s; it needs %llu bytes and the data file of '%s' has %llu",
                      what.c_str(), why, static_cast<ull>(needed), common_.env->path().c_str(),
                      static_cast<ull>(common_.env->file_bytes()));
  };
  if (status.detail() == MDB_MAP_FULL) {
    return full(
        "the map is full, perhaps because old snapshots hold on to freed pages: close "
        "them, remove chunks, or open the store with a larger quota_bytes");
  }
  const bool no_space =
      status.detail() == ENOSPC || status.detail() == EDQUOT || status.detail() == EFBIG ||
      (status.detail() == EIO && out_of_space(common_.env->data_fd(), needed + kTreeRoom));
  if (no_space) {
    return full("the disk is full or the file may not grow: free space, or remove chunks");
  }
  return status.with_context(what);
}

Status Writer::put_waiting() {
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common_));
  std::vector<Room> rooms;
  size_t n_evicted = 0;
  while (n_evicted < kEvictionBatch) {
    GroupCommit::Put* put = group_commit_.take();
    if (put == nullptr) break;
    auto room = put_one(writer, *put->chunk, *put->tenant);
    if (!room.is_ok() || room->state == Room::State::none) {
      // LMDB cannot undo one put of a transaction: all of them fail.
      group_commit_.fail(room.is_ok() ? Status{BLEND_E_FULL, room->why} : room.status());
      return Status::ok();
    }
    n_evicted += room->evicted.size();
    rooms.push_back(std::move(*room));
    if (rooms.back().state == Room::State::more) {
      group_commit_.give_back();
      break;
    }
  }
  if (const Status committed = writer.commit(); !committed.is_ok()) {
    group_commit_.fail(committed);
    return Status::ok();
  }
  for (const Room& room : rooms) retention_.tell(room);
  group_commit_.finish();
  return Status::ok();
}

Result<Room> Writer::put_one(ChunkWriter& writer, const EncodedChunk& chunk,
                             const TenantTag& tenant) {
  // A put without a name keeps the chunk's name.
  std::optional<Manifest> named;
  const ChunkName& name = chunk.manifest.meta.name;
  if (!name.label.has_value() || !name.tags.has_value()) {
    const auto old = writer.find(chunk.manifest.meta.id);
    if (old.has_value() && old->meta.name.is_given()) {
      named = chunk.manifest;
      named->meta.name.complete_with(old->meta.name);
    }
  }
  const Manifest& manifest = named.has_value() ? *named : chunk.manifest;
  UseRecord use;
  BLEND_ASSIGN(Room room, retention_.room_for(writer, manifest, tenant, &use));
  if (room.state != Room::State::enough) return room;
  bool replaced = false;
  BLEND_RETURN_IF_ERROR(writer.erase(manifest.meta.id, &replaced));
  BLEND_RETURN_IF_ERROR(writer.add(manifest, {chunk.stream, manifest.stream_bytes()}, use));
  return room;
}

Status Writer::put_stored(const StoredLayout& layout,
                          const std::shared_ptr<const AlignedBuffer>& stream) {
  BLEND_RETURN_IF_ERROR(common_.check_writable());
  if (stream == nullptr || stream->bytes() < layout.stream_bytes() || layout.layers.empty()) {
    return {BLEND_E_INVALID_ARGUMENT, "the stream is shorter than its layout says"};
  }
  EncodedChunk chunk;
  chunk.manifest = Manifest(layout);
  chunk.stream = stream->data();
  common_.env->want_map(map_bytes_for(quota_bytes_, chunk.manifest.footprint()));
  common_.env->clear_dead_readers();
  GroupCommit::Put put(chunk, layout.meta.tenant);
  GroupCommit::Put* const waiting = &put;
  commit_in_groups({&waiting, 1});
  Status status = conclude(put.status(), {}, chunk.manifest);
  if (!status.is_ok() || common_.ram == nullptr || layout.meta.codec != Codec::none) return status;
  try {
    const RamTier::Key key{layout.meta.id, chunk.manifest.version()};
    for (uint32_t layer = 0; layer < layout.meta.shape.n_layers; ++layer) {
      // Every layer keeps the whole stream alive; they are added and dropped together.
      const RamTier::Layer bytes(stream, stream->data() + layout.layers[layer].offset);
      if (!common_.ram->put_foreign(key, layout.meta.shape, layer, bytes)) break;
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the tier is best effort
  }
  return status;
}

void Writer::keep_in_ram(const std::shared_ptr<const ChunkRecord>& record,
                         const Manifest& manifest) {
  // The memory tier must return the same values as a read from disk.
  if (!is_lossless(manifest.meta.codec)) return;
  const RamTier::Key key{manifest.meta.id, manifest.version()};
  try {
    for (uint32_t layer = 0; layer < record->meta.shape.n_layers; ++layer) {
      // Every layer keeps the whole record alive; they are added and dropped together.
      const RamTier::Layer bytes(record, record->k(layer));
      if (!common_.ram->put_foreign(key, record->meta.shape, layer, bytes)) return;
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the tier is best effort
  }
}

Status Writer::remove(const Sha256& id, bool was_queued) {
  retention_.forget(id);
  if (common_.ram != nullptr) common_.ram->drop(id);
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common_));
  bool found = false;
  BLEND_RETURN_IF_ERROR(writer.erase(id, &found).with_context("remove"));
  if (!found) {
    return was_queued ? Status::ok() : no_such_chunk(id);
  }
  return writer.commit().with_context("remove chunk " + to_hex(id));
}

}  // namespace blend
