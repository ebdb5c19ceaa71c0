#include "label_layouts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "exposed.h"
#include "homes.h"
#include "scratch.h"

namespace irli {
namespace {

int64_t up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

Exact<int8_t> draw_bytes(Source& source, int64_t count) {
  Exact<int8_t> bytes(count);
  for (int8_t& byte : bytes) byte = static_cast<int8_t>(source.draw(-127, 127));
  return bytes;
}

LabelPlan draw_plan(Source& source, const LabelShape& shape) {
  LabelPlan plan{};
  plan.k = source.one_of({1, 2, 5, shape.labels + 1, shape.labels + 3});
  plan.probes = source.one_of({1, 2, 5, shape.buckets, shape.buckets + 3});
  plan.candidates = source.one_of({1, 3, 20, 1000});
  plan.score = static_cast<LabelScore>(source.below(5));
  plan.by_margin = shape.features && source.coin() ? 0.5 : 0;
  plan.by_score = 1.5;
  plan.threshold = -0.25;
  plan.min_votes = source.one_of({1, 1, 2, 3, 1000});
  plan.own = source.coin();
  plan.complete = source.one_of({0, 3, shape.labels, INT32_MAX});
  plan.near = shape.features && shape.known ? source.one_of({0, 1, 3, 100}) : 0;
  plan.by_votes = 0.75;
  return plan;
}

PlantedMatrix make_matrix(Source& source, int64_t features, int64_t outputs) {
  PlantedMatrix planted;
  planted.starts = Exact<int64_t>(features + 1);
  std::vector<uint16_t> gaps;
  for (int64_t feature = 0; feature < features; ++feature) {
    int64_t last = 0;
    for (int64_t output = source.draw(0, 9); output < outputs; output += source.draw(1, 30)) {
      gaps.push_back(static_cast<uint16_t>(output - last));
      last = output;
    }
    planted.starts[feature + 1] = static_cast<int64_t>(gaps.size());
  }
  planted.gaps = Exact<uint16_t>(static_cast<int64_t>(gaps.size()));
  std::copy(gaps.begin(), gaps.end(), planted.gaps.begin());
  planted.weights = draw_bytes(source, planted.gaps.size());
  planted.scale = draw_floats(source, features ? outputs : 0);
  return planted;
}

// How often each label lies in a bucket.
std::map<int64_t, int64_t> count_labels(const LabelLayout& layout) {
  std::map<int64_t, int64_t> counts;
  for (int64_t r = 0; r < layout.repetitions; ++r) {
    const int64_t* row = layout.offsets + r * (layout.buckets + 1);
    for (int64_t e = row[0]; e < row[layout.buckets]; ++e) ++counts[layout.entries[e]];
  }
  return counts;
}

void check_row(const LabelLayout& layout, const LabelPlan& plan, bool wild, const float* scores,
               const int64_t* labels) {
  std::set<int64_t> seen;
  int64_t count = 0;
  for (int64_t t = 0; t < plan.k; ++t) {
    if (labels[t] == -1) {
      CHECK(scores[t] == -INFINITY);
      continue;
    }
    CHECK(count == t);
    ++count;
    CHECK(labels[t] >= 0 && labels[t] < layout.labels);
    CHECK(seen.insert(labels[t]).second);
    if (wild || t == 0) continue;
    CHECK(scores[t - 1] >= scores[t]);
    if (scores[t - 1] == scores[t]) CHECK(labels[t - 1] < labels[t]);
  }
  // Other sources than the buckets propose labels, too.
  if (wild || plan.probes < layout.buckets || plan.own || plan.near > 0) return;
  const std::map<int64_t, int64_t> votes = count_labels(layout);
  int64_t total = 0;
  for (const auto& [label, count_of] : votes) total += count_of >= plan.min_votes;
  CHECK(count == std::min(plan.k, total));
  for (const int64_t label : seen) CHECK(votes.at(label) >= plan.min_votes);
  const bool weighted = plan.score == LabelScore::kWeightedVotes;
  if ((plan.score != LabelScore::kVotes && !weighted) || plan.by_margin > 0) return;
  for (int64_t t = 0; t < count; ++t) {
    const double prior = weighted ? static_cast<double>(layout.prior[labels[t]]) : 0;
    CHECK(near(scores[t], static_cast<double>(votes.at(labels[t])) + prior, 20));
  }
}

// The best candidates, blended, are what a prediction returns.
template <class List>
void check_candidates(const LabelLayout& layout, const LabelPlan& plan, List list, int64_t count,
                      const Exact<float>& scores, const Exact<int64_t>& labels) {
  if (plan.by_margin <= 0 && plan.near == 0) return;
  const int64_t width = layout.labels;
  Exact<int64_t> found(count * width);
  Exact<float> by_routers(count * width), margins(count * width), votes(count * width);
  list(Candidates{found.data(), by_routers.data(), margins.data(), votes.data(), width});
  for (int64_t i = 0; i < count; ++i) {
    std::map<int64_t, double> blended;
    for (int64_t c = i * width; c < (i + 1) * width && found[c] >= 0; ++c) {
      const double lack = std::max(0.0, 1 - static_cast<double>(margins[c]));
      double score = plan.by_score * static_cast<double>(by_routers[c]) + plan.threshold;
      if (plan.by_margin > 0) score -= plan.by_margin * lack * lack;
      if (plan.near > 0)
        score += plan.by_votes * std::log2(1 + static_cast<double>(votes[c]) / 0.01);
      CHECK(blended.emplace(found[c], score).second);
    }
    int64_t shown = 0;
    for (int64_t t = i * plan.k; t < (i + 1) * plan.k && labels[t] >= 0; ++t, ++shown)
      CHECK(near(scores[t], blended.at(labels[t]), std::fabs(blended.at(labels[t])) + 20));
    CHECK(shown == std::min<int64_t>(plan.k, static_cast<int64_t>(blended.size())));
  }
}

}  // namespace

PackedMatrix PlantedMatrix::get() const {
  return {starts.size() - 1, scale.size(),   starts.data(),
          gaps.data(),       weights.data(), scale.data()};
}

LabelShape draw_label_shape(Source& source) {
  const std::initializer_list<int64_t> sizes = {1,  2,  3,  15, 16, 17,  31, 32,
                                                33, 63, 64, 65, 80, 100, 129};
  LabelShape shape{};
  const bool small = source.is_fuzzer();
  shape.labels = source.one_of({0, 1, 2, 16, 33, 64, 100, small ? 65 : 300});
  shape.dim = source.one_of({1, 2, 10, small ? 20 : 100});
  shape.repetitions = source.between(1, 4);
  shape.buckets = small ? source.one_of({1, 2, 16, 33, 65}) : source.one_of(sizes);
  shape.width = small ? source.one_of({1, 3, 16, 33}) : source.one_of(sizes);
  shape.one_trunk = source.coin();
  shape.features = source.one_of({0, 0, 1, 20});
  shape.known = source.one_of({0, 1, 5, 40});
  return shape;
}

PlantedRows make_rows(Source& source, int64_t count, int64_t dim) {
  PlantedRows planted;
  planted.indptr = Exact<int64_t>(count + 1);
  for (int64_t i = 0; i < count; ++i)
    planted.indptr[i + 1] = planted.indptr[i] + source.draw(0, std::min<int64_t>(dim, 20));
  planted.indices = Exact<int32_t>(planted.indptr[count]);
  for (int32_t& index : planted.indices) index = static_cast<int32_t>(source.draw(0, dim - 1));
  planted.data = draw_floats(source, planted.indptr[count]);
  planted.rows = {planted.indptr.data(), planted.indices.data(), planted.data.data()};
  return planted;
}

PlantedLabels make_label_layout(Source& source, const LabelShape& shape) {
  PlantedLabels planted;
  planted.shape = shape;
  LabelLayout& layout = planted.layout;
  const int64_t R = layout.repetitions = shape.repetitions, B = layout.buckets = shape.buckets;
  const int64_t G = layout.width = shape.width, L = layout.labels = shape.labels;
  const int64_t d = layout.dim = shape.dim, T = layout.trunks = shape.one_trunk ? 1 : R;
  const int64_t D = shape.features;
  planted.project = draw_bytes(source, T * d * G);
  planted.project_scale = draw_floats(source, T * d);
  planted.shift = draw_floats(source, T * G);
  planted.out = draw_bytes(source, R * up(B, kPanel) * up(G, 4));
  planted.out_scale = draw_floats(source, R * B);
  planted.bias = draw_floats(source, R * B);
  planted.offsets = Exact<int64_t>(R * (B + 1));
  std::vector<int32_t> all;
  for (int64_t r = 0; r < R; ++r) {
    std::vector<std::vector<int32_t>> buckets(static_cast<size_t>(B));
    for (int32_t label = 0; label < L; ++label)
      buckets[static_cast<size_t>(source.draw(0, B - 1))].push_back(label);
    for (int64_t b = 0; b < B; ++b) {
      planted.offsets[r * (B + 1) + b] = static_cast<int64_t>(all.size());
      all.insert(all.end(), buckets[static_cast<size_t>(b)].begin(),
                 buckets[static_cast<size_t>(b)].end());
    }
    planted.offsets[r * (B + 1) + B] = static_cast<int64_t>(all.size());
  }
  planted.items = Exact<int32_t>(static_cast<int64_t>(all.size()));
  std::copy(all.begin(), all.end(), planted.items.begin());
  planted.share = draw_floats(source, planted.items.size());
  for (float& share : planted.share) share = share < 0 ? -share : share;
  planted.prior = draw_floats(source, L);
  planted.ranker = make_matrix(source, D, L);
  planted.constant = draw_floats(source, D ? L : 0);
  const int64_t known = D ? shape.known : 0;
  planted.near = make_matrix(source, known ? D : 0, known);
  planted.near_starts = Exact<int64_t>(known + 1);
  for (int64_t i = 0; i < known; ++i)
    planted.near_starts[i + 1] = planted.near_starts[i] + (L ? source.draw(0, 4) : 0);
  planted.near_labels = Exact<int32_t>(planted.near_starts[known]);
  for (int32_t& label : planted.near_labels) label = static_cast<int32_t>(source.draw(0, L - 1));
  layout.project = planted.project.data();
  layout.project_scale = planted.project_scale.data();
  layout.shift = planted.shift.data();
  layout.out = planted.out.data();
  layout.out_scale = planted.out_scale.data();
  layout.bias = planted.bias.data();
  layout.offsets = planted.offsets.data();
  layout.entries = planted.items.data();
  layout.share = planted.share.data();
  layout.prior = planted.prior.data();
  layout.ranker = planted.ranker.get();
  layout.ranker.outputs = L;
  layout.constant = planted.constant.data();
  layout.near = planted.near.get();
  layout.near_starts = planted.near_starts.data();
  layout.near_labels = planted.near_labels.data();
  return planted;
}

void damage(Source& source, PlantedLabels& planted) {
  for (int64_t times = source.between(1, 3); times > 0; --times) {
    switch (source.below(9)) {
      case 0: damage_one(source, planted.offsets); break;
      case 1: damage_one(source, planted.items); break;
      case 2: damage_one(source, planted.ranker.starts); break;
      case 3: damage_one(source, planted.ranker.gaps); break;
      case 4: damage_one(source, planted.near.starts); break;
      case 5: damage_one(source, planted.near.gaps); break;
      case 6: damage_one(source, planted.near_starts); break;
      case 7: damage_one(source, planted.near_labels); break;
      case 8: planted.layout.trunks = source.one_of({-1, 0, 5}); break;
    }
  }
}

// Threads that share the repetitions of a row, and any cuts between them, give the same bits.
void check_shared_routing(const LabelLayout& layout, const LabelPlan& plan, const Kernels& kernels,
                          const SparseRows& routed, const SparseRows& ranked, int64_t row,
                          int64_t cut, const float* expected_scores,
                          const int64_t* expected_labels) {
  Exact<float> logits(layout.repetitions * layout.buckets);
  const int64_t cuts[3] = {0, cut, layout.repetitions};
  for (int64_t part = 0; part < 2; ++part) {
    PredictScratch own(layout);
    kernels.route_row_part(layout, routed, row, cuts[part], cuts[part + 1], own.get());
    for (int64_t r = cuts[part]; r < cuts[part + 1]; ++r)
      std::copy_n(own.get().logits + r * own.get().bucket_floats, layout.buckets,
                  logits.data() + r * layout.buckets);
  }
  PredictScratch scratch(layout);
  scratch.get().routed = logits.data();
  Exact<float> scores(plan.k);
  Exact<int64_t> labels(plan.k);
  kernels.predict_block(layout, plan, routed, ranked, row, 1, scratch.get(), scores.data(),
                        labels.data());
  CHECK(same(scores.data(), expected_scores, plan.k));
  CHECK(std::equal(labels.begin(), labels.end(), expected_labels));
}

void check_predict(Source& source, const PlantedLabels& planted) {
  LabelLayout layout = planted.layout;
  const Homes homes(layout);
  const LabelPlan plan = draw_plan(source, planted.shape);
  const int64_t count = source.between(1, kBlock), first = source.between(0, 2);
  const PlantedRows routed = make_rows(source, first + count, layout.dim);
  const PlantedRows ranked =
      make_rows(source, first + count, layout.ranker.features ? layout.ranker.features : 1);
  const bool wild = source.mood == kWild;
  const int64_t cut = source.between(0, layout.repetitions);
  const auto predict = [&](const Kernels& kernels, LabelScratch& scratch, Exact<float>& scores,
                           Exact<int64_t>& labels) {
    kernels.predict_block(layout, plan, routed.rows, ranked.rows, first, count, scratch,
                          scores.data(), labels.data());
  };
  Exact<float> expected_scores(count * plan.k);
  Exact<int64_t> expected_labels(count * plan.k);
  PredictScratch fused_scratch(layout);
  predict(*all_kernels().back(), fused_scratch.get(), expected_scores, expected_labels);
  for (const Kernels* kernels : all_kernels()) {
    const std::string before = about;
    about += std::string(", ") + kernels->name;
    PredictScratch scratch(layout);
    // Often: the scratch memory is not new, and the numbers of its stamps run out.
    for (int64_t time = 0; time < (count == kBlock && !source.is_fuzzer() ? 40 : 2); ++time) {
      Exact<float> scores(count * plan.k);
      Exact<int64_t> labels(count * plan.k);
      predict(*kernels, scratch.get(), scores, labels);
      if (std::string(kernels->name) != "plain" && !wild) {
        CHECK(same(scores.data(), expected_scores.data(), scores.size()));
        CHECK(std::equal(labels.begin(), labels.end(), expected_labels.begin()));
      }
      if (!wild && time == 0)
        check_shared_routing(layout, plan, *kernels, routed.rows, ranked.rows, first, cut,
                             scores.data(), labels.data());
      for (int64_t i = 0; i < count; ++i)
        check_row(layout, plan, wild, scores.data() + i * plan.k, labels.data() + i * plan.k);
      if (!wild)
        check_candidates(
            layout, plan,
            [&](const Candidates& out) {
              kernels->list_candidates(layout, plan, routed.rows, ranked.rows, first, count,
                                       scratch.get(), out);
            },
            count, scores, labels);
    }
    about = before;
  }
}

}  // namespace irli
