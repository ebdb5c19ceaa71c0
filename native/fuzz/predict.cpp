// Layouts of labels, sound and damaged, and predictions with them.
#include <stdexcept>

#include "check_layout.h"
#include "label_layouts.h"
#include "targets.h"

void irli::fuzz_predict(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  source.mood = static_cast<Mood>(source.below(3));
  PlantedLabels planted = make_label_layout(source, draw_label_shape(source));
  if (source.below(4) == 0) damage(source, planted);
  try {
    check_layout(planted.layout, planted.items.size(), planted.ranker.gaps.size(),
                 planted.near.gaps.size(), planted.near_labels.size());
  } catch (const std::invalid_argument&) {
    return;
  }
  check_predict(source, planted);
}
