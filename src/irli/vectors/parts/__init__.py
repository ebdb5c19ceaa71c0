"""A vector index in several parts: each answers alone, and the answers are merged."""
