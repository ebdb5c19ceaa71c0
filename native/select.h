// Selection: the k-th largest, the k best with ties, one insertion, one sort.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

namespace irli {
namespace {

template <class T>
inline T smaller_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
inline T larger_of(T a, T b) {
  return a < b ? b : a;
}
template <class T>
inline void swap(T& a, T& b) {
  const T c = a;
  a = b;
  b = c;
}

// The number of the lowest bit that is set. There must be one.
inline int lowest_bit(uint32_t bits) {
#if defined(_MSC_VER)
  unsigned long place;
  _BitScanForward(&place, bits);
  return static_cast<int>(place);
#else
  return __builtin_ctz(bits);
#endif
}

// The k-th largest value, k >= 1 (Hoare's selection). The k largest come first afterwards.
template <class T>
[[maybe_unused]] T kth_largest(T* values, int64_t count, int64_t k) {
  int64_t low = 0, high = count - 1;
  const int64_t want = k - 1;
  while (low < high) {
    const T a = values[low], b = values[(low + high) / 2], c = values[high];
    const T pivot = larger_of(smaller_of(a, b), smaller_of(larger_of(a, b), c));
    int64_t i = low, j = high;
    while (i <= j) {
      while (values[i] > pivot) ++i;
      while (values[j] < pivot) --j;
      if (i <= j) swap(values[i++], values[j--]);
    }
    if (want <= j) {
      high = j;
    } else if (want >= i) {
      low = i;
    } else {
      break;
    }
  }
  return values[want];
}

// Move the `keep` best of the first `count` places to the front. Return how many are kept. The
// value of place p is values[p]. Of equal values the earlier place is kept. `order` is scratch
// memory for `count` values.
template <class Place>
[[maybe_unused]] int64_t keep_best(Place* places, int64_t count, int64_t keep, const float* values,
                                   float* order) {
  if (count <= keep) return count;
  for (int64_t t = 0; t < count; ++t) order[t] = values[places[t]];
  const float cut = kth_largest(order, count, keep);
  int64_t ties = keep, kept = 0;
  for (int64_t t = 0; t < count; ++t) ties -= values[places[t]] > cut;
  for (int64_t t = 0; t < count; ++t) {
    const Place place = places[t];
    const bool above = values[place] > cut;
    if (above || (!(values[place] < cut) && ties > 0)) {
      ties -= !above;
      places[kept++] = place;
    }
  }
  return kept;
}

// Whether an entry comes before another: by larger value, then by smaller id.
template <class Id>
inline bool precedes(float value, Id id, float other_value, Id other_id) {
  return value != other_value ? value > other_value : id < other_id;
}

// Insert an entry into the k best so far, largest first. Return how many there are now. `values`
// and `ids` have room for k entries and hold `count`.
template <class Id>
[[maybe_unused]] inline int64_t insert_best(float* values, Id* ids, int64_t k, int64_t count,
                                            float value, Id id) {
  const int64_t last = k - 1;
  if (count > last && !precedes(value, id, values[last], ids[last])) return count;
  int64_t place = smaller_of(count, last);
  for (; place > 0 && precedes(value, id, values[place - 1], ids[place - 1]); --place) {
    values[place] = values[place - 1];
    ids[place] = ids[place - 1];
  }
  values[place] = value;
  ids[place] = id;
  return smaller_of(count + 1, k);
}

// --- keys: a value and a number in 64 bits, so that one selection and one sort serve both --------

// The bits of a float in an order that integers have, too. -0 becomes 0.
inline uint32_t ordered_bits(float value) {
  value += 0.0f;
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

inline float float_of(uint32_t ordered) {
  const uint32_t bits = ordered & 0x80000000u ? ordered & 0x7FFFFFFFu : ~ordered;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A key that is larger for a larger value, and among equal values for a smaller number.
inline uint64_t make_key(float value, uint32_t number) {
  return static_cast<uint64_t>(ordered_bits(value)) << 32 | static_cast<uint32_t>(~number);
}
inline float key_value(uint64_t key) { return float_of(static_cast<uint32_t>(key >> 32)); }
inline uint32_t key_number(uint64_t key) { return ~static_cast<uint32_t>(key); }

// Sort keys, largest first (shell sort: a few hundred at most as a rule, and no memory).
[[maybe_unused]] void sort_down(uint64_t* keys, int64_t count) {
  int64_t gap = 1;
  while (gap < count / 4) gap = gap * 9 / 4 + 1;
  for (; gap > 0; gap = gap == 1 ? 0 : larger_of<int64_t>(1, gap * 4 / 9)) {
    for (int64_t i = gap; i < count; ++i) {
      const uint64_t key = keys[i];
      int64_t place = i;
      for (; place >= gap && keys[place - gap] < key; place -= gap) keys[place] = keys[place - gap];
      keys[place] = key;
    }
  }
}

}  // namespace
}  // namespace irli
