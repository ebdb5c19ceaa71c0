// 4-bit codes: the codewords that fit best, and the blocks in which codes are stored.

#include <string.h>

#include <vector>

#include "layout.h"
#include "learning.h"

namespace irli {
namespace {

// Solve left @ x = right in place, for a matrix (size, size) that is symmetric and positive
// definite: elimination needs no pivoting.
void solve(double* left, double* right, int64_t size) {
  for (int64_t t = 0; t < size; ++t) {
    for (int64_t row = t + 1; row < size; ++row) {
      const double factor = left[row * size + t] / left[t * size + t];
      for (int64_t s = t; s < size; ++s) left[row * size + s] -= factor * left[t * size + s];
      right[row] -= factor * right[t];
    }
  }
  for (int64_t t = size - 1; t >= 0; --t) {
    for (int64_t s = t + 1; s < size; ++s) right[t] -= left[t * size + s] * right[s];
    right[t] /= left[t * size + t];
  }
}

// The part of the error of a piece that lies along the vector.
double error_along(const float* x, const float* along, const float* codeword, int64_t size) {
  double total = 0;
  for (int64_t t = 0; t < size; ++t) total += along[t] * (x[t] - codeword[t]);
  return total;
}

}  // namespace

void improve_codewords(const Coded& coded, double eta, float* codewords) {
  const int64_t count = coded.count, pieces = coded.pieces, size = coded.size;
  const int64_t width = pieces * size, words = kWords * size;
  const double weight = eta - 1.0;
  // The error of each vector along itself, over all pieces.
  std::vector<double> total(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t m = 0; m < pieces; ++m)
      total[i] += error_along(coded.x + i * width + m * size, coded.along + i * width + m * size,
                              codewords + m * words + coded.codes[i * pieces + m] * size, size);
  std::vector<double> left(static_cast<size_t>(words * size)), right(static_cast<size_t>(words));
  std::vector<float> before(static_cast<size_t>(words));
  for (int64_t m = 0; m < pieces; ++m) {
    float* mine = codewords + m * words;
    int64_t members[kWords] = {};
    left.assign(left.size(), 0.0);
    right.assign(right.size(), 0.0);
    for (int64_t i = 0; i < count; ++i) {
      const float* x = coded.x + i * width + m * size;
      const float* along = coded.along + i * width + m * size;
      const int64_t j = coded.codes[i * pieces + m];
      double* sums = left.data() + j * size * size;
      double* goal = right.data() + j * size;
      members[j] += 1;
      double target = total[i] - error_along(x, along, mine + j * size, size);
      for (int64_t t = 0; t < size; ++t) target += along[t] * x[t];
      for (int64_t t = 0; t < size; ++t) {
        goal[t] += x[t] + weight * target * along[t];
        for (int64_t s = 0; s < size; ++s) sums[t * size + s] += weight * along[t] * along[s];
        sums[t * size + t] += 1.0;
      }
    }
    before.assign(mine, mine + words);
    for (int64_t j = 0; j < kWords; ++j) {
      if (members[j] == 0) continue;
      solve(left.data() + j * size * size, right.data() + j * size, size);
      for (int64_t t = 0; t < size; ++t)
        mine[j * size + t] = static_cast<float>(right[j * size + t]);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t j = coded.codes[i * pieces + m];
      total[i] += error_along(before.data() + j * size, coded.along + i * width + m * size,
                              mine + j * size, size);
    }
  }
}

bool fill_blocks(const uint8_t* codes, int64_t count, int64_t pieces, const Buckets& buckets,
                 uint8_t* blocks, int64_t block_count) {
  const int64_t rows = pieces / 2;
  for (int64_t r = 0; r < buckets.repetitions; ++r) {
    for (int64_t b = 0; b < buckets.buckets; ++b) {
      const int64_t at = r * (buckets.buckets + 1) + b;
      const int64_t first = buckets.offsets[at], last = buckets.offsets[at + 1];
      const int64_t start = buckets.starts[at];
      if (first < 0 || last < first || last > buckets.entries || start < 0 ||
          start + (last - first + kLanes - 1) / kLanes > block_count)
        return false;
      for (int64_t e = first; e < last; ++e) {
        const int64_t item = buckets.items[e], place = e - first, lane = place % kLanes;
        if (item < 0 || item >= count) return false;
        const uint8_t* code = codes + item * pieces;
        uint8_t* block = blocks + (start + place / kLanes) * rows * kLanes;
        uint8_t* to = block + 2 * (lane % 16) + lane / 16;
        for (int64_t row = 0; row < rows; ++row)
          to[row * kLanes] = static_cast<uint8_t>(code[2 * row] | code[2 * row + 1] << 4);
      }
    }
  }
  return true;
}

}  // namespace irli
