// The text format of multi-label (XMC) data. `irli.labels.files.rows` describes it.

#include <math.h>

#include <array>
#include <cstdlib>
#include <string>

#include "labels.h"
#include "select.h"

namespace irli {
namespace {

using Powers = std::array<double, 309>;

// The powers of ten that a double can hold, each exactly rounded: those of `pow` are not.
const Powers& powers_of_ten() {
  static const Powers powers = [] {
    Powers made;
    for (size_t k = 0; k < made.size(); ++k)
      made[k] = std::strtod(("1e" + std::to_string(k)).c_str(), nullptr);
    return made;
  }();
  return powers;
}

constexpr int64_t kLargestExponent = 1000000000;
constexpr int64_t kMostDigits = 100000000000000000;  // 10^17: further digits are dropped

bool is_space(uint8_t code) { return code == ' ' || code == '\n' || code == '\t' || code == '\r'; }
bool is_digit(uint8_t code) { return code >= '0' && code <= '9'; }

// Whether the word that starts here is a pair 'column:value'.
bool is_pair(const uint8_t* at) {
  for (; !is_space(*at); ++at)
    if (*at == ':') return true;
  return false;
}

// Read an integer and move behind it. Return -1 if it is not in [0, limit).
int64_t read_whole(const uint8_t*& at, int64_t limit) {
  const uint8_t* start = at;
  int64_t value = 0;
  for (; is_digit(*at); ++at) value = smaller_of(value * 10 + (*at - '0'), limit);
  return at == start || value == limit ? -1 : value;
}

// Read a number and move behind it. Return NaN if there is none.
float read_number(const uint8_t*& at) {
  const bool negative = *at == '-';
  if (negative || *at == '+') ++at;
  // The number is mantissa * 10 ** (dropped - fraction + exponent).
  int64_t mantissa = 0, digits = 0, fraction = 0, dropped = 0, exponent = 0;
  for (bool pointed = false; is_digit(*at) || (*at == '.' && !pointed); ++at) {
    if (*at == '.') {
      pointed = true;
      continue;
    }
    ++digits;
    fraction += pointed;
    if (mantissa < kMostDigits) {
      mantissa = mantissa * 10 + (*at - '0');
    } else {
      ++dropped;
    }
  }
  if (digits && (*at == 'E' || *at == 'e')) {
    const bool below = at[1] == '-';
    at += below || at[1] == '+' ? 2 : 1;
    const uint8_t* start = at;
    exponent = read_whole(at, kLargestExponent);
    if (at == start) digits = 0;
    if (exponent < 0) exponent = kLargestExponent;
    if (below) exponent = -exponent;
  }
  if (digits == 0) return NAN;
  const int64_t power = dropped - fraction + exponent;
  const size_t size = static_cast<size_t>(smaller_of<int64_t>(power < 0 ? -power : power, 308));
  double value = static_cast<double>(mantissa);
  value = power >= 0 ? value * powers_of_ten()[size] : value / powers_of_ten()[size];
  return static_cast<float>(negative ? -value : value);
}

}  // namespace

ParsedText parse_text(const uint8_t* text, int64_t size, bool labelled, int64_t n,
                      int64_t n_columns, int64_t n_labels) {
  ParsedText out{};
  const uint8_t *at = text, *end = text + size;
  const auto fail = [&](Fault fault, const uint8_t* where) {
    out.fault = fault;
    out.at = where - text;
    return out;
  };
  for (int64_t row = 0; at < end; ++row, ++at) {
    const size_t labels = out.labels.size(), pairs = out.columns.size();
    if (labelled && row < n && !is_space(*at) && !is_pair(at)) {
      for (bool more = true; more;) {
        const uint8_t* start = at;
        const int64_t label = read_whole(at, n_labels);
        more = *at == ',';
        if (label < 0 || !(more || is_space(*at))) return fail(kBadLabel, start);
        out.labels.push_back(static_cast<int32_t>(label));
        at += more;
      }
    }
    while (*at != '\n') {
      if (is_space(*at)) {
        ++at;
        continue;
      }
      if (row >= n) return fail(kRowTooMany, at);
      const uint8_t* start = at;
      const int64_t column = read_whole(at, n_columns);
      if (column < 0 || *at != ':') return fail(kBadPair, start);
      const uint8_t* number = ++at;
      const float value = read_number(at);
      if (!isfinite(value) || !is_space(*at)) return fail(kBadValue, number);
      out.columns.push_back(static_cast<int32_t>(column));
      out.values.push_back(value);
    }
    if (row < n) {
      out.label_counts.push_back(static_cast<int64_t>(out.labels.size() - labels));
      out.pair_counts.push_back(static_cast<int64_t>(out.columns.size() - pairs));
    }
  }
  return out;
}

}  // namespace irli
