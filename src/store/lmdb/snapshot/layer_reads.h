// How the layers of stored chunks are read.
#pragma once

#include <memory>

#include "store/read/page_reader.h"

namespace blend {

struct LayerReads {
  std::unique_ptr<PageReader> reader;  // null: layers are copied from the map
  bool cache_first = true;             // layers in the page cache are copied even with a reader
};

}  // namespace blend
