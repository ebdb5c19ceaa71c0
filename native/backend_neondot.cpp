#include "simd/neon.h"

#include "backend.inl"

const irli::Kernels* irli::neondot_kernels() { return &kKernels; }
