// The largest scores and the log-sum-exp of each row of a matrix, for learning and ground truth.

// Columns j, j + 256, j + 512, ... of a row are a group.
constexpr int64_t kGroups = kMostLargest;
constexpr int64_t kStep = 64;         // columns that are compared with the same bound
constexpr int64_t kCollected = 1024;  // scores that are collected before a selection

// Write the k largest values of each row, largest first, and their columns. Of equal values the
// first comes first, and NaN counts as -infinity. k is at most 256 and at most the number of
// columns.
//
// A cut that k of the group maxima reach is a lower bound that few scores of the row reach.
[[maybe_unused]] void find_top_k(const float* scores, int64_t rows, int64_t width, int64_t k,
                                 float* values, int64_t* columns) {
  float groups[kGroups];
  uint64_t keys[kCollected];
  int32_t places[kStep];
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = scores + i * width;
    for (float& most : groups) most = -INFINITY;
    int64_t j = 0;
    for (; j + kGroups <= width; j += kGroups)
      for (int64_t g = 0; g < kGroups; g += 16)
        store(groups + g, larger(load(row + j + g), load(groups + g)));
    for (int64_t g = 0; j < width; ++j, ++g) groups[g] = row[j] > groups[g] ? row[j] : groups[g];
    float bound = find_cut(groups, kGroups, k);
    int64_t found = 0;
    for (int64_t low = 0; low < width; low += kStep) {
      if (found > kCollected - kStep) {
        bound = key_value(kth_largest(keys, found, k));
        found = k;
      }
      const int64_t count = find_at_least(row + low, smaller_of(kStep, width - low), bound, places);
      for (int64_t t = 0; t < count; ++t) {
        const int64_t column = low + places[t];
        const float score = row[column] >= -INFINITY ? row[column] : -INFINITY;
        keys[found++] = make_key(score, static_cast<uint32_t>(column));
      }
    }
    kth_largest(keys, found, k);
    sort_down(keys, k);
    for (int64_t t = 0; t < k; ++t) {
      values[i * k + t] = key_value(keys[t]);
      columns[i * k + t] = key_number(keys[t]);
    }
  }
}

// Merge the scores of each row into its k best so far (rows, k). Column c of row i has the id
// first + c. The id skip[i] is left out, and the smaller id wins a tie. NaN is left out.
[[maybe_unused]] void merge_best(const float* scores, int64_t rows, int64_t width, int64_t first,
                                 const int64_t* skip, int64_t k, float* values, int64_t* ids) {
  int32_t places[kStep];
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = scores + i * width;
    float* best = values + i * k;
    for (int64_t low = 0; low < width; low += kStep) {
      const int64_t count =
          find_at_least(row + low, smaller_of(kStep, width - low), best[k - 1], places);
      for (int64_t t = 0; t < count; ++t) {
        const int64_t id = first + low + places[t];
        if (id != skip[i]) insert_best(best, ids + i * k, k, k, row[low + places[t]], id);
      }
    }
  }
}

[[maybe_unused]] void log_sum_exps(const float* scores, int64_t rows, int64_t width, float* sums) {
  for (int64_t i = 0; i < rows; ++i) sums[i] = log_sum_exp(scores + i * width, width);
}
