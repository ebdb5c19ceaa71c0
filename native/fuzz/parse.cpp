// The parser of XMC text: the one kernel that reads bytes as they come from a file.
#include <math.h>

#include <numeric>

#include "check.h"
#include "../labels.h"
#include "layouts.h"
#include "targets.h"

void irli::fuzz_parse(const uint8_t* bytes, size_t size) {
  if (size < 3) return;
  const bool labelled = bytes[0] & 1;
  const int64_t n = bytes[0] >> 1, n_columns = bytes[1], n_labels = bytes[2];
  const int64_t length = static_cast<int64_t>(size) - 2;
  Exact<uint8_t> text(length);  // no byte more: a read beyond the end is reported
  for (int64_t i = 0; i + 1 < length; ++i) text[i] = bytes[3 + i];
  text[length - 1] = '\n';
  const ParsedText parsed = parse_text(text.data(), length, labelled, n, n_columns, n_labels);
  const auto total = [](const std::vector<int64_t>& counts) {
    return static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  };
  for (const int32_t label : parsed.labels) CHECK(label >= 0 && label < n_labels);
  for (const int32_t column : parsed.columns) CHECK(column >= 0 && column < n_columns);
  for (const float value : parsed.values) CHECK(isfinite(value));
  CHECK(parsed.columns.size() == parsed.values.size());
  if (parsed.fault == kGood) {
    CHECK(static_cast<int64_t>(parsed.pair_counts.size()) <= n);
    CHECK(parsed.label_counts.size() == parsed.pair_counts.size());
    CHECK(total(parsed.label_counts) == parsed.labels.size());
    CHECK(total(parsed.pair_counts) == parsed.columns.size());
  } else {
    CHECK(parsed.at >= 0 && parsed.at < length);
  }
}
