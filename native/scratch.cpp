#include "scratch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace irli {
namespace {

constexpr size_t kLine = 64;
constexpr int64_t kRoom = 4 * kMostCandidates;  // keys that are collected before a selection

int64_t up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }
int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }

}  // namespace

void FreeAligned::operator()(void* memory) const { std::free(static_cast<void**>(memory)[-1]); }

Memory allocate(size_t bytes, bool zeroed) {
  // calloc gives zeros without touching them: pages of large arrays that are never used stay free.
  const size_t size = bytes + 2 * kLine;
  void* whole = zeroed ? std::calloc(1, size) : std::malloc(size);
  if (!whole) throw std::bad_alloc();
  const uintptr_t start = (reinterpret_cast<uintptr_t>(whole) + kLine + kLine - 1) & ~(kLine - 1);
  void** memory = reinterpret_cast<void**>(start);
  memory[-1] = whole;
  return Memory(memory);
}

SearchScratch::SearchScratch(const VectorLayout& layout) : dim_(layout.dim) {
  Scratch& s = scratch_;
  const int64_t pairs = layout.repetitions * layout.buckets, items = layout.room;
  s.dim_bytes = up(layout.dim, 16);
  s.width_floats = up(layout.width, 16);
  s.width_bytes = up(layout.width, 16);
  s.columns_floats = up(layout.projection.columns, kPanel);
  s.sum_columns = up(larger(layout.buckets, layout.projection.columns), kPanel);
  s.rows = arena_.make<float>(kBlock * layout.dim);
  s.scaled = arena_.make<float>(kBlock * layout.dim);
  s.centred = arena_.make<float>(layout.dim);
  s.query = arena_.make<uint8_t>(kBlock * s.dim_bytes, true);
  s.projected = arena_.make<float>(kBlock * s.columns_floats);
  s.hidden = arena_.make<float>(kBlock * s.width_floats);
  s.bytes = arena_.make<uint8_t>(kBlock * s.width_bytes, true);
  s.sums = arena_.make<int32_t>(kBlock * s.sum_columns);
  s.alive = arena_.make<int32_t>(layout.buckets);
  s.logits = arena_.make<float>(kBlock * pairs);
  s.order = arena_.make<float>(larger(layout.buckets, items));
  s.probed = arena_.make<int32_t>(pairs + 1);
  s.values = arena_.make<float>(pairs);
  s.bucket_keys = arena_.make<uint64_t>(pairs);
  s.marked = arena_.make<uint8_t>(pairs, true);
  s.weakest = arena_.make<float>(layout.repetitions);
  s.stamp = arena_.make<uint8_t>(items, true);
  s.votes = arena_.make<int32_t>(items);
  s.scores = arena_.make<float>(items);
  s.touched = arena_.make<int32_t>(items);
  s.coordinates = arena_.make<float>(layout.codes.pieces * layout.codes.size);
  s.codeword_values = arena_.make<float>(layout.codes.pieces * kWords);
  s.table = arena_.make<uint8_t>(layout.codes.pieces * kWords);
  s.near = arena_.make<float>(layout.centroids.present ? layout.buckets : 0);
  s.left = arena_.make<float>(layout.centroids.present ? layout.buckets : 0);
  s.bins = arena_.make<int32_t>((kMost * layout.codes.pieces >> kBin) + 2);
}

PredictScratch::PredictScratch(const LabelLayout& layout) {
  LabelScratch& s = scratch_;
  const int64_t labels = layout.labels, outputs = larger(labels, layout.near.outputs);
  s.width_floats = up(layout.width, 16);
  s.sum_columns = up(layout.buckets, kPanel);
  s.bucket_floats = up(layout.buckets, 16);
  s.features = arena_.make<float>(kBlock * s.width_floats);
  s.bytes = arena_.make<uint8_t>(kBlock * s.width_floats, true);
  s.sums = arena_.make<int32_t>(kBlock * s.sum_columns);
  s.logits = arena_.make<float>(kBlock * layout.repetitions * s.bucket_floats);
  s.places = arena_.make<int32_t>(larger(layout.buckets, outputs));
  s.order = arena_.make<float>(outputs);
  s.scores = arena_.make<float>(labels);
  std::fill_n(s.scores, labels, -0.0f);
  s.votes = arena_.make<int32_t>(labels, true);
  s.touched = arena_.make<int32_t>(labels + 1);
  s.values = arena_.make<float>(labels + 1);
  s.margins = arena_.make<float>(labels);
  std::fill_n(s.margins, labels, -0.0f);
  s.reached = arena_.make<int32_t>(labels + 1);
  s.products = arena_.make<float>(layout.near.outputs);
  std::fill_n(s.products, layout.near.outputs, -0.0f);
  s.others = arena_.make<int32_t>(layout.near.outputs + 1);
  s.near_votes = arena_.make<float>(labels, true);
  s.voted = arena_.make<int32_t>(labels);
  s.proposed = arena_.make<uint8_t>(labels, true);
  s.totals = arena_.make<float>(layout.repetitions);
  s.weakest = arena_.make<float>(layout.repetitions);
  s.keys = arena_.make<uint64_t>(outputs);
}

Scratch& SearchScratch::prepare(const SearchPlan& plan) {
  const bool together = plan.exact && count_compared(plan.k) >= kTogether;
  const int64_t compared = together ? count_compared(plan.k) * count_kept(plan.k) : 0;
  const int64_t wanted = larger(larger(kRoom, 2 * plan.k), compared);
  if (scratch_.room < wanted) {
    keys_ = allocate(static_cast<size_t>(wanted) * sizeof(uint64_t), false);
    scratch_.keys = static_cast<uint64_t*>(keys_.get());
    scratch_.room = wanted;
  }
  if (together && !scratch_.compared) {
    const size_t bytes = static_cast<size_t>(kCompared * dim_) * sizeof(float);
    compared_ = allocate(bytes, false);
    columns_ = allocate(bytes, false);
    firsts_ = allocate(static_cast<size_t>(kCompared * kFirsts) * sizeof(float), false);
    scratch_.compared = static_cast<float*>(compared_.get());
    scratch_.columns = static_cast<float*>(columns_.get());
    scratch_.firsts = static_cast<float*>(firsts_.get());
  }
  return scratch_;
}

}  // namespace irli
