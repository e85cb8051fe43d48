#include "store/transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/checksum_trailer.h"
#include "base/files/eintr.h"
#include "base/files/file_size_signal.h"
#include "base/files/part_file.h"
#include "base/wire.h"
#include "store/chunk/layer_shapes.h"
#include "store/chunk/row_impact.h"
#include "store/lmdb/files.h"

namespace blend {
namespace {

constexpr char kMagic[8] = {'B', 'L', 'E', 'N', 'D', 'C', 'X', '\n'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kChunkMagic = 0x434b4c42;  // "BLKC"
constexpr uint32_t kImpactIsLast = 0x100;     // beside the dtype: the rows' attention is last
constexpr uint32_t kHasContexts = 0x400;  // number and ids of the context passages, before the ids
constexpr uint32_t kHasLayers = 0x800;    // what each layer keeps, before the ids
constexpr uint32_t kIsDraft = 0x1000;     // nothing follows; only with context passages
constexpr uint32_t kHasName = 0x200;      // lengths of label and tags, and both, before the ids
constexpr uint32_t kEndMagic = 0x454b4c42;  // "BLKE"
constexpr size_t kHeadBytes = sizeof kMagic + 4 + 8;
// Fixed part of a chunk's description: magic, dtype, id, fingerprint, five numbers, created,
// tenant.
constexpr size_t kDescriptionBytes = 4 + 4 + 32 + 32 + 5 * 4 + 8 + 16;

// Not thread-safe.
class FileWriter {
 public:
  explicit FileWriter(int fd) : fd_(fd) {}
  Status write(const void* data, size_t n) {
    const char* p = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t done = ::write(fd_, p, n);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) {
        const bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
        return make_errno(full ? BLEND_E_FULL : BLEND_E_IO, errno, "cannot write");
      }
      p += done;
      n -= static_cast<size_t>(done);
    }
    return Status::ok();
  }

 private:
  int fd_;
};

// Reads a file front to back and never past its end. Not thread-safe.
class FileReader {
 public:
  FileReader(int fd, uint64_t bytes) : fd_(fd), left_(bytes) {}
  uint64_t left() const { return left_; }
  Status read(void* out, size_t n) {
    if (n > left_) return {BLEND_E_FORMAT, "the file is truncated"};
    char* p = static_cast<char*>(out);
    while (n > 0) {
      const ssize_t done = ::read(fd_, p, n);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) return make_errno(BLEND_E_IO, errno, "cannot read");
      if (done == 0) return {BLEND_E_FORMAT, "the file is truncated"};
      p += done;
      n -= static_cast<size_t>(done);
      left_ -= static_cast<uint64_t>(done);
    }
    return Status::ok();
  }

 private:
  int fd_;
  uint64_t left_;
};

std::string encode_chunk(const ChunkRecord& r) {
  ByteWriter out;
  const ChunkMeta& m = r.meta;
  out.put<uint32_t>(kChunkMagic);
  out.put<uint32_t>(static_cast<uint32_t>(m.shape.dtype) | (m.impact.empty() ? 0 : kImpactIsLast) |
                    (m.name.is_empty() ? 0 : kHasName) | (m.contexts.empty() ? 0 : kHasContexts) |
                    (m.shape.layers.empty() ? 0 : kHasLayers) | (m.draft ? kIsDraft : 0));
  out.bytes(m.id.data(), m.id.size());
  out.bytes(m.fingerprint.data(), m.fingerprint.size());
  for (const uint32_t n :
       {m.shape.n_layers, m.shape.n_tokens, m.shape.kv_dim, m.shape.head_dim, m.n_prefix_tokens}) {
    out.put<uint32_t>(n);
  }
  out.put<int64_t>(m.created_unix_s);
  out.bytes(m.tenant.data(), m.tenant.size());
  if (!m.name.is_empty()) {
    const std::string label = m.name.label.value_or("");
    const std::string tags = m.name.tags.value_or("");
    out.put<uint16_t>(static_cast<uint16_t>(label.size()));
    out.put<uint16_t>(static_cast<uint16_t>(tags.size()));
    out.bytes(label.data(), label.size());
    out.bytes(tags.data(), tags.size());
  }
  if (!m.contexts.empty()) {
    out.put<uint16_t>(static_cast<uint16_t>(m.contexts.size()));
    for (const Sha256& context : m.contexts) out.bytes(context.data(), context.size());
  }
  put_layer_shapes(out, m.shape);
  for (const int32_t token : m.tokens) out.put<int32_t>(token);
  for (uint32_t layer = 0; layer < m.shape.n_layers; ++layer) {
    out.put<uint64_t>(checksum64(r.k(layer), m.shape.layer_bytes(layer)));
  }
  put_impact(out, m.impact);
  return with_checksum(std::move(out));
}

Result<std::shared_ptr<ChunkRecord>> read_record(ChunkSource& source) {
  auto record = std::make_shared<ChunkRecord>();
  record->meta = source.meta();
  BLEND_ASSIGN(record->data, AlignedBuffer::allocate(record->meta.shape.total_bytes()));
  for (uint32_t layer = 0; layer < record->meta.shape.n_layers; ++layer) {
    if (layer + 1 < record->meta.shape.n_layers) source.prefetch(layer + 1);
    BLEND_RETURN_IF_ERROR(source.read_layer(layer, record->k(layer)));
  }
  return record;
}

Status write_chunks(Store& store, const std::vector<Sha256>& ids, bool all, FileWriter& out,
                    const Watch& watch, Transfer& done) {
  ByteWriter head;
  head.bytes(kMagic, sizeof kMagic);
  head.put<uint32_t>(kVersion);
  const std::string head_bytes = with_checksum(std::move(head));
  BLEND_RETURN_IF_ERROR(out.write(head_bytes.data(), head_bytes.size()));
  BLEND_ASSIGN(const auto snapshot, store.snapshot());
  for (size_t i = 0; i < ids.size(); ++i) {
    BLEND_RETURN_IF_ERROR(watch.report(i, ids.size()));
    Result<std::shared_ptr<ChunkRecord>> record = [&] {
      auto source = snapshot->open(ids[i]);
      if (!source.is_ok()) return Result<std::shared_ptr<ChunkRecord>>(source.status());
      return read_record(**source);
    }();
    const int32_t code = record.status().code();
    if (all && (code == BLEND_E_NOT_FOUND || code == BLEND_E_CORRUPT)) {
      if (code == BLEND_E_CORRUPT) store.report_damage(ids[i], record.status());
      ++done.n_skipped;
      continue;
    }
    if (!record.is_ok()) return record.status();
    const std::string meta = encode_chunk(**record);
    ByteWriter length;
    length.put<uint64_t>(meta.size());
    BLEND_RETURN_IF_ERROR(out.write(length.view().data(), length.view().size()));
    BLEND_RETURN_IF_ERROR(out.write(meta.data(), meta.size()));
    BLEND_RETURN_IF_ERROR(out.write((*record)->data.data(), (*record)->data.bytes()));
    ++done.n_chunks;
    done.bytes += (*record)->data.bytes();
  }
  ByteWriter end;
  end.put<uint32_t>(kEndMagic);
  end.put<uint64_t>(done.n_chunks);
  const std::string end_bytes = with_checksum(std::move(end));
  ByteWriter length;
  length.put<uint64_t>(end_bytes.size());
  BLEND_RETURN_IF_ERROR(out.write(length.view().data(), length.view().size()));
  BLEND_RETURN_IF_ERROR(out.write(end_bytes.data(), end_bytes.size()));
  return watch.report(ids.size(), ids.size());
}

struct ChunkHead {
  ChunkMeta meta;
  std::vector<uint64_t> checksums;  // [n_layers]
};

// `left`: bytes of the file after the description.
Result<ChunkHead> decode_chunk(std::span<const std::byte> bytes, uint64_t left) {
  const Status damaged{BLEND_E_CORRUPT, "the description of a chunk fails its checksum"};
  if (bytes.size() < kDescriptionBytes + kTrailerBytes || !checksum_holds(bytes)) return damaged;
  ByteReader in(bytes.first(bytes.size() - kTrailerBytes));
  ChunkHead h;
  ChunkMeta& m = h.meta;
  if (in.get<uint32_t>() != kChunkMagic) return damaged;
  const auto kind = in.get<uint32_t>();
  const uint32_t dtype = kind & ~(kImpactIsLast | kHasName | kHasContexts | kHasLayers | kIsDraft);
  const uint64_t per_token = (kind & kImpactIsLast) != 0 ? 4 + kImpactBytes : 4;
  in.bytes(m.id.data(), m.id.size());
  in.bytes(m.fingerprint.data(), m.fingerprint.size());
  for (uint32_t* n : {&m.shape.n_layers, &m.shape.n_tokens, &m.shape.kv_dim, &m.shape.head_dim,
                      &m.n_prefix_tokens}) {
    *n = in.get<uint32_t>();
  }
  m.created_unix_s = in.get<int64_t>();
  in.bytes(m.tenant.data(), m.tenant.size());
  // A description with a correct checksum may still be hostile: every count is checked before it
  // sizes an allocation.
  const Status impossible{BLEND_E_FORMAT, "the description of a chunk contradicts itself"};
  if (dtype > static_cast<uint32_t>(DType::bf16)) return impossible;
  m.shape.dtype = static_cast<DType>(dtype);
  if ((kind & kHasName) != 0) {
    const size_t label_bytes = in.get<uint16_t>();
    const size_t tags_bytes = in.get<uint16_t>();
    if (label_bytes + tags_bytes > in.remaining()) return impossible;
    in.bytes(m.name.label.emplace(label_bytes, '\0').data(), label_bytes);
    in.bytes(m.name.tags.emplace(tags_bytes, '\0').data(), tags_bytes);
    if (m.name.is_empty() || !is_sound(m.name)) return impossible;
  }
  if ((kind & kHasContexts) != 0) {
    const size_t n_contexts = in.get<uint16_t>();
    if (n_contexts == 0 || n_contexts > kMostContexts) return impossible;
    m.contexts.resize(n_contexts);
    for (Sha256& context : m.contexts) in.bytes(context.data(), context.size());
  }
  m.draft = (kind & kIsDraft) != 0;
  if (m.draft && m.contexts.empty()) return impossible;
  if (!shape_is_sane(m.shape)) return impossible;
  if ((kind & kHasLayers) != 0 && !get_layer_shapes(in, m.shape)) return impossible;
  if (in.remaining() != uint64_t{m.shape.n_tokens} * per_token + uint64_t{m.shape.n_layers} * 8) {
    return impossible;
  }
  if (m.shape.total_bytes() > left) return Status{BLEND_E_FORMAT, "the file is truncated"};
  m.tokens.resize(m.shape.n_tokens);
  for (int32_t& token : m.tokens) token = in.get<int32_t>();
  h.checksums.resize(m.shape.n_layers);
  for (uint64_t& sum : h.checksums) sum = in.get<uint64_t>();
  if ((kind & kImpactIsLast) != 0 && !get_impact(in, m.shape.n_tokens, m.impact)) return impossible;
  return h;
}

Result<std::shared_ptr<ChunkRecord>> read_chunk(FileReader& in, ChunkHead head) {
  auto record = std::make_shared<ChunkRecord>();
  const std::string name = "chunk " + to_hex(head.meta.id);
  record->meta = std::move(head.meta);
  BLEND_ASSIGN(record->data, AlignedBuffer::allocate(record->meta.shape.total_bytes()));
  BLEND_RETURN_IF_ERROR(in.read(record->data.data(), record->data.bytes()));
  const std::byte* at = record->data.data();
  for (uint32_t layer = 0; layer < record->meta.shape.n_layers; ++layer) {
    const size_t bytes = record->meta.shape.layer_bytes(layer);
    const uint64_t checksum = checksum64(at, bytes);
    at += bytes;
    if (checksum != head.checksums[layer]) {
      return make_error(BLEND_E_CORRUPT, "%s, layer %u: its checksum does not match", name.c_str(),
                        layer);
    }
  }
  return record;
}

Status read_chunks(ChunkStore& store, FileReader& in, uint64_t total, bool replace,
                   const Watch& watch, Transfer& done) {
  std::byte head[kHeadBytes];
  Status foreign{BLEND_E_FORMAT, "it is not a file of exported chunks"};
  if (in.left() < sizeof head) return foreign;
  BLEND_RETURN_IF_ERROR(in.read(head, sizeof head));
  if (std::memcmp(head, kMagic, sizeof kMagic) != 0) return foreign;
  if (!checksum_holds(head)) return {BLEND_E_CORRUPT, "its first bytes fail their checksum"};
  ByteReader version(std::span<const std::byte>(head).subspan(sizeof kMagic));
  if (const auto v = version.get<uint32_t>(); v != kVersion) {
    return make_error(BLEND_E_MISMATCH,
                      "it has version %u, and this build reads version %u: use the release that "
                      "wrote it",
                      v, kVersion);
  }
  uint64_t n_read = 0;
  for (;;) {
    BLEND_RETURN_IF_ERROR(watch.report(total - in.left(), total));
    std::byte length[8];
    BLEND_RETURN_IF_ERROR(in.read(length, sizeof length));
    const auto bytes = ByteReader(length).get<uint64_t>();
    if (bytes < 4 + 8 + kTrailerBytes || bytes > in.left()) {
      return {BLEND_E_FORMAT, "the file is truncated or a length in it is damaged"};
    }
    std::vector<std::byte> description(bytes);
    BLEND_RETURN_IF_ERROR(in.read(description.data(), description.size()));
    if (ByteReader(description).get<uint32_t>() == kEndMagic) {
      ByteReader end(description);
      (void)end.get<uint32_t>();
      if (!checksum_holds(description) || end.get<uint64_t>() != n_read || in.left() != 0) {
        return {BLEND_E_CORRUPT, "its end does not fit what came before"};
      }
      return Status::ok();
    }
    BLEND_ASSIGN(ChunkHead chunk, decode_chunk(description, in.left()));
    const Sha256 id = chunk.meta.id;
    BLEND_ASSIGN(std::shared_ptr<ChunkRecord> record, read_chunk(in, std::move(chunk)));
    ++n_read;
    BLEND_ASSIGN(const bool there, store.contains(id));
    if (there && !replace) {
      ++done.n_skipped;
      continue;
    }
    BLEND_RETURN_IF_ERROR(store.put(*record));
    ++done.n_chunks;
    done.bytes += record->data.bytes();
  }
}

}  // namespace

Result<Transfer> export_chunks(Store& store, std::span<const Sha256> ids, const std::string& path,
                               const Watch& watch) {
  std::vector<Sha256> wanted(ids.begin(), ids.end());
  if (ids.empty()) {
    BLEND_RETURN_IF_ERROR(store.for_each(false, [&](const ChunkMeta& meta, const std::string&) {
      wanted.push_back(meta.id);
      return 0;
    }));
  }
  const FileSizeSignalHeld held;
  struct stat there {};
  if (stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "'%s' is not a regular file: give another path",
                      path.c_str());
  }
  std::string part;
  const auto failed = [&](int error) {
    return make_errno(BLEND_E_IO, error, "cannot write '%s'", path.c_str());
  };
  Transfer done;
  Status status;
  {
    // K, V and token ids are the text: for the owner alone.
    const Fd fd(open_part_file(path, 0600, &part));
    if (fd.get() < 0) return failed(errno);
    FileWriter out(fd.get());
    status = write_chunks(store, wanted, ids.empty(), out, watch, done);
    if (status.is_ok() && retry_interrupted([&] { return fsync(fd.get()); }) != 0) {
      status = failed(errno);
    }
  }
  if (status.is_ok() && rename(part.c_str(), path.c_str()) != 0) status = failed(errno);
  if (!status.is_ok()) {
    unlink(part.c_str());
    return status.with_context("export to '" + path + "'");
  }
  BLEND_RETURN_IF_ERROR(sync_directory(parent_directory(path)));
  return done;
}

Status import_chunks(ChunkStore& store, const std::string& path, bool replace, const Watch& watch,
                     Transfer* done) {
  *done = {};
  const Fd fd(
      retry_interrupted([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat st {};
  if (fd.get() < 0 || fstat(fd.get(), &st) != 0) {
    return make_errno(errno == ENOENT ? BLEND_E_NOT_FOUND : BLEND_E_IO, errno, "cannot open '%s'",
                      path.c_str());
  }
  if (!S_ISREG(st.st_mode)) {
    return make_error(BLEND_E_FORMAT, "'%s' is not a regular file", path.c_str());
  }
  const auto bytes = static_cast<uint64_t>(st.st_size);
  FileReader in(fd.get(), bytes);
  return read_chunks(store, in, bytes, replace, watch, *done)
      .with_context("import from '" + path + "'");
}

}  // namespace blend
