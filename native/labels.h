// Learning on labels: the ranker's classifiers, near rows, and the parser of XMC text. They are
// compiled once, for any processor.
#pragma once

#include <utility>
#include <vector>

#include "layout.h"

namespace irli {

// --- linear.cpp ---------------------------------------------------------------------------------

// Rows, their squared lengths (n), and the usual value of each feature (D).
struct TrainingRows {
  SparseRows rows;
  const float* lengths;
  const float* usual;
  int64_t count, dim;
};

// A list of rows for each label, as the first two arrays of a CSR.
struct RowLists {
  const int64_t* indptr;
  const int32_t* rows;
};

struct TrainOptions {
  float cost, prune;
  int64_t seed, passes;  // over the rows of a label, at most
};

// The number of weights of each label, and the features and values of all weights.
struct Classifiers {
  std::vector<int64_t> sizes;
  std::vector<int32_t> features;
  std::vector<float> weights;
};

// Train the classifiers of the labels from `first` to `last`, starting from the weights `start`
// (labels, features) and from `bias`, which is then written.
Classifiers train_classifiers(int64_t first, int64_t last, const TrainingRows& data,
                              const RowLists& positive, const RowLists& negative,
                              const SparseRows& start, const TrainOptions& options,
                              const float* importance, float* bias);

// The weights of all classifiers, by feature, in three bytes each. See `irli.labels.ranking.ranker`.
struct PackedWeights {
  std::vector<int64_t> starts;
  std::vector<uint16_t> gaps;
  std::vector<int8_t> weights;
  std::vector<float> scale;
};

// Pack the weights of a matrix (features, labels) whose rows have ascending labels.
PackedWeights pack_weights(const SparseRows& matrix, int64_t features, int64_t labels);

// Find the k outputs with the largest products, best first, for the rows from `first` to `last`.
// `constant` (outputs), if given, is added. Row i does not find the output itself[i]. Only outputs
// that share a feature with the row are found; the other places get -1.
void find_best_outputs(const SparseRows& rows, int64_t first, int64_t last,
                       const PackedMatrix& matrix, const float* constant, const int64_t* itself,
                       int64_t k, float* values, int64_t* outputs);

// --- xmc_parser.cpp -----------------------------------------------------------------------------

enum Fault : int64_t { kGood, kBadLabel, kBadPair, kBadValue, kRowTooMany };

struct ParsedText {
  Fault fault;
  int64_t at;  // where in the text the fault is
  std::vector<int64_t> label_counts;
  std::vector<int32_t> labels;
  std::vector<int64_t> pair_counts;
  std::vector<int32_t> columns;
  std::vector<float> values;
};

// Parse at most n rows. The text must end with a newline, so that loops over a line need not check
// for the end of the text. Blank lines after row n are allowed.
ParsedText parse_text(const uint8_t* text, int64_t size, bool labelled, int64_t n,
                      int64_t n_columns, int64_t n_labels);

}  // namespace irli
