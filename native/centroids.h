// The centroids of the buckets with 8-bit weights, a quarter of the bytes to read.
#pragma once

#include <stdint.h>

#include <vector>

#include "layout.h"

namespace irli {

// Rounds the centroids of a layout, and lets the layout point to them. Vectors with few dimensions
// keep their floats: they are read fast, and bytes could not tell thousands of buckets apart.
class RoundedCentroids {
 public:
  explicit RoundedCentroids(VectorLayout& layout);

 private:
  std::vector<int8_t> bytes_;
  std::vector<float> step_;
  std::vector<int32_t> zero_;
};

}  // namespace irli
