"""From vectors to an index: the problem, codes, mending, and the first search parameters."""
