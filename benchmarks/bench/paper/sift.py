"""The lower half of the paper's figure 3: recall against candidates by Euclidean distance, on SIFT.

SIFT1M is read at the full scale. At the small one there are 4,800 SIFT features, and many local
features of the same form, which are made from the images of Fashion-MNIST.
"""

from __future__ import annotations

import dataclasses

from bench.commands import Options
from bench.paper.candidates import SIZES, SMOKE, compare

RATES = ({"learning_rate": 0.001}, {"learning_rate": 0.01})
SMALL = dataclasses.replace(
    SIZES["small"],
    set="sift",
    items=None,
    held=100,
    asked=100,
    bins=64,
    paper={"repetitions": 16, "buckets": 64, "hidden": 128},
    tried=RATES,
)
LARGER = dataclasses.replace(
    SIZES["small"],
    set="local-features",
    items=20_000,
    paper={"repetitions": 16, "buckets": 20_000 * 5000 // 1_000_000, "hidden": 128},
    tried=RATES,
)
FULL = dataclasses.replace(SIZES["full"], set="sift")


def sift(options: Options) -> None:
    """Measure all methods on SIFT, and at the small scale on made local features."""
    size = dataclasses.replace(SMOKE, set="sift") if options.smoke else SMALL
    seeds = list(range(1 if options.smoke else options.seeds))
    compare(options, "sift", FULL if options.scale == "full" and not options.smoke else size, seeds)
    if options.scale == "small" and not options.smoke:
        compare(options, "local-features", LARGER, seeds)
