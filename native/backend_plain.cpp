#include "simd/plain.h"

#include "backend.inl"

const irli::Kernels* irli::plain_kernels() { return &kKernels; }
