#include "fusion/fuse.h"

#include <algorithm>

#include "fusion/batch.h"

namespace blend {

std::vector<Result<Fused>> fuse_batch(const std::shared_ptr<const Model>& model,
                                      const StoreAccess& store,
                                      std::span<const FuseRequest> requests) {
  if (requests.empty()) return {};
  std::unique_ptr<Sequence> none;
  return Batch(model, store, requests).run(none);
}

Result<Fused> fuse(const std::shared_ptr<const Model>& model, const StoreAccess& store,
                   const FuseRequest& request) {
  return std::move(fuse_batch(model, store, std::span(&request, 1)).front());
}

Status extend(Fused& fused, const StoreAccess& store, const FuseRequest& request) {
  const std::shared_ptr<const Model> model = fused.sequence->shared_model();
  // Room for the joined account first: once the rows are there nothing may fail.
  std::vector<blend_segment_info> all_segments;
  std::vector<uint32_t> all_selected;
  all_segments.reserve(fused.segments.size() + request.segments.size());
  all_selected.reserve(model->context_length());
  all_segments = fused.segments;
  all_selected = fused.selected;

  Batch batch(model, store, std::span(&request, 1));
  BLEND_ASSIGN(Fused more, std::move(batch.run(fused.sequence).front()));
  all_segments.insert(all_segments.end(), more.segments.begin(), more.segments.end());
  all_selected.insert(all_selected.end(), more.selected.begin(), more.selected.end());
  std::copy(fused.deviation.begin(), fused.deviation.end(), more.deviation.begin());
  more.segments = std::move(all_segments);
  more.selected = std::move(all_selected);
  more.info.n_segments = more.segments.size();
  more.info.flags |= fused.info.flags & (BLEND_FUSION_EDITED | BLEND_FUSION_RESTORED);
  fused = std::move(more);
  return Status::ok();
}

Result<Fused> fork(Fused& fused) {
  Fused other;
  BLEND_ASSIGN(other.sequence, fused.sequence->fork());
  other.info = fused.info;
  other.layers = fused.layers;
  other.segments = fused.segments;
  other.selected = fused.selected;
  other.deviation = fused.deviation;
  return other;
}

}  // namespace blend
