// A stored chunk: identity, description, and the bytes of its K and V.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/hash.h"
#include "base/status.h"
#include "formats/half.h"
#include "formats/packing.h"
#include "store/chunk/chunk_name.h"

namespace blend {

// How the layers of a chunk are stored (store/codec/codec.h). The numbers are in the files.
enum class Codec : uint8_t { none = 0, zstd = 1, int8 = 2, int4 = 3, rans = 4 };
inline constexpr uint32_t kCodecs = 5;

// What a chunk keeps of one layer: two planes of rows, which have one width. The numbers are in the
// files.
struct LayerShape {
  enum class Keep : uint8_t {
    kv = 0,     // K (before RoPE) and V of every token
    rows = 1,   // one row of another kind for every token: its first half, and its second
    state = 2,  // what the layer hands on after the last token: n_rows rows, as halves
  };
  Keep keep = Keep::kv;
  uint32_t width = 0;   // columns of a plane; kv: the layer's n_kv_heads * head_dim
  uint32_t n_rows = 0;  // of a state, whatever the chunk's length; else 0
  bool operator==(const LayerShape&) const = default;
};

// Layers of a chunk that has a list of them: more than any model's, and few enough that a walk
// through the list for each layer takes no time to speak of.
inline constexpr uint32_t kMostListedLayers = 4096;

// The layers of a chunk form one stream [layer][plane][row][column]; of a layer that attends, the
// planes are K (before RoPE) and V, and the columns [kv_head][dim].
struct ChunkShape {
  uint32_t n_layers = 0;
  uint32_t n_tokens = 0;
  uint32_t kv_dim = 0;  // n_kv_heads * head_dim
  DType dtype = DType::f16;
  uint32_t head_dim = 0;  // columns of V that share a scale; 0: unknown, the whole row does
  std::vector<LayerShape> layers = {};  // [n_layers]; empty: every layer keeps K and V

  LayerShape layer(uint32_t i) const {
    return layers.empty() ? LayerShape{LayerShape::Keep::kv, kv_dim, 0} : layers[i];
  }
  uint32_t rows(uint32_t i) const {
    const LayerShape l = layer(i);
    return l.keep == LayerShape::Keep::state ? l.n_rows : n_tokens;
  }
  // Bytes of a row of one plane of a layer, of the plane, of the layer, and of those before it.
  size_t row_bytes(uint32_t i) const {
    return size_t{layer(i).width} * static_cast<size_t>(dtype_size(dtype));
  }
  size_t plane_bytes(uint32_t i) const { return rows(i) * row_bytes(i); }
  size_t layer_bytes(uint32_t i) const { return 2 * plane_bytes(i); }
  size_t layer_at(uint32_t i) const {
    if (layers.empty()) return i * layer_bytes(0);
    size_t sum = 0;
    for (uint32_t before = 0; before < i; ++before) sum += layer_bytes(before);
    return sum;
  }
  size_t total_bytes() const { return layer_at(n_layers); }
  size_t most_layer_bytes() const {
    size_t most = layers.empty() ? layer_bytes(0) : 0;
    for (uint32_t i = 0; i < layers.size(); ++i) most = std::max(most, layer_bytes(i));
    return most;
  }
  bool operator==(const ChunkShape&) const = default;
};

// Each number is at least 1, and no product of them overflows.
bool shape_is_sane(const ChunkShape& shape);

// Identifies a tenant (the salt of its chunks' ids) without revealing the salt: the first half of
// its SHA-256; all zero for the empty salt.
using TenantTag = std::array<uint8_t, 16>;
TenantTag tenant_tag(std::string_view tenant);

// Attention of a row, measured when its chunk was precomputed (engine/context_impact.h).
struct RowImpact {
  float outside = 0;  // attention that it puts before its chunk, 0 .. 1
  float inside = 0;   // attention that the rows of its chunk put on it, mean, 0 .. 1
  bool operator==(const RowImpact&) const = default;
};

// More passages than this were never of use: the mean of eight is no better than that of four.
inline constexpr size_t kMostContexts = 16;

// What a record was prefilled after, besides its chunk prefix.
enum class RecordKind : uint8_t {
  plain,       // nothing: a prefix hit where just the chunk prefix precedes it
  contextual,  // context passages: the mean over a prefill after each of them
  clustered,   // the chunks of its cluster: the mean over prefills of all in other orders
  preceded,    // passages that stand before its predecessor, which is the chunk prefix's end
};

struct ChunkMeta {
  Sha256 id{};
  Sha256 fingerprint{};  // of the model
  ChunkShape shape;
  uint32_t n_prefix_tokens = 0;
  int64_t created_unix_s = 0;
  std::vector<int32_t> tokens;    // [n_tokens]: compared on every hit
  std::vector<RowImpact> impact;  // [n_tokens]; empty where it was not measured
  // The context passages, each by the id that it has as a plain record after the same prefix; at
  // most kMostContexts. Empty: the record is plain. They describe the record and are not part of
  // its id.
  std::vector<Sha256> contexts;
  // A contextual record that is to be made again, when its passages have contextual records too
  // (fusion/contexts/corpus_precompute.h). Until then a fuse takes it as any other.
  bool draft = false;
  ChunkName name;
  // How a store holds it; meaningless in a record that is to be put.
  Codec codec = Codec::none;
  uint64_t stored_bytes = 0;  // of K and V, encoded
  TenantTag tenant{};         // its tenant: may read it, and its quota counts it
};

// SHA-256 over the length-prefixed fields in this order: it resists collisions made on purpose. The
// records of the three kinds have different ids, whatever their passages are.
Sha256 chunk_id(const Sha256& fingerprint, DType dtype, std::span<const int32_t> prefix,
                std::string_view tenant, std::span<const int32_t> tokens,
                RecordKind kind = RecordKind::plain);

// A whole chunk in memory. Immutable once shared.
struct ChunkRecord {
  ChunkMeta meta;
  AlignedBuffer data;          // [layer][plane][row][column] of shape.dtype
  std::optional<Codec> codec;  // to store it with; none: the store's own

  // The planes of a layer.
  std::byte* k(uint32_t layer) const { return data.data() + meta.shape.layer_at(layer); }
  std::byte* v(uint32_t layer) const { return k(layer) + meta.shape.plane_bytes(layer); }
};

// Refuses a record whose parts contradict each other (INVALID_ARGUMENT).
Status check_record(const ChunkRecord& record);

// Rows of a layer that lie next to each other in memory.
struct RowRun {
  const std::byte* k = nullptr;  // [n, width] of the chunk's dtype; packed: the encoded plane
  const std::byte* v = nullptr;  // [n, width]; the same
  uint32_t first = 0;            // of the layer's rows
  uint32_t n = 0;
  PackedPlanes packed = {};
};

// Where a layer was read from: a file or its page cache, host memory, another machine's memory, or
// (never by a source) a device's.
enum class Origin : uint8_t { disk, memory, remote, device };

// Reads the layers of one chunk: from a store's snapshot or a record in memory. Used by one thread
// at a time; may move between threads.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  virtual const ChunkMeta& meta() const = 0;
  // A hint that `layer` will be read soon; does not block.
  virtual void prefetch(uint32_t layer) = 0;
  // Copies [plane][row][column] of one layer to `out` (layer_bytes()), verified against its
  // checksum. CORRUPT when it fails: the bytes in `out` are then meaningless.
  virtual Status read_layer(uint32_t layer, std::byte* out) = 0;

  // The same in two steps and without a copy where the source can: start_layer() may begin to read
  // `layer` into `space`, finish_layer() waits for it, verifies, and returns the layer's rows, in
  // order, each once; they stay until `space` is started with again. Before it is, or is freed, a
  // layer must be finished, or all given up by abandon(). space: stage_bytes(), aligned to a page.
  virtual size_t stage_bytes() const { return meta().shape.most_layer_bytes(); }
  virtual void start_layer(uint32_t /*layer*/, std::byte* /*space*/) {}
  virtual Status finish_layer(uint32_t layer, std::byte* space, std::vector<RowRun>& rows) {
    rows.clear();
    BLEND_RETURN_IF_ERROR(read_layer(layer, space));
    const ChunkShape& shape = meta().shape;
    rows.push_back({space, space + shape.plane_bytes(layer), 0, shape.rows(layer)});
    return Status::ok();
  }
  // Chunks put under one id have the same bytes if they have the same version. 0: unknown.
  virtual uint64_t version() const { return 0; }
  // From here on finish_layer() may return packed rows: checked, but to be decoded by the
  // caller.
  virtual void allow_packed() {}
  // Gives up every started layer; blocks until no read of them is under way.
  virtual void abandon() {}
  // Origin of the layer that was read or finished last. Before that: of all layers, memory only if
  // all are there.
  virtual Origin origin() const { return Origin::disk; }
  // Cost of loading on top of the store's own layers: a transfer that has not begun. Zeros:
  // unknown, or there is none.
  struct RemoteCost {
    double latency_s = 0;
    double bytes_per_s = 0;
  };
  virtual RemoteCost remote_cost() const { return {}; }
};

// A source over a record; prefetch does nothing and reads cannot fail.
std::unique_ptr<ChunkSource> make_memory_source(std::shared_ptr<const ChunkRecord> record);

}  // namespace blend
