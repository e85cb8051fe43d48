"""Stores: where chunks are kept."""

import os
from typing import Any, List, Optional, Union

from . import raw
from ._context import Closable, Context
from ._enums import Codec, KvDtype, ReadMode, choice
from ._infos import ChunkInfo, CodecStat, StoreStat

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
#: Identity of a stored chunk or saved fusion: 64 hexadecimal digits.
ChunkId = str


def set_given(options: Any, **values: Any) -> Any:
    """Sets the members of raw options that were given; None leaves the library's default."""
    for name, value in values.items():
        if value is not None:
            setattr(options, name, value)
    return options


class Store(Closable):
    """A directory of chunks that several processes and threads may use at once. Thread-safe.

    Not on a network file system. After fork() the child must open the store anew (ForkedError).

    read_only: writes raise ReadOnlyError.  create: make a store where there is none; otherwise
    NotFoundError.  kv_dtype: what new chunks are stored as; part of their ids.  codec: of what is put
    without one.  quota_bytes: of stored chunks, default 16 GiB; a put past it raises FullError.
    queue_bytes: background writes in flight, default 256 MiB.  read_mode: how layers are read.

    Raises NotFoundError, IoError, FormatError, MismatchError, CorruptError, UnsupportedError.
    """

    def __init__(self, ctx: Context, path: Path, *, read_only: bool = False, create: bool = True,
                 kv_dtype: Union[KvDtype, str] = KvDtype.AUTO,
                 codec: Union[Codec, str] = Codec.DEFAULT,
                 read_mode: Union[ReadMode, str] = ReadMode.AUTO,
                 quota_bytes: Optional[int] = None, queue_bytes: Optional[int] = None) -> None:
        flags = (raw.STORE_READ_ONLY if read_only else 0) | (0 if create else raw.STORE_NO_CREATE)
        options = set_given(
            raw.StoreOptions(), flags=flags, kv_dtype=choice(KvDtype, kv_dtype),
            codec=choice(Codec, codec), read_mode=choice(ReadMode, read_mode),
            quota_bytes=quota_bytes, queue_bytes=queue_bytes)
        self._raw = raw.Store.open(ctx._raw, os.fsencode(path), options)
        self._context = ctx

    def close(self) -> None:
        """Waits until the background writes are on disk, then closes."""
        super().close()

    def flush(self) -> None:
        """Waits until every background write so far is on disk. Raises the first error that one of
        them met since the last flush."""
        self._raw.flush()

    def list(self, verify: bool = False) -> List[ChunkInfo]:
        """The chunks, in the order of their ids. With `verify` every byte is read and checked; a
        damaged chunk has a sentence in `problem`. Raises IoError, ForkedError."""
        chunks = self._raw.list(verify)
        return [ChunkInfo._of(chunks.at(i)) for i in range(chunks.size())]

    def remove(self, id: ChunkId) -> None:
        """Raises NotFoundError, ReadOnlyError, IoError."""
        self._raw.remove(id)

    def stat(self) -> StoreStat:
        """What it holds, and how it was used."""
        return StoreStat._of(self._raw.stat())

    def codec_stat(self, codec: Union[Codec, str]) -> CodecStat:
        """What it holds in one codec, NONE .. INT4."""
        return CodecStat._of(self._raw.codec_stat(choice(Codec, codec)))


def raw_store(store: Optional[Store]) -> Any:
    return raw.Store.none() if store is None else store._raw
