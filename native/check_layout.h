// The one check of the numbers that come from a file and that kernels use as places in memory.
#pragma once

#include "layout.h"

namespace irli {

// Throw std::invalid_argument unless kernels can read the layout without leaving its arrays.
// `entries` and `blocks` are the lengths of these arrays. Shapes were checked before.
void check_layout(const VectorLayout& layout, int64_t entries, int64_t blocks);

// Throw unless kernels can read a run of such a layout. `entries` and `blocks` are the lengths of its
// arrays.
void check_run(const VectorLayout& layout, const Run& run, int64_t entries, int64_t blocks);

// The same for labels. `entries`, `weights`, `numbers` and `near_entries` are the lengths of the
// entries, of the ranker's weights, of those of known rows, and of these rows' labels.
void check_layout(const LabelLayout& layout, int64_t entries, int64_t weights, int64_t numbers,
                  int64_t near_entries);

// Throw unless the packed weights of a ranker (see `irli.labels.ranking.ranker`) belong to labels below
// `labels`. `weights` is the length of `gaps`.
void check_packed(const int64_t* starts, int64_t features, const uint16_t* gaps, int64_t weights,
                  int64_t labels);

// Whether the rows from `first` to `last` are well-formed, with indices below `dim`. `size` is the
// length of `indices` and `data`.
bool check_rows(const SparseRows& rows, int64_t first, int64_t last, int64_t size, int64_t dim);

// Whether all rows (count) are numbers of `items` items.
bool are_items(const int32_t* rows, int64_t count, int64_t items);

}  // namespace irli
