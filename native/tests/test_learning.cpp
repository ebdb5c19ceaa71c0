// The loops of learning: what they write, and that no number of an array leads them astray.
#include "learning.h"

#include <math.h>

#include <algorithm>

#include "check.h"
#include "layouts.h"
#include "tests.h"

namespace irli {
namespace {

// Numbers that are now and then outside of [0, bound).
template <class T>
Exact<T> draw_numbers(Source& source, int64_t count, int64_t bound, bool good) {
  Exact<T> numbers(count);
  for (T& number : numbers) {
    number = static_cast<T>(source.draw(0, bound - 1));
    if (!good && source.draw(0, 20) == 0)
      number = static_cast<T>(source.coin() ? bound : source.draw(INT32_MIN, INT32_MAX));
  }
  return numbers;
}

template <class Bucket, class Index>
void test_rank_buckets(Source& source, bool good) {
  const int64_t buckets = source.between(1, 40), all = source.between(1, 20), count = 5;
  const int64_t kept = std::min<int64_t>(buckets, 4), queries = all + 3;
  const int64_t wanted = source.between(1, 9), entries = 30, more = source.coin() ? 2 : 0;
  Exact<Index> indptr = draw_numbers<Index>(source, all + 1, entries + 1, good);
  std::sort(indptr.begin(), indptr.end());
  const Exact<Index> wanting = draw_numbers<Index>(source, entries, queries, good);
  const Exact<Bucket> best = draw_numbers<Bucket>(source, queries * kept, buckets, good);
  const Exact<int64_t> rows = draw_numbers<int64_t>(source, count, all, good);
  const Exact<int32_t> held = draw_numbers<int32_t>(source, all, buckets, good);
  const Exact<int32_t> others = draw_numbers<int32_t>(source, count * more, buckets, good);
  const Exact<float> suits = draw_floats(source, count * more);
  const Exact<float> weights = draw_floats(source, entries);
  const Exact<float> chances = draw_floats(source, queries * kept);
  const Exact<float> factors = draw_floats(source, buckets), own = draw_floats(source, all);
  Exact<bool> allowed(buckets);
  for (bool& flag : allowed) flag = source.coin();
  Exact<int32_t> ranking(count * wanted);
  Exact<float> lead(count);
  const bool done = rank_buckets<Bucket, Index>(
      {rows.data(), held.data(), own.data(), count, all}, allowed.data(), buckets,
      {others.data(), suits.data(), more},
      {indptr.data(), wanting.data(), weights.data(), entries},
      {best.data(), chances.data(), factors.data(), queries, kept}, wanted, ranking.data(),
      lead.data());
  if (good) CHECK(done);
  if (done)
    for (const int32_t bucket : ranking) CHECK(bucket >= -1 && bucket < buckets);
}

void test_placement(Source& source, bool good) {
  const int64_t items = source.between(1, 30), buckets = source.between(1, 8);
  const int64_t choices = source.between(1, 4), limit = source.between(0, 9);
  const Exact<int64_t> order = draw_numbers<int64_t>(source, items, items, good);
  const Exact<int64_t> rows = draw_numbers<int64_t>(source, items, items, good);
  const Exact<int32_t> best = draw_numbers<int32_t>(source, items * choices, buckets, good);
  const Exact<int32_t> taken = draw_numbers<int32_t>(source, items, buckets, good);
  Exact<int64_t> loads(buckets), later(buckets);
  Exact<int32_t> chosen(items);
  const bool placed = place_least_loaded(order.data(), items, {best.data(), items, choices},
                                         loads.data(), buckets, chosen.data());
  if (good) CHECK(placed);
  if (placed) {
    int64_t total = 0;
    for (const int64_t load : loads) total += load;
    CHECK(total == items);
  }
  std::fill(chosen.begin(), chosen.end(), -1);
  const bool bounded =
      place_bounded(order.data(), rows.data(), items, {best.data(), items, choices}, limit,
                    later.data(), buckets, taken.data(), chosen.data(), items);
  if (good) CHECK(bounded);
  for (const int64_t load : later) CHECK(load <= limit);
  for (int64_t i = 0; i < items; ++i) CHECK(chosen[i] < 0 || chosen[i] != taken[i]);
}

// The loss of all vectors, which better codewords (M, 16, s) make smaller.
double loss(const Coded& coded, double eta, const float* codewords) {
  double total = 0;
  for (int64_t i = 0; i < coded.count; ++i) {
    double inner = 0;
    for (int64_t p = 0; p < coded.pieces * coded.size; ++p) {
      const int64_t m = p / coded.size, at = i * coded.pieces * coded.size + p;
      const int64_t word = m * kWords + coded.codes[i * coded.pieces + m];
      const double gap =
          static_cast<double>(coded.x[at]) - codewords[word * coded.size + p % coded.size];
      total += gap * gap;
      inner += gap * coded.along[at];
    }
    total += (eta - 1) * inner * inner;
  }
  return total;
}

void test_improve_codewords(Source& source) {
  const int64_t pieces = source.one_of({1, 3, 16, 17, 33}), size = source.one_of({1, 2, 3, 9});
  const int64_t count = source.one_of({1, 5, 15, 16, 17, 200}), width = pieces * size;
  const Exact<float> x = draw_floats(source, count * width);
  const Exact<float> along = draw_floats(source, count * width);
  Exact<float> codewords = draw_floats(source, width * kWords), before(codewords.size());
  std::copy(codewords.begin(), codewords.end(), before.begin());
  const Exact<uint8_t> codes = draw_numbers<uint8_t>(source, count * pieces, kWords, true);
  const Coded coded{x.data(), along.data(), codes.data(), count, pieces, size};
  for (const double eta : {1.0, 4.0}) {
    const double first = loss(coded, eta, codewords.data());
    improve_codewords(coded, eta, codewords.data());
    CHECK(loss(coded, eta, codewords.data()) <= first * (1 + 1e-5) + 1e-5);
  }
  for (int64_t m = 0; m < pieces; ++m) {  // codewords that no vector uses stay
    bool used[kWords] = {};
    for (int64_t i = 0; i < count; ++i) used[codes[i * pieces + m]] = true;
    for (int64_t j = 0; j < kWords; ++j)
      if (!used[j])
        CHECK(same(before.data() + (m * kWords + j) * size,
                   codewords.data() + (m * kWords + j) * size, size));
  }
}

void test_fill_blocks(Source& source, bool good) {
  const int64_t buckets = source.between(1, 4), pieces = 2 * source.between(0, 5), count = 50;
  Exact<int64_t> offsets(buckets + 1), starts(buckets + 1);
  for (int64_t b = 0; b < buckets; ++b) {
    const int64_t load = source.one_of({0, 1, 31, 32, 33, 70});
    offsets[b + 1] = offsets[b] + load;
    starts[b + 1] = starts[b] + (load + kLanes - 1) / kLanes;
  }
  const int64_t entries = offsets[buckets], block_count = starts[buckets];
  const Exact<int32_t> items = draw_numbers<int32_t>(source, entries, count, good);
  const Exact<uint8_t> codes = draw_numbers<uint8_t>(source, count * pieces, kWords, true);
  Exact<uint8_t> blocks(block_count * pieces / 2 * kLanes);
  if (!good && source.coin()) offsets[source.below(buckets + 1)] = source.draw(-99, 999);
  if (!good && source.coin()) starts[source.below(buckets + 1)] = source.draw(-99, 999);
  const Buckets lists{offsets.data(), starts.data(), items.data(), 1, buckets, entries};
  const bool done = fill_blocks(codes.data(), count, pieces, lists, blocks.data(), block_count);
  if (!good) return;
  CHECK(done);
  for (int64_t b = 0; b < buckets; ++b) {
    for (int64_t e = offsets[b]; e < offsets[b + 1]; ++e) {
      const int64_t place = e - offsets[b], lane = place % kLanes;
      for (int64_t m = 0; m < pieces; ++m) {
        const int64_t row = (starts[b] + place / kLanes) * (pieces / 2) + m / 2;
        const uint8_t byte = blocks[row * kLanes + 2 * (lane % 16) + lane / 16];
        CHECK((m % 2 ? byte >> 4 : byte & 15) == codes[items[e] * pieces + m]);
      }
    }
  }
}

}  // namespace

void test_learning() {
  Source source(1);
  for (int i = 0; i < 400; ++i) {
    about = std::to_string(i);
    const bool good = i % 2 == 0;
    source.mood = i % 3 == 0 ? kWild : kSmooth;
    test_rank_buckets<uint16_t, int32_t>(source, good);
    test_rank_buckets<int32_t, int64_t>(source, good);
    test_placement(source, good);
    test_fill_blocks(source, good);
    source.mood = kSmooth;
    test_improve_codewords(source);
  }
}

}  // namespace irli
