// top_k.inl with each back-end: against sorting all scores.
#include <math.h>

#include <algorithm>

#include "check.h"
#include "exposed.h"
#include "layouts.h"
#include "tests.h"

namespace irli {
namespace {

// The columns of a row, best first: by larger score, then by smaller number. NaN comes last.
std::vector<int64_t> order(const float* row, int64_t width) {
  std::vector<int64_t> columns(static_cast<size_t>(width));
  for (int64_t c = 0; c < width; ++c) columns[c] = c;
  const auto score = [&](int64_t c) { return row[c] >= -INFINITY ? row[c] : -INFINITY; };
  std::stable_sort(columns.begin(), columns.end(),
                   [&](int64_t a, int64_t b) { return score(a) > score(b); });
  return columns;
}

void test_find_top_k(const Kernels& kernels) {
  Source source(1);
  for (const int64_t width : {1, 2, 15, 16, 31, 64, 65, 255, 256, 257, 300, 1024, 1031, 3000}) {
    for (const Mood mood : {kSmooth, kWhole, kWild}) {
      source.mood = mood;
      const int64_t rows = source.between(0, 3);
      const int64_t k = std::min(width, source.one_of({1, 2, 5, 64, 128, kMostLargest}));
      Exact<float> scores = draw_floats(source, rows * width), values(rows * k);
      if (rows > 1) std::fill(scores.begin(), scores.begin() + width, mood == kWild ? NAN : 1.0f);
      Exact<int64_t> columns(rows * k);
      kernels.find_top_k(scores.data(), rows, width, k, values.data(), columns.data());
      for (int64_t i = 0; i < rows; ++i) {
        const float* row = scores.data() + i * width;
        const std::vector<int64_t> right = order(row, width);
        for (int64_t t = 0; t < k; ++t) {
          const float score = row[right[t]];
          CHECK(columns[i * k + t] == right[t]);
          CHECK(values[i * k + t] == (score >= -INFINITY ? score : -INFINITY));
        }
      }
    }
  }
}

void test_merge_best(const Kernels& kernels) {
  Source source(2);
  for (const int64_t width : {1, 16, 63, 64, 65, 200, 2048}) {
    for (const Mood mood : {kSmooth, kWhole, kWild}) {
      source.mood = mood;
      const int64_t rows = 2, k = source.one_of({1, 2, 7, 100}), first = source.between(0, 50);
      const int64_t tiles = source.between(1, 3);
      const Exact<float> scores = draw_floats(source, tiles * rows * width);
      Exact<float> values(rows * k);
      Exact<int64_t> ids(rows * k), skip(rows);
      std::fill(values.begin(), values.end(), -INFINITY);
      std::fill(ids.begin(), ids.end(), -1);
      skip[0] = -1;
      skip[1] = first + source.below(width);
      for (int64_t tile = 0; tile < tiles; ++tile)
        kernels.merge_best(scores.data() + tile * rows * width, rows, width, first + tile * width,
                           skip.data(), k, values.data(), ids.data());
      for (int64_t i = 0; i < rows; ++i) {
        Exact<float> row(tiles * width);
        for (int64_t tile = 0; tile < tiles; ++tile)
          for (int64_t c = 0; c < width; ++c)
            row[tile * width + c] = scores[(tile * rows + i) * width + c];
        int64_t t = 0;
        for (const int64_t column : order(row.data(), row.size())) {
          if (first + column == skip[i] || !(row[column] > -INFINITY) || t == k) continue;
          CHECK(ids[i * k + t] == first + column && values[i * k + t] == row[column]);
          ++t;
        }
        for (; t < k; ++t) CHECK(ids[i * k + t] == -1 && values[i * k + t] == -INFINITY);
      }
    }
  }
}

void test_log_sum_exps(const Kernels& kernels, const Kernels& fused, bool has_fma) {
  Source source(3);
  for (const int64_t width : {0, 1, 15, 16, 17, 33, 1000}) {
    const int64_t rows = 3;
    Exact<float> scores = draw_floats(source, rows * width), got(rows), expected(rows);
    for (float& score : scores) score *= 20;
    kernels.log_sum_exps(scores.data(), rows, width, got.data());
    fused.log_sum_exps(scores.data(), rows, width, expected.data());
    if (has_fma) CHECK(same(got.data(), expected.data(), rows));
    for (int64_t i = 0; i < rows; ++i) {
      double total = 0;
      for (int64_t c = 0; c < width; ++c) total += exp(static_cast<double>(scores[i * width + c]));
      if (width == 0) CHECK(got[i] == -INFINITY);
      if (width > 0) CHECK(fabs(got[i] - log(total)) < 1e-4);
    }
  }
}

}  // namespace

void test_top_k() {
  const std::vector<const Exposed*>& backends = exposed_backends();
  for (const Exposed* backend : backends) {
    about = backend->name;
    test_find_top_k(*backend->kernels);
    test_merge_best(*backend->kernels);
    test_log_sum_exps(*backend->kernels, *backends.back()->kernels, backend != backends.front());
  }
}

}  // namespace irli
