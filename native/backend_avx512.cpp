#include "simd/avx512.h"

#include "backend.inl"

const irli::Kernels* irli::avx512_kernels() { return &kKernels; }
