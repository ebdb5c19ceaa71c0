// Selections, against sorting.
#include "select_checks.h"
#include "source.h"
#include "targets.h"

void irli::fuzz_select(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  check_select(source);
}
