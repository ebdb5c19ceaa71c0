"""Rank labels besides the routers: linear classifiers, and the nearest known rows."""
