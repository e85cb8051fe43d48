"""The ctypes structs of examples/python/blend_step.py are those of the library.

    python3 python_structs.py DIRECTORY_OF_BLEND_STEP LIBRARY

The example itself needs torch; this needs nothing. Every init refuses a struct that is smaller than
the library's first one, and one larger unless what it does not know is zero.
"""

import ctypes
import sys

sys.path.insert(0, sys.argv[1])
import blend_step

blend = blend_step.Blend(sys.argv[2])
for kind, init in (
    (blend_step.ModelDescription, "blend_model_description_init"),
    (blend_step.StoreOptions, "blend_store_options_init"),
    (blend_step.PrecomputeOptions, "blend_precompute_options_init"),
    (blend_step.SelectionOptions, "blend_selection_options_init"),
    (blend_step.FuseOptions, "blend_fuse_options_init"),
):
    options = blend.options(kind, init)
    if options.struct_size != ctypes.sizeof(kind):
        sys.exit(f"{init} left struct_size {options.struct_size} of {ctypes.sizeof(kind)}")
    print(init, options.struct_size)
# Defaults in the middle and at the end: the order of the members is right.
fuse = blend.options(blend_step.FuseOptions, "blend_fuse_options_init")
if (fuse.ratio, fuse.reserve_tokens) != (-2.0, 256):
    sys.exit(f"a fuse's defaults are read as {fuse.ratio} and {fuse.reserve_tokens}")
store = blend.options(blend_step.StoreOptions, "blend_store_options_init")
if (store.quota_bytes, store.queue_bytes) != (16 << 30, 256 << 20):
    sys.exit(f"the store's defaults are read as {store.quota_bytes} and {store.queue_bytes}")
