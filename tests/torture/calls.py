"""Every call that takes long, as a function of a world that gives its Code and what it made, in bytes (None
where it failed). The world's chunks are stored. `hooks`: cancel, progress."""

import ctypes as c

from abi import CALLBACKS, STRUCTS, Wrong
from world import FAIL, World, ids

LIMITED = {"decode", "replace", "save", "restore", "generate"}  # these take a cancel and no progress


def only(hooks, *names):
    return {name: hook for name, hook in hooks.items() if name in names}


def model_open(w, **hooks):
    model = c.c_void_p()
    options = w.lib.struct("model_options", **hooks)
    code = w.lib.call("model_open", c.byref(model), w.ctx, w.model_path.encode(), options)
    if code < 0:
        return code, None
    info = w.lib.struct("model_info")
    w.lib.done("model_get_info", model, info)
    w.lib.call("model_close", model)
    return code, bytes(info.fingerprint)


def precompute(w, **hooks):
    """A chunk that is not there; what it is shows in a fuse."""
    tokens = ids(list(w.chunks[0]) + list(w.question))
    code = w.precompute(tokens, **hooks)
    if code < 0:
        return code, None
    bits = w.bits(w.fused(prompt=w.segments([tokens], w.question), on_miss=FAIL))
    w.lib.done("store_remove", w.store, w.id, None)
    return code, bits


def fuse(w, **hooks):
    code, fusion = w.fuse(on_miss=FAIL, **hooks)
    return code, w.bits(fusion) if code >= 0 else None


def fuse_batch(w, **hooks):
    options = w.lib.struct("fuse_options", reserve_tokens=8, on_miss=FAIL, **hooks)
    prompts = [w.prompt, w.segments(w.chunks[::-1], w.question)]
    requests = w.lib.array("fuse_request", [
        w.lib.struct("fuse_request", segments=p, n_segments=len(p), options=options) for p in prompts])
    fusions = (c.c_void_p * len(prompts))()
    code = w.lib.call("fuse_batch", fusions, None, w.model, w.store, requests, len(prompts))
    return code, b"".join(w.bits(c.c_void_p(f)) for f in fusions) if code >= 0 else None


def generate(w, **hooks):
    fusion, told = w.fused(on_miss=FAIL), []
    fn = CALLBACKS["token_fn"](lambda user, token, text, n: told.append(token) or 0)
    options = w.lib.struct("generate_options", max_tokens=40, ignore_eos=1, **only(hooks, "cancel"))
    code = w.lib.call("fusion_generate", fusion, options, fn, None, None)
    bits = finish(w, fusion, code)
    return code, bits + bytes(ids(told)) if code >= 0 else None


def decode(w, **hooks):
    fusion = w.fused(on_miss=FAIL)
    return unchanged_if_failed(w, fusion, lambda: w.lib.call(
        "fusion_decode", fusion, w.question, len(w.question), hooks.get("cancel")))


def extend(w, **hooks):
    fusion = w.fused(on_miss=FAIL)
    prompt, options = w.segments(w.chunks[:1], w.question), w.lib.struct("fuse_options", on_miss=FAIL, **hooks)
    return unchanged_if_failed(w, fusion, lambda: w.lib.call(
        "fusion_extend", fusion, w.store, prompt, len(prompt), options))


def replace(w, **hooks):
    fusion = w.fused(on_miss=FAIL)
    return unchanged_if_failed(w, fusion, lambda: w.lib.call(
        "fusion_replace", fusion, 3, 5, w.question, len(w.question), hooks.get("cancel")))


def unchanged_if_failed(w, fusion, call):
    before = w.logits(fusion)
    code = call()
    if code < 0 and w.logits(fusion) != before:
        raise Wrong(f"a call that failed with {code.name} left other logits")
    return code, finish(w, fusion, code)


def finish(w, fusion, code):
    bits = w.bits(fusion)
    return bits if code >= 0 else None


def save(w, **hooks):
    fusion, saved = w.fused(on_miss=FAIL), STRUCTS["chunk_id"]()
    code = w.lib.call("fusion_save", fusion, w.store, None, hooks.get("cancel"), saved)
    w.lib.call("fusion_close", fusion)
    if code >= 0:
        code = w.lib.call("store_flush", w.store)
    return code, bytes(saved) if code >= 0 else None


def restore(w, **hooks):
    code, saved = save(w)
    if code < 0:
        return code, None
    fusion, saved = c.c_void_p(), STRUCTS["chunk_id"].from_buffer_copy(saved)
    code = w.lib.call("fusion_restore", c.byref(fusion), w.model, w.store, saved, None, 8, hooks.get("cancel"))
    return code, w.bits(fusion) if code >= 0 else None


def new_path(w, name):
    """Calls may lie in calls: each has a file of its own."""
    w.r.paths = getattr(w.r, "paths", 0) + 1
    return w.r.dir / f"{name}-{w.r.paths}"


def transfer(w, call, path, hooks):
    n = c.c_uint64()
    which = {"flags": 1} if call == "store_import" else {"ids": w.ids[0], "n_ids": 1}
    code = w.lib.call(call, w.store, str(path).encode(), w.lib.struct("transfer_options", **which, **hooks), c.byref(n))
    return code, bytes(n)


def export(w, **hooks):
    path = new_path(w, "exported")
    code, n = transfer(w, "store_export", path, hooks)
    return code, n + content(path, code) if code >= 0 else content(path, code)


def content(path, code):
    """The content of a file that is whole or not there."""
    if code >= 0:
        return path.read_bytes()
    if path.exists():
        raise Wrong(f"a call that failed with {code.name} left {path.name}")
    return None


def import_(w, **hooks):
    path = new_path(w, "imported")
    code, _ = transfer(w, "store_export", path, {})
    if code < 0:
        return code, None
    code, n = transfer(w, "store_import", path, hooks)
    return code, n if code >= 0 else None


def calibrate(w, **hooks):
    path = new_path(w, "profile")
    short = [ids(list(t)[:16]) for t in w.chunks]
    prompts = [w.segments(order, w.question) for order in (short, short[::-1])]
    made = w.lib.array("sample", [w.lib.struct("sample", segments=p, n_segments=len(p)) for p in prompts])
    ratios = (c.c_double * 2)(0.1, 0.3)
    options = w.lib.struct("calibrate_options", ratios=ratios, n_ratios=2, score_tokens=4, drift_rank=4, **hooks)
    code = w.lib.call("calibrate", w.model, made, len(made), options, str(path).encode())
    return code, content(path, code)


def machine_open(w, **hooks):
    machine = c.c_void_p()
    options = w.lib.struct("machine_options", max_tokens=64, **hooks)
    code = w.lib.call("machine_open", c.byref(machine), w.model, None, options)
    w.lib.call("machine_close", machine)
    return code, b"" if code >= 0 else None  # times differ


def verified(w, **_):
    return w.list(1), b""


def copy(w, **_):
    code = w.lib.call("store_copy", w.store, str(new_path(w, "copy")).encode())
    return code, b"" if code >= 0 else None


CANCELLED = (model_open, precompute, fuse, fuse_batch, generate, decode, extend, replace, save, restore, export,
             import_, calibrate, machine_open)
ALL = CANCELLED + (verified, copy)


def world(r, **options):
    """A world in which the calls have all they need."""
    w = World(r, **options)
    w.precompute_all()
    return w
