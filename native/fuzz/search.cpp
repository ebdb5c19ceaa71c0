// Layouts of vectors, sound and damaged, and searches in them.
#include <stdexcept>

#include "answers.h"
#include "check_layout.h"
#include "targets.h"

void irli::fuzz_search(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  source.mood = static_cast<Mood>(source.below(3));
  Planted planted = make_layout(source, draw_shape(source));
  if (source.below(4) == 0) damage(source, planted);
  try {
    check_layout(planted.layout, planted.entries, planted.blocks);
  } catch (const std::invalid_argument&) {
    return;
  }
  const SearchPlan plan = draw_plan(source, planted.shape);
  check_search(source, planted, plan, source.between(1, 3));
  if (source.mood != kWild) check_scratch(source, planted, plan);
}
