// Label prediction on random layouts, with every back-end.
#include "check.h"
#include "label_layouts.h"
#include "tests.h"

namespace irli {

void test_predict() {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Source source(seed);
    source.mood = static_cast<Mood>(seed % 3);
    about = "predict, seed " + std::to_string(seed);
    check_predict(source, make_label_layout(source, draw_label_shape(source)));
  }
}

}  // namespace irli
