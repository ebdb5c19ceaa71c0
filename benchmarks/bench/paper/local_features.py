"""Local features of images in the form of SIFT: histograms of gradients around points, (n, 128)."""

from __future__ import annotations

import numpy as np

_SIDE = 28  # of an image
_CELLS, _WIDE, _ANGLES = 4, 4, 8  # cells of a patch along each side, their width, directions
_STARTS = (0, 4, 8, 12)  # of the patches in an image, along each side
_CUT = 0.2  # of the length; as in SIFT, larger values are cut and the length made 1 again
_FLAT = 1e-3  # a patch with less gradient has no direction


def make_local_features(images: np.ndarray) -> np.ndarray:
    """Return a feature for each patch of 16 x 16 pixels in which something can be seen.

    As in SIFT, a patch has 4 x 4 cells; each is a histogram of the directions of the gradients, by
    their length. Values are whole numbers from 0 to 255.

    Examples
    --------
    >>> stripes = np.tile(np.arange(28) % 4, 28).reshape(1, 784)
    >>> make_local_features(stripes).shape
    (16, 128)
    """
    pixels = np.asarray(images, dtype=np.float32).reshape(-1, _SIDE, _SIDE)
    down, right = np.gradient(pixels, axis=(1, 2))
    turn = np.arctan2(down, right) / (2 * np.pi) % 1.0
    angle = (turn * _ANGLES).astype(np.int64) % _ANGLES
    length = np.hypot(down, right)
    each = np.zeros((len(pixels), _SIDE, _SIDE, _ANGLES), dtype=np.float32)
    np.put_along_axis(each, angle[..., None], length[..., None], axis=3)
    cells = each.reshape(len(pixels), _SIDE // _WIDE, _WIDE, _SIDE // _WIDE, _WIDE, _ANGLES)
    cells = cells.sum(axis=(2, 4))  # (n, 7, 7, 8)
    first = [start // _WIDE for start in _STARTS]
    patches = np.stack(
        [cells[:, y : y + _CELLS, x : x + _CELLS] for y in first for x in first], axis=1
    ).reshape(-1, _CELLS * _CELLS * _ANGLES)
    norm = np.linalg.norm(patches, axis=1, keepdims=True)
    kept = patches[norm[:, 0] > _FLAT] / norm[norm[:, 0] > _FLAT]
    cut = np.minimum(kept, _CUT)
    cut /= np.linalg.norm(cut, axis=1, keepdims=True)
    return np.minimum(np.rint(512 * cut), 255).astype(np.float32)
