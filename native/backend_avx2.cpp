#include "simd/avx2.h"

#include "backend.inl"

const irli::Kernels* irli::avx2_kernels() { return &kKernels; }
