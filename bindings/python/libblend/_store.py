"""Stores: where chunks are kept."""

import os
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _enums, raw
from ._call import POLL_MS, Cancel, Progress, on_main_thread, watched
from ._context import Closable, Context
from ._enums import Codec, choice
from ._infos import ChunkInfo, CodecStat, StoreStat
from ._missing import files
from ._profile import Profile
from ._types import ChunkId, Path


class TenantUse(NamedTuple):
    """What the chunks of one tenant take, and may take (0: no bound but the store's)."""

    n_chunks: int
    stored_bytes: int
    quota_bytes: int


class RemoteChunk(NamedTuple):
    """A chunk of the remote tier, as :meth:`Store.remote_verify` finds it."""

    id: Optional[ChunkId]
    """None: its key there does not tell it"""
    problem: Optional[str]
    """None: it is sound"""


class Metric(NamedTuple):
    """One figure of a store, named as Prometheus has it."""

    name: str
    labels: str
    """such as `tier="ram"`; may be empty"""
    help: str
    counter: bool
    """it only grows while the store is open; otherwise it is a gauge"""
    value: float


def _ids(ids: Iterable[ChunkId]) -> Any:
    chunk_ids = raw.ChunkIds()
    for id in ids:
        chunk_ids.add(id)
    return chunk_ids


class Store(Closable):
    """A directory of chunks that several processes and threads may use at once. Thread-safe.

    Not on a network file system. After fork() the child must open the store again (ForkedError).

    # blend:documentation store_options

    remote_user, remote_password, remote_seal_key (32 bytes): of the remote tier. Without any of them
    those of the environment, as `blend_store_options` says.

    Raises MissingFileError (a FileNotFoundError), IoError, FormatError, MismatchError, CorruptError,
    UnsupportedError.
    """

    def __init__(self, ctx: Context, path: Path, *,
                 # blend:parameters store_options
                 remote_user: str = "", remote_password: str = "", remote_seal_key: bytes = b"",
                 ) -> None:
        options = raw.StoreOptions()
        # blend:set store_options
        options.set_secrets(_enums.text(remote_user, "remote_user"), _enums.text(remote_password, "remote_password"),
                            bytes(remote_seal_key).hex())
        with files(path):
            self._raw = raw.Store.open(ctx._raw, os.fsencode(path), options)
        self._context = ctx
        self._name = os.fsdecode(path)

    def __repr__(self) -> str:
        return f"<libblend.Store {self._name!r}>"

    def close(self) -> None:
        """Waits until the background writes are on disk, then closes."""
        super().close()

    def flush(self) -> None:
        """Waits until every background write so far is on disk. Raises the first error that one of
        them met since the last flush."""
        self._raw.flush()

    def list(self, verify: bool = False, *, tenant: Optional[str] = None,
             # blend:parameters filter_options
             ) -> List[ChunkInfo]:
        """The chunks, in the order of their ids, of all tenants or of one ("" is the one without a
        name), with a filter those that fit it. With `verify` every byte is read and checked; a
        damaged chunk has a sentence in `problem`. In patterns `*` stands for any characters, `?`
        for one. Raises InvalidArgumentError, IoError, ForkedError.

        # blend:documentation filter_options
        """
        options = raw.FilterOptions()
        # blend:set filter_options
        if tenant is not None:
            options.set_tenant(_enums.text(tenant, "tenant"))
        chunks = self._raw.list(options, verify)
        return [ChunkInfo._of(chunks.at(i)) for i in range(chunks.size())]

    def remove_matching(self, *, tenant: Optional[str] = None,
                        # blend:parameters filter_options
                        ) -> List[ChunkInfo]:
        """Removes the chunks that :meth:`list` gives for the same filter, and returns them. A filter
        that says nothing is an InvalidArgumentError; label="*" means every chunk. Raises
        ReadOnlyError, IoError.

        # blend:documentation filter_options
        """
        options = raw.FilterOptions()
        # blend:set filter_options
        if tenant is not None:
            options.set_tenant(_enums.text(tenant, "tenant"))
        chunks = self._raw.remove_matching(options)
        return [ChunkInfo._of(chunks.at(i)) for i in range(chunks.size())]

    def set_label(self, id: ChunkId, label: Optional[str] = None, *, tags: Optional[str] = None,
                  tenant: Optional[str] = None) -> None:
        """What a chunk is called from now on; None leaves what is there, "" removes it. The rows are not
        touched. Raises InvalidArgumentError, NotFoundError, ReadOnlyError, IoError.

        label: by custom "document#part"
        tags: words with one space between, such as "lang=en draft"
        tenant: another's chunk is not there"""
        options = raw.LabelOptions()
        if label is not None:
            options.set_label(_enums.text(label, "label"))
        if tags is not None:
            options.set_tags(_enums.text(tags, "tags"))
        if tenant is not None:
            options.set_tenant(_enums.text(tenant, "tenant"))
        self._raw.set_label(id, options)

    def remove(self, id: ChunkId, *, tenant: Optional[str] = None) -> None:
        """With a `tenant`, another's chunk is not there. Raises NotFoundError, ReadOnlyError,
        IoError."""
        options = raw.TenantOptions()
        if tenant is not None:
            options.set_tenant(_enums.text(tenant, "tenant"))
        self._raw.remove(id, options)

    def stat(self) -> StoreStat:
        """What it holds, and how it was used."""
        return StoreStat._of(self._raw.stat())

    def codec_stat(self, codec: Union[Codec, str]) -> CodecStat:
        """What it holds in one codec, NONE .. RANS."""
        return CodecStat._of(self._raw.codec_stat(choice(Codec, codec)))

    def wait(self, id: ChunkId, timeout_s: Optional[float] = None) -> bool:
        """Waits for the background write of a chunk (of a save, a put with `background`, a fuse that
        missed); False: it is not done after `timeout_s`. Raises the write's own error, or
        NotFoundError: the chunk is neither stored nor on its way."""
        if timeout_s is not None:
            return bool(self._raw.wait(id, max(0, int(timeout_s * 1000))))
        if not on_main_thread():
            return bool(self._raw.wait(id, -1))
        while not self._raw.wait(id, POLL_MS):  # signals are handled between two looks
            pass
        return True

    def set_codec_profile(self, profile: Profile) -> None:
        """Has chunks of the profile's model that are put from here on with the codec rans rounded as
        the profile says: layer_steps times codec_step. For as long as the store is open."""
        self._raw.set_codec_profile(profile._raw)

    def prefetch(self, ids: Iterable[ChunkId]) -> None:
        """The chunks that coming prompts need, in the order of need: they are read ahead into memory,
        as far as ram_bytes go, and leave last. Takes the place of the list before; none lets all go."""
        self._raw.prefetch(_ids(ids))

    def set_pinned(self, id: ChunkId, pinned: bool = True) -> None:
        """Keeps a chunk from being evicted and from expiring, or lets it go again. Raises
        NotFoundError, ReadOnlyError, IoError."""
        self._raw.set_pinned(id, pinned)

    def evict(self, target_bytes: int) -> int:
        """Evicts until at most this much is stored; returns how many chunks left. Raises FullError when pinned or
        needed chunks are in the way (all others are gone)."""
        return int(self._raw.evict(target_bytes))

    def set_tenant_quota(self, tenant: str, quota_bytes: int) -> None:
        """What the chunks of one tenant may take, kept in the store; 0: the store's default again."""
        self._raw.set_tenant_quota(_enums.text(tenant, "tenant"), quota_bytes)

    def tenant_usage(self, tenant: str) -> TenantUse:
        """What a tenant's chunks take now."""
        use = self._raw.tenant_usage(tenant)
        return TenantUse(use.n_chunks, use.stored_bytes, use.quota_bytes)

    def repair(self) -> List[ChunkInfo]:
        """Reads and checks every byte and removes what is damaged, which it returns."""
        chunks = self._raw.repair()
        return [ChunkInfo._of(chunks.at(i)) for i in range(chunks.size())]

    def copy(self, path: Path) -> None:
        """Writes a consistent copy, as small as its chunks, into another folder."""
        self._raw.copy(os.fsencode(path))

    def export_to(self, path: Path, ids: Iterable[ChunkId] = (), *,
                  progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> int:
        """Writes chunks (all that are sound, if no `ids` are given) to a file; how many. progress:
        chunks."""
        options = raw.TransferOptions()
        options.set_ids(_ids(ids))
        with watched(options, progress, cancel):
            return int(self._raw.export_to(os.fsencode(path), options))

    def import_from(self, path: Path, *,
                    # blend:parameters transfer_options
                    progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> int:
        """Puts the chunks of such a file; how many. Ids are taken on trust: import files of those
        whose chunks you would use. progress: bytes. Raises FormatError, MismatchError, CorruptError,
        FullError; what was put before stays.

        # blend:documentation transfer_options
        """
        options = raw.TransferOptions()
        # blend:set transfer_options
        with watched(options, progress, cancel):
            return int(self._raw.import_from(os.fsencode(path), options))

    def remote_check(self) -> None:
        """Whether the remote tier's servers answer, and take us. Raises IoError with their words,
        InvalidArgumentError of a store without a remote tier; so do the following."""
        self._raw.remote_check()

    def remote_push(self, ids: Iterable[ChunkId] = (), *, progress: Optional[Progress] = None,
             cancel: Optional[Cancel] = None) -> int:
        """Puts chunks (all that are sound, if no `ids` are given) into the remote tier that it does
        not have; how many. progress: chunks."""
        options = raw.TransferOptions()
        options.set_ids(_ids(ids))
        with watched(options, progress, cancel):
            return int(self._raw.remote_push(options))

    def remote_pull(self, ids: Iterable[ChunkId] = (), *, progress: Optional[Progress] = None,
             cancel: Optional[Cancel] = None) -> int:
        """Brings chunks (all, if no `ids` are given) from the remote tier that are not here; how
        many. progress: chunks."""
        options = raw.TransferOptions()
        options.set_ids(_ids(ids))
        with watched(options, progress, cancel):
            return int(self._raw.remote_pull(options))

    def remote_verify(self, ids: Iterable[ChunkId] = (), *, progress: Optional[Progress] = None,
                      cancel: Optional[Cancel] = None) -> List[RemoteChunk]:
        """Reads and checks chunks of the remote tier (all, if no `ids` are given); a damaged one has
        a sentence in `problem`."""
        options = raw.TransferOptions()
        options.set_ids(_ids(ids))
        with watched(options, progress, cancel):
            chunks = self._raw.remote_verify(options)
        found = [chunks.at(i) for i in range(chunks.size())]
        return [RemoteChunk(c.id or None, c.problem or None) for c in found]

    def remote_remove(self, id: ChunkId) -> None:
        """Removes a chunk from the remote tier; the store's own stays. Raises NotFoundError."""
        self._raw.remote_remove(id)

    @staticmethod
    def compact(path: Path) -> Tuple[int, int]:
        """Makes a store's data file as small as its chunks; bytes before and after. Raises BusyError
        if a process, this one included, has it open."""
        done = raw.Store.compact(os.fsencode(path))
        return done.bytes_before, done.bytes_after

    def metrics(self, name: str = "") -> str:
        """The text that Prometheus scrapes, each line with the label store=`name`."""
        return str(self._raw.metrics(name))

    def list_metrics(self) -> List[Metric]:
        """The same one by one, for another metrics system."""
        raws = self._raw.list_metrics()
        found = [raws.at(i) for i in range(raws.size())]
        return [Metric(m.name, m.labels, m.help, m.counter, m.value) for m in found]


def raw_store(store: Optional[Store]) -> Any:
    return raw.Store.none() if store is None else store._raw
