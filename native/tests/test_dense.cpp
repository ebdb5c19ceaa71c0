// dense.inl with each back-end: against sums in float64, and against each other, bit by bit.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "exposed.h"
#include "layouts.h"
#include "tests.h"

namespace irli {
namespace {

constexpr int64_t kSizes[] = {0,  1,  2,  3,  7,  8,  9,  15, 16, 17,  31,  32,  33,  47,
                              48, 49, 63, 64, 65, 79, 80, 81, 95, 127, 128, 129, 200, 384};

// Whether a back-end must give the bits of "fused".
bool has_fma(const Exposed& backend) { return &backend != exposed_backends().front(); }
const Exposed& fused() { return *exposed_backends().back(); }

void test_products(const Exposed& backend) {
  Source source(1);
  for (const int64_t size : kSizes) {
    const Exact<float> a = draw_floats(source, size), b = draw_floats(source, size);
    Exact<int8_t> bytes(size);
    for (int8_t& byte : bytes) byte = static_cast<int8_t>(source.draw(-128, 127));
    double dot = 0, dot_size = 0, byte_dot = 0, byte_size = 0, square = 0;
    for (int64_t j = 0; j < size; ++j) {
      const double x = a[j], y = b[j];
      dot += x * y;
      dot_size += std::fabs(x * y);
      byte_dot += x * bytes[j];
      byte_size += std::fabs(x * bytes[j]);
      square += (x - y) * (x - y);
    }
    const float got = backend.dot(a.data(), b.data(), size);
    const float got_bytes = backend.dot_bytes(a.data(), bytes.data(), size);
    const float got_square = backend.squared_distance(a.data(), b.data(), size);
    CHECK(near(got, dot, dot_size));
    CHECK(near(got_bytes, byte_dot, byte_size));
    CHECK(near(got_square, square, square));
    if (!has_fma(backend)) continue;
    CHECK(same(got, fused().dot(a.data(), b.data(), size)));
    CHECK(same(got_bytes, fused().dot_bytes(a.data(), bytes.data(), size)));
    CHECK(same(got_square, fused().squared_distance(a.data(), b.data(), size)));
  }
}

void test_multiply_rows(const Exposed& backend) {
  Source source(2);
  for (const int64_t width : kSizes) {
    for (const int64_t depth : {0, 1, 5, 33}) {
      const int64_t count = source.between(1, kBlock), row_step = depth + source.between(0, 3);
      const int64_t out_step = width + source.between(0, 3);
      const Exact<float> rows = draw_floats(source, (count - 1) * row_step + depth);
      const Exact<float> matrix = draw_floats(source, depth * width);
      const Exact<float> bias = draw_floats(source, width);
      Exact<float> got((count - 1) * out_step + width), expected(got.size());
      std::fill(got.begin(), got.end(), 9.0f);  // what lies between the rows stays
      std::fill(expected.begin(), expected.end(), 9.0f);
      backend.kernels->multiply_rows(rows.data(), count, row_step, matrix.data(), depth, width,
                                     bias.data(), got.data(), out_step);
      fused().kernels->multiply_rows(rows.data(), count, row_step, matrix.data(), depth, width,
                                     bias.data(), expected.data(), out_step);
      if (has_fma(backend)) CHECK(same(got.data(), expected.data(), got.size()));
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < width; ++c) {
          double total = bias[c], total_size = std::fabs(total);
          for (int64_t j = 0; j < depth; ++j) {
            const double term = static_cast<double>(rows[i * row_step + j]) * matrix[j * width + c];
            total += term;
            total_size += std::fabs(term);
          }
          CHECK(near(got[i * out_step + c], total, total_size));
        }
      for (int64_t i = 0; i + 1 < count; ++i)
        for (int64_t c = width; c < out_step; ++c) CHECK(same(got[i * out_step + c], 9.0f));
    }
  }
}

void test_rows(const Exposed& backend) {
  Source source(3);
  for (const int64_t size : kSizes) {
    Exact<float> row = draw_floats(source, size), got(size);
    CHECK(backend.copy_row(row.data(), size, false, got.data()));
    CHECK(same(got.data(), row.data(), size));
    for (const float scale : {1.0f, 1e-40f, 1e38f}) {  // squares that no float32 can hold
      Exact<float> scaled(size), expected(size);
      double square = 0;
      for (int64_t j = 0; j < size; ++j) {
        scaled[j] = row[j] * scale;
        square += static_cast<double>(scaled[j]) * static_cast<double>(scaled[j]);
      }
      backend.kernels->normalize_rows(scaled.data(), 1, size, got.data());
      fused().kernels->normalize_rows(scaled.data(), 1, size, expected.data());
      CHECK(same(got.data(), expected.data(), size));
      for (int64_t j = 0; j < size; ++j)
        CHECK(near(got[j], square > 0 ? scaled[j] / std::sqrt(square) : 0, 1));
    }
    if (size == 0) continue;
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      row[source.below(size)] = bad;
      CHECK(!backend.copy_row(row.data(), size, true, got.data()));
      backend.kernels->normalize_rows(row.data(), 1, size, got.data());
      for (const float value : got) CHECK(value != value);
    }
  }
}

void test_logits(const Exposed& backend) {
  Source source(4);
  for (const int64_t size : kSizes) {
    for (const float spread : {0.0f, 1.0f, 30.0f, 1000.0f}) {
      Exact<float> logits = draw_floats(source, size);
      for (float& logit : logits) logit *= spread;
      const float top = backend.find_largest(logits.data(), size);
      if (size == 0) {
        CHECK(top == -INFINITY);
        continue;
      }
      CHECK(same(top, *std::max_element(logits.begin(), logits.end())));
      double total = 0;
      for (const float logit : logits) total += std::exp(std::max(logit - top, -60.0f));
      const float got = backend.sum_exps(logits.data(), size, top);
      CHECK(near(got, total, 20 * total));  // the polynomial is right to about 2e-5
      if (has_fma(backend)) CHECK(same(got, fused().sum_exps(logits.data(), size, top)));
      Exact<float> soft(size), expected(size);
      std::copy(logits.begin(), logits.end(), soft.begin());
      std::copy(logits.begin(), logits.end(), expected.begin());
      backend.log_softmax(soft.data(), size);
      fused().log_softmax(expected.data(), size);
      if (has_fma(backend)) CHECK(same(soft.data(), expected.data(), size));
      for (int64_t j = 0; j < size; ++j)
        CHECK(near(soft[j], static_cast<double>(logits[j] - top) - std::log(total),
                   20 + 2.0 * static_cast<double>(spread)));
    }
    // NaN is no largest value, and reaches every cut.
    Exact<float> values = draw_floats(source, size);
    for (int times = 0; times < 3 && size; ++times) values[source.below(size)] = NAN;
    float top = -INFINITY;
    for (const float value : values) top = value > top ? value : top;
    CHECK(same(backend.find_largest(values.data(), size), top));
    for (const float cut : {0.0f, -INFINITY, INFINITY, NAN, size ? values[0] : 0.5f}) {
      Exact<int32_t> places(size);
      const int64_t count = backend.find_at_least(values.data(), size, cut, places.data());
      int64_t place = 0;
      for (int64_t j = 0; j < size; ++j)
        if (!(values[j] < cut)) {
          CHECK(place < count && places[place] == j);
          ++place;
        }
      CHECK(count == place);
      CHECK(backend.count_at_least(values.data(), size, cut) == count);
    }
  }
}

void test_find_cut(const Exposed& backend) {
  Source source(6);
  for (const int64_t size : kSizes) {
    if (size == 0) continue;
    for (int i = 0; i < 12; ++i) {
      source.mood = static_cast<Mood>(i % 3);
      const Exact<float> values = draw_floats(source, size);
      const int64_t k = source.between(1, size + 2);
      const float cut = backend.find_cut(values.data(), size, k);
      int64_t reached = 0;
      float least = INFINITY;  // of those that reach the cut
      for (const float value : values) {
        reached += !(value < cut);
        if (value >= cut) least = std::min(least, value);
      }
      CHECK(reached >= std::min(k, size));
      if (reached <= k) continue;
      int64_t above = 0;  // the surplus are ties, or NaN
      for (const float value : values) above += value != value || value > least;
      CHECK(above < k || least == INFINITY);
    }
  }
}

void test_bound_largest(const Exposed& backend) {
  Source source(7);
  for (const int64_t size : {1, 15, 16, 100, 511, 512, 513, 1000, 5000}) {
    for (int i = 0; i < 12; ++i) {
      source.mood = static_cast<Mood>(i % 3);
      const Exact<float> values = draw_floats(source, size);
      const int64_t k = source.between(1, source.coin() ? 16 : size + 2);
      const float bound = backend.bound_largest(values.data(), size, k);
      int64_t numbers = 0, reached = 0;
      for (const float value : values) {
        numbers += value == value;
        reached += value >= bound;
      }
      CHECK(reached >= std::min(k, numbers));
    }
  }
  Exact<float> rising(5000);
  for (int64_t j = 0; j < rising.size(); ++j) rising[j] = static_cast<float>(j);
  const float bound = backend.bound_largest(rising.data(), rising.size(), 10);
  CHECK(bound <= 4990 && bound > 4980);  // few others reach it
}

void test_round_to_bytes(const Exposed& backend) {
  Source source(5);
  for (const int64_t size : kSizes) {
    for (const float scale : {1.0f, 1e-20f, 1e20f, 1e-44f, 0.0f, 3e38f}) {
      Exact<float> values = draw_floats(source, size);
      float most = 0;
      for (float& value : values) {
        value *= scale;
        most = std::max(most, std::fabs(value));
      }
      Exact<uint8_t> got((size + 15) / 16 * 16), expected(got.size());
      const float step = backend.round_to_bytes(values.data(), size, 64, 63, got.data());
      const float expected_step =
          fused().round_to_bytes(values.data(), size, 64, 63, expected.data());
      CHECK(same(step, expected_step));
      CHECK(step >= 0 && near(step, most > 1e-36f ? most / 63.0 : 0, most));
      for (int64_t j = 0; j < size; ++j) {
        // Only a value halfway between two bytes may depend on how a product is rounded.
        const double truth = step > 0 ? static_cast<double>(values[j]) * 63 / most : 0;
        CHECK(got[j] >= 1 && got[j] <= 127 && std::fabs(got[j] - 64 - truth) < 0.50001);
        if (has_fma(backend)) CHECK(got[j] == expected[j]);
      }
    }
    if (size == 0) continue;
    // Infinite values make all bytes zero. NaN becomes 0.
    Exact<float> values = draw_floats(source, size);
    Exact<uint8_t> got((size + 15) / 16 * 16);
    values[source.below(size)] = NAN;
    backend.round_to_bytes(values.data(), size, 64, 63, got.data());
    for (int64_t j = 0; j < size; ++j) CHECK(got[j] <= 127);
    values[source.below(size)] = source.coin() ? INFINITY : -INFINITY;
    CHECK(backend.round_to_bytes(values.data(), size, 64, 63, got.data()) == 0);
    for (int64_t j = 0; j < size; ++j) CHECK(got[j] == 64);
  }
}

}  // namespace

void test_dense() {
  for (const Exposed* backend : exposed_backends()) {
    about = backend->name;
    test_products(*backend);
    test_multiply_rows(*backend);
    test_rows(*backend);
    test_logits(*backend);
    test_find_cut(*backend);
    test_bound_largest(*backend);
    test_round_to_bytes(*backend);
  }
}

}  // namespace irli
