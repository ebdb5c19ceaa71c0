// Random layouts, and arrays that end where their memory ends, so that sanitizers see each overrun.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "centroids.h"
#include "layout.h"
#include "source.h"

namespace irli {

// An array of exactly `count` values.
template <class T>
class Exact {
 public:
  Exact() = default;
  explicit Exact(int64_t count)
      : values_(new T[static_cast<size_t>(count)]()), size_(static_cast<size_t>(count)) {}
  T* data() { return values_.get(); }
  const T* data() const { return values_.get(); }
  T& operator[](int64_t i) { return values_[static_cast<size_t>(i)]; }
  const T& operator[](int64_t i) const { return values_[static_cast<size_t>(i)]; }
  T* begin() { return values_.get(); }
  T* end() { return values_.get() + size_; }
  const T* begin() const { return values_.get(); }
  const T* end() const { return values_.get() + size_; }
  int64_t size() const { return static_cast<int64_t>(size_); }

 private:
  std::unique_ptr<T[]> values_;
  size_t size_ = 0;
};

Exact<float> draw_floats(Source& source, int64_t count);

// The sizes of a layout.
struct Shape {
  int64_t items, dim, repetitions, buckets, width;
  enum { kFloats, kInt8 } router;
  bool projection;
  int64_t pieces, size;  // of codes, or 0 pieces without codes
  bool prefilter;
  int64_t copies;  // buckets of an item in each repetition, 0 to 2
  Metric metric;
  bool centroids;
};
Shape draw_shape(Source& source);

// A layout and the memory that it points to.
struct Planted {
  Shape shape;
  VectorLayout layout{};
  int64_t entries = 0, blocks = 0;
  bool damaged = false;
  Exact<float> project, shift, weights, step, bias, vectors;
  Exact<float> router_centre, soften;
  Exact<int8_t> bytes;
  Exact<int32_t> zero, items;
  Exact<int64_t> offsets;
  Exact<float> centre, scale, column_step, column_bias;
  Exact<int8_t> column_bytes;
  Exact<int32_t> column_zero;
  Exact<float> code_rotation, code_shift, codewords, code_bias;
  Exact<uint8_t> code_blocks;
  Exact<int64_t> code_offsets;
  Exact<int8_t> int8_bytes;
  Exact<float> int8_shift, int8_step, int8_lengths;
  Exact<float> mean_centre, mean_columns, mean_bias, mean_spread, mean_base, mean_reach;
  std::optional<RoundedCentroids> rounded;
  // What was added after a fit.
  struct AddedRun {
    Exact<int64_t> offsets, block_offsets;
    Exact<int32_t> items;
    Exact<uint8_t> blocks;
  };
  std::vector<AddedRun> runs;
  std::vector<Exact<float>> vector_chunks, length_chunks;
  std::vector<Exact<int8_t>> byte_chunks;
  std::vector<const float*> vector_table, length_table;
  std::vector<const int8_t*> byte_table;
};
Planted make_layout(Source& source, const Shape& shape);

// Spread the entries over several runs, and the last rows over chunks: the same index after changes.
void scatter(Source& source, Planted& planted);

// Change one number to one that a damaged file could hold.
template <class T>
void damage_one(Source& source, Exact<T>& array) {
  if (array.size() == 0) return;
  const int64_t values[] = {-1,      0,         1,         array.size(), array[0],
                            1 << 20, INT32_MAX, INT32_MIN, INT64_MAX,    INT64_MIN};
  const int64_t value = source.coin() ? values[source.below(10)] : source.between(0, 300);
  array[source.below(array.size())] = static_cast<T>(value);
}

// Change a few of the integers that a damaged file could hold.
void damage(Source& source, Planted& planted);

SearchPlan draw_plan(Source& source, const Shape& shape);

// A selector, the memory that it points to, and the items that it permits. For an exact plan, these
// are its rows.
struct Permits {
  Exact<uint8_t> allowed, removed, permitted;
  Exact<int32_t> rows;
  Selector selector{};
};

// Permits all, some, or very few of the items.
Permits draw_permits(Source& source, int64_t items, bool exact);

}  // namespace irli
