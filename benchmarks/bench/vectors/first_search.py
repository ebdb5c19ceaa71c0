"""Open an index, answer one query, and print which heavy modules that imported.

It imports nothing but irli and NumPy: python -m bench.vectors.first_search INDEX QUERY
"""

from __future__ import annotations

import sys

import numpy as np

import irli

HEAVY = ("torch", "ray", "faiss", "matplotlib", "sklearn", "h5py")

if __name__ == "__main__":
    irli.load(sys.argv[1]).search(np.load(sys.argv[2]))
    print([name for name in HEAVY if name in sys.modules])
