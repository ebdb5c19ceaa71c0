// The kernels of learning on labels.
#include "label_checks.h"
#include "source.h"
#include "targets.h"

void irli::fuzz_labels(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  source.mood = static_cast<Mood>(source.below(3));
  switch (source.below(3)) {
    case 0: check_training(source); break;
    case 1: check_packing(source); break;
    default: check_near_rows(source); break;
  }
}
