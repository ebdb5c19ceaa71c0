"""Tune the search of a vector index on held-out queries."""
