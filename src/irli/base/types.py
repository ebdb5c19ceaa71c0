"""Type aliases that all packages share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse as sp
    from numpy.typing import NDArray

StrPath: TypeAlias = "str | os.PathLike[str]"
Sparse: TypeAlias = "sp.csr_array[np.float32, tuple[int, int]]"
Rows: TypeAlias = "NDArray[np.float32] | Sparse"  # (n, d), dense or sparse
Arrays: TypeAlias = "dict[str, NDArray[Any]]"  # by name
