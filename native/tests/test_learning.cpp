// The kernels of learning.
#include "check.h"
#include "learning_checks.h"
#include "source.h"
#include "tests.h"

namespace irli {

void test_learning() {
  const struct {
    const char* name;
    void (*run)(Source&);
  } checks[] = {{"ranking", check_ranking},
                {"placement", check_placement},
                {"codes", check_codes},
                {"top_k", check_top_k}};
  for (const auto& check : checks)
    for (uint64_t seed = 0; seed < 300; ++seed) {
      Source source(seed);
      source.mood = static_cast<Mood>(seed % 3);
      about = std::string(check.name) + ", seed " + std::to_string(seed);
      check.run(source);
    }
}

}  // namespace irli
