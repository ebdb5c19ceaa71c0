"""Shards on Ray: the actors that serve them, and calls that some may miss."""
