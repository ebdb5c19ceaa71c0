"""Predict what a cluster needs to build and serve an index."""
