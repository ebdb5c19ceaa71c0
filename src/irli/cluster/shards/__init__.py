"""Open shards here or on Ray, call them, and merge what they answer."""
