#include "fusion/run/fuse.h"

#include <algorithm>

#include "fusion/run/batch.h"

namespace blend {

Result<FuseJob> make_job(const Model& model, const StoreAccess& store, FuseRequest request,
                         const MachineRates& machine) {
  const FuseSite site{.n_layers = model.config().n_kept(),
                      .mixer = model.config().mixer,
                      .has_store = store.store != nullptr,
                      .free_rows = model.backend().traits().free_rows};
  FuseJob job{std::move(request), {}, machine};
  BLEND_ASSIGN(job.fuse, resolve(job.request, site));
  return job;
}

std::vector<Result<Fused>> fuse_batch(const std::shared_ptr<const Model>& model,
                                      const StoreAccess& store, std::span<const FuseJob> jobs) {
  if (jobs.empty()) return {};
  std::unique_ptr<Sequence> none;
  return Batch(model, store, jobs).run(none);
}

Result<Fused> fuse(const std::shared_ptr<const Model>& model, const StoreAccess& store,
                   const FuseJob& job) {
  return std::move(fuse_batch(model, store, std::span(&job, 1)).front());
}

Result<Fused> fuse(const std::shared_ptr<const Model>& model, const StoreAccess& store,
                   FuseRequest request) {
  BLEND_ASSIGN(const FuseJob job, make_job(*model, store, std::move(request)));
  return fuse(model, store, job);
}

Status extend(Fused& fused, const StoreAccess& store, const FuseJob& job) {
  const std::shared_ptr<const Model> model = fused.sequence->shared_model();
  // Allocates the joined report first, because nothing may fail once the rows are appended.
  std::vector<blend_segment_info> all_segments;
  std::vector<uint32_t> all_selected;
  all_segments.reserve(fused.segments.size() + job.request.segments.size());
  all_selected.reserve(model->context_length());
  all_segments = fused.segments;
  all_selected = fused.selected;

  Batch batch(model, store, std::span(&job, 1));
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
