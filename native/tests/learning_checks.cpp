#include "learning_checks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "check.h"
#include "exposed.h"
#include "layouts.h"
#include "learning.h"

namespace irli {
namespace {

// Whole numbers from `low` to `high`. If `damaged`, one of them may be anything.
template <class T>
Exact<T> draw_numbers(Source& source, int64_t count, int64_t low, int64_t high, bool damaged) {
  Exact<T> numbers(count);
  for (T& number : numbers) number = static_cast<T>(source.draw(low, high));
  if (damaged && source.below(3) == 0) damage_one(source, numbers);
  return numbers;
}

Exact<float> draw_chances(Source& source, int64_t count) {
  Exact<float> chances(count);
  for (float& chance : chances) chance = std::fabs(source.smooth());
  return chances;
}

// --- ranking ------------------------------------------------------------------------------------

template <class Bucket, class Index>
struct Ranking {
  int64_t buckets, all, count, points, kept, others, wanted;
  Exact<int64_t> rows;
  Exact<int32_t> held, other_buckets;
  Exact<float> item_weights, suits, chances, factors, weights;
  Exact<bool> allowed;
  Exact<Index> indptr, queries;
  Exact<Bucket> best;
};

template <class Bucket, class Index>
Ranking<Bucket, Index> draw_ranking(Source& source, bool damaged) {
  Ranking<Bucket, Index> r;
  r.buckets = source.one_of({1, 2, 5, 33, 100});
  r.all = source.one_of({1, 3, 20});
  r.count = source.between(1, r.all);
  r.points = r.all + source.between(0, 10);  // the items, then other queries
  r.kept = source.between(1, std::min<int64_t>(r.buckets, 8));
  r.others = source.coin() ? source.between(1, 4) : 0;
  r.wanted = source.between(1, 6);
  r.rows = draw_numbers<int64_t>(source, r.count, 0, r.all - 1, damaged);
  r.held = draw_numbers<int32_t>(source, r.all, -1, r.buckets - 1, damaged);
  r.item_weights = draw_chances(source, r.all);
  if (source.coin()) r.item_weights[source.below(r.all)] = 0;
  r.allowed = Exact<bool>(r.buckets);
  for (bool& one : r.allowed) one = source.draw(0, 4) > 0;
  r.other_buckets = draw_numbers<int32_t>(source, r.count * r.others, 0, r.buckets - 1, damaged);
  r.suits = draw_chances(source, r.count * r.others);
  r.indptr = Exact<Index>(r.all + 1);
  for (int64_t i = 0; i < r.all; ++i)
    r.indptr[i + 1] = static_cast<Index>(r.indptr[i] + source.draw(0, 4));
  const int64_t entries = static_cast<int64_t>(r.indptr[r.all]);
  if (damaged && source.below(3) == 0) damage_one(source, r.indptr);
  r.queries = draw_numbers<Index>(source, entries, 0, r.points - 1, damaged);
  r.weights = draw_chances(source, entries);
  r.chances = draw_chances(source, r.points * r.kept);
  r.factors = draw_chances(source, r.buckets);
  r.best = Exact<Bucket>(r.points * r.kept);
  std::vector<int64_t> order(static_cast<size_t>(r.buckets));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t q = 0; q < r.points; ++q)  // different buckets for each query
    for (int64_t t = 0; t < r.kept; ++t) {
      std::swap(order[static_cast<size_t>(t)],
                order[static_cast<size_t>(source.draw(t, r.buckets - 1))]);
      r.best[q * r.kept + t] = static_cast<Bucket>(order[static_cast<size_t>(t)]);
    }
  if (damaged && source.below(3) == 0) damage_one(source, r.best);
  return r;
}

// The buckets of item rows[row] in order, with their affinities.
template <class Bucket, class Index>
std::vector<std::pair<float, int32_t>> rank_simply(const Ranking<Bucket, Index>& r, int64_t row) {
  const int64_t item = r.rows[row];
  std::vector<float> affinity(static_cast<size_t>(r.buckets));
  std::vector<int32_t> touched;
  const auto add = [&](int64_t query, float item_weight) {
    float weight = item_weight;
    for (int64_t t = 0; t < r.kept; ++t)
      if (r.best[query * r.kept + t] == r.held[item]) weight *= 1 - r.chances[query * r.kept + t];
    for (int64_t t = 0; t < r.kept; ++t) {
      const Bucket bucket = r.best[query * r.kept + t];
      float& sum = affinity[static_cast<size_t>(bucket)];
      if (sum == 0) touched.push_back(static_cast<int32_t>(bucket));
      sum += weight * r.chances[query * r.kept + t] * r.factors[static_cast<int64_t>(bucket)] +
             1e-15f;
    }
  };
  if (r.item_weights[item] > 0) add(item, r.item_weights[item]);
  for (int64_t e = r.indptr[item]; e < r.indptr[item + 1]; ++e) add(r.queries[e], r.weights[e]);
  std::vector<std::pair<float, int32_t>> ranked;
  for (const int32_t bucket : touched)
    if (r.allowed[bucket]) ranked.emplace_back(affinity[static_cast<size_t>(bucket)], bucket);
  for (int64_t j = 0; j < r.others; ++j) {
    const int32_t bucket = r.other_buckets[row * r.others + j];
    const bool known = std::any_of(ranked.begin(), ranked.end(),
                                   [=](const auto& entry) { return entry.second == bucket; });
    if (!known) ranked.emplace_back(std::max(r.suits[row * r.others + j], 1e-20f) * 1e-15f, bucket);
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  return ranked;
}

template <class Bucket, class Index>
void check_ranking_of(Source& source) {
  const bool damaged = source.coin();
  const Ranking<Bucket, Index> r = draw_ranking<Bucket, Index>(source, damaged);
  Exact<int32_t> ranking(r.count * r.wanted);
  Exact<float> lead(r.count);
  const bool good = rank_buckets<Bucket, Index>(
      {r.rows.data(), r.held.data(), r.item_weights.data(), r.count, r.all}, r.allowed.data(),
      r.buckets, {r.other_buckets.data(), r.suits.data(), r.others},
      {r.indptr.data(), r.queries.data(), r.weights.data(), r.queries.size()},
      {r.best.data(), r.chances.data(), r.factors.data(), r.points, r.kept}, r.wanted,
      ranking.data(), lead.data());
  if (damaged) return;
  CHECK(good);
  for (int64_t row = 0; row < r.count; ++row) {
    const auto expected = rank_simply(r, row);
    const int64_t count = static_cast<int64_t>(expected.size());
    const auto value = [&](size_t t) {
      return count > static_cast<int64_t>(t) ? expected[t].first : -1;
    };
    for (int64_t t = 0; t < r.wanted; ++t)
      CHECK(ranking[row * r.wanted + t] ==
            (t < count ? expected[static_cast<size_t>(t)].second : -1));
    CHECK(same(lead[row], r.wanted == 1 ? 0 : value(0) - value(1)));
  }
}

// The score-aware loss of codes: |e|^2 + (eta - 1) <e, along>^2, over all vectors.
double compute_loss(const Coded& coded, const float* codewords, double eta) {
  const int64_t width = coded.pieces * coded.size;
  double loss = 0;
  for (int64_t i = 0; i < coded.count; ++i) {
    double along = 0;
    for (int64_t p = 0; p < width; ++p) {
      const int64_t m = p / coded.size, t = p % coded.size, j = coded.codes[i * coded.pieces + m];
      const double error = static_cast<double>(coded.x[i * width + p]) -
                           static_cast<double>(codewords[(m * kWords + j) * coded.size + t]);
      loss += error * error;
      along += error * static_cast<double>(coded.along[i * width + p]);
    }
    loss += (eta - 1) * along * along;
  }
  return loss;
}

void check_blocks(Source& source, const Exact<uint8_t>& codes, int64_t count, int64_t pieces) {
  const bool damaged = source.coin();
  const int64_t buckets = source.between(1, 3), entries = source.between(0, 80);
  Exact<int64_t> offsets(buckets + 1), starts(buckets + 1);
  for (int64_t b = 1; b < buckets; ++b) offsets[b] = source.draw(0, entries);
  offsets[buckets] = entries;
  std::sort(offsets.begin(), offsets.end());
  for (int64_t b = 0; b < buckets; ++b)
    starts[b + 1] = starts[b] + (offsets[b + 1] - offsets[b] + kLanes - 1) / kLanes;
  const int64_t total = starts[buckets];
  const Exact<int32_t> items = draw_numbers<int32_t>(source, entries, 0, count - 1, damaged);
  if (damaged && source.coin()) damage_one(source, offsets);
  if (damaged && source.coin()) damage_one(source, starts);
  Exact<uint8_t> blocks(total * (pieces / 2) * kLanes);
  const bool good = fill_blocks(codes.data(), count, pieces,
                                {offsets.data(), starts.data(), items.data(), 1, buckets, entries},
                                blocks.data(), total);
  if (damaged) return;
  CHECK(good);
  for (int64_t b = 0; b < buckets; ++b)
    for (int64_t e = offsets[b]; e < offsets[b + 1]; ++e) {
      const int64_t place = e - offsets[b], lane = place % kLanes;
      const uint8_t* block = blocks.data() + (starts[b] + place / kLanes) * (pieces / 2) * kLanes;
      for (int64_t m = 0; m + 1 < pieces; m += 2) {
        const uint8_t byte = block[m / 2 * kLanes + 2 * (lane % 16) + lane / 16];
        CHECK((byte & 15) == codes[items[e] * pieces + m]);
        CHECK(byte >> 4 == codes[items[e] * pieces + m + 1]);
      }
    }
}

}  // namespace

void check_ranking(Source& source) {
  switch (source.below(4)) {
    case 0: check_ranking_of<uint16_t, int32_t>(source); break;
    case 1: check_ranking_of<uint16_t, int64_t>(source); break;
    case 2: check_ranking_of<int32_t, int32_t>(source); break;
    default: check_ranking_of<int32_t, int64_t>(source); break;
  }
}

void check_placement(Source& source) {
  const bool damaged = source.coin();
  const int64_t items = source.between(1, 40), buckets = source.between(1, 20);
  const int64_t count = source.between(1, 5), limit = source.between(0, 6);
  Exact<int64_t> order(items), loads(buckets), bounded_loads(buckets);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i < items; ++i) std::swap(order[i], order[source.draw(i, items - 1)]);
  Exact<int32_t> best = draw_numbers<int32_t>(source, items * count, 0, buckets - 1, damaged);
  for (int64_t i = 0; i < items * count; ++i)  // -1 is padding, but never in the first place
    if (i % count && source.draw(0, 5) == 0) best[i] = -1;
  if (damaged && source.coin()) damage_one(source, order);
  const Exact<int32_t> taken = draw_numbers<int32_t>(source, items, -1, buckets - 1, false);
  Exact<int32_t> chosen(items), bounded(items);
  std::fill(bounded.begin(), bounded.end(), -7);
  const Choices choices{best.data(), items, count};
  const bool good =
      place_least_loaded(order.data(), items, choices, loads.data(), buckets, chosen.data());
  const bool bounded_good = place_bounded(order.data(), order.data(), items, choices, limit,
                                          bounded_loads.data(), buckets, taken.data(),
                                          bounded.data(), items);
  if (damaged) return;
  CHECK(good && bounded_good);
  std::vector<int64_t> now(static_cast<size_t>(buckets)), full(now);
  for (const int64_t item : order) {
    const int32_t* mine = best.data() + item * count;
    int32_t lightest = mine[0], free = -7;
    for (int64_t t = count - 1; t >= 0; --t) {
      if (mine[t] < 0) continue;
      if (mine[t] != taken[item] && full[static_cast<size_t>(mine[t])] < limit) free = mine[t];
    }
    for (int64_t t = 1; t < count; ++t)
      if (mine[t] >= 0 && now[static_cast<size_t>(mine[t])] < now[static_cast<size_t>(lightest)])
        lightest = mine[t];
    ++now[static_cast<size_t>(lightest)];
    if (free >= 0) ++full[static_cast<size_t>(free)];
    CHECK(chosen[item] == lightest);
    CHECK(bounded[item] == free);
  }
  CHECK(std::equal(now.begin(), now.end(), loads.begin()));
  CHECK(std::equal(full.begin(), full.end(), bounded_loads.begin()));
}

void check_codes(Source& source) {
  const bool wild = source.mood == kWild;
  const int64_t count = source.one_of({1, 7, 8, 9, 40}), pieces = source.one_of({1, 2, 4, 6});
  const int64_t size = source.between(1, 4), width = pieces * size;
  const float eta = static_cast<float>(source.between(1, 4));
  const Exact<float> x = draw_floats(source, count * width);
  const Exact<float> along = draw_floats(source, count * width);
  Exact<float> codewords = draw_floats(source, pieces * kWords * size);
  Exact<float> turned(codewords.size());  // (M, s, 16), as the kernels of a back-end read them
  for (int64_t m = 0; m < pieces; ++m)
    for (int64_t j = 0; j < kWords; ++j)
      for (int64_t t = 0; t < size; ++t)
        turned[(m * size + t) * kWords + j] = codewords[(m * kWords + j) * size + t];
  Exact<uint8_t> found(count * pieces), improved(count * pieces);
  const Kernels& fused = *all_kernels().back();
  fused.find_codes(x.data(), count, turned.data(), pieces, size, found.data());
  for (const uint8_t code : found) CHECK(code < kWords);
  std::copy(found.begin(), found.end(), improved.begin());
  fused.improve_codes(x.data(), along.data(), count, turned.data(), pieces, size, eta,
                      improved.data());
  for (const Kernels* kernels : all_kernels()) {
    const bool plain = std::string(kernels->name) == "plain";
    Exact<uint8_t> codes(count * pieces);
    kernels->find_codes(x.data(), count, turned.data(), pieces, size, codes.data());
    if (!wild && !plain) CHECK(std::equal(codes.begin(), codes.end(), found.begin()));
    for (int64_t i = 0; i < count && !wild; ++i)
      for (int64_t m = 0; m < pieces; ++m) {
        const auto error = [&](int64_t j) {
          double total = 0;
          for (int64_t t = 0; t < size; ++t) {
            const double gap = static_cast<double>(x[i * width + m * size + t]) -
                               static_cast<double>(codewords[(m * kWords + j) * size + t]);
            total += gap * gap;
          }
          return total;
        };
        for (int64_t j = 0; j < kWords; ++j)
          CHECK(error(codes[i * pieces + m]) <= error(j) * (1 + 1e-5) + 1e-12);
      }
    std::copy(found.begin(), found.end(), codes.begin());
    kernels->improve_codes(x.data(), along.data(), count, turned.data(), pieces, size, eta,
                           codes.data());
    for (const uint8_t code : codes) CHECK(code < kWords);
    if (!wild && !plain) CHECK(std::equal(codes.begin(), codes.end(), improved.begin()));
  }
  const Coded before{x.data(), along.data(), found.data(), count, pieces, size};
  const Coded after{x.data(), along.data(), improved.data(), count, pieces, size};
  const auto falls = [](double from, double to) { return to <= from * (1 + 1e-4) + 1e-4; };
  double loss = compute_loss(after, codewords.data(), eta);
  if (!wild) CHECK(falls(compute_loss(before, codewords.data(), eta), loss));
  improve_codewords(after, eta, codewords.data());
  if (!wild) CHECK(falls(loss, compute_loss(after, codewords.data(), eta)));
  check_blocks(source, improved, count, pieces);
}

void check_top_k(Source& source) {
  const int64_t width = source.one_of({1, 2, 15, 64, 65, 255, 256, 257, 600});
  const int64_t rows = source.between(1, 3);
  const int64_t k = std::min(width, source.one_of({1, 2, 10, 100, 256}));
  const int64_t first = source.between(0, 500);
  const Exact<float> scores = draw_floats(source, rows * width);
  Exact<int64_t> skip(rows);
  for (int64_t& one : skip) one = source.draw(-1, width);
  for (const Kernels* kernels : all_kernels()) {
    Exact<float> values(rows * k), merged(rows * k), sums(rows), expected_sums(rows);
    Exact<int64_t> columns(rows * k), ids(rows * k);
    kernels->find_top_k(scores.data(), rows, width, k, values.data(), columns.data());
    for (int64_t t = 0; t < rows * k; ++t) {  // as if nothing was found before
      merged[t] = -INFINITY;
      ids[t] = INT64_MAX;
    }
    kernels->merge_best(scores.data(), rows, width, first, skip.data(), k, merged.data(),
                        ids.data());
    kernels->log_sum_exps(scores.data(), rows, width, sums.data());
    all_kernels().back()->log_sum_exps(scores.data(), rows, width, expected_sums.data());
    for (int64_t i = 0; i < rows; ++i) {
      if (source.mood != kWild) {
        if (std::string(kernels->name) != "plain") CHECK(same(sums[i], expected_sums[i]));
        CHECK(near(sums[i], expected_sums[i], 20));
      }
      std::vector<std::pair<float, int64_t>> sorted;  // NaN counts as -infinity
      for (int64_t c = 0; c < width; ++c) {
        const float score = scores[i * width + c];
        sorted.emplace_back(score >= -INFINITY ? -score : INFINITY, c);
      }
      std::sort(sorted.begin(), sorted.end());
      for (int64_t t = 0; t < k; ++t) {
        CHECK(columns[i * k + t] == sorted[static_cast<size_t>(t)].second);
        CHECK(values[i * k + t] == -sorted[static_cast<size_t>(t)].first);
      }
      int64_t place = 0;
      for (const auto& [minus, column] : sorted) {
        const float score = scores[i * width + column];
        if (place == k || first + column == skip[i] || score != score) continue;
        CHECK(ids[i * k + place] == first + column && merged[i * k + place] == -minus);
        ++place;
      }
      for (; place < k; ++place) CHECK(ids[i * k + place] == INT64_MAX);
    }
  }
}

}  // namespace irli
