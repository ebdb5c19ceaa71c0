// The ranker's linear classifiers: training, packing weights, computing margins.

#include <math.h>

#include <limits>

#include "labels.h"
#include "select.h"
#include "simd/plain.h"

#include "margins.h"

namespace irli {
namespace {

constexpr double kTolerance = 0.1;   // training stops when the largest violation is below this
constexpr int64_t kMostGap = 65535;  // the largest gap between two labels that fits into two bytes
constexpr float kHighest = 127;      // weights are rounded to [-127, 127]

// The training rows of one label, copied, with new numbers for their features. The data that is
// read again and again is then contiguous. Positive rows come first, then hard negatives.
struct LabelRows {
  std::vector<int64_t> starts;
  std::vector<int32_t> columns;
  std::vector<float> values;
  std::vector<float> lengths;
  std::vector<int32_t> features;  // the number of each new feature in all rows
  int64_t positives;
};

class Trainer {
 public:
  explicit Trainer(const TrainingRows& data)
      : data_(data), is_positive_(data.count, 0), number_(data.dim, -1) {}

  // Copy the rows of a label, and the weights that it starts from.
  const LabelRows& select(int64_t label, const RowLists& positive, const RowLists& negative,
                          const SparseRows& start) {
    rows_.starts.assign(1, 0);
    rows_.columns.clear();
    rows_.values.clear();
    rows_.lengths.clear();
    rows_.features.clear();
    for (int64_t e = positive.indptr[label]; e < positive.indptr[label + 1]; ++e) {
      is_positive_[positive.rows[e]] = 1;
      add(positive.rows[e]);
    }
    rows_.positives = static_cast<int64_t>(rows_.lengths.size());
    for (int64_t e = negative.indptr[label]; e < negative.indptr[label + 1]; ++e)
      if (!is_positive_[negative.rows[e]]) add(negative.rows[e]);
    for (int64_t e = positive.indptr[label]; e < positive.indptr[label + 1]; ++e)
      is_positive_[positive.rows[e]] = 0;
    weight_.assign(rows_.features.size(), 0);
    for (int64_t e = start.indptr[label]; e < start.indptr[label + 1]; ++e) {
      const int32_t number = find_number(start.indices[e]);
      weight_.resize(rows_.features.size(), 0);
      weight_[number] = start.data[e];
    }
    for (const int32_t feature : rows_.features) number_[feature] = -1;
    return rows_;
  }

  // Minimize the squared hinge loss by dual coordinate descent (Hsieh et al. 2008). Rows that are
  // safely on the right side are left out of later passes (shrinking). The weights stay as near as
  // possible to those from which they start, and so does the bias, `offset`. Return the bias.
  // `state` is that of a random generator.
  float descend(float positive_cost, float negative_cost, float offset, int64_t passes,
                uint64_t state) {
    const int64_t* starts = rows_.starts.data();
    const int32_t* columns = rows_.columns.data();
    const float* values = rows_.values.data();
    const int64_t count = static_cast<int64_t>(rows_.lengths.size());
    alpha_.assign(count, 0);
    order_.resize(count);
    for (int64_t m = 0; m < count; ++m) order_[m] = m;
    int64_t active = count;
    float limit = std::numeric_limits<float>::infinity();
    for (int64_t pass = 0; pass < passes; ++pass) {
      for (int64_t m = active - 1; m > 0; --m) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        swap(order_[m], order_[(state >> 32) * static_cast<uint64_t>(m + 1) >> 32]);
      }
      float worst = 0;
      for (int64_t place = 0; place < active;) {
        const int64_t m = order_[place];
        float margin = offset;
        for (int64_t e = starts[m]; e < starts[m + 1]; ++e)
          margin += weight_[columns[e]] * values[e];
        const bool is_positive = m < rows_.positives;
        const float sign = is_positive ? 1.0f : -1.0f;
        const float half = 0.5f / (is_positive ? positive_cost : negative_cost);
        const float slope = sign * margin - 1.0f + alpha_[m] * half;
        if (alpha_[m] == 0 && slope >= 0) {
          if (slope > limit) {
            swap(order_[place], order_[--active]);
          } else {
            ++place;
          }
          continue;
        }
        ++place;
        worst = larger_of(worst, fabsf(slope));
        const float updated = larger_of(alpha_[m] - slope / (rows_.lengths[m] + half), 0.0f);
        const float step = (updated - alpha_[m]) * sign;
        alpha_[m] = updated;
        offset += step;
        for (int64_t e = starts[m]; e < starts[m + 1]; ++e) weight_[columns[e]] += step * values[e];
      }
      if (static_cast<double>(worst) < kTolerance) break;
      limit = worst;
    }
    return offset;
  }

  const std::vector<float>& weights() const { return weight_; }

 private:
  // Return the new number of a feature.
  int32_t find_number(int32_t feature) {
    int32_t& number = number_[feature];
    if (number < 0) {
      number = static_cast<int32_t>(rows_.features.size());
      rows_.features.push_back(feature);
    }
    return number;
  }

  void add(int32_t row) {
    const SparseRows& rows = data_.rows;
    const int64_t first = rows.indptr[row], count = rows.indptr[row + 1] - first;
    const size_t before = rows_.columns.size();
    rows_.columns.resize(before + count);
    rows_.values.insert(rows_.values.end(), rows.data + first, rows.data + first + count);
    int32_t* columns = rows_.columns.data() + before;
    for (int64_t e = 0; e < count; ++e) columns[e] = find_number(rows.indices[first + e]);
    rows_.starts.push_back(static_cast<int64_t>(rows_.columns.size()));
    rows_.lengths.push_back(data_.lengths[row]);
  }

  const TrainingRows& data_;
  std::vector<uint8_t> is_positive_;
  std::vector<int32_t> number_;  // the new number of each feature, or -1
  LabelRows rows_;
  std::vector<float> alpha_, weight_;
  std::vector<int64_t> order_;
};

}  // namespace

Classifiers train_classifiers(int64_t first, int64_t last, const TrainingRows& data,
                              const RowLists& positive, const RowLists& negative,
                              const SparseRows& start, const TrainOptions& options,
                              const float* importance, float* bias) {
  Trainer trainer(data);
  Classifiers out;
  for (int64_t label = first; label < last; ++label) {
    const LabelRows& rows = trainer.select(label, positive, negative, start);
    // The seed of the random generator does not depend on `first` and `last`.
    const uint64_t seed = static_cast<uint64_t>(options.seed) * 7919 + label + 1;
    bias[label] = trainer.descend(options.cost * importance[label], options.cost, bias[label],
                                  options.passes, seed * 0x9E3779B97F4A7C15u);
    const size_t before = out.features.size();
    for (size_t f = 0; f < rows.features.size(); ++f) {
      const float value = trainer.weights()[f];
      if (fabsf(value) * data.usual[rows.features[f]] >= options.prune && value != 0) {
        out.features.push_back(rows.features[f]);
        out.weights.push_back(value);
      }
    }
    out.sizes.push_back(static_cast<int64_t>(out.features.size() - before));
  }
  return out;
}

PackedWeights pack_weights(const SparseRows& matrix, int64_t features, int64_t labels) {
  PackedWeights out;
  const int64_t count = matrix.indptr[features];
  out.scale.assign(labels, 0);
  for (int64_t e = matrix.indptr[0]; e < count; ++e) {
    float& scale = out.scale[matrix.indices[e]];
    scale = larger_of(scale, fabsf(matrix.data[e]) / kHighest);
  }
  out.starts.reserve(features + 1);
  out.gaps.reserve(count);
  out.weights.reserve(count);
  out.starts.push_back(0);
  for (int64_t feature = 0; feature < features; ++feature) {
    int64_t last = 0;
    for (int64_t e = matrix.indptr[feature]; e < matrix.indptr[feature + 1]; ++e) {
      const int32_t label = matrix.indices[e];
      int64_t gap = label - last;
      for (; gap > kMostGap; gap -= kMostGap) {  // weights of 0 bridge large gaps
        out.gaps.push_back(static_cast<uint16_t>(kMostGap));
        out.weights.push_back(0);
      }
      const float steps = rintf(matrix.data[e] / out.scale[label]);
      out.gaps.push_back(static_cast<uint16_t>(gap));
      out.weights.push_back(fabsf(steps) <= kHighest ? static_cast<int8_t>(steps) : int8_t{0});
      last = label;
    }
    out.starts.push_back(static_cast<int64_t>(out.gaps.size()));
  }
  return out;
}

void find_best_outputs(const SparseRows& rows, int64_t first, int64_t last,
                       const PackedMatrix& matrix, const float* constant, const int64_t* itself,
                       int64_t k, float* values, int64_t* outputs) {
  std::vector<float> sums(matrix.outputs, -0.0f);
  std::vector<int32_t> reached(matrix.outputs + 1);
  std::vector<uint64_t> keys(matrix.outputs);
  for (int64_t i = first; i < last; ++i, values += k, outputs += k) {
    const int64_t count = add_products(rows, i, matrix, sums.data(), reached.data());
    int64_t others = 0;
    for (int64_t t = 0; t < count; ++t) {
      const int32_t output = reached[t];
      const float value = sums[output] * matrix.scale[output] +
                          (constant ? constant[output] : 0.0f);
      keys[others] = make_key(value, static_cast<uint32_t>(output));
      others += !itself || itself[i] != output;
      sums[output] = -0.0f;
    }
    const int64_t best = smaller_of(k, others);
    if (others > k) kth_largest(keys.data(), others, k);
    sort_down(keys.data(), best);
    for (int64_t t = 0; t < k; ++t) {
      values[t] = t < best ? key_value(keys[t]) : -std::numeric_limits<float>::infinity();
      outputs[t] = t < best ? static_cast<int64_t>(key_number(keys[t])) : -1;
    }
  }
}

}  // namespace irli
