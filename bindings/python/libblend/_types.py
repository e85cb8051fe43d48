"""Types of arguments that several modules take."""

import os
from typing import Any, Union

from numpy.typing import NDArray

#: An array of numpy's; what calls it says of which numbers.
Array = NDArray[Any]
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
#: Identity of a stored chunk or saved fusion: 64 hexadecimal digits.
ChunkId = str
