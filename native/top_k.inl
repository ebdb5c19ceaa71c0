// The largest scores and the log-sum-exp of each row of a matrix, for learning and ground truth.

// Columns j, j + 256, j + 512, ... of a row are a group.
constexpr int64_t kGroups = kMostLargest;
constexpr int64_t kStep = 64;  // columns that are compared with the same bound

// Insert the scores of a row that are at least `bound` into the k best so far, which are `found`.
// NaN counts as -infinity. Return how many are found now. Column c has the id first + c. The id
// `skip` is left out.
inline int64_t insert_reaching(const float* row, int64_t width, float bound, int64_t first,
                               int64_t skip, int64_t k, int64_t found, float* values,
                               int64_t* ids) {
  int32_t places[kStep];
  for (int64_t low = 0; low < width; low += kStep) {
    if (found == k) bound = larger_of(bound, values[k - 1]);
    const int64_t count = find_at_least(row + low, smaller_of(kStep, width - low), bound, places);
    for (int64_t t = 0; t < count; ++t) {
      const int64_t column = low + places[t], id = first + column;
      const float score = row[column] >= -INFINITY ? row[column] : -INFINITY;
      if (id != skip) found = insert_best(values, ids, k, found, score, id);
    }
  }
  return found;
}

// Write the k largest values of each row, largest first, and their columns. Of equal values the
// first comes first. k is at most 256 and at most the number of columns.
//
// The k-th largest of the group maxima is a lower bound that few scores of the row reach.
[[maybe_unused]] void find_top_k(const float* scores, int64_t rows, int64_t width, int64_t k,
                                 float* values, int64_t* columns) {
  float groups[kGroups];
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = scores + i * width;
    for (float& most : groups) most = -INFINITY;
    int64_t j = 0;
    for (; j + kGroups <= width; j += kGroups)
      for (int64_t g = 0; g < kGroups; g += 16)
        store(groups + g, larger(load(row + j + g), load(groups + g)));
    for (int64_t g = 0; j < width; ++j, ++g) groups[g] = row[j] > groups[g] ? row[j] : groups[g];
    const float bound = kth_largest(groups, kGroups, k);
    insert_reaching(row, width, bound, 0, -1, k, 0, values + i * k, columns + i * k);
  }
}

// Merge the scores of each row into its k best so far (rows, k). Column c of row i has the id
// first + c. The id skip[i] is left out, and the smaller id wins a tie.
[[maybe_unused]] void merge_best(const float* scores, int64_t rows, int64_t width, int64_t first,
                                 const int64_t* skip, int64_t k, float* values, int64_t* ids) {
  for (int64_t i = 0; i < rows; ++i)
    insert_reaching(scores + i * width, width, -INFINITY, first, skip[i], k, k, values + i * k,
                    ids + i * k);
}

[[maybe_unused]] void log_sum_exps(const float* scores, int64_t rows, int64_t width, float* sums) {
  for (int64_t i = 0; i < rows; ++i) sums[i] = log_sum_exp(scores + i * width, width);
}
