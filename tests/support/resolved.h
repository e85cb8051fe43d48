// What becomes of fuse options that go together.
#pragma once

#include <gtest/gtest.h>

#include "fusion/resolve/resolve.h"

namespace blend::test {

inline ResolvedFuse resolved(const FuseOptions& options, uint32_t n_layers) {
  auto fuse = resolve({{}, options, {}}, {.n_layers = n_layers});
  EXPECT_TRUE(fuse.is_ok()) << fuse.status().message();
  return fuse.is_ok() ? std::move(*fuse) : ResolvedFuse{};
}

}  // namespace blend::test
