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
  const Permits& permits;
  const int64_t* ids;  // or null
  Form form;
};

struct Answer {
  Exact<float> distances;
  Exact<int64_t> items;
  Exact<Counts> counts;
  bool finite;
};

struct Truth {
  double distance, size;  // size: the sum of the absolute values of all terms
};

Truth compute_truth(const VectorLayout& layout, const float* query, int64_t item) {
  Truth truth{};
  for (int64_t j = 0; j < layout.dim; ++j) {
    const double a = query[j], b = layout.vectors.at(item, layout.dim)[j];
    const double term = layout.metric == kL2 ? (a - b) * (a - b) : -a * b;
    truth.distance += term;
    truth.size += std::fabs(term);
  }
  return truth;
}

// Whether codes choose the candidates. For a strange query, they may do so whatever the score.
bool is_by_codes(const SearchPlan& plan, const Counts& counts) {
  return plan.score == kCodes || (counts.strange && plan.picked);
}

// How many candidates a scan may have.
int64_t count_wanted(const SearchPlan& plan, const Counts& counts) {
  return counts.strange && plan.picked ? plan.picked : plan.candidates;
}

// Whether 8-bit copies may drop candidates.
bool is_rounded(const VectorLayout& layout, const SearchPlan& plan, const Counts& counts) {
  return layout.int8.present && is_by_codes(plan, counts);
}

bool is_allowed(const Question& question, int64_t item) { return question.permits.permitted[item]; }

// The allowed items that lie in some bucket, or all of them if all are compared.
std::vector<int64_t> find_reachable(const Question& question, bool exact) {
  const VectorLayout& layout = question.planted.layout;
  std::vector<uint8_t> reached(static_cast<size_t>(layout.items), exact);
  for (int64_t r = 0; r < layout.repetitions; ++r) {
    for (int64_t number = 0; number < layout.run_count; ++number) {
      const Run& run = layout.runs[number];
      const int64_t* row = run.offsets + r * (layout.buckets + 1);
      for (int64_t e = row[0]; e < row[layout.buckets]; ++e)
        reached[static_cast<size_t>(run.items[e])] = true;
    }
  }
  std::vector<int64_t> reachable;
  for (int64_t item = 0; item < layout.items; ++item)
    if (reached[static_cast<size_t>(item)] && is_allowed(question, item)) reachable.push_back(item);
  return reachable;
}

Answer search(const Kernels& kernels, const Question& question, const Exact<float>& queries,
              int64_t count, Scratch& scratch) {
  const int64_t k = question.plan.k;
  Answer answer{Exact<float>(count * k), Exact<int64_t>(count * k), Exact<Counts>(count), false};
  answer.finite = kernels.search_block(question.planted.layout, question.plan,
                                       question.permits.selector, question.ids, question.form,
                                       queries.data(), count, scratch, answer.distances.data(),
                                       answer.items.data(), answer.counts.data());
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

// What a search did must fit its plan.
void check_counts(const Question& question, const Counts& counts, int64_t permitted) {
  const VectorLayout& layout = question.planted.layout;
  const SearchPlan& plan = question.plan;
  const int64_t all = layout.repetitions * layout.buckets;
  if (plan.exact) CHECK(counts.exact);
  if (counts.exact) {
    CHECK(counts.last <= permitted);
    // All items are compared only where that ranks alike, and if the plan says so.
    CHECK(!plan.by_score && plan.min_votes <= 1);
    CHECK(plan.exact || plan.exact_from < INFINITY || (counts.strange && plan.wide >= all));
  } else {
    CHECK(counts.probed >= 1 && counts.probed <= all);
    CHECK(counts.last <= counts.chosen);
  }
  if (plan.start < 0 && !plan.fill) CHECK(counts.level == 0);
  const bool guarded = plan.far < INFINITY || plan.unsure > 0;
  if (!guarded || !layout.centroids.present) CHECK(!counts.strange);
}

void check_answer(const Question& question, const float* query, bool wild, const Counts& counts,
                  float* distances, int64_t* items) {
  const VectorLayout& layout = question.planted.layout;
  const SearchPlan& plan = question.plan;
  const Exact<float> row = prepare(question, query);
  const bool by_distance = !plan.by_score || counts.exact;
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
    if (t > 0 && by_distance) {
      CHECK(distances[t - 1] <= distances[t]);
      if (distances[t - 1] == distances[t] && question.form != kCosine)
        CHECK(items[t - 1] < items[t]);
    }
    if (wild) continue;
    const Truth truth = compute_truth(layout, row.data(), items[t]);
    CHECK(near(distances[t], truth.distance, truth.size + (question.form == kCosine)));
  }
  const std::vector<int64_t> permitted = find_reachable(question, true);
  check_counts(question, counts, static_cast<int64_t>(permitted.size()));
  if (wild || (plan.min_votes > 1 && !counts.exact)) return;
  const std::vector<int64_t> reachable = find_reachable(question, counts.exact);
  const int64_t total = static_cast<int64_t>(reachable.size());
  const int64_t candidates = count_wanted(plan, counts);
  const int64_t most = candidates && !counts.exact ? std::min(plan.k, candidates) : plan.k;
  // In a damaged layout, some items are in no bucket of the first repetition. And a plan may say
  // not to look further.
  const bool missing = (question.planted.damaged && layout.centroids.present) ||
                       (!plan.fill && !counts.exact);
  if (counts.strange && !counts.exact) {  // it also keeps what an earlier scan found
    CHECK(count <= std::min(plan.k, total));
    return;
  }
  CHECK(missing ? count <= std::min(most, total) : count == std::min(most, total));
  const bool all_probed = counts.probed == layout.repetitions * layout.buckets;
  const bool all_compared = plan.candidates == 0 || plan.candidates >= total;
  const bool rounded = is_rounded(layout, plan, counts);
  if (rounded || (!counts.exact && (!all_probed || !all_compared || !by_distance))) return;
  std::vector<Truth> truths;
  for (const int64_t item : reachable) truths.push_back(compute_truth(layout, row.data(), item));
  std::partial_sort(truths.begin(), truths.begin() + count, truths.end(),
                    [](const Truth& a, const Truth& b) { return a.distance < b.distance; });
  for (int64_t t = 0; t < count; ++t) {
    const Truth& truth = truths[static_cast<size_t>(t)];
    CHECK(near(distances[t], truth.distance, 2 * truth.size + 1));
  }
}

}  // namespace

void check_search(Source& source, const Planted& planted, const SearchPlan& plan, int64_t count) {
  const VectorLayout& layout = planted.layout;
  const Permits permits = draw_permits(source, layout.items, plan.exact);
  Exact<int64_t> ids(layout.items);
  for (int64_t item = 0; item < layout.items; ++item) ids[item] = -2 - item;
  const Form form = layout.metric == kL2 ? kPlain
                                         : static_cast<Form>(source.one_of({kCosine, kIp}));
  const Question question{planted, plan, permits, source.coin() ? ids.data() : nullptr, form};
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
  const Answer expected =
      search(*all_kernels().back(), question, queries, count, fused_scratch.prepare(plan));
  CHECK(expected.finite == finite);
  for (const Kernels* kernels : all_kernels()) {
    const std::string before = about;
    about += std::string(", ") + kernels->name;
    SearchScratch scratch(layout);
    // Twice: the second time, the scratch memory is not new.
    for (int time = 0; time < 2; ++time) {
      Answer answer = search(*kernels, question, queries, count, scratch.prepare(plan));
      CHECK(answer.finite == finite);
      if (!finite) continue;
      if (std::string(kernels->name) != "plain" && !wild) {
        CHECK(std::equal(answer.items.begin(), answer.items.end(), expected.items.begin()));
        CHECK(same(answer.distances.data(), expected.distances.data(), count * plan.k));
      }
      for (int64_t i = 0; i < count; ++i)
        check_answer(question, queries.data() + i * layout.dim, wild, answer.counts[i],
                     answer.distances.data() + i * plan.k, answer.items.data() + i * plan.k);
    }
    about = before;
  }
}

namespace {

// What the read buckets hold, counted in plain C++.
struct Tally {
  std::set<int32_t> probed;
  int64_t read = 0;
  std::map<int64_t, int64_t> votes;
};

Tally count_entries(const Question& question, const Scratch& scratch) {
  const VectorLayout& layout = question.planted.layout;
  const int64_t B = layout.buckets;
  Tally tally;
  tally.probed = {scratch.probed, scratch.probed + scratch.counts.probed};
  CHECK(static_cast<int64_t>(tally.probed.size()) == scratch.counts.probed);
  for (const int32_t pair : tally.probed) {
    const int64_t at = pair / B * (B + 1) + pair % B;
    for (int64_t number = 0; number < layout.run_count; ++number) {
      const Run& run = layout.runs[number];
      tally.read += run.offsets[at + 1] - run.offsets[at];
      for (int64_t e = run.offsets[at]; e < run.offsets[at + 1]; ++e)
        if (is_allowed(question, run.items[e])) ++tally.votes[run.items[e]];
    }
  }
  return tally;
}

// The results are of the read buckets, with enough votes, in order of their scores if these count.
// Routers choose all buckets from the threshold on, and the best one.
void check_results(const Question& question, const Scratch& scratch, const Tally& tally,
                   const Exact<int64_t>& items) {
  const VectorLayout& layout = question.planted.layout;
  const SearchPlan& plan = question.plan;
  const Counts& counts = scratch.counts;
  CHECK(counts.read >= tally.read);  // where scores count, buckets may be read again
  for (int64_t t = 0; t < plan.k && items[t] >= 0; ++t) {
    CHECK(tally.votes.count(items[t]));
    CHECK(tally.votes.at(items[t]) >= plan.min_votes);
    if (plan.by_score && t > 0) CHECK(scratch.scores[items[t - 1]] >= scratch.scores[items[t]]);
  }
  for (int64_t r = 0; r < layout.repetitions && plan.probes == 0; ++r) {
    const float* logits = scratch.logits + r * layout.buckets;
    const int64_t best = std::max_element(logits, logits + layout.buckets) - logits;
    for (int64_t b = 0; b < layout.buckets; ++b)
      if (b == best || static_cast<double>(logits[b]) >= plan.thresholds[0] + 1e-4)
        CHECK(tally.probed.count(static_cast<int32_t>(r * layout.buckets + b)));
  }
  const bool everything = counts.probed == layout.repetitions * layout.buckets;
  if (plan.fill && !everything) CHECK(counts.found >= plan.k);
}

}  // namespace

void check_scratch(Source& source, const Planted& planted, const SearchPlan& plan) {
  const VectorLayout& layout = planted.layout;
  const int64_t B = layout.buckets;
  const Permits permits = draw_permits(source, layout.items, plan.exact);
  const Selector& selector = permits.selector;
  const Question question{planted, plan, permits, nullptr, layout.metric == kL2 ? kPlain : kIp};
  const Exact<float> query = draw_floats(source, layout.dim);
  Exact<float> distances(plan.k);
  Exact<int64_t> items(plan.k);
  for (const Kernels* kernels : all_kernels()) {
    const std::string before = about;
    about += std::string(", ") + kernels->name;
    SearchScratch memory(layout);
    Scratch& scratch = memory.prepare(plan);
    kernels->search_block(layout, plan, selector, nullptr, kPlain, query.data(), 1, scratch,
                          distances.data(), items.data(), nullptr);
    const Counts counts = scratch.counts;
    for (int64_t r = 0; r < layout.repetitions && !plan.exact && !planted.damaged; ++r) {
      double total = 0;
      for (int64_t b = 0; b < B; ++b)
        total += std::exp(static_cast<double>(scratch.logits[r * B + b]));
      CHECK(std::fabs(total - 1) < 0.05);  // probabilities
    }
    if (!counts.exact) {
      const Tally tally = count_entries(question, scratch);
      check_results(question, scratch, tally, items);
      kernels->count_votes(layout, selector, scratch);
      for (const auto& [item, count] : tally.votes) CHECK(scratch.votes[item] == count);
    }
    about = before;
  }
}

}  // namespace irli
