// Whole searches on random layouts, with every back-end.
#include "answers.h"
#include "check.h"
#include "exposed.h"
#include "scratch.h"
#include "tests.h"

namespace irli {

void test_search() {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Source source(seed);
    source.mood = static_cast<Mood>(seed % 3);
    const Shape shape = draw_shape(source);
    about = "search, seed " + std::to_string(seed);
    const Planted planted = make_layout(source, shape);
    const SearchPlan plan = draw_plan(source, shape);
    check_search(source, planted, plan, source.between(1, kBlock));
    if (source.mood != kWild) check_stages(source, planted, plan);
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
  plan.far = INFINITY;
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
        kernels->search_block(planted.layout, plan, nullptr, nullptr, kPlain, query.data(), 1,
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
    plan.far = INFINITY;
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
    check_stages(source, planted, plan);
  }
}

}  // namespace irli
