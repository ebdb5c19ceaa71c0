// The kernels of learning on labels.
#include "label_checks.h"
#include "source.h"
#include "targets.h"

void irli::fuzz_labels(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  source.mood = static_cast<Mood>(source.below(3));
  source.coin() ? check_training(source) : check_packing(source);
}
