"""The step API of libblend (blend.h, "Step API") through ctypes: as much of the C ABI as a host that
runs the model itself needs. Buffers are anything with data_ptr(), stride() and shape, such as torch
tensors of float32, laid out [n_kv_heads, n_rows, head_dim] in any strides; nothing is copied.
"""

import ctypes as c
import ctypes.util

DTYPE_AUTO, DTYPE_F32, DTYPE_F16, DTYPE_BF16 = 0, 1, 2, 3
ROPE_HALF_SPLIT = 2
PREFIX, CHUNK, TEXT, QUESTION = 1, 2, 3, 4
POLICY_HKVD = 3
METRIC_V = 1
MISS_PRECOMPUTE, MISS_COMPUTE, MISS_FAIL = 1, 2, 3
EXISTS = 1
NOT_FOUND = -20


class ChunkId(c.Structure):
    _fields_ = [("bytes", c.c_uint8 * 32)]


class ModelDescription(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("n_layers", c.c_uint32), ("n_heads", c.c_uint32),
        ("n_kv_heads", c.c_uint32), ("head_dim", c.c_uint32), ("n_vocab", c.c_uint32),
        ("context_length", c.c_uint32), ("weight_dtype", c.c_uint32), ("rope_layout", c.c_uint32),
        ("rotary_dim", c.c_uint32), ("rope_theta", c.c_double), ("rope_linear_scale", c.c_double),
        ("rope_freq_factors", c.POINTER(c.c_float)), ("n_rope_freq_factors", c.c_size_t),
        ("name", c.c_char_p), ("fingerprint", c.c_uint8 * 32),
    ]


class KvView(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("dtype", c.c_uint32),
        ("k", c.c_void_p), ("v", c.c_void_p),
        ("row_stride", c.c_size_t), ("head_stride", c.c_size_t),
    ]


class StoreOptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("kv_dtype", c.c_uint32),
        ("codec", c.c_uint32), ("codec_step", c.c_double), ("eviction", c.c_uint32),
        ("read_mode", c.c_uint32), ("quota_bytes", c.c_uint64), ("tenant_quota_bytes", c.c_uint64),
        ("ttl_s", c.c_uint64), ("most_variants", c.c_uint64), ("ram_bytes", c.c_uint64),
        ("queue_bytes", c.c_uint64), ("check_every", c.c_uint32), ("check_tokens", c.c_uint32),
        ("remote", c.c_void_p),
    ]


class PrecomputeOptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("codec", c.c_uint32),
        ("n_threads", c.c_uint32), ("chunk_prefix", c.POINTER(c.c_int32)),
        ("n_chunk_prefix", c.c_size_t), ("contexts", c.c_void_p), ("n_contexts", c.c_size_t),
        ("predecessor", c.POINTER(c.c_int32)), ("n_predecessor", c.c_size_t),
        ("tenant", c.c_char_p), ("label", c.c_char_p), ("tags", c.c_char_p),
        ("progress", c.c_void_p), ("progress_user", c.c_void_p), ("cancel", c.c_void_p),
    ]


class Segment(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("kind", c.c_uint32), ("tokens", c.POINTER(c.c_int32)),
        ("n_tokens", c.c_size_t), ("id", c.POINTER(ChunkId)),
    ]


class SelectionOptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("metric", c.c_uint32), ("norm", c.c_uint32),
        ("relative", c.c_uint32), ("check_layer", c.c_uint32), ("correction", c.c_uint32),
        ("check_layers", c.c_void_p), ("n_check_layers", c.c_size_t), ("terms", c.c_void_p),
        ("n_terms", c.c_size_t), ("score", c.c_void_p), ("score_user", c.c_void_p),
        ("seed", c.c_uint64), ("ape_temperature", c.c_double), ("ape_scale", c.c_double),
    ]


class FuseOptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("n_threads", c.c_uint32), ("policy", c.c_uint32),
        ("on_untrusted", c.c_uint32), ("ratio", c.c_double), ("agreement_target", c.c_double),
        ("ttft_target_ns", c.c_uint64), ("machine", c.c_void_p), ("profile", c.c_void_p),
        ("selection", c.POINTER(SelectionOptions)), ("chunk_prefix", c.POINTER(c.c_int32)),
        ("n_chunk_prefix", c.c_size_t), ("tenant", c.c_char_p), ("on_miss", c.c_uint32),
        ("reserve_tokens", c.c_uint32), ("progress", c.c_void_p), ("progress_user", c.c_void_p),
        ("cancel", c.c_void_p),
    ]


class BlendError(RuntimeError):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def tokens_array(tokens):
    return (c.c_int32 * len(tokens))(*tokens)


class Blend:
    """One loaded library. call("blend_x", ...) adds the error output and raises BlendError."""

    def __init__(self, path=None):
        path = path or ctypes.util.find_library("blend") or "libblend.so.0"
        self.lib = c.CDLL(path)
        self.lib.blend_error_message.restype = c.c_char_p
        self.lib.blend_error_message.argtypes = [c.c_void_p]
        self.lib.blend_error_free.argtypes = [c.c_void_p]

    def call(self, name, *arguments):
        error = c.c_void_p()
        code = getattr(self.lib, name)(*arguments, c.byref(error))
        if code >= 0:
            return code
        message = self.lib.blend_error_message(error).decode()
        self.lib.blend_error_free(error)
        raise BlendError(code, message)

    def options(self, kind, init=None):
        """`init` of options that have defaults other than zero."""
        value = kind(struct_size=c.sizeof(kind))
        if init is None:
            return value
        code = getattr(self.lib, init)(c.byref(value), c.c_size_t(c.sizeof(value)))
        if code < 0:
            raise BlendError(code, f"{init}: the library does not know this {kind.__name__}")
        return value

    def open(self, name, *arguments):
        handle = c.c_void_p()
        self.call(name, c.byref(handle), *arguments)
        return handle

    def close(self, name, handle):
        getattr(self.lib, name)(handle)

    def view(self, k, v):
        """K and V of a layer, [1, n_kv_heads, n_rows, head_dim] or without the 1."""
        k, v = (t[0] if t.dim() == 4 else t for t in (k, v))
        assert k.stride() == v.stride() and k.stride(-1) == 1 and k.element_size() == 4
        view = self.options(KvView)
        view.k, view.v = k.data_ptr(), v.data_ptr()
        # A stride along an axis of one element says nothing.
        view.head_stride = k.stride(0) if k.shape[0] > 1 else k.shape[2]
        view.row_stride = k.stride(1) if k.shape[1] > 1 else k.shape[2]
        return view

    def precompute_options(self, prefix):
        options = self.options(PrecomputeOptions)
        options.chunk_prefix, options.n_chunk_prefix = tokens_array(prefix), len(prefix)
        return options

    def find_chunk(self, model, store, tokens, prefix):
        try:
            self.call("blend_chunk_find", model, store, tokens_array(tokens),
                      c.c_size_t(len(tokens)), c.byref(self.precompute_options(prefix)), None)
        except BlendError as error:
            if error.code != NOT_FOUND:
                raise
            return False
        return True

    def put_chunk(self, model, store, tokens, prefix, layers):
        """layers: (K, V) of the rows of `tokens`, prefilled after `prefix`, K rotated."""
        views = (KvView * len(layers))(*(self.view(k, v) for k, v in layers))
        self.call("blend_chunk_put", model, store, tokens_array(tokens), c.c_size_t(len(tokens)),
                  views, c.c_size_t(len(layers)), c.c_uint32(len(prefix)),
                  c.byref(self.precompute_options(prefix)), None)

    def prompt(self, segments):
        """segments: (kind, tokens). Returns the array and its length, as blend_fuse takes them."""
        out = (Segment * len(segments))()
        for at, (kind, tokens) in zip(out, segments):
            at.struct_size = c.sizeof(Segment)
            at.kind, at.tokens, at.n_tokens = kind, tokens_array(tokens), len(tokens)
        return out, c.c_size_t(len(segments))

    def fuse_options(self, ratio, chunk_prefix, on_miss):
        options = self.options(FuseOptions, "blend_fuse_options_init")
        options.policy, options.ratio, options.on_miss = POLICY_HKVD, ratio, on_miss
        # The default metric weighs by what only libblend's own prefill keeps.
        selection = self.options(SelectionOptions, "blend_selection_options_init")
        selection.metric = METRIC_V
        options.selection = c.pointer(selection)
        options.chunk_prefix, options.n_chunk_prefix = tokens_array(chunk_prefix), len(chunk_prefix)
        return options

    def array(self, name, handle, kind):
        """A getter that gives a pointer and a count, as a list."""
        data, n = c.POINTER(kind)(), c.c_size_t()
        self.call(name, handle, c.byref(data), c.byref(n))
        return data[: n.value]


class Layerwise:
    """blend_layerwise: call fetch_kv, synchronize, select and commit for layer 0, 1, ..."""

    def __init__(self, blend, model, store, segments, ratio, chunk_prefix):
        self.blend = blend
        prompt, n = blend.prompt(segments)
        options = blend.fuse_options(ratio, chunk_prefix, MISS_COMPUTE)
        self.handle = blend.open("blend_layerwise_create", model, store, prompt, n, c.byref(options))

    def close(self):
        self.blend.close("blend_layerwise_close", self.handle)

    def tokens(self):
        return self.blend.array("blend_layerwise_get_tokens", self.handle, c.c_int32)

    def rows(self):
        return self.blend.array("blend_layerwise_get_rows", self.handle, c.c_uint32)

    def selected(self):
        return self.blend.array("blend_layerwise_get_selected", self.handle, c.c_uint32)

    def fetch_kv(self, layer, k, v):
        self.blend.call("blend_layerwise_fetch_kv", self.handle, c.c_uint32(layer),
                        c.byref(self.blend.view(k, v)))

    def synchronize(self, layer):
        self.blend.call("blend_layerwise_synchronize", self.handle, c.c_uint32(layer))

    def select(self, layer, k, v):
        data, n = c.POINTER(c.c_uint32)(), c.c_size_t()
        self.blend.call("blend_layerwise_select", self.handle, c.c_uint32(layer),
                        c.byref(self.blend.view(k, v)), c.byref(data), c.byref(n))
        return data[: n.value]

    def commit(self, layer):
        self.blend.call("blend_layerwise_commit", self.handle, c.c_uint32(layer))
