// CHECK: what the tests are made of.
#pragma once

#include <stdint.h>
#include <string.h>

#include <string>

namespace irli {

// What is being tested. A failed check prints it.
inline std::string about;

// Report a failed check. Tests go on, fuzz targets stop.
void fail(const char* file, int line, const char* what);

#define CHECK(condition)                                          \
  do {                                                            \
    if (!(condition)) irli::fail(__FILE__, __LINE__, #condition); \
  } while (false)

// Whether two floats are the same: the same bits, or both NaN.
inline bool same(float a, float b) { return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0; }
inline bool same(const float* a, const float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}

// Whether a float is within 1e-6 of the truth, relative to the size of what was added up.
inline bool near(float got, double truth, double size) {
  const double gap = static_cast<double>(got) - truth;
  return (gap < 0 ? -gap : gap) <= 1e-6 * size + 1e-37;
}

}  // namespace irli
