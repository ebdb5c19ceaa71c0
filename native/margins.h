// Products of sparse rows with a packed matrix: the margins of the ranker's classifiers, and the
// cosines of near rows. One loop for prediction and for learning. Included after a header of vector
// instructions.
#pragma once

#include "layout.h"
#include "select.h"

namespace irli {
namespace {

inline bool is_negative_zero(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits == 0x80000000u;
}

// Add the products of a row to `sums` (outputs), which hold -0. List the outputs that share a
// feature with the row in `reached`, and return how many there are.
//
// Without branches: whether an output was reached before cannot be predicted. No sum is -0 as long
// as no product is. The caller writes -0 again.
inline int64_t add_products(const SparseRows& rows, int64_t row, const PackedMatrix& matrix,
                            float* sums, int32_t* reached) {
  int64_t count = 0;
  for (int64_t e = rows.indptr[row]; e < rows.indptr[row + 1]; ++e) {
    const float value = rows.data[e];
    int64_t w = matrix.starts[rows.indices[e]];
    const int64_t stop = matrix.starts[rows.indices[e] + 1];
    uint32_t output = 0;
    for (; w + 16 <= stop; w += 16) {
      float products[16];
      store(products, add(multiply(fill(value), widen(matrix.weights + w)), fill(0)));
      for (int i = 0; i < 16; ++i) {
        output += matrix.gaps[w + i];
        const float sum = sums[output];
        sums[output] = sum + products[i];
        reached[count] = static_cast<int32_t>(output);
        count += is_negative_zero(sum);
      }
    }
    for (; w < stop; ++w) {
      output += matrix.gaps[w];
      const float sum = sums[output];
      sums[output] = sum + (value * static_cast<float>(matrix.weights[w]) + 0.0f);
      reached[count] = static_cast<int32_t>(output);
      count += is_negative_zero(sum);
    }
  }
  return count;
}

// The length of a row.
inline float find_length(const SparseRows& rows, int64_t row) {
  float total = 0;
  for (int64_t e = rows.indptr[row]; e < rows.indptr[row + 1]; ++e)
    total += rows.data[e] * rows.data[e];
  return sqrtf(total);
}

}  // namespace
}  // namespace irli
