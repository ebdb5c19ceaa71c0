// The margins of the ranker's classifiers: one loop for prediction and for calibration. Included
// after a header of vector instructions.
#pragma once

#include "layout.h"

namespace irli {
namespace {

// Add what a row's features add to the margins of all labels. Checking which labels are candidates
// would take longer.
inline void add_margins(const SparseRows& rows, int64_t row, const int64_t* starts,
                        const uint16_t* gaps, const int8_t* weights, float* margins) {
  for (int64_t e = rows.indptr[row]; e < rows.indptr[row + 1]; ++e) {
    const float value = rows.data[e];
    int64_t w = starts[rows.indices[e]];
    const int64_t stop = starts[rows.indices[e] + 1];
    uint32_t label = 0;
    for (; w + 16 <= stop; w += 16) {
      float products[16];
      store(products, multiply(fill(value), widen(weights + w)));
      for (int i = 0; i < 16; ++i) {
        label += gaps[w + i];
        margins[label] += products[i];
      }
    }
    for (; w < stop; ++w) {
      label += gaps[w];
      margins[label] += value * static_cast<float>(weights[w]);
    }
  }
}

}  // namespace
}  // namespace irli
