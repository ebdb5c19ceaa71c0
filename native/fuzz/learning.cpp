// The kernels of learning, with sound and damaged arrays.
#include "learning_checks.h"
#include "source.h"
#include "targets.h"

void irli::fuzz_learning(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  source.mood = static_cast<Mood>(source.below(3));
  switch (source.below(4)) {
    case 0: check_ranking(source); break;
    case 1: check_placement(source); break;
    case 2: check_codes(source); break;
    default: check_top_k(source); break;
  }
}
