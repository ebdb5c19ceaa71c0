// The training of routers.
#include "check.h"
#include "source.h"
#include "tests.h"
#include "training_checks.h"

namespace irli {

void test_training() {
  for (int64_t size = 1; size <= 70; ++size)
    for (int64_t mood = 0; mood < 3; ++mood) {
      Source source(static_cast<uint64_t>(3 * size + mood));
      source.mood = static_cast<Mood>(mood);
      about = "product, size " + std::to_string(size) + ", mood " + std::to_string(mood);
      check_product(source, size, source.between(1, 70), source.between(1, 70));
      check_product(source, source.between(1, 70), size, source.between(1, 70));
      check_product(source, source.between(1, 70), source.between(1, 70), size);
    }
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Source source(seed);
    source.mood = static_cast<Mood>(seed % 3);
    about = "step, seed " + std::to_string(seed);
    check_step(source);
    about = "trainer, seed " + std::to_string(seed);
    check_trainer(source);
  }
}

}  // namespace irli
