// Puts: encode, wait for a transaction, make room, write, commit.
#include <algorithm>
#include <cerrno>
#include <deque>
#include <optional>

#include "base/host_page.h"
#include "store/lmdb/error.h"
#include "store/lmdb/lmdb_store.h"
#include "store/lmdb/manifest.h"

namespace blend {
namespace {

using ull = unsigned long long;

// Freed pages become usable two transactions later, so the map has room for the quota, the pages of
// two transactions, and the trees.
constexpr uint64_t kLargestTransaction = 512ull << 20;
constexpr uint64_t kTreeRoom = 16ull << 20;
constexpr uint64_t kLargestMap = 16ull << 40;
}  // namespace

uint64_t LmdbStore::map_bytes_for(uint64_t quota, uint64_t chunk) {
  const uint64_t capped = std::min(quota, kLargestMap / 2);
  const uint64_t transaction = std::max(chunk, std::min(quota, kLargestTransaction));
  // The quota counts in pages of 4 KiB (Manifest::footprint()). LMDB makes files with the machine's
  // and keeps a value of more than half a page in pages of its own: where those are larger, small
  // chunks take up to 1.6 times what is counted.
  const uint64_t rounding = host_page_bytes() > 4096 ? capped : capped / 10;
  return capped + rounding + 2 * std::min(transaction, kLargestMap / 8) + kTreeRoom;
}

Status LmdbStore::set_layer_steps(const Sha256& fingerprint, std::vector<float> steps) {
  BLEND_RETURN_IF_ERROR(env_.check_fork());
  auto shared = std::make_shared<const std::vector<float>>(std::move(steps));
  const std::lock_guard lock(mutex_);
  layer_steps_[fingerprint] = std::move(shared);
  return Status::ok();
}

std::shared_ptr<const std::vector<float>> LmdbStore::layer_steps_of(
    const Sha256& fingerprint) const {
  const std::lock_guard lock(mutex_);
  const auto found = layer_steps_.find(fingerprint);
  return found == layer_steps_.end() ? nullptr : found->second;
}

Status LmdbStore::write(const ChunkRecord& record) {
  const Record one{&record, nullptr};
  Status status;
  write_all({&one, 1}, {&status, 1});
  return status;
}

void LmdbStore::write_all(std::span<const Record> records, std::span<Status> statuses) {
  // Encoded before the transaction, for which other writers wait.
  std::vector<EncodedChunk> chunks;
  std::vector<size_t> of;  // [chunks]: which record
  chunks.reserve(records.size());
  of.reserve(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    const ChunkRecord& record = *records[i].record;
    const auto layer_steps = layer_steps_of(record.meta.fingerprint);
    auto encoded = encode_chunk(
        record, record.codec.value_or(options_.codec), options_.codec_step,
        layer_steps != nullptr ? std::span<const float>(*layer_steps) : std::span<const float>());
    if (!encoded.is_ok()) {
      statuses[i] = encoded.status().with_context("put chunk " + to_hex(record.meta.id));
      continue;
    }
    env_.want_map(map_bytes_for(options_.quota_bytes, encoded->manifest.footprint()));
    chunks.push_back(std::move(*encoded));
    of.push_back(i);
  }
  if (chunks.empty()) return;
  // The snapshot of a process that died would keep the pages that evictions free.
  env_.clear_dead_readers();
  std::deque<PutTurns::Put> puts;
  for (size_t i = 0; i < chunks.size(); ++i) {
    puts.emplace_back(chunks[i], records[of[i]].record->meta.tenant);
  }
  std::vector<PutTurns::Put*> waiting;
  waiting.reserve(puts.size());
  for (PutTurns::Put& put : puts) waiting.push_back(&put);
  run_turns(waiting);
  for (size_t i = 0; i < chunks.size(); ++i) {
    statuses[of[i]] = conclude(puts[i].status(), records[of[i]], chunks[i].manifest);
    if (statuses[of[i]].is_ok() && options_.on_put) options_.on_put(chunks[i].manifest.meta.id);
  }
}

void LmdbStore::run_turns(std::span<PutTurns::Put* const> puts) {
  const auto transaction = [this] { return put_waiting(); };
  turns_.run(puts, transaction);
  for (PutTurns::Put* const& put : puts) {
    // A larger map may be waiting for our own snapshots to end.
    if (put->status().detail() == MDB_MAP_FULL && env_.grow_map()) {
      turns_.run({&put, 1}, transaction);
    }
  }
}

Status LmdbStore::conclude(const Status& status, const Record& record, const Manifest& manifest) {
  if (status.is_ok()) {
    common_->written.fetch_add(1, std::memory_order_relaxed);
    if (common_->ram != nullptr && record.shared != nullptr) keep_in_ram(record.shared, manifest);
    return status;
  }
  const std::string what = "put chunk " + to_hex(manifest.meta.id);
  const uint64_t needed = manifest.footprint();
  const auto full = [&](const char* why) {
    return make_error(BLEND_E_FULL,
                      "%s: %s; it needs %llu bytes and the data file of '%s' has %llu",
                      what.c_str(), why, static_cast<ull>(needed), env_.path().c_str(),
                      static_cast<ull>(env_.file_bytes()));
  };
  if (status.detail() == MDB_MAP_FULL) {
    return full(
        "the map is full, perhaps because old snapshots hold on to freed pages: close "
        "them, remove chunks, or open the store with a larger quota_bytes");
  }
  const bool no_space =
      status.detail() == ENOSPC || status.detail() == EDQUOT || status.detail() == EFBIG ||
      (status.detail() == EIO && out_of_space(env_.data_fd(), needed + kTreeRoom));
  if (no_space) {
    return full("the disk is full or the file may not grow: free space, or remove chunks");
  }
  return status.with_context(what);
}

Status LmdbStore::put_waiting() {
  BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(*common_));
  std::vector<Room> rooms;
  size_t n_evicted = 0;
  while (n_evicted < kEvictionBatch) {
    PutTurns::Put* put = turns_.take();
    if (put == nullptr) break;
    auto room = put_one(writer, *put->chunk, *put->tenant);
    if (!room.is_ok() || room->state == Room::State::none) {
      // LMDB cannot undo one put of a transaction: all of them fail.
      turns_.fail(room.is_ok() ? Status{BLEND_E_FULL, room->why} : room.status());
      return Status::ok();
    }
    n_evicted += room->evicted.size();
    rooms.push_back(std::move(*room));
    if (rooms.back().state == Room::State::more) {
      turns_.give_back();
      break;
    }
  }
  if (const Status committed = writer.commit(); !committed.is_ok()) {
    turns_.fail(committed);
    return Status::ok();
  }
  for (const Room& room : rooms) tell(room);
  turns_.finish();
  return Status::ok();
}

Result<Room> LmdbStore::put_one(ChunkWriter& writer, const EncodedChunk& chunk,
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
  BLEND_ASSIGN(Room room, room_for(writer, manifest, tenant, &use));
  if (room.state != Room::State::enough) return room;
  bool replaced = false;
  BLEND_RETURN_IF_ERROR(writer.erase(manifest.meta.id, &replaced));
  BLEND_RETURN_IF_ERROR(writer.add(manifest, {chunk.stream, manifest.stream_bytes()}, use));
  return room;
}

}  // namespace blend
