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
  const Filter* filter;  // or null
  const int64_t* ids;    // or null
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
    const double a = query[j], b = layout.vectors[item * layout.dim + j];
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

bool is_allowed(const Question& question, int64_t item) {
  return !question.filter || question.filter->mask[item];
}

// The allowed items that lie in some bucket, or all of them if all are compared.
std::vector<int64_t> find_reachable(const Question& question, bool exact) {
  const VectorLayout& layout = question.planted.layout;
  std::vector<uint8_t> reached(static_cast<size_t>(layout.items), exact);
  for (int64_t r = 0; r < layout.repetitions; ++r) {
    const int64_t* row = layout.offsets + r * (layout.buckets + 1);
    for (int64_t e = row[0]; e < row[layout.buckets]; ++e)
      reached[static_cast<size_t>(layout.entries[e])] = true;
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
  answer.finite = kernels.search_block(question.planted.layout, question.plan, question.filter,
                                       question.ids, question.form, queries.data(), count, scratch,
                                       answer.distances.data(), answer.items.data(),
                                       answer.counts.data());
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
void check_counts(const Question& question, const Counts& counts) {
  const VectorLayout& layout = question.planted.layout;
  const SearchPlan& plan = question.plan;
  const int64_t total = question.filter ? question.filter->count : layout.items;
  const bool guarded = plan.far < INFINITY || plan.unsure > 0;
  if (plan.exact) CHECK(counts.exact && counts.read == total);
  const bool few = question.filter ? plan.exact_from < INFINITY
                                   : plan.wide >= layout.repetitions * layout.buckets;
  if (counts.exact) {
    CHECK(counts.probed == 0);
    const bool rounded = is_rounded(layout, plan, counts);  // some are surely too far
    CHECK(rounded ? counts.last <= total : counts.last == total);
    // A strange query is compared with all items if they are few, or if its plan says so.
    CHECK(plan.exact || (few && (question.filter || counts.strange)));
    CHECK(counts.strange || rounded || counts.chosen == total);
  } else {
    CHECK(counts.probed >= 1 && counts.probed <= layout.repetitions * layout.buckets);
    CHECK(counts.last <= counts.chosen);
    CHECK(counts.strange || counts.last == counts.chosen);
  }
  if (!guarded || !layout.centroids.present) CHECK(!counts.strange);
}

void check_answer(const Question& question, const float* query, bool wild, const Counts& counts,
                  float* distances, int64_t* items) {
  const VectorLayout& layout = question.planted.layout;
  const SearchPlan& plan = question.plan;
  const Exact<float> row = prepare(question, query);
  const bool by_distance = plan.by_score == 0 || counts.exact;
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
  check_counts(question, counts);
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
  const Sieve sieve = draw_filter(source, layout.items);
  const Filter* filter = source.coin() ? &sieve.filter : nullptr;
  Exact<int64_t> ids(layout.items);
  for (int64_t item = 0; item < layout.items; ++item) ids[item] = -2 - item;
  const Form form = layout.metric == kL2 ? kPlain
                                         : static_cast<Form>(source.one_of({kCosine, kIp}));
  const Question question{planted, plan, filter, source.coin() ? ids.data() : nullptr, form};
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

// What the probed buckets hold, counted in plain C++.
struct Tally {
  std::set<int32_t> probed;
  int64_t read = 0, permitted = 0;
  std::map<int64_t, int64_t> votes;
  std::map<int64_t, uint64_t> sums;  // of codes, in the order of keys: then the larger item
};

Tally count_entries(const Question& question, const Scratch& scratch) {
  const VectorLayout& layout = question.planted.layout;
  const int64_t B = layout.buckets;
  Tally tally;
  tally.probed = {scratch.probed, scratch.probed + scratch.counts.probed};
  CHECK(static_cast<int64_t>(tally.probed.size()) == scratch.counts.probed);
  for (const int32_t pair : tally.probed) {
    const int64_t at = pair / B * (B + 1) + pair % B;
    tally.read += layout.offsets[at + 1] - layout.offsets[at];
    for (int64_t e = layout.offsets[at]; e < layout.offsets[at + 1]; ++e) {
      const int64_t item = layout.entries[e];
      if (!is_allowed(question, item)) continue;
      ++tally.votes[item];
      ++tally.permitted;
      if (!is_by_codes(question.plan, scratch.counts)) continue;
      const int64_t place = e - layout.offsets[at], lane = place % kLanes;
      const uint8_t* block = layout.codes.blocks + (layout.codes.offsets[at] + place / kLanes) *
                                                       layout.codes.pieces / 2 * kLanes;
      uint64_t sum = 0;
      for (int64_t row = 0; row < layout.codes.pieces / 2; ++row) {
        const uint8_t byte = block[row * kLanes + 2 * (lane % 16) + lane / 16];
        sum += scratch.table[row * kLanes + (byte & 15)];
        sum += scratch.table[row * kLanes + 16 + (byte >> 4)];
      }
      tally.sums[item] = sum << 32 | static_cast<uint64_t>(item);
    }
  }
  return tally;
}

// The items that a scan leaves: all that it found, or those with the largest sums of codes.
std::set<int64_t> list_found(const SearchPlan& plan, const Counts& counts, const Tally& tally) {
  std::set<int64_t> found;
  if (is_by_codes(plan, counts)) {
    std::vector<uint64_t> keys;
    for (const auto& [item, key] : tally.sums) keys.push_back(key);
    std::sort(keys.rbegin(), keys.rend());
    keys.resize(std::min(keys.size(), static_cast<size_t>(count_wanted(plan, counts))));
    for (const uint64_t key : keys) found.insert(static_cast<int64_t>(key & UINT32_MAX));
  } else {
    for (const auto& [item, count] : tally.votes) found.insert(item);
  }
  return found;
}

// The lowest log-probability that is probed at a level.
double find_threshold(const SearchPlan& plan, double level) {
  if (plan.levels == 0) return level > 32 ? -INFINITY : plan.threshold - level * std::log(4.0);
  if (level >= static_cast<double>(plan.levels - 1)) return -INFINITY;
  const int64_t low = static_cast<int64_t>(std::floor(level));
  const double part = level - static_cast<double>(low);
  return (1 - part) * plan.thresholds[low] + (part > 0 ? part * plan.thresholds[low + 1] : 0);
}

// Probed are the buckets from the threshold on, the best one, and in the first repetition those with
// the nearest centroids. If the routers are unsure, they are at most `wide` in all. A scan under a
// filter ends only if it saw enough.
void check_scan(const Question& question, const Scratch& scratch, const Tally& tally) {
  const VectorLayout& layout = question.planted.layout;
  const SearchPlan& plan = question.plan;
  const Counts& counts = scratch.counts;
  const int64_t B = layout.buckets;
  int64_t first = 0;  // probed in the first repetition
  for (const int32_t pair : tally.probed) first += pair < B;
  const bool widened = question.filter && plan.levels;
  if (widened) CHECK(counts.level >= plan.start);
  if (!question.filter && layout.centroids.present) CHECK(counts.level == 0);
  const bool capped = counts.strange && !question.filter && plan.wide > 0;
  const auto probed_in_all = static_cast<int64_t>(tally.probed.size());
  if (capped && !plan.fill && plan.levels == 0) CHECK(probed_in_all <= plan.wide);
  if (plan.probes == 0) {
    const double cut = find_threshold(plan, counts.level), slack = 1e-4;
    for (int64_t r = 0; r < layout.repetitions; ++r) {
      const float* logits = scratch.logits + r * B;
      const double best = static_cast<double>(*std::max_element(logits, logits + B));
      for (int64_t b = 0; b < B; ++b) {
        const double logit = static_cast<double>(logits[b]);
        const bool probed = tally.probed.count(static_cast<int32_t>(r * B + b));
        if (logit >= cut + slack) CHECK(probed || (capped && probed_in_all >= plan.wide));
        if (probed && (r > 0 || !layout.centroids.present))
          CHECK(logit >= cut - slack || logit == best);
      }
    }
  }
  if (!is_by_codes(plan, counts)) {
    CHECK(counts.passed == tally.read);
    CHECK(counts.permitted == tally.permitted);
  }
  const bool everything = counts.probed == layout.repetitions * B;
  // Buckets that hold nothing need not be probed.
  int64_t full = 0, full_probed = 0;
  for (int64_t b = 0; b < B; ++b) {
    if (layout.offsets[b] == layout.offsets[b + 1]) continue;
    full += 1;
    full_probed += tally.probed.count(static_cast<int32_t>(b));
  }
  if (!plan.fill || everything || (layout.centroids.present && full_probed == full)) return;
  CHECK(counts.found >= plan.k);
  if (widened)
    CHECK(static_cast<double>(counts.passed) <=
          static_cast<double>(counts.permitted) * std::exp2(counts.level + 0.51));
}

}  // namespace

void check_stages(Source& source, const Planted& planted, const SearchPlan& plan) {
  const VectorLayout& layout = planted.layout;
  const int64_t B = layout.buckets;
  const Sieve sieve = draw_filter(source, layout.items);
  const Filter* filter = source.coin() ? &sieve.filter : nullptr;
  const Question question{planted, plan, filter, nullptr, layout.metric == kL2 ? kPlain : kIp};
  const Exact<float> query = draw_floats(source, layout.dim);
  const std::vector<int64_t> reachable = find_reachable(question, true);
  const std::set<int64_t> all(reachable.begin(), reachable.end());
  Exact<float> distances(plan.k);
  Exact<int64_t> items(plan.k);
  for (const Kernels* kernels : all_kernels()) {
    const std::string before = about;
    about += std::string(", ") + kernels->name;
    SearchScratch memory(layout);
    Scratch& scratch = memory.prepare(plan);
    const auto run = [&](Stage stage) {
      kernels->run_stage(stage, layout, plan, filter, query.data(), scratch, distances.data(),
                         items.data());
    };
    run(kRoute);
    for (int64_t r = 0; r < layout.repetitions && !plan.exact; ++r) {
      double total = 0;
      for (int64_t b = 0; b < B; ++b)
        total += std::exp(static_cast<double>(scratch.logits[r * B + b]));
      if (!planted.damaged) CHECK(std::fabs(total - 1) < 0.05);  // probabilities
    }
    run(kScan);
    const Counts& counts = scratch.counts;
    Tally tally = count_entries(question, scratch);
    std::set<int64_t> found(scratch.touched, scratch.touched + counts.found);
    CHECK(counts.found == static_cast<int64_t>(found.size()));
    if (counts.exact) {
      CHECK(found == all);
    } else {
      CHECK(counts.read == tally.read);
      // Damaged, an item may have several codes.
      if (!planted.damaged) CHECK(found == list_found(plan, counts, tally));
      if (!planted.damaged) check_scan(question, scratch, tally);
      if (!is_by_codes(plan, counts))
        for (const auto& [item, count] : tally.votes) CHECK(scratch.votes[item] == count);
    }
    run(kSelect);
    CHECK(counts.chosen <= counts.found);
    std::set<int64_t> chosen(scratch.touched, scratch.touched + counts.chosen);
    CHECK(std::includes(found.begin(), found.end(), chosen.begin(), chosen.end()));
    if (!is_by_codes(plan, counts) && !counts.exact) {
      if (plan.candidates) CHECK(counts.chosen <= count_wanted(plan, counts));
      for (const int64_t item : chosen) CHECK(tally.votes[item] >= plan.min_votes);
    }
    run(kRerank);
    if (counts.exact) {
      chosen = all;
    } else if (counts.strange) {  // some more buckets, and the candidates of a second scan
      const std::set<int32_t> first = tally.probed;
      tally = count_entries(question, scratch);
      CHECK(std::includes(tally.probed.begin(), tally.probed.end(), first.begin(), first.end()));
      CHECK(tally.probed.size() <= first.size() + static_cast<size_t>(plan.wide));
      chosen = {scratch.touched, scratch.touched + counts.last};
      const int64_t votes = is_by_codes(plan, counts) ? 1 : plan.min_votes;
      for (const int64_t item : chosen) CHECK(tally.votes[item] >= votes);
    }
    double before_it = -INFINITY;
    for (int64_t t = 0; t < plan.k && items[t] >= 0; ++t) {
      CHECK(chosen.count(items[t]));
      if (counts.exact || plan.score == kCodes) continue;
      const double score = static_cast<double>(scratch.scores[items[t]]);
      const double rank = static_cast<double>(distances[t]) - plan.by_score * score;
      CHECK(rank >= before_it - 1e-5 * std::max(1.0, std::fabs(before_it)));
      before_it = rank;
    }
    if (!counts.exact) {
      if (plan.score == kCodes || counts.strange) kernels->count_votes(layout, filter, scratch);
      for (const auto& [item, count] : tally.votes) CHECK(scratch.votes[item] == count);
    }

    // All stages at once give the same answer.
    SearchScratch whole_memory(layout);
    Exact<float> whole_distances(plan.k);
    Exact<int64_t> whole_items(plan.k);
    kernels->search_block(layout, plan, filter, nullptr, kPlain, query.data(), 1,
                          whole_memory.prepare(plan), whole_distances.data(), whole_items.data(),
                          nullptr);
    CHECK(same(distances.data(), whole_distances.data(), plan.k));
    CHECK(std::equal(items.begin(), items.end(), whole_items.begin()));
    about = before;
  }
}

}  // namespace irli
