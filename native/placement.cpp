// Re-partitioning: place items in their least loaded or best free bucket.

#include "learning.h"

namespace irli {

bool place_least_loaded(const int64_t* order, int64_t count, const Choices& choices, int64_t* loads,
                        int64_t buckets, int32_t* chosen) {
  for (int64_t n = 0; n < count; ++n) {
    const int64_t item = order[n];
    if (item < 0 || item >= choices.rows) return false;
    const int32_t* best = choices.best + item * choices.count;
    int32_t lightest = best[0];
    if (lightest < 0 || lightest >= buckets) return false;
    int64_t least = loads[lightest];
    for (int64_t t = 1; t < choices.count; ++t) {
      if (best[t] >= buckets) return false;
      if (best[t] < 0 || loads[best[t]] >= least) continue;
      lightest = best[t];
      least = loads[lightest];
    }
    loads[lightest] += 1;
    chosen[item] = lightest;
  }
  return true;
}

bool place_bounded(const int64_t* order, const int64_t* rows, int64_t count, const Choices& choices,
                   int64_t limit, int64_t* loads, int64_t buckets, const int32_t* taken,
                   int32_t* chosen, int64_t items) {
  for (int64_t n = 0; n < count; ++n) {
    const int64_t item = order[n], row = rows[n];
    if (item < 0 || item >= items || row < 0 || row >= choices.rows) return false;
    const int32_t* best = choices.best + row * choices.count;
    for (int64_t t = 0; t < choices.count; ++t) {
      if (best[t] >= buckets) return false;
      if (best[t] >= 0 && best[t] != taken[item] && loads[best[t]] < limit) {
        loads[best[t]] += 1;
        chosen[item] = best[t];
        break;
      }
    }
  }
  return true;
}

}  // namespace irli
