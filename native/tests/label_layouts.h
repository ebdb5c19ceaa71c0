// Random layouts of labels, and what must hold for their predictions.
#pragma once

#include "layouts.h"

namespace irli {

struct LabelShape {
  int64_t labels, dim, repetitions, buckets, width;
  bool one_trunk;
  int64_t features;  // of the ranker, or 0 without one
  int64_t known;     // rows with these features that may be near, or 0 without any
};
LabelShape draw_label_shape(Source& source);

// Sparse rows and the memory that they point to.
struct PlantedRows {
  SparseRows rows{};
  Exact<int64_t> indptr;
  Exact<int32_t> indices;
  Exact<float> data;
};
PlantedRows make_rows(Source& source, int64_t count, int64_t dim);

// A packed matrix and the memory that it points to.
struct PlantedMatrix {
  Exact<int64_t> starts;
  Exact<uint16_t> gaps;
  Exact<int8_t> weights;
  Exact<float> scale;
  PackedMatrix get() const;
};

// A layout and the memory that it points to.
struct PlantedLabels {
  LabelShape shape;
  LabelLayout layout{};
  Exact<int8_t> project, out;
  Exact<float> project_scale, shift, out_scale, bias, share, prior, constant;
  Exact<int64_t> offsets, near_starts;
  Exact<int32_t> items, near_labels;
  PlantedMatrix ranker, near;
};
PlantedLabels make_label_layout(Source& source, const LabelShape& shape);

// Change a few of the integers that a damaged file could hold.
void damage(Source& source, PlantedLabels& planted);

// Label random rows with every back-end.
//
// Back-ends with FMA must give the same bits. Each row must get different labels, in order. If all
// buckets are probed and their votes counted, the scores are known. If the numbers are wild, only
// what does not depend on their rounding is checked.
void check_predict(Source& source, const PlantedLabels& planted);

}  // namespace irli
