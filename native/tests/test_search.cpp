// Whole searches on random layouts, with every back-end.
#include <algorithm>
#include <cmath>

#include "answers.h"
#include "check.h"
#include "exposed.h"
#include "scratch.h"
#include "tests.h"

namespace irli {

// Logits are divided by 1 + a distance that counts from 0 to a limit.
void test_soften() {
  for (const Exposed* backend : exposed_backends()) {
    about = std::string("soften, ") + backend->name;
    Source source(13);
    for (int64_t i = 0; i < 400; ++i) {
      source.mood = i % 2 ? kSmooth : kWhole;
      VectorLayout layout{};
      layout.dim = source.between(1, 70);
      layout.buckets = source.between(1, 70);
      const int64_t r = source.between(0, 1);
      const Exact<float> centres = draw_floats(source, 2 * layout.dim);
      Exact<float> soften = draw_floats(source, 2 * 3);
      for (float& value : soften) value = std::fabs(value);
      layout.centre = centres.data();
      layout.soften = soften.data();
      const Exact<float> query = draw_floats(source, layout.dim);
      const Exact<float> logits = draw_floats(source, layout.buckets);
      Exact<float> got(layout.buckets), expected(layout.buckets);
      std::copy(logits.begin(), logits.end(), got.begin());
      std::copy(logits.begin(), logits.end(), expected.begin());
      backend->soften_logits(layout, r, query.data(), got.data());
      exposed_backends().back()->soften_logits(layout, r, query.data(), expected.data());
      if (backend != exposed_backends().front())
        CHECK(same(got.data(), expected.data(), layout.buckets));
      double square = 0;
      for (int64_t j = 0; j < layout.dim; ++j) {
        const double gap = static_cast<double>(query[j]) -
                           static_cast<double>(centres[r * layout.dim + j]);
        square += gap * gap;
      }
      const double from_centre = static_cast<double>(soften[3 * r]) * square;
      const double inwards = static_cast<double>(soften[3 * r + 1]) *
                             static_cast<double>(*std::max_element(logits.begin(), logits.end()));
      const double most = static_cast<double>(soften[3 * r + 2]);
      const double factor = 1 / (1 + std::clamp(from_centre - inwards, 0.0, most));
      const double size = 1 + from_centre + std::fabs(inwards);
      for (int64_t b = 0; b < layout.buckets; ++b) {
        const double logit = static_cast<double>(logits[b]);
        CHECK(near(got[b], factor * logit, size * std::fabs(logit)));
      }
    }
  }
}

void test_search() {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Source source(seed);
    source.mood = static_cast<Mood>(seed % 3);
    const Shape shape = draw_shape(source);
    about = "search, seed " + std::to_string(seed);
    const Planted planted = make_layout(source, shape);
    const SearchPlan plan = draw_plan(source, shape);
    check_search(source, planted, plan, source.between(1, kBlock));
    if (source.mood != kWild) check_scratch(source, planted, plan);
  }
}

// A clock that ticks each time it is read counts the stages: a strange query is scanned, selected from
// and reranked twice.
void test_stages() {
  Source source(3);
  Shape shape{};
  shape.items = 200;
  shape.dim = 8;
  shape.repetitions = 1;
  shape.buckets = 5;
  shape.width = 8;
  shape.copies = 1;
  shape.centroids = true;
  const Planted planted = make_layout(source, shape);
  SearchPlan plan{};
  plan.k = plan.probes = plan.levels = 1;
  plan.thresholds[0] = plan.likely = -INFINITY;
  plan.start = -1;
  plan.exact_from = plan.far = INFINITY;
  plan.wide = 3;
  for (const Kernels* kernels : all_kernels()) {
    for (const bool strange : {false, true}) {
      about = std::string("stages, ") + kernels->name;
      plan.unsure = strange ? 2 : 0;
      SearchScratch memory(planted.layout);
      Scratch& scratch = memory.prepare(plan);
      std::fill_n(scratch.seconds, 4, 0.0);
      scratch.now = [] {
        static double ticks = 0;
        return ++ticks;
      };
      scratch.last = scratch.now();
      const Exact<float> query = draw_floats(source, shape.dim);
      float distance;
      int64_t item;
      kernels->search_block(planted.layout, plan, Selector{}, nullptr, kPlain, query.data(), 1,
                            scratch, &distance, &item, nullptr);
      CHECK(scratch.counts.strange == strange);
      CHECK(scratch.seconds[kRoute] == 1);
      for (const Stage stage : {kScan, kSelect, kRerank})
        CHECK(scratch.seconds[stage] == (strange ? 2 : 1));
    }
  }
}

// More queries than a stamp has numbers: old stamps must not look new.
void test_many_queries() {
  Source source(7);
  Shape shape{};
  shape.items = 40;
  shape.dim = 8;
  shape.repetitions = 2;
  shape.buckets = 5;
  shape.width = 8;
  shape.copies = 1;
  const Planted planted = make_layout(source, shape);
  SearchPlan plan{};
  plan.k = 3;
  plan.probes = 1;
  plan.candidates = 4;
  plan.thresholds[0] = plan.likely = -INFINITY;
  plan.start = -1;
  plan.levels = 1;
  plan.exact_from = plan.far = INFINITY;
  plan.fill = true;
  for (const Kernels* kernels : all_kernels()) {
    about = std::string("many queries, ") + kernels->name;
    SearchScratch used(planted.layout);
    for (int i = 0; i < 600; ++i) {
      SearchScratch fresh(planted.layout);
      const Exact<float> query = draw_floats(source, shape.dim);
      float distances[2][3];
      int64_t items[2][3];
      SearchScratch* memory[2] = {&used, &fresh};
      for (int which = 0; which < 2; ++which)
        kernels->search_block(planted.layout, plan, Selector{}, nullptr, kPlain, query.data(), 1,
                              memory[which]->prepare(plan), distances[which], items[which],
                              nullptr);
      CHECK(memcmp(items[0], items[1], sizeof items[0]) == 0);
      CHECK(same(distances[0], distances[1], 3));
    }
  }
}

// More items than there is room for keys: the scan and the rerank select in between.
void test_many_items() {
  Source source(11);
  Shape shape{};
  shape.items = 70000;
  shape.dim = 3;
  shape.repetitions = 1;
  shape.buckets = 2;
  shape.width = 2;
  shape.pieces = 2;
  shape.size = 1;
  shape.copies = 1;
  for (const Mood mood : {kSmooth, kWhole}) {
    source.mood = mood;
    const Planted planted = make_layout(source, shape);
    SearchPlan plan{};
    plan.k = 20;
    plan.probes = 2;
    plan.thresholds[0] = plan.likely = -INFINITY;
    plan.start = -1;
    plan.levels = 1;
    plan.exact_from = plan.far = INFINITY;
    plan.fill = true;
    about = "many items, rerank";
    check_search(source, planted, plan, 1);
    plan.exact = true;
    about = "many items, exact";
    for (const int64_t count : {kTogether, int64_t{37}, kCompared})
      check_search(source, planted, plan, count);
    plan.k = 40000;  // so many keys that the queries are compared one by one
    check_search(source, planted, plan, 3);
    plan.k = 20;
    plan.exact = false;
    plan.score = kCodes;
    plan.candidates = kMostCandidates;
    about = "many items, codes";
    check_search(source, planted, plan, 1);
    check_scratch(source, planted, plan);
  }
}

}  // namespace irli
