// Which instruction sets this processor has, and which back-end is in use.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace irli {

// The back-ends that can run here, slowest first. "plain" always can.
std::vector<std::string> available_simd();

// The back-end in use. Chosen once: the best available one, or what IRLI_SIMD says.
const Kernels& kernels();

// Use another back-end from now on. Throws std::invalid_argument if it cannot run here.
void use_simd(const std::string& name);

}  // namespace irli
