// The primitives of each back-end against plain C++.
#include <math.h>

#include "check.h"
#include "exposed.h"
#include "layouts.h"
#include "tests.h"

namespace irli {
namespace {

// Calls of `act` with 16 floats three times, many of them special.
template <class Act>
void for_triples(Act act) {
  Source source(1);
  source.mood = kWild;
  for (int i = 0; i < 300; ++i) {
    const Exact<float> a = draw_floats(source, 16), b = draw_floats(source, 16),
                       c = draw_floats(source, 16);
    act(a.data(), b.data(), c.data());
  }
}

void test_floats(const Exposed& backend, const Exposed& plain, const Exposed& fused) {
  float got[16], expected[16];
  for_triples([&](const float* a, const float* b, const float* c) {
    using Binary = void (*const)(const float*, const float*, float*);
    const Binary pairs[][2] = {{backend.add, plain.add},
                               {backend.subtract, plain.subtract},
                               {backend.multiply, plain.multiply},
                               {backend.divide, plain.divide},
                               {backend.larger, plain.larger},
                               {backend.smaller, plain.smaller}};
    for (const auto& [tested, reference] : pairs) {
      tested(a, b, got);
      reference(a, b, expected);
      CHECK(same(got, expected, 16));
    }
    backend.fused(a, b, c, got);
    (&backend == &plain ? plain : fused).fused(a, b, c, expected);
    CHECK(same(got, expected, 16));
    CHECK(same(backend.sum(a), plain.sum(a)));
    float numbers[16];
    for (int lane = 0; lane < 16; ++lane) numbers[lane] = a[lane] == a[lane] ? a[lane] : -9;
    CHECK(backend.largest(numbers) == plain.largest(numbers));
    for (const float cut : {a[0], b[0], 0.0f, -0.0f, INFINITY, -INFINITY, NAN}) {
      CHECK(backend.reaching(a, cut) == plain.reaching(a, cut));
      CHECK(backend.count_reaching(a, 1, cut) == plain.count_reaching(a, 1, cut));
    }
    backend.fill(a[0], got);
    for (const float lane : got) CHECK(same(lane, a[0]));
  });
  // What plain.h promises about NaN.
  float nans[16], ones[16];
  backend.fill(NAN, nans);
  backend.fill(1, ones);
  backend.larger(nans, ones, got);
  CHECK(same(got, ones, 16));
  backend.smaller(nans, ones, got);
  CHECK(same(got, ones, 16));
  CHECK(backend.reaching(nans, 1) == 0xFFFF && backend.reaching(ones, 1.5f) == 0);
}

void test_sum_each(const Exposed& backend, const Exposed& plain) {
  Source source(5);
  source.mood = kWild;
  for (int i = 0; i < 100; ++i) {
    const Exact<float> rows = draw_floats(source, 16 * 16);
    float got[16];
    backend.sum_each(rows.data(), got);
    for (int row = 0; row < 16; ++row) CHECK(same(got[row], plain.sum(rows.data() + 16 * row)));
  }
}

void test_integers(const Exposed& backend, const Exposed& plain) {
  Source source(2);
  float got[16], expected[16];
  for (int i = 0; i < 300; ++i) {
    Exact<int8_t> bytes(16);
    Exact<int32_t> words(16);
    Exact<float> floats(16);
    for (int lane = 0; lane < 16; ++lane) {
      bytes[lane] = static_cast<int8_t>(source.draw(-128, 127));
      words[lane] = static_cast<int32_t>(source.draw(INT32_MIN, INT32_MAX));
      floats[lane] = static_cast<float>(source.draw(0, 255)) +
                     (source.coin() ? 0.0f : std::fabs(source.smooth()) * 0.99f);
    }
    backend.widen_bytes(bytes.data(), got);
    plain.widen_bytes(bytes.data(), expected);
    CHECK(same(got, expected, 16));
    backend.widen_words(words.data(), got);
    plain.widen_words(words.data(), expected);
    CHECK(same(got, expected, 16));
    Exact<uint8_t> stored(16);
    backend.store_bytes(stored.data(), floats.data());
    for (int lane = 0; lane < 16; ++lane) CHECK(stored[lane] == static_cast<uint8_t>(floats[lane]));
  }
}

void test_sum_block(const Exposed& backend, const Exposed& plain) {
  Source source(3);
  for (const int64_t rows : {0, 1, 2, 3, 7, 8, 16, 64, 258}) {
    for (int i = 0; i < 30; ++i) {
      Exact<uint8_t> codes(32 * rows), table(32 * rows);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(source.draw(0, 255));
      // The largest values that are allowed must not overflow.
      for (uint8_t& value : table) value = static_cast<uint8_t>(i ? source.draw(0, 127) : 127);
      Exact<uint16_t> got(32), expected(32);
      plain.sum_block(codes.data(), table.data(), rows, 0, expected.data());
      for (const int64_t cut :
           {int64_t{0}, int64_t{1}, int64_t{expected[0]}, expected[1] + int64_t{1}, int64_t{32767},
            int64_t{32768}, int64_t{65535}}) {
        const uint16_t bound = static_cast<uint16_t>(cut);
        const uint32_t bits =
            plain.sum_block(codes.data(), table.data(), rows, bound, expected.data());
        CHECK(backend.sum_block(codes.data(), table.data(), rows, bound, got.data()) == bits);
        CHECK(memcmp(got.data(), expected.data(), 64) == 0);
      }
    }
  }
}

void test_sum_bytes(const Exposed& backend, const Exposed& plain) {
  Source source(4);
  for (const int64_t fours : {0, 1, 2, 3, 15, 16, 17, 96, 1000}) {
    for (int i = 0; i < 20; ++i) {
      Exact<uint8_t> row(4 * fours);
      Exact<int8_t> weights(256 * fours);
      // The largest values that are allowed must not saturate.
      for (uint8_t& byte : row) byte = static_cast<uint8_t>(i < 2 ? 127 : source.draw(0, 127));
      for (int8_t& weight : weights)
        weight = static_cast<int8_t>(i == 0 ? -128 : i == 1 ? 127 : source.draw(-128, 127));
      Exact<int32_t> got(64), expected(64);
      backend.sum_bytes(row.data(), fours, weights.data(), got.data());
      plain.sum_bytes(row.data(), fours, weights.data(), expected.data());
      CHECK(memcmp(got.data(), expected.data(), 256) == 0);
    }
  }
}

}  // namespace

void test_simd() {
  const Exposed& plain = *exposed_backends().front();
  const Exposed& fused = *exposed_backends().back();
  for (const Exposed* backend : exposed_backends()) {
    about = backend->name;
    test_floats(*backend, plain, fused);
    test_sum_each(*backend, plain);
    test_integers(*backend, plain);
    test_sum_block(*backend, plain);
    test_sum_bytes(*backend, plain);
  }
}

}  // namespace irli
