// The largest scores and the log-sum-exp of each row of a matrix, for learning and ground truth.

constexpr int64_t kCollected = 1024;  // scores that are collected before a selection

// Write the k largest values of each row, largest first, and their columns. Of equal values the
// first comes first, and NaN counts as -infinity. k is at most 256 and at most the number of
// columns.
[[maybe_unused]] void find_top_k(const float* scores, int64_t rows, int64_t width, int64_t k,
                                 float* values, int64_t* columns) {
  uint64_t keys[kCollected];
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = scores + i * width;
    const int64_t found = collect_largest(row, width, k, kCollected, keys, [=](int64_t column) {
      const float score = row[column] >= -INFINITY ? row[column] : -INFINITY;
      return make_key(score, static_cast<uint32_t>(column));
    });
    kth_largest(keys, found, k);
    sort_down(keys, k);
    for (int64_t t = 0; t < k; ++t) {
      values[i * k + t] = key_value(keys[t]);
      columns[i * k + t] = key_number(keys[t]);
    }
  }
}

constexpr int64_t kInserted = 64;  // best entries up to which each new one is inserted by itself

// Merge sorted keys into the k best so far, largest first.
inline void merge_keys(const uint64_t* keys, int64_t count, int64_t base, int64_t k, float* values,
                       int64_t* ids) {
  const auto id_of = [=](int64_t t) { return base + static_cast<int64_t>(key_number(keys[t])); };
  int64_t kept = 0, added = 0;
  while (kept + added < k) {
    const bool adds = added < count &&
                      precedes(key_value(keys[added]), id_of(added), values[kept], ids[kept]);
    ++(adds ? added : kept);
  }
  for (int64_t place = k - 1; added > 0; --place) {
    const bool adds = kept == 0 || !precedes(key_value(keys[added - 1]), id_of(added - 1),
                                             values[kept - 1], ids[kept - 1]);
    if (adds) {
      --added;
      values[place] = key_value(keys[added]);
      ids[place] = id_of(added);
    } else {
      --kept;
      values[place] = values[kept];
      ids[place] = ids[kept];
    }
  }
}

// Merge the scores of each row into its k best so far (rows, k). Column c of row i has the id
// first + c. The id skip[i] is left out, and the smaller id wins a tie. NaN is left out.
[[maybe_unused]] void merge_best(const float* scores, int64_t rows, int64_t width, int64_t first,
                                 const int64_t* skip, int64_t k, float* values, int64_t* ids) {
  int32_t places[kStep];
  uint64_t keys[kCollected];
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = scores + i * width;
    float* best = values + i * k;
    int64_t* known = ids + i * k;
    int64_t collected = 0;
    const auto merge = [&] {
      sort_down(keys, collected);
      merge_keys(keys, collected, first, k, best, known);
      collected = 0;
    };
    for (int64_t low = 0; low < width; low += kStep) {
      const int64_t count =
          find_at_least(row + low, smaller_of(kStep, width - low), best[k - 1], places);
      for (int64_t t = 0; t < count; ++t) {
        const int64_t column = low + places[t], id = first + column;
        if (id == skip[i]) continue;
        if (k <= kInserted) {
          insert_best(best, known, k, k, row[column], id);
        } else if (precedes(row[column], id, best[k - 1], known[k - 1])) {
          keys[collected++] = make_key(row[column], static_cast<uint32_t>(column));
        }
      }
      if (collected > kCollected - kStep) merge();
    }
    if (collected) merge();
  }
}

[[maybe_unused]] void log_sum_exps(const float* scores, int64_t rows, int64_t width, float* sums) {
  for (int64_t i = 0; i < rows; ++i) sums[i] = log_sum_exp(scores + i * width, width);
}
