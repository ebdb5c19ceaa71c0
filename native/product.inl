// Products of matrices in tiles whose sums stay in registers, and the nearest of many centroids.

// A matrix whose element (i, j) is at[i * row + j * column].
struct Strided {
  const float* at;
  int64_t row, column;
};

// out = a @ b, for a of (rows, depth), b of (depth, columns), both steps of at least `columns`
// rounded up to kWide. Behind the last column, b is zero, and so becomes out.
inline void multiply_matrix(const Strided& a, int64_t rows, int64_t depth, const float* b,
                            int64_t b_step, int64_t columns, float* out, int64_t out_step) {
  for (int64_t low = 0; low < columns; low += 16 * kSets)
    for (int64_t i = 0; i < rows; i += kTile) {
      const float* row[kTile];
      for (int64_t t = 0; t < kTile; ++t) row[t] = a.at + smaller_of(i + t, rows - 1) * a.row;
      Floats total[kTile][kSets];
      for (auto& each : total)
        for (Floats& part : each) part = fill(0);
      const float* weights = b + low;
      for (int64_t k = 0; k < depth; ++k, weights += b_step) {
        Floats next[kSets];
        for (int64_t s = 0; s < kSets; ++s) next[s] = load(weights + 16 * s);
        for (int64_t t = 0; t < kTile; ++t) {
          const Floats factor = fill(row[t][k * a.column]);
          for (int64_t s = 0; s < kSets; ++s) total[t][s] = fused(factor, next[s], total[t][s]);
        }
      }
      for (int64_t t = 0; t < smaller_of(kTile, rows - i); ++t)
        for (int64_t s = 0; s < kSets; ++s)
          store(out + (i + t) * out_step + low + 16 * s, total[t][s]);
    }
}

// Copy `count` (<= kWide) rows of a matrix to a panel (width, kWide), column by column. The columns of
// the panel behind them are zero.
inline void pack_panel(const float* rows, int64_t count, int64_t step, int64_t width,
                       float* panel) {
  for (int64_t j = 0; j < width; ++j)
    for (int64_t r = 0; r < kWide; ++r) panel[j * kWide + r] = r < count ? rows[r * step + j] : 0;
}

// Write rows (count, depth) @ matrix + offsets, for a matrix in panels of kWide columns, to `out`
// (count, step). The step is at least the number of columns, rounded up to kWide.
inline void multiply_panels(const float* rows, int64_t count, int64_t depth, const float* panels,
                            const float* offsets, int64_t columns, float* out, int64_t step) {
  for (int64_t low = 0; low < columns; low += kWide)
    multiply_matrix({rows, depth, 1}, count, depth, panels + low * depth, kWide, kWide, out + low,
                    step);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < columns; ++j) out[i * step + j] += offsets[j];
}

// Write for each row the column of the largest rows @ matrix + offsets, the first of equal ones.
// `scores` has room for kRowsTogether rows.
[[maybe_unused]] void find_best_columns(const float* rows, int64_t count, int64_t depth,
                                        const float* panels, const float* offsets, int64_t columns,
                                        float* scores, int64_t* best) {
  const int64_t step = round_up(columns, kWide);
  for (int64_t first = 0; first < count; first += kRowsTogether) {
    const int64_t some = smaller_of(kRowsTogether, count - first);
    multiply_panels(rows + first * depth, some, depth, panels, offsets, columns, scores, step);
    for (int64_t i = 0; i < some; ++i) {
      const float* row = scores + i * step;
      const float most = find_largest(row, columns);
      int64_t place = 0;
      while (place < columns - 1 && !(row[place] == most)) ++place;
      best[first + i] = place;
    }
  }
}

// Write the scores themselves (count, columns).
[[maybe_unused]] void score_columns(const float* rows, int64_t count, int64_t depth,
                                    const float* panels, const float* offsets, int64_t columns,
                                    float* scores, float* out) {
  const int64_t step = round_up(columns, kWide);
  for (int64_t first = 0; first < count; first += kRowsTogether) {
    const int64_t some = smaller_of(kRowsTogether, count - first);
    multiply_panels(rows + first * depth, some, depth, panels, offsets, columns, scores, step);
    for (int64_t i = 0; i < some; ++i)
      memcpy(out + (first + i) * columns, scores + i * step,
             static_cast<size_t>(columns) * sizeof(float));
  }
}
