"""The compiled kernels and the arrays that they read: plain functions over arrays, no torch."""
