#include "select_checks.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "check.h"
#include "layouts.h"
#include "select.h"

namespace irli {
namespace {

int64_t draw_size(Source& source) {
  return source.one_of({1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 100, 257});
}

// Values with ties, in random, rising, falling or other order.
Exact<float> draw_values(Source& source, int64_t size) {
  source.mood = source.coin() ? kWhole : kSmooth;
  Exact<float> values = draw_floats(source, size);
  switch (source.below(5)) {
    case 0: std::sort(values.begin(), values.end()); break;
    case 1: std::sort(values.begin(), values.end(), std::greater<>()); break;
    case 2: std::sort(values.begin(), values.begin() + size / 2); break;
    case 3: values[source.below(size)] = source.coin() ? INFINITY : -INFINITY; break;
    default: break;
  }
  return values;
}

template <class T>
void check_kth_largest(const Exact<T>& values, int64_t k) {
  std::vector<T> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  Exact<T> moved(values.size());
  std::copy(values.begin(), values.end(), moved.begin());
  CHECK(kth_largest(moved.data(), moved.size(), k) == sorted[static_cast<size_t>(k - 1)]);
  std::sort(moved.begin(), moved.begin() + k, std::greater<>());  // the k largest came first
  CHECK(std::equal(moved.begin(), moved.begin() + k, sorted.begin()));
  std::sort(moved.begin(), moved.end(), std::greater<>());  // and nothing is lost
  CHECK(std::equal(moved.begin(), moved.end(), sorted.begin()));
}

void check_keep_best(Source& source, const Exact<float>& values, int64_t keep) {
  const int64_t size = values.size(), count = source.between(1, size);
  Exact<int32_t> places(count);
  std::vector<int32_t> all(static_cast<size_t>(size));
  for (int32_t t = 0; t < size; ++t) all[static_cast<size_t>(t)] = t;
  for (int64_t t = 0; t < count; ++t) {  // different places, in random order
    std::swap(all[static_cast<size_t>(t)], all[static_cast<size_t>(source.draw(t, size - 1))]);
    places[t] = all[static_cast<size_t>(t)];
  }
  // Of equal values the earlier one is kept, and the order stays.
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t t = 0; t < count; ++t) order[static_cast<size_t>(t)] = t;
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return values[places[a]] > values[places[b]]; });
  order.resize(static_cast<size_t>(std::min(keep, count)));
  std::sort(order.begin(), order.end());
  std::vector<int32_t> expected;
  for (const int64_t t : order) expected.push_back(places[t]);
  Exact<float> scratch(count);
  const int64_t kept = keep_best(places.data(), count, keep, values.data(), scratch.data());
  CHECK(kept == static_cast<int64_t>(expected.size()));
  CHECK(std::equal(expected.begin(), expected.end(), places.begin()));
}

void check_insert_best(Source& source, const Exact<float>& values, int64_t k) {
  Exact<float> best(k);
  Exact<int64_t> ids(k);
  std::vector<std::pair<float, int64_t>> expected;
  int64_t count = 0;
  for (const float value : values) {
    const int64_t id = source.draw(0, 1000);
    count = insert_best(best.data(), ids.data(), k, count, value, id);
    expected.emplace_back(-value, id);
  }
  std::sort(expected.begin(), expected.end());
  CHECK(count == std::min(k, values.size()));
  for (int64_t t = 0; t < count; ++t) {
    CHECK(best[t] == -expected[static_cast<size_t>(t)].first);
    CHECK(ids[t] == expected[static_cast<size_t>(t)].second);
  }
}

void check_keys(Source& source, const Exact<float>& values) {
  Exact<uint64_t> keys(values.size());
  std::vector<std::pair<float, uint32_t>> expected;
  for (int64_t i = 0; i < values.size(); ++i) {
    const uint32_t number = static_cast<uint32_t>(source.bits());
    keys[i] = make_key(values[i], number);
    CHECK(key_value(keys[i]) == values[i]);
    CHECK(key_number(keys[i]) == number);
    expected.emplace_back(-values[i], number);
  }
  check_kth_largest(keys, source.between(1, keys.size()));
  sort_down(keys.data(), keys.size());
  std::sort(expected.begin(), expected.end());
  for (int64_t i = 0; i < keys.size(); ++i) {
    CHECK(key_value(keys[i]) == -expected[static_cast<size_t>(i)].first);
    CHECK(key_number(keys[i]) == expected[static_cast<size_t>(i)].second);
  }
}

// NaN may make a selection arbitrary, but never endless, and never loses a value.
void check_nan(Source& source, Exact<float> values) {
  const int64_t size = values.size();
  for (int64_t times = source.between(1, size); times > 0; --times)
    values[source.below(size)] = NAN;
  Exact<int32_t> places(size);
  Exact<float> scratch(size);
  for (int32_t t = 0; t < size; ++t) places[t] = t;
  keep_best(places.data(), size, source.between(1, size), values.data(), scratch.data());
  const auto count_nan = [](const Exact<float>& some) {
    return std::count_if(some.begin(), some.end(), [](float value) { return value != value; });
  };
  const int64_t nans = count_nan(values);
  kth_largest(values.data(), size, source.between(1, size));
  CHECK(count_nan(values) == nans);
}

}  // namespace

void check_select(Source& source) {
  const Exact<float> values = draw_values(source, draw_size(source));
  check_kth_largest(values, source.between(1, values.size()));
  check_keep_best(source, values, source.between(1, values.size() + 2));
  check_insert_best(source, values, source.between(1, 20));
  check_keys(source, values);
  check_nan(source, draw_values(source, draw_size(source)));
  const uint32_t bits = static_cast<uint32_t>(source.bits()) | 1u << source.below(32);
  const int lowest = lowest_bit(bits);
  CHECK((bits >> lowest & 1) && (bits & ((uint32_t{1} << lowest) - 1)) == 0);
}

}  // namespace irli
