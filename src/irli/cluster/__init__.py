"""The same indexes in shards, here or on Ray, and the planner. The only room that imports Ray."""

from irli.cluster.index import ShardedIndex, ShardedResult
from irli.cluster.label_index import ShardedLabelIndex, ShardedPrediction

__all__ = ["ShardedIndex", "ShardedLabelIndex", "ShardedPrediction", "ShardedResult"]
