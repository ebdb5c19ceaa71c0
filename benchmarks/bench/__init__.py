"""The parts of the benchmarks, in the same rooms as the code. The commands are one folder up."""
