// Choose the 4-bit codes of vectors. The 16 lanes are the 16 codewords of a piece.

constexpr int64_t kTogether = 8;  // vectors in turn, because each step waits for the one before
constexpr int64_t kPasses = 3;    // over the pieces, because the best code of one depends on others

// The first of the smallest errors. NaN loses.
inline uint8_t find_least(const Floats& errors) {
  const Floats scores = larger(subtract(fill(0), errors), fill(-INFINITY));
  return static_cast<uint8_t>(lowest_bit(reaching(scores, largest(scores))));
}

// Write the nearest of the codewords (M, s, 16) of vectors (count, M s) to codes (count, M).
[[maybe_unused]] void find_codes(const float* x, int64_t count, const float* codewords,
                                 int64_t pieces, int64_t size, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t m = 0; m < pieces; ++m) {
      Floats errors = fill(0);
      for (int64_t p = m * size; p < (m + 1) * size; ++p) {
        const Floats gap = subtract(fill(x[i * pieces * size + p]), load(codewords + 16 * p));
        errors = fused(gap, gap, errors);
      }
      codes[i * pieces + m] = find_least(errors);
    }
  }
}

// Improve the code of one piece by |e|^2 + weight <e, along>^2. `total` is <e, along> over all
// pieces.
inline void improve_code(const float* x, const float* along, const float* codewords, int64_t size,
                         float weight, float& total, uint8_t& code) {
  Floats errors = fill(0), here = fill(0);
  for (int64_t t = 0; t < size; ++t) {
    const Floats gap = subtract(fill(x[t]), load(codewords + 16 * t));
    errors = fused(gap, gap, errors);
    here = fused(fill(along[t]), gap, here);
  }
  float lanes[16];
  store(lanes, here);
  const float others = total - lanes[code];
  const Floats whole = add(fill(others), here);
  code = find_least(fused(multiply(fill(weight), whole), whole, errors));
  total = others + lanes[code];
}

// Improve codes (count, M), piece by piece, by the score-aware loss: an error along the vector
// counts `eta` times.
[[maybe_unused]] void improve_codes(const float* x, const float* along, int64_t count,
                                    const float* codewords, int64_t pieces, int64_t size, float eta,
                                    uint8_t* codes) {
  const int64_t width = pieces * size;
  for (int64_t low = 0; low < count; low += kTogether) {
    const int64_t high = smaller_of(low + kTogether, count);
    float totals[kTogether] = {};
    for (int64_t i = low; i < high; ++i)
      for (int64_t p = 0; p < width; ++p)
        totals[i - low] += along[i * width + p] *
                           (x[i * width + p] - codewords[16 * p + codes[i * pieces + p / size]]);
    for (int64_t pass = 0; pass < kPasses; ++pass)
      for (int64_t m = 0; m < pieces; ++m)
        for (int64_t i = low; i < high; ++i)
          improve_code(x + i * width + m * size, along + i * width + m * size,
                       codewords + 16 * m * size, size, eta - 1, totals[i - low],
                       codes[i * pieces + m]);
  }
}
