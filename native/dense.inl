// Dense float32 rows: products, distances, normalizing, softmax, rounding to bytes.

inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

inline void prefetch(const void* address) {
#if defined(_MSC_VER) && !defined(__clang__)
#if defined(_M_ARM64)
  __prefetch(address);
#else
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
#endif
#else
  __builtin_prefetch(address, 0, 3);
#endif
}

// Prefetch `size` bytes that will be read soon.
inline void fetch(const void* address, int64_t size) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(address) & ~uintptr_t{63};
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + static_cast<uintptr_t>(size);
  for (uintptr_t line = first; line < end; line += 64) {
    prefetch(reinterpret_cast<const void*>(line));
#if defined(__GNUC__)
    __asm__ volatile("");  // GCC 12 may drop prefetches from a loop without effects
#endif
  }
}

// Write the first `count` (< 16) lanes.
inline void store_some(float* to, const Floats& a, int64_t count) {
  float lanes[16];
  store(lanes, a);
  memcpy(to, lanes, static_cast<size_t>(count) * sizeof(float));
}

inline Floats read(const float* from) { return load(from); }
inline Floats read(const int8_t* from) { return widen(from); }
inline Floats read_some(const float* from, int64_t count) { return load_some(from, count); }
inline Floats read_some(const int8_t* from, int64_t count) { return widen_some(from, count); }

// What each column adds to a sum.
struct Product {
  static Floats add_to(const Floats& total, const Floats& x, const Floats& y) {
    return fused(x, y, total);
  }
};
struct Square {
  static Floats add_to(const Floats& total, const Floats& x, const Floats& y) {
    const Floats gap = subtract(x, y);
    return fused(gap, gap, total);
  }
};

// Sum up the terms of `a` and each of kRows rows: in 64-column steps with four sums, then in
// 16-column steps. `sum` of the lanes is the whole sum. Every sum of products below has this order.
template <class Term, int64_t kRows, class Number>
inline void sum_in_lanes(const float* a, const Number* const* rows, int64_t count, Floats* lanes) {
  Floats total[4][kRows];
  for (auto& part : total)
    for (Floats& each : part) each = fill(0);
  int64_t j = 0;
  for (; j + 64 <= count; j += 64)
    for (int part = 0; part < 4; ++part) {
      const int64_t at = j + 16 * part;
      for (int64_t r = 0; r < kRows; ++r)
        total[part][r] = Term::add_to(total[part][r], load(a + at), read(rows[r] + at));
    }
  for (int part = 0; part < 3; ++part)  // of a fixed length, so that the sums stay in registers
    if (j + 16 <= count) {
      for (int64_t r = 0; r < kRows; ++r)
        total[part][r] = Term::add_to(total[part][r], load(a + j), read(rows[r] + j));
      j += 16;
    }
  if (const int64_t left = count - j; left > 0)
    for (int64_t r = 0; r < kRows; ++r)
      total[3][r] = Term::add_to(total[3][r], load_some(a + j, left), read_some(rows[r] + j, left));
  for (int64_t r = 0; r < kRows; ++r)
    lanes[r] = add(add(total[0][r], total[1][r]), add(total[2][r], total[3][r]));
}

template <class Term, class Number>
inline float sum_terms(const float* a, const Number* b, int64_t count) {
  Floats lanes;
  sum_in_lanes<Term, 1>(a, &b, count, &lanes);
  return sum(lanes);
}

inline float dot(const float* a, const float* b, int64_t count) {
  return sum_terms<Product>(a, b, count);
}
inline float dot(const float* a, const int8_t* b, int64_t count) {
  return sum_terms<Product>(a, b, count);
}
inline float squared_distance(const float* a, const float* b, int64_t count) {
  return sum_terms<Square>(a, b, count);
}

// Write the sums of the terms of a query and each of many items: the rows items[t] of `rows`. A few items at once, so that the query is read once for all of them, and 16 vectors of
// sums are added up together.
template <class Term, class Number>
inline void sum_items(const float* query, const Rows<Number>& rows, int64_t dim,
                      const int32_t* items, int64_t count, float* sums) {
  constexpr int64_t kAtOnce = kTile * kSets / 4;  // as fit into registers, with four sums each
  const int64_t bytes = dim * static_cast<int64_t>(sizeof(Number));
  const int64_t ahead = larger_of<int64_t>(4, 4096 / bytes);  // items that are prefetched
  const auto find = [=](int64_t t) { return rows.at(items[smaller_of(t, count - 1)], dim); };
  for (int64_t t = 0; t < smaller_of(ahead, count); ++t) fetch(find(t), bytes);
  for (int64_t first = 0; first < count; first += 16) {
    Floats lanes[16] = {};
    const int64_t number = smaller_of<int64_t>(16, count - first);
    for (int64_t t = 0; t < number; t += kAtOnce) {
      const Number* some[kAtOnce];
      for (int64_t r = 0; r < kAtOnce; ++r) {
        const int64_t next = first + t + r;
        some[r] = find(next);
        if (next + ahead < count) fetch(find(next + ahead), bytes);
      }
      sum_in_lanes<Term, kAtOnce>(query, some, dim, lanes + t);
    }
    if (number == 16) {
      store(sums + first, sum_each(lanes));
    } else {
      store_some(sums + first, sum_each(lanes), number);
    }
  }
}

// out[i] = rows[i] @ matrix + bias, for rows and outputs that are `row_step` and `out_step` apart.
[[maybe_unused]] void multiply_rows(const float* rows, int64_t count, int64_t row_step,
                                    const float* matrix, int64_t depth, int64_t width,
                                    const float* bias, float* out, int64_t out_step) {
  int64_t low = 0;
  for (; low + 64 <= width; low += 64) {
    for (int64_t i = 0; i < count; ++i) {
      const float* row = rows + i * row_step;
      Floats total[4];
      for (int part = 0; part < 4; ++part) total[part] = load(bias + low + 16 * part);
      for (int64_t j = 0; j < depth; ++j) {
        const Floats factor = fill(row[j]);
        for (int part = 0; part < 4; ++part)
          total[part] = fused(factor, load(matrix + j * width + low + 16 * part), total[part]);
      }
      for (int part = 0; part < 4; ++part) store(out + i * out_step + low + 16 * part, total[part]);
    }
  }
  for (; low < width; low += 16) {
    if (width >= 16) low = smaller_of(low, width - 16);  // the last 16 overlap those before
    const int64_t columns = smaller_of<int64_t>(16, width - low);
    const bool whole = columns == 16;
    for (int64_t i = 0; i < count; ++i) {
      Floats total = whole ? load(bias + low) : load_some(bias + low, columns);
      for (int64_t j = 0; j < depth; ++j) {
        const float* weights = matrix + j * width + low;
        total = fused(fill(rows[i * row_step + j]),
                      whole ? load(weights) : load_some(weights, columns), total);
      }
      store_some(out + i * out_step + low, total, columns);
    }
  }
}

// Copy a row, scaled to unit length if `unit`. Return whether it is finite.
inline bool copy_row(const float* row, int64_t count, bool unit, float* out) {
  // In float64, where the square of a float32 cannot overflow. Eight sums, so that the compiler may
  // use vectors and still keep one order.
  double total[8] = {};
  int64_t j = 0;
  for (; j + 8 <= count; j += 8)
    for (int t = 0; t < 8; ++t)
      total[t] += static_cast<double>(row[j + t]) * static_cast<double>(row[j + t]);
  for (; j < count; ++j) total[0] += static_cast<double>(row[j]) * static_cast<double>(row[j]);
  const double length = ((total[0] + total[4]) + (total[2] + total[6])) +
                        ((total[1] + total[5]) + (total[3] + total[7]));
  if (!(length <= 1.7976931348623157e308)) return false;  // infinite or NaN
  if (unit) {
    const double scale = length > 0 ? 1.0 / sqrt(length) : 0.0;
    for (j = 0; j < count; ++j) out[j] = static_cast<float>(row[j] * scale);
  } else {
    memcpy(out, row, static_cast<size_t>(count) * sizeof(float));
  }
  return true;
}

[[maybe_unused]] void normalize_rows(const float* rows, int64_t count, int64_t dim, float* out) {
  for (int64_t i = 0; i < count; ++i)
    if (!copy_row(rows + i * dim, dim, true, out + i * dim))
      for (int64_t j = 0; j < dim; ++j) out[i * dim + j] = NAN;
}

// The largest value. NaN is ignored.
inline float find_largest(const float* values, int64_t count) {
  Floats best = fill(-INFINITY);
  int64_t j = 0;
  for (; j + 16 <= count; j += 16) best = larger(load(values + j), best);
  float lanes[16];
  store(lanes, best);
  float top = -INFINITY;
  for (float lane : lanes) top = lane > top ? lane : top;
  for (; j < count; ++j) top = values[j] > top ? values[j] : top;
  return top;
}

// List the places of the values that are at least `cut`, or NaN. Return how many they are.
inline int64_t find_at_least(const float* values, int64_t count, float cut, int32_t* places) {
  int64_t found = 0, j = 0;
  for (; j + 32 <= count; j += 32) {
    uint32_t bits = reaching(load(values + j), cut) | reaching(load(values + j + 16), cut) << 16;
    for (; bits; bits &= bits - 1) places[found++] = static_cast<int32_t>(j + lowest_bit(bits));
  }
  for (; j < count; ++j)
    if (!(values[j] < cut)) places[found++] = static_cast<int32_t>(j);
  return found;
}

// How many values are at least `cut`, or NaN.
inline int64_t count_at_least(const float* values, int64_t count, float cut) {
  int64_t found = count_reaching(values, count / 16, cut);
  for (int64_t j = count / 16 * 16; j < count; ++j) found += !(values[j] < cut);
  return found;
}

// Find the smallest and the largest value. NaN is ignored.
inline void find_range(const float* values, int64_t count, float& least, float& most) {
  Floats low = fill(INFINITY), high = fill(-INFINITY);
  const int64_t whole = count / 16 * 16;
  for (int64_t j = 0; j < whole; j += 16) {
    low = smaller(load(values + j), low);
    high = larger(load(values + j), high);
  }
  float lows[16], highs[16];
  store(lows, low);
  store(highs, high);
  least = INFINITY;
  most = -INFINITY;
  for (int t = 0; t < 16; ++t) {
    least = lows[t] < least ? lows[t] : least;
    most = highs[t] > most ? highs[t] : most;
  }
  for (int64_t j = whole; j < count; ++j) {
    least = values[j] < least ? values[j] : least;
    most = values[j] > most ? values[j] : most;
  }
}

// A cut that the k largest values reach (k >= 1), and others only if they equal the k-th largest.
// NaN reaches every cut.
//
// Bisection, about ten passes that only count: no branch depends on a single value, which makes
// this several times as fast as a selection that moves values. The middle of two values finds a cut
// soonest. The middle of their bits ends after 32 passes, whatever the values are.
inline float find_cut(const float* values, int64_t count, int64_t k) {
  if (count <= k) return -INFINITY;
  float least, most;
  find_range(values, count, least, most);
  if (!(least <= most)) return -INFINITY;  // all are NaN
  uint32_t low = ordered_bits(least), high = ordered_bits(most) + 1;
  for (int pass = 0; high - low > 1; ++pass) {  // k values reach `low`, fewer reach `high`
    uint32_t middle = low + (high - low) / 2;
    if (pass < 16) {
      const uint32_t between = ordered_bits(0.5f * float_of(low) + 0.5f * float_of(high));
      if (between > low && between < high) middle = between;
    }
    const int64_t reached = count_at_least(values, count, float_of(middle));
    (reached < k ? high : low) = middle;
    if (reached == k) break;
  }
  // Only here can NaN alone be enough.
  if (low == ordered_bits(most) && count_at_least(values, count, INFINITY) >= k) return INFINITY;
  return float_of(low);
}

constexpr int64_t kGroups = kMostLargest;
constexpr int64_t kStep = 64;  // values that are compared with the same bound

// A lower bound of the k-th largest value (k >= 1) that few others reach. NaN is ignored.
//
// The values j, j + 256, j + 512, ... are a group. What the largest of k groups reach, k values
// reach. If the values are few, each is a group, and only ties reach the bound besides.
inline float bound_largest(const float* values, int64_t count, int64_t k) {
  if (k > kGroups || k >= count) return -INFINITY;
  float groups[2 * kGroups];
  const int64_t width = count <= 2 * kGroups ? count : kGroups;
  for (float& most : groups) most = -INFINITY;
  for (int64_t low = 0; low < count; low += width) {
    const int64_t some = smaller_of(width, count - low), whole = some / 16 * 16;
    for (int64_t g = 0; g < whole; g += 16)
      store(groups + g, larger(load(values + low + g), load(groups + g)));
    for (int64_t g = whole; g < some; ++g)
      groups[g] = values[low + g] > groups[g] ? values[low + g] : groups[g];
  }
  return find_cut(groups, width, k);
}

// Write the keys of the k largest values, and of some others, and return how many they are.
// key_of(place) is the key of a value, or 0 to leave it out. NaN comes to it, too. `room` is at
// least k + kStep.
template <class KeyOf>
inline int64_t collect_largest(const float* values, int64_t count, int64_t k, int64_t room,
                               uint64_t* keys, KeyOf key_of) {
  float bound = bound_largest(values, count, k);
  int32_t places[kStep];
  int64_t found = 0;
  for (int64_t low = 0; low < count; low += kStep) {
    if (found > room - kStep) {
      bound = key_value(kth_largest(keys, found, k));
      found = k;
    }
    const int64_t reached =
        find_at_least(values + low, smaller_of(kStep, count - low), bound, places);
    for (int64_t t = 0; t < reached; ++t) {
      keys[found] = key_of(low + places[t]);
      found += keys[found] != 0;
    }
  }
  return found;
}

// exp(x) for x in [-60, 0], as exp(x / 64) ** 64 with a polynomial for exp(x / 64).
inline Floats exponential(const Floats& x) {
  const Floats y = multiply(x, fill(1.0f / 64));
  Floats p = fused(y, fill(1.0f / 720), fill(1.0f / 120));
  p = fused(y, p, fill(1.0f / 24));
  p = fused(y, p, fill(1.0f / 6));
  p = fused(y, p, fill(0.5f));
  p = fused(y, p, fill(1.0f));
  p = fused(y, p, fill(1.0f));
  for (int i = 0; i < 6; ++i) p = multiply(p, p);
  return p;
}

// The sum of exp(logits - top).
inline float sum_exps(const float* logits, int64_t count, float top) {
  const Floats most = fill(top), far = fill(-60.0f);  // this far below the top adds nothing
  Floats total = fill(0);
  int64_t j = 0;
  for (; j + 16 <= count; j += 16)
    total = add(total, exponential(larger(subtract(load(logits + j), most), far)));
  float result = sum(total);
  if (j < count) {
    float lanes[16];
    store(lanes, exponential(larger(subtract(load_some(logits + j, count - j), most), far)));
    for (int t = 0; t < count - j; ++t) result += lanes[t];
  }
  return result;
}

inline float log_sum_exp(const float* logits, int64_t count) {
  const float top = find_largest(logits, count);
  return top + logf(sum_exps(logits, count, top));
}

// Convert logits to log-probabilities, in place.
inline void log_softmax(float* logits, int64_t count) {
  const float total = log_sum_exp(logits, count);
  for (int64_t j = 0; j < count; ++j) logits[j] -= total;
}

// --- bytes --------------------------------------------------------------------------------------

// Round values to bytes around `zero`. Return the value of one step. The largest value is `highest`
// steps from zero. If all values are nearly zero, or one is infinite, all bytes become `zero`. `out`
// has room for `count` rounded up to 16.
inline float round_to_bytes(const float* values, int64_t count, float zero, float highest,
                            uint8_t* out) {
  float most = 0;
  {
    Floats low = fill(0), high = fill(0);
    int64_t j = 0;
    for (; j + 16 <= count; j += 16) {
      low = smaller(load(values + j), low);
      high = larger(load(values + j), high);
    }
    if (j < count) {
      low = smaller(load_some(values + j, count - j), low);
      high = larger(load_some(values + j, count - j), high);
    }
    float lows[16], highs[16];
    store(lows, low);
    store(highs, high);
    for (int t = 0; t < 16; ++t) most = larger_of(most, larger_of(highs[t], -lows[t]));
  }
  if (!(most > 1e-36f && most < INFINITY)) {  // below, the scale would overflow
    memset(out, static_cast<int>(zero), static_cast<size_t>(count));
    return 0;
  }
  const Floats scale = fill(highest / most), half_up = fill(zero + 0.5f);
  // NaN, which an overflow can make of finite inputs, becomes 0 here.
  for (int64_t j = 0; j < count; j += 16) {
    const Floats value = j + 16 <= count ? load(values + j) : load_some(values + j, count - j);
    store_bytes(out + j, smaller(larger(fused(value, scale, half_up), fill(0)), fill(255)));
  }
  return most / highest;
}

// Multiply `count` rows of bytes with 8-bit weights (panels, fours, 64, 4). Each panel of weights is
// read once for all rows.
inline void multiply_bytes(const uint8_t* rows, int64_t count, int64_t row_step,
                           const int8_t* weights, int64_t panels, int64_t fours, int32_t* sums,
                           int64_t sum_step) {
  for (int64_t panel = 0; panel < panels; ++panel)
    for (int64_t i = 0; i < count; ++i)
      sum_bytes(rows + i * row_step, fours, weights + panel * fours * 4 * kPanel,
                sums + i * sum_step + panel * kPanel);
}
