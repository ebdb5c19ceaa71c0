// Trainer: the weights of a network, their moments, and the steps of training on several threads.
#pragma once

#include <stdint.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "training.h"

namespace irli {

// Floats that begin at a cache line, all 0 at first.
class Aligned {
 public:
  explicit Aligned(int64_t count = 0);
  float* data() const { return floats_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(float* floats) const;
  };
  std::unique_ptr<float[], Free> floats_;
  int64_t size_;
};

struct NetworkShape {
  int64_t dim, linear, width, heads, buckets;
  bool sparse;
};

// A matrix of the network, as others see it: without padding.
struct MatrixView {
  float* values;
  int64_t heads, rows, columns, head_step, row_step;  // element (h, i, j)
};

class Trainer {
 public:
  explicit Trainer(const NetworkShape& shape);
  Trainer(const Trainer&) = delete;

  const NetworkShape& shape() const { return shape_; }

  // "project", "shift", "out" or "bias", of the weights or of their moments; "centre" and the rates
  // of the columns, "project_rates" and "shift_rates". `values` is null for other names.
  MatrixView find(const std::string& name) const;

  // To be called when `out` was written.
  void refresh();

  void set_scale(float scale) { network_.scale = scale; }
  void soften(float near, float most, float slope);

  // The gradients and the weights after each batch of `rows`, on several threads. Stop after a while,
  // and return the number of rows that were learned from: a multiple of `batch`, or all. The losses
  // of these batches are written.
  int64_t train(const Examples& given, Loss loss, const int64_t* rows, int64_t count, int64_t first,
                int64_t batch, const double* rates, int64_t steps_before, int64_t threads,
                double* losses);

  // The logits (count, buckets) of one head.
  void score(const QueryRows& queries, int64_t head, const int64_t* rows, int64_t count,
             float* logits) const;

 private:
  struct Batch;
  struct Thread;
  void prepare(const Examples& given, const int64_t* rows, int64_t count, Batch& batch);

  NetworkShape shape_;
  TrainedNetwork network_{};
  std::vector<Aligned> held_;
  std::vector<int32_t> slots_;  // (dim): the place of a column among those of a batch, or -1
};

}  // namespace irli
