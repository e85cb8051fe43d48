#include "store/lmdb/repair/repair.h"

#include <utility>
#include <vector>

#include "store/lmdb/writer/chunk_writer.h"

namespace blend {

Status repair_store(StoreCommon& common, Catalog& catalog,
                    const std::function<Status(const Sha256&)>& remove, const StoreAdmin::Visit& fn,
                    uint64_t* n_removed) {
  *n_removed = 0;
  std::vector<std::pair<ChunkMeta, std::string>> damaged;
  const auto note = [&](const ChunkMeta& meta, const UseRecord*,
                        const std::string& problem) -> int32_t {
    if (!problem.empty()) damaged.emplace_back(meta, problem);
    return 0;
  };
  Status listed = catalog.for_each_used(true, note);
  if (!listed.is_ok() && listed.code() != BLEND_E_CORRUPT) return listed;
  const auto tell = [&](const ChunkMeta& meta, const std::string& problem) -> Status {
    ++*n_removed;
    const int32_t stop = fn(meta, problem);
    return stop == 0 ? Status::ok() : Status{BLEND_E_CALLBACK, "the callback asked to stop", stop};
  };
  for (const auto& [meta, problem] : damaged) {
    if (problem == kNoChunkId) continue;
    // Removed meanwhile by somebody else: nothing is left to repair.
    Status removed = remove(meta.id);
    if (removed.code() == BLEND_E_NOT_FOUND) continue;
    BLEND_RETURN_IF_ERROR(removed);
    BLEND_RETURN_IF_ERROR(tell(meta, problem));
  }
  uint64_t n_strays = 0;
  {
    BLEND_ASSIGN(ChunkWriter writer, ChunkWriter::begin(common));
    BLEND_RETURN_IF_ERROR(writer.erase_strays(&n_strays).with_context("repair"));
    BLEND_RETURN_IF_ERROR(writer.rebuild());
    BLEND_RETURN_IF_ERROR(writer.commit().with_context("repair"));
  }
  for (; n_strays > 0; --n_strays) BLEND_RETURN_IF_ERROR(tell({}, kNoChunkId));
  return Status::ok();
}

}  // namespace blend
