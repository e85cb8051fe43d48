// Layerwise fuses: the step API, for hosts that run the model themselves.
#ifndef BLEND_SHIM_LAYERWISE_H
#define BLEND_SHIM_LAYERWISE_H

#include "fusion.h"

namespace blend_shim {

#ifndef SWIG
struct LayerwiseState;
#endif

// Every function may be called on any thread; one that changes the layerwise fuse while another
// call runs gives BLEND_SHIM_E_IN_USE. A listener of the options must outlive the layerwise fuse.
class Layerwise {
 public:
  // Null on failure.
  static Layerwise* create(const Model& model, const Store& store, const Prompt& prompt,
                           const FuseOptions& options, Outcome& out) noexcept;
  ~Layerwise();
  void restart(Outcome& out) noexcept;
  // The memory must stay until synchronize(layer) has succeeded, or restart() or close() returned.
  // It must hold all rows of the prompt.
  void fetch_kv(uint32_t layer, const KvView& layer_kv, Outcome& out) noexcept;
  void synchronize(uint32_t layer, Outcome& out) noexcept;
  // Attention of the question's rows at the layers that FusionInfo names, by row of the prompt,
  // where a policy asks: returns the rows to begin layer 0 with, a copy.
  View probe(const float* attention, size_t n_attention, Outcome& out) noexcept;
  // The rows to go on with, a copy. `fresh`: row i is row rows()[i]; KvView() where nothing is
  // measured.
  View select(uint32_t layer, const KvView& fresh, Outcome& out) noexcept;
  void commit(uint32_t layer, Outcome& out) noexcept;
  View rows(Outcome& out) const noexcept;    // u32, to be computed at this point; a copy
  View tokens(Outcome& out) const noexcept;  // i32, of the prompt; a copy, as the next two
  View selected(Outcome& out) const noexcept;
  View deviation(Outcome& out) const noexcept;
  FusionInfo info(Outcome& out) const noexcept;
  LayerInfo layer(uint32_t layer, Outcome& out) const noexcept;
  SegmentInfo segment(size_t segment, Outcome& out) const noexcept;
  // Waits for a read under way; memory given to fetch_kv() is not written any more. A call that
  // runs is finished first.
  void close() noexcept;

 private:
#ifndef SWIG
  explicit Layerwise(std::shared_ptr<Slot<LayerwiseState>> slot) noexcept;
  std::shared_ptr<Slot<LayerwiseState>> slot_;
#else
  Layerwise();
#endif
};

}  // namespace blend_shim

#endif
