#include "centroids.h"

#include <algorithm>
#include <cmath>

namespace irli {
RoundedCentroids::RoundedCentroids(VectorLayout& layout) {
  Centroids& centroids = layout.centroids;
  if (!centroids.present || layout.dim < kLeastRounded) return;
  const int64_t dim = layout.dim, buckets = layout.buckets;
  const int64_t panels = (buckets + kPanel - 1) / kPanel, fours = (dim + 3) / 4;
  bytes_.resize(static_cast<size_t>(panels * fours * 4 * kPanel));
  step_.resize(static_cast<size_t>(buckets));
  zero_.resize(static_cast<size_t>(buckets));
  for (int64_t j = 0; j < dim; ++j)
    for (int64_t b = 0; b < buckets; ++b) {
      const float size = std::fabs(centroids.columns[j * buckets + b]);
      if (size > step_[static_cast<size_t>(b)]) step_[static_cast<size_t>(b)] = size;
    }
  for (float& step : step_) step = std::isfinite(step) ? std::max(step, 1e-30f) / 127 : 1;
  for (int64_t j = 0; j < dim; ++j)
    for (int64_t b = 0; b < buckets; ++b) {
      const float value = centroids.columns[j * buckets + b] / step_[static_cast<size_t>(b)];
      const float bounded = std::min(std::max(value, -127.0f), 127.0f);
      const int32_t rounded = std::isnan(value) ? 0 : static_cast<int32_t>(std::lrint(bounded));
      const int64_t place = ((b / kPanel * fours + j / 4) * kPanel + b % kPanel) * 4 + j % 4;
      bytes_[static_cast<size_t>(place)] = static_cast<int8_t>(rounded);
      zero_[static_cast<size_t>(b)] += kZero * rounded;
    }
  centroids.bytes = bytes_.data();
  centroids.step = step_.data();
  centroids.zero = zero_.data();
}

}  // namespace irli
