// select.h against sorting.
#include "check.h"
#include "select_checks.h"
#include "source.h"
#include "tests.h"

namespace irli {

void test_select() {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Source source(seed);
    about = "select, seed " + std::to_string(seed);
    check_select(source);
  }
}

}  // namespace irli
