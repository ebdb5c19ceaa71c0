#include "simd/neon.h"

#include "backend.inl"

const irli::Kernels* irli::neon_kernels() { return &kKernels; }
