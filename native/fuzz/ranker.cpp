// The ranker: training, packing weights, margins, and the labels of near rows.
#include <math.h>

#include "check.h"
#include "../labels.h"
#include "layouts.h"
#include "source.h"
#include "targets.h"

namespace irli {
namespace {

// A CSR of `rows` rows with ascending indices below `columns`.
struct Csr {
  Exact<int64_t> indptr;
  Exact<int32_t> indices;
  Exact<float> data;

  Csr(Source& source, int64_t rows, int64_t columns) : indptr(rows + 1) {
    std::vector<int32_t> listed;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < columns; ++c)
        if (source.draw(0, 2) == 0) listed.push_back(static_cast<int32_t>(c));
      indptr[row + 1] = static_cast<int64_t>(listed.size());
    }
    indices = Exact<int32_t>(static_cast<int64_t>(listed.size()));
    for (int64_t e = 0; e < indices.size(); ++e) indices[e] = listed[static_cast<size_t>(e)];
    data = draw_floats(source, indices.size());
  }
  SparseRows get() const { return {indptr.data(), indices.data(), data.data()}; }
};

void check_margins(Source& source, const Csr& matrix, int64_t features, int64_t labels) {
  const PackedWeights packed = pack_weights(matrix.get(), features, labels);
  Exact<float> bias = draw_floats(source, labels);
  const PackedView view = {packed.starts.data(), packed.gaps.data(),  packed.weights.data(),
                           packed.scale.data(),  bias.data(),         labels};
  const int64_t count = source.between(0, 5), width = source.between(1, 6);
  const Csr rows(source, count, features);
  Exact<int64_t> found(count * width);
  for (int64_t& label : found) label = source.draw(-1, labels - 1);
  Exact<float> margins(count * width);
  compute_margins(rows.get(), count, view, found.data(), width, margins.data());
  if (source.mood == kWild) return;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t label = found[i * width + c];
      if (label < 0) continue;
      double truth = bias[label], size = fabs(bias[label]);
      for (int64_t e = rows.indptr[i]; e < rows.indptr[i + 1]; ++e) {
        const int64_t feature = rows.indices[e];
        for (int64_t w = matrix.indptr[feature]; w < matrix.indptr[feature + 1]; ++w)
          if (matrix.indices[w] == label) {
            truth += static_cast<double>(rows.data[e]) * matrix.data[w];
            size += fabs(rows.data[e]);
          }
      }
      CHECK(fabs(margins[i * width + c] - truth) <= 0.02 * size + 1e-5);  // 8-bit weights
    }
}

void check_training(Source& source, const Csr& rows, int64_t count, int64_t dim, int64_t labels) {
  Exact<float> lengths(count), usual(dim), importance(labels), bias(labels);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t e = rows.indptr[i]; e < rows.indptr[i + 1]; ++e)
      lengths[i] += rows.data[e] * rows.data[e];
  for (float& value : usual) value = 1;
  for (float& value : importance) value = 1;
  const Csr positive(source, labels, count), negative(source, labels, count);
  const TrainingRows data = {rows.get(), lengths.data(), usual.data(), count, dim};
  const Classifiers made = train_classifiers(
      0, labels, data, {positive.indptr.data(), positive.indices.data()},
      {negative.indptr.data(), negative.indices.data()}, {0.5f, 0.01f, source.draw(0, 9)},
      importance.data(), bias.data());
  CHECK(static_cast<int64_t>(made.sizes.size()) == labels);
  size_t total = 0;
  for (const int64_t size : made.sizes) total += static_cast<size_t>(size);
  CHECK(total == made.features.size() && total == made.weights.size());
  for (const int32_t feature : made.features) CHECK(feature >= 0 && feature < dim);
}

void check_votes(Source& source, const Csr& rows, int64_t count, int64_t dim, int64_t labels) {
  const int64_t known = source.between(1, 40);
  const Csr lists(source, dim, known), held(source, known, labels);
  Exact<int64_t> itself(count);
  for (int64_t& row : itself) row = source.draw(-1, known - 1);
  const Postings postings = {lists.indptr.data(), lists.indices.data(), lists.data.data(),
                             held.indptr.data(),  held.indices.data(),  known,
                             labels};
  const NearLabels near = vote_near_rows(0, count, rows.get(), itself.data(), postings);
  CHECK(static_cast<int64_t>(near.sizes.size()) == count);
  size_t total = 0;
  for (const int64_t size : near.sizes) total += static_cast<size_t>(size);
  CHECK(total == near.labels.size());
  for (const int32_t label : near.labels) CHECK(label >= 0 && label < labels);
}

}  // namespace
}  // namespace irli

void irli::fuzz_ranker(const uint8_t* bytes, size_t size) {
  Source source(bytes, size);
  source.mood = static_cast<Mood>(source.below(3));
  const int64_t count = source.between(1, 30), dim = source.between(1, 30);
  const int64_t labels = source.between(1, 40);
  const Csr rows(source, count, dim), matrix(source, dim, labels);
  check_margins(source, matrix, dim, labels);
  check_training(source, rows, count, dim, labels);
  check_votes(source, rows, count, dim, labels);
}
