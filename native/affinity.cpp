// Label affinity: rank the buckets of each item by the router scores of its queries.

#include <vector>

#include "learning.h"
#include "select.h"

namespace irli {
namespace {

constexpr float kLeastAffinity = 1e-15f;  // of a bucket that is among the best of any query
constexpr int64_t kAhead = 4;             // queries whose scores are prefetched
constexpr size_t kLine = 64;              // bytes of a cache line
constexpr float kLeastSuit = 1e-20f;  // keeps products out of the denormal numbers, which are slow

// The affinities of one item, and the buckets whose affinity is not zero.
struct Sums {
  std::vector<float> affinity;   // (B)
  std::vector<int32_t> touched;  // (B + 1): of which `count` are in use
  size_t count = 0;

  // List a bucket if its affinity is zero, without a branch that would depend on that.
  void touch(size_t bucket) {
    touched[count] = static_cast<int32_t>(bucket);
    count += affinity[bucket] == 0;
  }
};

// Prefetch the scores of a query that is added soon.
template <class Bucket>
void fetch([[maybe_unused]] const BestBuckets<Bucket>& best, [[maybe_unused]] int64_t query) {
#if defined(__GNUC__)
  if (query < 0 || query >= best.queries) return;
  const char* buckets = reinterpret_cast<const char*>(best.buckets + query * best.kept);
  const char* chances = reinterpret_cast<const char*>(best.chances + query * best.kept);
  const size_t kept = static_cast<size_t>(best.kept);
  for (size_t at = 0; at < kept * sizeof(Bucket); at += kLine) __builtin_prefetch(buckets + at);
  for (size_t at = 0; at < kept * sizeof(float); at += kLine) __builtin_prefetch(chances + at);
#endif
}

// Add the scores of one query, weighted by the chance that it misses the item in bucket `held`.
template <class Bucket>
bool add_scores(const BestBuckets<Bucket>& best, int64_t query, float weight, int32_t held,
                Sums& sums) {
  if (query < 0 || query >= best.queries) return false;
  const Bucket* buckets = best.buckets + query * best.kept;
  const float* chances = best.chances + query * best.kept;
  if (held >= 0)
    for (int64_t t = 0; t < best.kept; ++t)
      if (static_cast<int64_t>(buckets[t]) == held) {
        weight *= 1 - chances[t];
        break;
      }
  // In registers, which nothing that is written can change.
  const size_t all = sums.affinity.size();
  float* const affinity = sums.affinity.data();
  int32_t* const touched = sums.touched.data();
  const float* const factors = best.factors;
  size_t count = sums.count;
  for (int64_t t = 0; t < best.kept; ++t) {
    const size_t bucket = static_cast<size_t>(buckets[t]);
    if (bucket >= all) return false;
    const float before = affinity[bucket];
    touched[count] = static_cast<int32_t>(bucket);
    count += before == 0;
    affinity[bucket] = before + (weight * chances[t] * factors[bucket] + kLeastAffinity);
  }
  sums.count = count;
  return true;
}

// Add a little for each of the `count` other buckets that no query has touched.
bool add_others(const int32_t* buckets, const float* suits, int64_t count, Sums& sums) {
  for (int64_t j = 0; j < count; ++j) {
    const size_t bucket = static_cast<size_t>(buckets[j]);
    if (bucket >= sums.affinity.size()) return false;
    if (sums.affinity[bucket] != 0) continue;
    sums.touch(bucket);
    sums.affinity[bucket] = larger_of(suits[j], kLeastSuit) * kLeastAffinity;
  }
  return true;
}

void drop_forbidden(const bool* allowed, Sums& sums) {
  size_t left = 0;
  for (size_t t = 0; t < sums.count; ++t) {
    const int32_t bucket = sums.touched[t];
    if (allowed[bucket]) {
      sums.touched[left++] = bucket;
    } else {
      sums.affinity[static_cast<size_t>(bucket)] = 0;
    }
  }
  sums.count = left;
}

// Write the best touched buckets and clear the sums. Of equal buckets, the one that was touched
// first comes first. Return how far the best one leads.
float take_best(Sums& sums, std::vector<uint64_t>& keys, int64_t wanted, int32_t* ranking) {
  keys.clear();
  for (size_t t = 0; t < sums.count; ++t) {
    float& affinity = sums.affinity[static_cast<size_t>(sums.touched[t])];
    if (affinity > -1) keys.push_back(make_key(affinity, static_cast<uint32_t>(t)));  // not NaN
    affinity = 0;
  }
  int64_t count = static_cast<int64_t>(keys.size());
  if (count > wanted) {
    kth_largest(keys.data(), count, wanted);
    count = wanted;
  }
  sort_down(keys.data(), count);
  for (int64_t t = 0; t < wanted; ++t)
    ranking[t] = t < count ? sums.touched[key_number(keys[static_cast<size_t>(t)])] : -1;
  sums.count = 0;
  const float first = count > 0 ? key_value(keys[0]) : -1;
  if (wanted == 1) return 0;
  return first - (count > 1 ? key_value(keys[1]) : -1);
}

}  // namespace

template <class Bucket, class Index>
bool rank_buckets(const Items& items, const bool* allowed, int64_t buckets, const Others& others,
                  const Wanting<Index>& wanting, const BestBuckets<Bucket>& best, int64_t wanted,
                  int32_t* ranking, float* lead) {
  Sums sums;
  sums.affinity.assign(static_cast<size_t>(buckets), 0.0f);
  sums.touched.assign(static_cast<size_t>(buckets) + 1, 0);
  std::vector<uint64_t> keys;
  keys.reserve(static_cast<size_t>(buckets));
  for (int64_t row = 0; row < items.count; ++row) {
    const int64_t item = items.rows[row];
    if (item < 0 || item >= items.all) return false;
    const int32_t held = items.held[item];
    if (items.weights[item] > 0 && !add_scores(best, item, items.weights[item], held, sums))
      return false;
    const int64_t begin = wanting.indptr[item], end = wanting.indptr[item + 1];
    if (begin < 0 || end > wanting.entries) return false;
    for (int64_t e = begin; e < end; ++e) {
      if (e + kAhead < end) fetch(best, wanting.queries[e + kAhead]);
      if (!add_scores(best, wanting.queries[e], wanting.weights[e], held, sums)) return false;
    }
    drop_forbidden(allowed, sums);
    const int64_t first = row * others.count;
    if (!add_others(others.buckets + first, others.suits + first, others.count, sums)) return false;
    lead[row] = take_best(sums, keys, wanted, ranking + row * wanted);
  }
  return true;
}

#define IRLI_RANK(Bucket, Index)                                                                   \
  template bool rank_buckets(const Items&, const bool*, int64_t, const Others&,                    \
                             const Wanting<Index>&, const BestBuckets<Bucket>&, int64_t, int32_t*, \
                             float*);
IRLI_RANK(uint16_t, int32_t)
IRLI_RANK(uint16_t, int64_t)
IRLI_RANK(int32_t, int32_t)
IRLI_RANK(int32_t, int64_t)
#undef IRLI_RANK

}  // namespace irli
