// The training of routers on a CPU: what the loops of training.inl read and write.
//
// A network turns queries into features, and features into logits of `heads` times `buckets`:
//
//   features = x @ project + shift, of which the columns from `linear` on pass a ReLU
//   logits   = features @ out + bias, made smaller far from all centroids (see `soften`)
//
// where x is a query less the centre, by the scale. Every matrix has rows of a padded length, `step`,
// so that vectors of kWide floats fit, and so that rows do not all fall into the same part of a cache.
// What is behind the last column is zero and stays so.
#pragma once

#include <stdint.h>

namespace irli {

constexpr int64_t kWide = 32;  // columns that a product computes together
constexpr int64_t kRowsTogether =
    32;  // rows of queries, or of weights, that a thread works on at a time

enum Loss { kSoftmax = 0, kSigmoidBce = 1, kSoftmaxBce = 2 };

// Weights, and the moments of their gradients (Adam).
struct Weights {
  float *values, *first, *second;
};

struct TrainedNetwork {
  int64_t dim, linear, width, heads, buckets;
  int64_t dim_step, width_step, head_step;  // dim_step: 0 if sparse. head_step: buckets of a head
  bool sparse;
  Weights project;  // (dim, width_step)
  Weights shift;    // (width_step)
  Weights out;      // (heads, head_step, width_step): a row for each bucket
  Weights bias;     // (heads, head_step)
  float*
      panels;  // `out` once more, for the forward products: (heads, head_step / kWide, width, kWide)
  const float *project_rates, *shift_rates, *ones;  // (width_step): how fast each column learns
  const float* centre;                              // (dim)
  float scale;  // what differences from the centre are multiplied by
  float near, most, slope;
};

// Rows of queries, dense or sparse.
struct QueryRows {
  const float* dense;     // (n, dim), or null
  const int64_t* starts;  // (n + 1): of a CSR
  const int32_t* columns;
  const float* values;
};

// The queries to learn from, and their relevant items.
struct Examples {
  QueryRows queries;
  const float* noise;     // (n): how far a query is moved, or null
  const int64_t* starts;  // (n + 1): of the (query, item) pairs
  const int32_t* items;   // or null, and then `long_items`
  const int64_t* long_items;
  const float* weights;               // (pairs)
  const int32_t* const* assignments;  // for each head (N, copies): the buckets of each item, or -1
  int64_t copies;
  uint64_t seed;

  int64_t item(int64_t pair) const { return items ? items[pair] : long_items[pair]; }
};

// One batch. `shares` of a row are 1 over the sum of its weights, or 0.
struct TrainingStep {
  const int64_t* rows;   // (count)
  int64_t count, first;  // `first`: the place of the first row among all that are drawn in training
  const float* shares;   // (count)
  float total;           // the rows with a share, times the heads
  int64_t touched_count;
  const int32_t* touched;     // the columns that sparse rows have
  const int32_t* ends;        // (touched_count + 1): of their entries
  const int32_t* entry_rows;  // (entries)
  const float* entry_values;  // (entries)
  float rate, first_correction, second_correction;
};

// Memory for the largest batch.
struct TrainingMemory {
  float* x;          // (batch, dim_step)
  float* features;   // (batch, width_step)
  float* backwards;  // (batch, width_step): the gradient of the features
  float* logits;     // (batch, outputs): then their gradient
  double* losses;    // (batch)
};

// Memory of one thread.
struct TrainingScratch {
  float* gradient;       // (kRowsTogether, width_step)
  float *raw, *chances;  // (head_step)
  uint8_t* marked;       // (head_step), all 0
  int32_t* places;       // (the most pairs of a query, times the copies)
  float* shares;         // the same
};

}  // namespace irli
