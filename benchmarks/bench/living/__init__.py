"""Indexes that change: the field's runbooks, the speed of changes, drift of queries, payloads."""
