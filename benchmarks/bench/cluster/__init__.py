"""Shards: builds and searches on Ray's test cluster, failures, and the planner."""
