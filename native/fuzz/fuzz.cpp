// One target for libFuzzer. TARGET is its name.
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "targets.h"

void irli::fail(const char* file, int line, const char* what) {
  fprintf(stderr, "%s:%d: %s (%s)\n", file, line, what, about.c_str());
  abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  irli::about.clear();
  irli::TARGET(bytes, size);
  return 0;
}
