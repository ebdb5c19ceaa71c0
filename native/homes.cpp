#include "homes.h"

#include <stddef.h>

namespace irli {
namespace {

// Call visit(label, home) for all entries, repetition by repetition.
template <class Visit>
void visit_entries(const LabelLayout& layout, Visit visit) {
  for (int64_t r = 0; r < layout.repetitions; ++r)
    for (int64_t b = 0; b < layout.buckets; ++b) {
      const int64_t* ends = layout.offsets + r * (layout.buckets + 1) + b;
      for (int64_t e = ends[0]; e < ends[1]; ++e)
        visit(layout.entries[e], Home{static_cast<int32_t>(r), static_cast<int32_t>(b), e});
    }
}

}  // namespace

Homes::Homes(LabelLayout& layout) : starts_(static_cast<size_t>(layout.labels) + 1) {
  visit_entries(layout,
                [&](int32_t label, const Home&) { ++starts_[static_cast<size_t>(label) + 1]; });
  for (size_t label = 1; label < starts_.size(); ++label) starts_[label] += starts_[label - 1];
  homes_.resize(static_cast<size_t>(starts_.back()));
  std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
  visit_entries(layout, [&](int32_t label, const Home& home) {
    homes_[static_cast<size_t>(next[static_cast<size_t>(label)]++)] = home;
  });
  layout.home_starts = starts_.data();
  layout.homes = homes_.data();
}

}  // namespace irli
