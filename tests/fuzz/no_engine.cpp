// In place of the engine, with which a machine profile is measured: reading one does not come here.
#include <cstdlib>

#include "engine/sequence.h"

namespace blend {

Result<std::unique_ptr<Sequence>> Sequence::create(std::shared_ptr<const Model>, uint32_t) {
  std::abort();
}

Status Sequence::append(std::span<const int32_t>, const Watch&, SharedSteps::Member*) {
  std::abort();
}

}  // namespace blend
