// The one check of the numbers that come from a file and that kernels use as places in memory.
#pragma once

#include "layout.h"

namespace irli {

// Throw std::invalid_argument unless kernels can read the layout without leaving its arrays.
// `entries` and `blocks` are the lengths of these arrays. Shapes were checked before.
void check_layout(const VectorLayout& layout, int64_t entries, int64_t blocks);

}  // namespace irli
