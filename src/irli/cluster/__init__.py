"""Sharded indexes, in this process or on Ray, and the planner. Only this package imports Ray."""

from irli.cluster.index import ShardedIndex, ShardedResult
from irli.cluster.label_index import ShardedLabelIndex, ShardedPrediction
from irli.cluster.opened import OpenShards, open_shards

__all__ = [
    "OpenShards",
    "ShardedIndex",
    "ShardedLabelIndex",
    "ShardedPrediction",
    "ShardedResult",
    "open_shards",
]
