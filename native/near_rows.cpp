// The nearest rows through inverted lists, and the labels that they vote for.

#include <limits>

#include "labels.h"
#include "select.h"

namespace irli {
namespace {

constexpr int64_t kNearest = 30;      // nearest rows that vote for their labels
constexpr int64_t kVoted = 300;       // labels returned for a row, at most: those with most votes
constexpr float kLeastVote = 1e-30f;  // a vote must not be zero

// The known rows nearest to one row, nearest first.
struct Nearest {
  int64_t rows[kNearest];
  float nearness[kNearest];
  int64_t count;
};

// List the known rows most similar to a row, without `itself`. `similar` must hold zeros, and holds
// zeros again afterwards.
Nearest find_nearest(const SparseRows& queries, int64_t row, int64_t itself, const Postings& known,
                     float* similar) {
  const int64_t begin = queries.indptr[row], end = queries.indptr[row + 1];
  for (int64_t e = begin; e < end; ++e) {
    const int32_t feature = queries.indices[e];
    for (int64_t p = known.starts[feature]; p < known.starts[feature + 1]; ++p)
      similar[known.rows[p]] += queries.data[e] * known.values[p];
  }
  Nearest near;
  near.count = 0;
  for (int64_t e = begin; e < end; ++e) {
    const int32_t feature = queries.indices[e];
    for (int64_t p = known.starts[feature]; p < known.starts[feature + 1]; ++p) {
      const int64_t other = known.rows[p];
      const float value = similar[other];
      similar[other] = 0;  // so that each row is considered only once
      if (value > 0 && value < std::numeric_limits<float>::infinity() && other != itself)
        near.count = insert_best(near.nearness, near.rows, kNearest, near.count, value, other);
    }
  }
  return near;
}

}  // namespace

NearLabels vote_near_rows(int64_t first, int64_t last, const SparseRows& queries,
                          const int64_t* known, const Postings& postings) {
  std::vector<float> similar(postings.known, 0), votes(postings.label_count, 0);
  std::vector<float> order(postings.label_count);
  std::vector<int32_t> voted;
  NearLabels out;
  for (int64_t i = first; i < last; ++i) {
    const Nearest near = find_nearest(queries, i, known[i], postings, similar.data());
    voted.clear();
    for (int64_t r = 0; r < near.count; ++r) {
      const int64_t* ends = postings.label_starts + near.rows[r];
      for (int64_t e = ends[0]; e < ends[1]; ++e) {
        const int32_t label = postings.labels[e];
        if (votes[label] == 0) voted.push_back(label);
        votes[label] += larger_of(near.nearness[r], kLeastVote);
      }
    }
    const size_t start = out.labels.size();
    out.labels.insert(out.labels.end(), voted.begin(), voted.end());
    const int64_t kept = keep_best(out.labels.data() + start, static_cast<int64_t>(voted.size()),
                                   kVoted, votes.data(), order.data());
    out.labels.resize(start + kept);
    out.sizes.push_back(kept);
    for (const int32_t label : voted) votes[label] = 0;
  }
  return out;
}

}  // namespace irli
