// The training of routers.
#include "source.h"
#include "targets.h"
#include "training_checks.h"

void irli::fuzz_training(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  source.mood = static_cast<Mood>(source.below(3));
  switch (source.below(3)) {
    case 0:
      check_product(source, source.between(1, 70), source.between(1, 70), source.between(1, 70));
      break;
    case 1: check_step(source); break;
    default: check_trainer(source); break;
  }
}
