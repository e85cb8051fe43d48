// LmdbSource: reads, checks and decodes the layers of one stored chunk.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/threads/guarded.h"
#include "store/chunk/chunk.h"
#include "store/codec/codec.h"
#include "store/lmdb/catalog/manifest.h"
#include "store/lmdb/environment.h"
#include "store/read/page_reader.h"

namespace blend {

// Several sources of one transaction may be used by different threads: look-ups are serialized, the
// bytes are copied, checked and decoded outside the lock. Its destructor waits for reads under way.
class LmdbSource final : public ChunkSource {
 public:
  // `txn`, `view`, `mutex` and `reader` must outlive it. reader: null, layers come from the map.
  // cache_first: so do those that the page cache holds.
  LmdbSource(const Txn& txn, const MapView& view, Mutex& mutex, PageReader* reader,
             bool cache_first, Manifest manifest);
  ~LmdbSource() override;

  const ChunkMeta& meta() const override { return manifest_.meta; }
  void prefetch(uint32_t layer) override;
  Status read_layer(uint32_t layer, std::byte* out) override;
  size_t stage_bytes() const override { return stage_bytes_; }
  void start_layer(uint32_t layer, std::byte* space) override;
  Status finish_layer(uint32_t layer, std::byte* space, std::vector<RowRun>& rows) override;
  uint64_t version() const override;
  void allow_packed() override { packed_ = packed_codec(manifest_.meta.codec) != nullptr; }
  void abandon() override;
  // CORRUPT: there is a piece after the last one, with no layer in it.
  Status check_no_more_pieces();

 private:
  // Bytes of a layer that are contiguous in the file, and where the pages that hold them are read
  // to. Pieces are kept apart by LMDB's page headers.
  struct Part {
    const std::byte* mapped = nullptr;
    size_t bytes = 0;
    bool begins_piece = false;
    uint64_t file_offset = 0;  // of the first page
    size_t page_bytes = 0;
    size_t space_at = 0;  // of the first page
    size_t skip = 0;      // from there to the bytes
  };
  struct Pending {
    ReadBatch batch;
    std::vector<Part> parts;
  };

  Status check_layer(uint32_t layer) const;
  Status corrupt(uint32_t layer, const std::string& why) const;
  // The bytes of a piece in the map, with the length that it must have.
  Result<std::span<const std::byte>> piece(uint32_t number);
  // Calls fn(bytes in the map, whether a piece begins there) for every part of the layer.
  template <typename Fn>
  Status for_each_part(uint32_t layer, Fn&& fn);
  // Copies the stored bytes of a layer to `out` and checks them.
  Status copy_stored(uint32_t layer, std::byte* out);

  // Space for a layer: [decoded layer, unless the codec is none][pages][rows that lie across
  // pages].
  size_t pages_at() const;
  size_t count_stage_bytes() const;
  Result<std::vector<Part>> plan_parts(uint32_t layer);
  bool in_page_cache(const std::vector<Part>& parts) const;
  // Whether the bytes read are those that the manifest describes.
  bool is_sound(uint32_t layer, const std::vector<Part>& parts, const std::byte* space) const;
  void lay_out_rows(uint32_t layer, const std::vector<Part>& parts, std::byte* space,
                    std::vector<RowRun>& rows);
  Status decode_parts(uint32_t layer, const std::vector<Part>& parts, std::byte* space,
                      std::vector<RowRun>& rows);
  // The same without direct reads.
  Status finish_from_map(uint32_t layer, std::byte* space, std::vector<RowRun>& rows);
  // Rows in their packed form in `in`, an encoded layer.
  Status hand_on_packed(uint32_t layer, std::span<const std::byte> in, std::vector<RowRun>& rows);

  const Txn& txn_;
  const MapView& view_;
  Mutex& mutex_;
  PageReader* reader_;
  const bool cache_first_;
  const Manifest manifest_;
  bool packed_ = false;  // layers are returned packed
  size_t stage_bytes_ = 0;
  std::vector<const std::byte*> pieces_;  // found so far
  AlignedBuffer encoded_;                 // room for an encoded layer
  CodecScratch scratch_;
  std::map<uint32_t, std::unique_ptr<Pending>> pending_;  // by layer
};

}  // namespace blend
