// Rounding to bytes, and sums of bytes and codes, with each back-end against plain C++.
#include "check.h"
#include "exposed.h"
#include "layouts.h"
#include "targets.h"

namespace irli {
namespace {

void check_rounding(Source& source) {
  const int64_t size = source.between(1, 200), room = (size + 15) / 16 * 16;
  const float zero = source.coin() ? 64 : 0, highest = zero > 0 ? 63 : 127;
  const Exact<float> values = draw_floats(source, size);
  const Exposed& fused = *exposed_backends().back();
  Exact<uint8_t> expected(room);
  const float step = fused.round_to_bytes(values.data(), size, zero, highest, expected.data());
  for (const Exposed* backend : exposed_backends()) {
    about = backend->name;
    Exact<uint8_t> got(room);
    const float got_step = backend->round_to_bytes(values.data(), size, zero, highest, got.data());
    CHECK(same(got_step, step));
    // A product that is rounded once or twice may lie on two sides of a half.
    const int apart = backend == exposed_backends().front() ? 1 : 0;
    for (int64_t j = 0; j < size; ++j)
      CHECK(got[j] - expected[j] <= apart && expected[j] - got[j] <= apart);
    for (int64_t j = 0; j < size && zero > 0; ++j) CHECK(got[j] <= 127);
  }
}

void check_sums(Source& source) {
  const int64_t fours = source.between(0, 70), rows = source.between(0, 258);
  Exact<uint8_t> row(4 * fours), codes(32 * rows), table(32 * rows);
  Exact<int8_t> weights(256 * fours);
  const int64_t least = source.one_of({0, 100, 127});  // the largest must not overflow
  for (uint8_t& byte : row) byte = static_cast<uint8_t>(source.draw(least, 127));
  for (int8_t& weight : weights)
    weight = static_cast<int8_t>(source.draw(-128, source.coin() ? 127 : -100));
  for (uint8_t& code : codes) code = static_cast<uint8_t>(source.draw(0, 255));
  for (uint8_t& value : table) value = static_cast<uint8_t>(source.draw(least, 127));
  const uint16_t cut = static_cast<uint16_t>(source.below(65536));
  const Exposed& plain = *exposed_backends().front();
  Exact<int32_t> sums(64), expected_sums(64);
  Exact<uint16_t> totals(32), expected_totals(32);
  plain.sum_bytes(row.data(), fours, weights.data(), expected_sums.data());
  const uint32_t bits =
      plain.sum_block(codes.data(), table.data(), rows, cut, expected_totals.data());
  for (const Exposed* backend : exposed_backends()) {
    about = backend->name;
    backend->sum_bytes(row.data(), fours, weights.data(), sums.data());
    CHECK(memcmp(sums.data(), expected_sums.data(), 256) == 0);
    CHECK(backend->sum_block(codes.data(), table.data(), rows, cut, totals.data()) == bits);
    CHECK(memcmp(totals.data(), expected_totals.data(), 64) == 0);
  }
}

}  // namespace

void fuzz_bytes(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  source.mood = static_cast<Mood>(source.below(3));
  check_rounding(source);
  check_sums(source);
}

}  // namespace irli
