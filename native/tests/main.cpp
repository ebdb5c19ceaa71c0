// native_tests: every back-end that can run here against plain C++.
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "exposed.h"
#include "tests.h"

namespace {
int failures = 0;
}

void irli::fail(const char* file, int line, const char* what) {
  fprintf(stderr, "%s:%d: %s (%s)\n", file, line, what, about.c_str());
  if (++failures == 20) exit(1);
}

int main() {
  using namespace irli;
  printf("back-ends:");
  for (const Exposed* backend : exposed_backends()) printf(" %s", backend->name);
  printf("\n");
  const struct {
    const char* name;
    void (*run)();
  } tests[] = {
      {"simd", test_simd},
      {"dense", test_dense},
      {"select", test_select},
      {"soften", test_soften},
      {"search", test_search},
      {"stages", test_stages},
      {"many queries", test_many_queries},
      {"many items", test_many_items},
      {"predict", test_predict},
      {"learning", test_learning},
      {"training", test_training},
      {"labels", test_labels},
      {"check_layout", test_check_layout},
      {"corpus", test_corpus},
  };
  for (const auto& test : tests) {
    test.run();
    printf("%s: %s\n", test.name, failures ? "failed" : "good");
    fflush(stdout);
  }
  return failures > 0;
}
