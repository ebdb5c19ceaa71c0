"""Sharded indexes, in this process or on Ray, and the planner. Only this package imports Ray."""

from irli.cluster.index import ShardedIndex, ShardedResult
from irli.cluster.label_index import ShardedLabelIndex, ShardedPrediction

__all__ = ["ShardedIndex", "ShardedLabelIndex", "ShardedPrediction", "ShardedResult"]
