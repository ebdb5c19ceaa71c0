// 4-bit codes: the codewords that fit best, and the blocks in which codes are stored.

#include <vector>

#include "layout.h"
#include "learning.h"
#include "select.h"

namespace irli {
namespace {

constexpr int64_t kGroup = 16;  // pieces, and vectors, that are copied together

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

// The part of the error of a piece that lies along the vector. The numbers of the vector are `step`
// apart.
double error_along(const float* x, const float* along, int64_t step, const float* codeword,
                   int64_t size) {
  double total = 0;
  for (int64_t t = 0; t < size; ++t) total += along[t * step] * (x[t * step] - codeword[t]);
  return total;
}

// Columns of a matrix, one after the other. A cache line holds parts of several columns, so that
// many are copied together.
template <class T>
struct Columns {
  std::vector<T> values;

  void copy(const T* rows, int64_t count, int64_t width, int64_t first, int64_t last) {
    values.resize(static_cast<size_t>((last - first) * count));
    for (int64_t low = 0; low < count; low += kGroup) {
      const int64_t high = smaller_of(low + kGroup, count);
      for (int64_t c = first; c < last; ++c)
        for (int64_t i = low; i < high; ++i) values[(c - first) * count + i] = rows[i * width + c];
    }
  }
};

// Improve the codewords (16, s) of one piece of vectors (s, n). `total` (n) is the error of each
// vector along itself, over all pieces.
void improve_piece(const float* x, const float* along, const uint8_t* codes, int64_t count,
                   int64_t size, double weight, double* total, float* codewords) {
  const int64_t words = kWords * size;
  std::vector<double> left(static_cast<size_t>(words * size)), right(static_cast<size_t>(words));
  int64_t members[kWords] = {};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t j = codes[i];
    double* sums = left.data() + j * size * size;
    double* goal = right.data() + j * size;
    members[j] += 1;
    double target = total[i] - error_along(x + i, along + i, count, codewords + j * size, size);
    for (int64_t t = 0; t < size; ++t) target += along[t * count + i] * x[t * count + i];
    for (int64_t t = 0; t < size; ++t) {
      const float a = along[t * count + i];
      goal[t] += x[t * count + i] + weight * target * a;
      for (int64_t s = 0; s < size; ++s) sums[t * size + s] += weight * a * along[s * count + i];
      sums[t * size + t] += 1.0;
    }
  }
  const std::vector<float> before(codewords, codewords + words);
  for (int64_t j = 0; j < kWords; ++j) {
    if (members[j] == 0) continue;
    solve(left.data() + j * size * size, right.data() + j * size, size);
    for (int64_t t = 0; t < size; ++t)
      codewords[j * size + t] = static_cast<float>(right[j * size + t]);
  }
  for (int64_t i = 0; i < count; ++i)
    for (int64_t t = codes[i] * size; t < (codes[i] + 1) * size; ++t)
      total[i] += along[(t - codes[i] * size) * count + i] * (before[t] - codewords[t]);
}

}  // namespace

void improve_codewords(const Coded& coded, double eta, float* codewords) {
  const int64_t count = coded.count, pieces = coded.pieces, size = coded.size;
  const int64_t words = kWords * size;
  std::vector<double> total(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t m = 0, piece = i * pieces; m < pieces; ++m, ++piece)
      total[i] += error_along(coded.x + piece * size, coded.along + piece * size, 1,
                              codewords + m * words + coded.codes[piece] * size, size);
  Columns<float> x, along;
  Columns<uint8_t> codes;
  for (int64_t first = 0; first < pieces; first += kGroup) {
    const int64_t last = smaller_of(first + kGroup, pieces);
    x.copy(coded.x, count, pieces * size, first * size, last * size);
    along.copy(coded.along, count, pieces * size, first * size, last * size);
    codes.copy(coded.codes, count, pieces, first, last);
    for (int64_t m = first; m < last; ++m) {
      const int64_t at = (m - first) * count;
      improve_piece(x.values.data() + at * size, along.values.data() + at * size,
                    codes.values.data() + at, count, size, eta - 1.0, total.data(),
                    codewords + m * words);
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
          start > block_count - (last - first + kLanes - 1) / kLanes)
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
