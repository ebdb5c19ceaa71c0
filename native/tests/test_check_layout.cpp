// check_layout: sound layouts pass, and each kind of damage is found.
#include <functional>
#include <stdexcept>

#include "check.h"
#include "check_layout.h"
#include "label_layouts.h"
#include "layouts.h"
#include "tests.h"

namespace irli {
namespace {

bool passes(const Planted& planted) {
  try {
    check_layout(planted.layout, planted.entries, planted.blocks);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

bool passes(const PlantedLabels& planted) {
  try {
    check_layout(planted.layout, planted.items.size(), planted.ranker.gaps.size(),
                 planted.near.gaps.size(), planted.near_labels.size());
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

void test_vector_layouts() {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Source source(seed);
    about = "sound, seed " + std::to_string(seed);
    CHECK(passes(make_layout(source, draw_shape(source))));
  }
  const std::function<void(Planted&)> damages[] = {
      [](Planted& p) { p.offsets[0] = -1; },
      [](Planted& p) { p.offsets[3] = p.entries + 1; },
      [](Planted& p) { p.offsets[p.layout.buckets] = p.entries + 1; },
      [](Planted& p) { p.items[0] = -1; },
      [](Planted& p) { p.items[p.entries - 1] = static_cast<int32_t>(p.layout.items); },
      [](Planted& p) { p.code_offsets[1] += 1; },
      [](Planted& p) { p.code_offsets[0] = -1; },
      [](Planted& p) { p.blocks -= 1; },
      [](Planted& p) { p.layout.codes.pieces = 3; },
      [](Planted& p) { p.layout.codes.pieces = 518; },
      [](Planted& p) { p.layout.linear = -1; },
      [](Planted& p) { p.layout.linear = p.layout.width + 1; },
      [](Planted& p) { p.zero[0] = INT32_MAX; },
      [](Planted& p) { p.column_zero[0] = INT32_MIN; },
      [](Planted& p) { p.layout.projection.columns -= 1; },
      [](Planted& p) { p.layout.metric = static_cast<Metric>(2); },
      [](Planted& p) { p.layout.items = 0; },
      [](Planted& p) { p.layout.dim = 0; },
      [](Planted& p) { p.layout.items = int64_t{1} << 31; },
      [](Planted& p) { p.layout.repetitions = int64_t{1} << 60; },
  };
  Source source(1);
  Shape shape{};
  shape.items = 50;
  shape.dim = 9;
  shape.repetitions = 2;
  shape.buckets = 5;
  shape.width = 6;
  shape.router = Shape::kInt8;
  shape.projection = true;
  shape.pieces = 4;
  shape.size = 2;
  shape.copies = 1;
  int number = 0;
  for (const auto& apply : damages) {
    about = "damage " + std::to_string(number++);
    Planted planted = make_layout(source, shape);
    CHECK(passes(planted));
    apply(planted);
    CHECK(!passes(planted));
  }
}

void test_label_layouts() {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Source source(seed);
    about = "sound labels, seed " + std::to_string(seed);
    CHECK(passes(make_label_layout(source, draw_label_shape(source))));
  }
  const std::function<void(PlantedLabels&)> damages[] = {
      [](PlantedLabels& p) { p.offsets[0] = -1; },
      [](PlantedLabels& p) { p.offsets[2] = p.items.size() + 1; },
      [](PlantedLabels& p) { p.items[0] = -1; },
      [](PlantedLabels& p) { p.items[1] = static_cast<int32_t>(p.layout.labels); },
      [](PlantedLabels& p) { p.ranker.starts[0] = -1; },
      [](PlantedLabels& p) { p.ranker.starts[p.layout.ranker.features] += 1; },
      [](PlantedLabels& p) { p.ranker.gaps[0] = 65535; },
      [](PlantedLabels& p) { p.near.starts[0] = -1; },
      [](PlantedLabels& p) { p.near.gaps[0] = 65535; },
      [](PlantedLabels& p) { p.near_starts[1] = p.near_labels.size() + 1; },
      [](PlantedLabels& p) { p.near_labels[0] = -1; },
      [](PlantedLabels& p) { p.near_labels[0] = static_cast<int32_t>(p.layout.labels); },
      [](PlantedLabels& p) { p.layout.near.outputs = int64_t{1} << 31; },
      [](PlantedLabels& p) { p.layout.trunks = 3; },
      [](PlantedLabels& p) { p.layout.buckets = 0; },
      [](PlantedLabels& p) { p.layout.ranker.features = -1; },
      [](PlantedLabels& p) { p.layout.width = 1 << 17; },
      [](PlantedLabels& p) { p.layout.labels = int64_t{1} << 31; },
  };
  int number = 0;
  for (const auto& apply : damages) {
    about = "damage of labels " + std::to_string(number++);
    Source source(1);
    PlantedLabels planted = make_label_layout(source, {40, 6, 2, 5, 8, false, 4, 9});
    CHECK(passes(planted));
    apply(planted);
    CHECK(!passes(planted));
  }
}

void test_rows() {
  const int64_t indptr[] = {0, 2, 2, 3};
  const int32_t indices[] = {0, 4, 2};
  const float data[] = {1, 1, 1};
  const SparseRows rows{indptr, indices, data};
  about = "rows";
  CHECK(check_rows(rows, 0, 3, 3, 5));
  CHECK(check_rows(rows, 1, 3, 3, 3));
  CHECK(!check_rows(rows, 0, 3, 2, 5));
  CHECK(!check_rows(rows, 0, 3, 3, 4));
  const int64_t falling[] = {0, 3, 2, 3}, negative[] = {-1, 2, 2, 3};
  CHECK(!check_rows({falling, indices, data}, 0, 3, 3, 5));
  CHECK(!check_rows({negative, indices, data}, 0, 3, 3, 5));
}

void test_items() {
  const int32_t rows[] = {0, 4, 2, 4, 1};
  about = "items";
  CHECK(are_items(rows, 5, 5) && are_items(rows, 0, 5));
  CHECK(!are_items(rows, 5, 4));  // more rows than items
  CHECK(!are_items(rows, 2, 4));
  for (const int32_t wrong : {-1, INT32_MIN, INT32_MAX, 5}) CHECK(!are_items(&wrong, 1, 5));
}

}  // namespace

void test_check_layout() {
  test_vector_layouts();
  test_label_layouts();
  test_rows();
  test_items();
}

}  // namespace irli
