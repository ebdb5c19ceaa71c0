#include "answers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "check.h"
#include "exposed.h"
#include "scratch.h"

namespace irli {
namespace {

struct Question {
  const Planted& planted;
  const SearchPlan& plan;
  const uint8_t* allowed;  // or null
  const int64_t* ids;      // or null
  Form form;
};

struct Answer {
  Exact<float> distances;
  Exact<int64_t> items;
  bool finite;
};

struct Truth {
  double distance, size;  // size: the sum of the absolute values of all terms
};

Truth compute_truth(const VectorLayout& layout, const float* query, int64_t item) {
  Truth truth{};
  for (int64_t j = 0; j < layout.dim; ++j) {
    const double a = query[j], b = layout.vectors[item * layout.dim + j];
    const double term = layout.metric == kL2 ? (a - b) * (a - b) : -a * b;
    truth.distance += term;
    truth.size += std::fabs(term);
  }
  return truth;
}

bool is_allowed(const Question& question, int64_t item) {
  return !question.allowed || question.allowed[item];
}

// The allowed items that lie in some bucket.
std::set<int64_t> find_reachable(const Question& question) {
  const VectorLayout& layout = question.planted.layout;
  std::set<int64_t> reachable;
  for (int64_t r = 0; r < layout.repetitions; ++r) {
    const int64_t* row = layout.offsets + r * (layout.buckets + 1);
    for (int64_t e = row[0]; e < row[layout.buckets]; ++e)
      if (is_allowed(question, layout.entries[e])) reachable.insert(layout.entries[e]);
  }
  return reachable;
}

Answer search(const Kernels& kernels, const Question& question, const Exact<float>& queries,
              int64_t count, Scratch& scratch) {
  const int64_t k = question.plan.k;
  Answer answer{Exact<float>(count * k), Exact<int64_t>(count * k), false};
  answer.finite = kernels.search_block(question.planted.layout, question.plan, question.allowed,
                                       question.ids, question.form, queries.data(), count, scratch,
                                       answer.distances.data(), answer.items.data());
  return answer;
}

// The query as the kernels see it, with unit length for cosine.
Exact<float> prepare(const Question& question, const float* query) {
  const int64_t dim = question.planted.shape.dim;
  Exact<float> row(dim);
  std::copy(query, query + dim, row.begin());
  if (question.form == kCosine)
    exposed_backends().front()->kernels->normalize_rows(query, 1, dim, row.data());
  return row;
}

void check_answer(const Question& question, const float* query, bool wild, float* distances,
                  int64_t* items) {
  const VectorLayout& layout = question.planted.layout;
  const SearchPlan& plan = question.plan;
  const Exact<float> row = prepare(question, query);
  std::set<int64_t> seen;
  int64_t count = 0;
  for (int64_t t = 0; t < plan.k; ++t) {
    // Back to what the kernels compute.
    if (question.form == kIp) distances[t] = -distances[t];
    if (question.form == kCosine) distances[t] -= 1;
    if (items[t] == -1) {
      CHECK(distances[t] == INFINITY);
      continue;
    }
    CHECK(count == t);  // nothing comes after the first empty place
    ++count;
    if (question.ids) items[t] = -2 - items[t];  // see check_search
    CHECK(items[t] >= 0 && items[t] < layout.items);
    if (items[t] < 0 || items[t] >= layout.items) return;
    CHECK(seen.insert(items[t]).second);
    CHECK(is_allowed(question, items[t]));
    CHECK(distances[t] == distances[t]);
    if (t > 0) CHECK(distances[t - 1] <= distances[t]);
    if (t > 0 && distances[t - 1] == distances[t] && question.form != kCosine)
      CHECK(items[t - 1] < items[t]);
    if (wild) continue;
    const Truth truth = compute_truth(layout, row.data(), items[t]);
    CHECK(near(distances[t], truth.distance, truth.size + (question.form == kCosine)));
  }
  if (wild || plan.min_votes > 1) return;
  const std::set<int64_t> reachable = find_reachable(question);
  const int64_t total = static_cast<int64_t>(reachable.size());
  const int64_t most = plan.candidates ? std::min(plan.k, plan.candidates) : plan.k;
  CHECK(count == std::min(most, total));
  const bool all_probed = plan.probes >= layout.buckets;
  const bool all_compared = plan.candidates == 0 || plan.candidates >= total;
  if (!all_probed || !all_compared || (plan.score == kCodes && layout.int8.present)) return;
  std::vector<Truth> truths;
  for (const int64_t item : reachable) truths.push_back(compute_truth(layout, row.data(), item));
  std::sort(truths.begin(), truths.end(),
            [](const Truth& a, const Truth& b) { return a.distance < b.distance; });
  for (int64_t t = 0; t < count; ++t) {
    const Truth& truth = truths[static_cast<size_t>(t)];
    CHECK(near(distances[t], truth.distance, 2 * truth.size + 1));
  }
}

}  // namespace

void check_search(Source& source, const Planted& planted, const SearchPlan& plan, int64_t count) {
  const VectorLayout& layout = planted.layout;
  const Exact<uint8_t> filter = draw_filter(source, layout.items);
  const uint8_t* allowed = source.coin() ? filter.data() : nullptr;
  Exact<int64_t> ids(layout.items);
  for (int64_t item = 0; item < layout.items; ++item) ids[item] = -2 - item;
  const Form form = layout.metric == kL2 ? kPlain : static_cast<Form>(source.one_of({kCosine, kIp}));
  const Question question{planted, plan, allowed, source.coin() ? ids.data() : nullptr, form};
  const bool wild = source.mood == kWild;
  source.mood = wild ? kSmooth : source.mood;
  Exact<float> queries = draw_floats(source, count * layout.dim);
  source.mood = wild ? kWild : source.mood;
  if (wild)
    for (float& value : queries)
      if (source.draw(0, 20) == 0) value = source.wild();
  bool finite = true;
  for (const float value : queries) finite = finite && std::isfinite(value);

  SearchScratch fused_scratch(layout);
  const Answer expected = search(*all_kernels().back(), question, queries, count,
                                 fused_scratch.prepare(plan.k));
  CHECK(expected.finite == finite);
  for (const Kernels* kernels : all_kernels()) {
    const std::string before = about;
    about += std::string(", ") + kernels->name;
    SearchScratch scratch(layout);
    // Twice: the second time, the scratch memory is not new.
    for (int time = 0; time < 2; ++time) {
      Answer answer = search(*kernels, question, queries, count, scratch.prepare(plan.k));
      CHECK(answer.finite == finite);
      if (!finite) continue;
      if (std::string(kernels->name) != "plain" && !wild) {
        CHECK(std::equal(answer.items.begin(), answer.items.end(), expected.items.begin()));
        CHECK(same(answer.distances.data(), expected.distances.data(), count * plan.k));
      }
      for (int64_t i = 0; i < count; ++i)
        check_answer(question, queries.data() + i * layout.dim, wild,
                     answer.distances.data() + i * plan.k, answer.items.data() + i * plan.k);
    }
    about = before;
  }
}

void check_stages(Source& source, const Planted& planted, const SearchPlan& plan) {
  const VectorLayout& layout = planted.layout;
  const int64_t B = layout.buckets;
  const Exact<uint8_t> filter = draw_filter(source, layout.items);
  const uint8_t* allowed = source.coin() ? filter.data() : nullptr;
  const Question question{planted, plan, allowed, nullptr, layout.metric == kL2 ? kPlain : kIp};
  const Exact<float> query = draw_floats(source, layout.dim);
  Exact<float> distances(plan.k);
  Exact<int64_t> items(plan.k);
  for (const Kernels* kernels : all_kernels()) {
    const std::string before = about;
    about += std::string(", ") + kernels->name;
    SearchScratch memory(layout);
    Scratch& scratch = memory.prepare(plan.k);
    const auto run = [&](Stage stage) {
      kernels->run_stage(stage, layout, plan, allowed, query.data(), scratch, distances.data(),
                         items.data());
    };
    run(kRoute);
    for (int64_t r = 0; r < layout.repetitions; ++r) {
      double total = 0;
      for (int64_t b = 0; b < B; ++b)
        total += std::exp(static_cast<double>(scratch.logits[r * B + b]));
      if (!planted.damaged) CHECK(std::fabs(total - 1) < 0.05);  // probabilities
    }
    run(kScan);
    const Counts& counts = scratch.counts;
    const std::vector<int32_t> probed(scratch.probed, scratch.probed + counts.probed);
    CHECK(std::set<int32_t>(probed.begin(), probed.end()).size() == probed.size());
    std::map<int64_t, int64_t> votes;
    std::map<int64_t, uint64_t> sums;  // of codes, in the order of keys: then the larger item
    int64_t read = 0;
    for (const int32_t pair : probed) {
      const int64_t at = pair / B * (B + 1) + pair % B;
      read += layout.offsets[at + 1] - layout.offsets[at];
      for (int64_t e = layout.offsets[at]; e < layout.offsets[at + 1]; ++e) {
        const int64_t item = layout.entries[e];
        if (!is_allowed(question, item)) continue;
        ++votes[item];
        if (plan.score != kCodes) continue;
        const int64_t place = e - layout.offsets[at], lane = place % kLanes;
        const uint8_t* block = layout.codes.blocks + (layout.codes.offsets[at] + place / kLanes) *
                                                         layout.codes.pieces / 2 * kLanes;
        uint64_t sum = 0;
        for (int64_t row = 0; row < layout.codes.pieces / 2; ++row) {
          const uint8_t byte = block[row * kLanes + 2 * (lane % 16) + lane / 16];
          sum += scratch.table[row * kLanes + (byte & 15)];
          sum += scratch.table[row * kLanes + 16 + (byte >> 4)];
        }
        sums[item] = sum << 32 | static_cast<uint64_t>(item);
      }
    }
    CHECK(counts.read == read);
    std::set<int64_t> expected;
    if (plan.score == kCodes) {
      std::vector<uint64_t> keys;
      for (const auto& [item, key] : sums) keys.push_back(key);
      std::sort(keys.rbegin(), keys.rend());
      keys.resize(std::min(keys.size(), static_cast<size_t>(plan.candidates)));
      for (const uint64_t key : keys) expected.insert(static_cast<int64_t>(key & UINT32_MAX));
    } else {
      for (const auto& [item, count] : votes) {
        expected.insert(item);
        CHECK(scratch.votes[item] == count);
      }
    }
    const std::set<int64_t> found(scratch.touched, scratch.touched + counts.found);
    CHECK(counts.found == static_cast<int64_t>(found.size()));
    if (!planted.damaged) CHECK(found == expected);  // damaged, an item may have several codes
    run(kSelect);
    CHECK(counts.chosen <= counts.found);
    std::set<int64_t> chosen(scratch.touched, scratch.touched + counts.chosen);
    CHECK(std::includes(found.begin(), found.end(), chosen.begin(), chosen.end()));
    if (plan.score != kCodes) {
      if (plan.candidates) CHECK(counts.chosen <= plan.candidates);
      for (const int64_t item : chosen) CHECK(votes[item] >= plan.min_votes);
    }
    run(kRerank);
    for (int64_t t = 0; t < plan.k; ++t)
      if (items[t] >= 0) CHECK(chosen.count(items[t]));
    if (plan.score == kCodes) kernels->count_votes(layout, allowed, scratch);
    for (const auto& [item, count] : votes) CHECK(scratch.votes[item] == count);

    // All stages at once give the same answer.
    SearchScratch whole_memory(layout);
    Exact<float> whole_distances(plan.k);
    Exact<int64_t> whole_items(plan.k);
    kernels->search_block(layout, plan, allowed, nullptr, kPlain, query.data(), 1,
                          whole_memory.prepare(plan.k), whole_distances.data(),
                          whole_items.data());
    CHECK(same(distances.data(), whole_distances.data(), plan.k));
    CHECK(std::equal(items.begin(), items.end(), whole_items.begin()));
    about = before;
  }
}

}  // namespace irli
