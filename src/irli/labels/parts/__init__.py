"""A label index in several parts: each has some of the labels, and their answers are merged."""
