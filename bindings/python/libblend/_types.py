"""Types of arguments that several modules take."""

import os
from typing import Union

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
#: Identity of a stored chunk or saved fusion: 64 hexadecimal digits.
ChunkId = str
