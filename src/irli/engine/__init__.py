"""The compiled loops and the arrays that they read. Plain functions over arrays; no torch."""
