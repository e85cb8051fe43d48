#include "store/remote/remote_source.h"

#include <algorithm>
#include <cstring>

namespace blend {
namespace {

// As ChunkSource says.
class RemoteSource final : public ChunkSource {
 public:
  RemoteSource(RemoteTier& tier, std::shared_ptr<Arrival> arrival)
      : tier_(tier), arrival_(std::move(arrival)), layout_(arrival_->layout()) {}

  const ChunkMeta& meta() const override { return layout_.meta; }
  void prefetch(uint32_t) override { tier_.begin(arrival_); }
  void start_layer(uint32_t, std::byte*) override { tier_.begin(arrival_); }

  Status read_layer(uint32_t layer, std::byte* out) override {
    BLEND_ASSIGN(const auto in, stored(layer));
    const Status decoded = decode_layer(meta().codec, meta().shape, layer, in, out, scratch_);
    return decoded.code() == BLEND_E_CORRUPT ? broken(layer, decoded) : decoded;
  }

  size_t stage_bytes() const override {
    size_t most = meta().shape.most_layer_bytes();
    // Packed, few tokens may take more than decoded: every channel of K has a step.
    if (packed_codec(meta().codec) == nullptr) return most;
    for (const LayerExtent& e : layout_.layers) most = std::max<size_t>(most, e.length);
    return most;
  }

  Status finish_layer(uint32_t layer, std::byte* space, std::vector<RowRun>& rows) override {
    if (!packed_) return ChunkSource::finish_layer(layer, space, rows);
    rows.clear();
    BLEND_ASSIGN(const auto in, stored(layer));
    std::memcpy(space, in.data(), in.size());
    auto planes =
        check_packed_layer(meta().codec, meta().shape, layer, {space, in.size()}, scratch_);
    if (!planes.is_ok()) return broken(layer, planes.status());
    rows.push_back({space, space + planes->k_bytes, 0, meta().shape.rows(layer), *planes});
    return Status::ok();
  }

  uint64_t version() const override { return arrival_->record().version; }
  void allow_packed() override { packed_ = packed_codec(meta().codec) != nullptr; }
  RemoteCost remote_cost() const override {
    // What is on its way comes anyway.
    if (arrival_->begun()) return {};
    return {tier_.latency_s(), tier_.bytes_per_s()};
  }
  Origin origin() const override { return Origin::remote; }

 private:
  // The layer's bytes, once they are here, checked. CORRUPT: for readers a miss like any other.
  Result<std::span<const std::byte>> stored(uint32_t layer) {
    if (layer >= layout_.layers.size()) {
      return make_error(BLEND_E_INVALID_ARGUMENT, "layer %u of a chunk of %zu layers", layer,
                        layout_.layers.size());
    }
    tier_.begin(arrival_);
    const LayerExtent& e = layout_.layers[layer];
    const Status came = tier_.wait(*arrival_, e.offset, e.length);
    if (!came.is_ok()) return broken(layer, came);
    const std::span<const std::byte> in(arrival_->stream()->data() + e.offset, e.length);
    if (checksum64(in.data(), in.size()) != e.checksum) {
      return broken(layer, {BLEND_E_CORRUPT, "its checksum does not match"});
    }
    return in;
  }

  Status broken(uint32_t layer, const Status& why) const {
    return make_error(BLEND_E_CORRUPT, "chunk %s, layer %u, from the remote tier: %s",
                      to_hex(meta().id).c_str(), layer, why.message().c_str());
  }

  RemoteTier& tier_;
  const std::shared_ptr<Arrival> arrival_;
  const StoredLayout& layout_;
  bool packed_ = false;
  CodecScratch scratch_;
};

}  // namespace

std::unique_ptr<ChunkSource> make_remote_source(RemoteTier& tier,
                                                std::shared_ptr<Arrival> arrival) {
  return std::make_unique<RemoteSource>(tier, std::move(arrival));
}

Status check_stream(const StoredLayout& layout, const AlignedBuffer& stream) {
  for (const LayerExtent& e : layout.layers) {
    if (checksum64(stream.data() + e.offset, e.length) != e.checksum) {
      return {BLEND_E_CORRUPT, "a layer's checksum does not match"};
    }
  }
  return Status::ok();
}

}  // namespace blend
