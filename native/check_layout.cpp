#include "check_layout.h"

#include <stdexcept>
#include <string>

namespace irli {
namespace {

constexpr int64_t kMostNumbers = INT32_MAX;          // items and buckets have 32 bits
constexpr int64_t kMostRows = 1 << 16;               // of 8-bit weights: their sums have 32 bits
constexpr int64_t kMostPieces = UINT16_MAX / kMost;  // of codes: their sums have 16 bits

void require(bool good, const char* what) {
  if (!good)
    throw std::invalid_argument(std::string("The arrays of an index are damaged: ") + what +
                                ". Copy the folder again, or build the index again.");
}

// Whether `count` parts, which start at places[0], places[1], ..., lie within `size` in this order.
bool rises(const int64_t* places, int64_t count, int64_t size) {
  bool good = places[0] >= 0 && places[count] <= size;
  for (int64_t i = 0; i < count; ++i) good &= places[i] <= places[i + 1];
  return good;
}

void check_offsets(const int64_t* offsets, int64_t repetitions, int64_t buckets, int64_t size,
                   const char* what) {
  for (int64_t r = 0; r < repetitions; ++r)
    require(rises(offsets + r * (buckets + 1), buckets, size), what);
}

void check_entries(const int32_t* entries, int64_t count, int64_t items) {
  bool good = true;
  for (int64_t e = 0; e < count; ++e)
    good &= static_cast<uint32_t>(entries[e]) < static_cast<uint32_t>(items);
  require(good, "the buckets must hold items or labels of the index");
}

// A sum of bytes less the sum for a query of zeros must stay within 32 bits.
void check_zeros(const int32_t* zero, int64_t count, int64_t rows, const char* what) {
  const int64_t most = kMostRows * kZero * 128;
  bool good = rows <= kMostRows;
  for (int64_t c = 0; c < count; ++c) good = good && zero[c] >= -most && zero[c] <= most;
  require(good, what);
}

void check_router(const VectorLayout& layout) {
  require(layout.linear >= 0 && layout.linear <= layout.width,
          "the linear features of a router must be some of its features");
  if (layout.bytes)
    check_zeros(layout.zero, layout.repetitions * layout.buckets, layout.width,
                "the sums in 'zero' of a router are too large");
}

void check_codes(const VectorLayout& layout, const Run& run, int64_t blocks) {
  check_offsets(run.block_offsets, layout.repetitions, layout.buckets, blocks,
                "the offsets of the codes must rise, up to the number of blocks");
  for (int64_t r = 0; r < layout.repetitions; ++r)
    for (int64_t b = 0; b < layout.buckets; ++b) {
      const int64_t at = r * (layout.buckets + 1) + b;
      const int64_t load = run.offsets[at + 1] - run.offsets[at];
      require(run.block_offsets[at + 1] - run.block_offsets[at] == (load + kLanes - 1) / kLanes,
              "a bucket must have a block of codes for each 32 items");
    }
}

}  // namespace

void check_layout(const VectorLayout& layout, int64_t entries, int64_t blocks) {
  require(layout.items >= 0 && layout.dim >= 1 && layout.repetitions >= 1 && layout.buckets >= 1,
          "there must be a dimension, a repetition and a bucket");
  require(layout.items <= kMostNumbers && layout.repetitions <= kMostNumbers / layout.buckets,
          "items and buckets must have 32-bit numbers");
  require(layout.metric == kL2 || layout.metric == kDot, "the metric is unknown");
  check_router(layout);
  const Projection& projection = layout.projection;
  if (projection.columns) {
    require(projection.columns ==
                layout.repetitions * layout.width + layout.codes.pieces * layout.codes.size,
            "the projection must have a column for each feature and code");
    check_zeros(projection.zero, projection.columns, layout.dim,
                "the sums in 'zero' of the projection are too large");
  }
  const Codes& codes = layout.codes;
  require(!codes.pieces ||
              (codes.pieces % 2 == 0 && codes.pieces <= kMostPieces && codes.size >= 1),
          "the number of pieces of a code must be even, and at most 516");
  check_run(layout, layout.runs[0], entries, blocks);
}

void check_run(const VectorLayout& layout, const Run& run, int64_t entries, int64_t blocks) {
  check_offsets(run.offsets, layout.repetitions, layout.buckets, entries,
                "the offsets of the buckets must rise, up to the number of entries");
  check_entries(run.items, entries, layout.items);
  if (layout.codes.pieces) check_codes(layout, run, blocks);
}

void check_layout(const LabelLayout& layout, int64_t entries, int64_t weights, int64_t numbers,
                  int64_t near_entries) {
  require(layout.repetitions >= 1 && layout.buckets >= 1 && layout.ranker.features >= 0 &&
              (layout.trunks == 1 || layout.trunks == layout.repetitions),
          "there must be a repetition and a bucket, and a trunk for one repetition or for all");
  require(layout.labels <= kMostNumbers && layout.repetitions <= kMostNumbers / layout.buckets,
          "labels and buckets must have 32-bit numbers");
  require(layout.width <= kMostRows, "a router has too many features");
  check_offsets(layout.offsets, layout.repetitions, layout.buckets, entries,
                "the offsets of the buckets must rise, up to the number of entries");
  check_entries(layout.entries, entries, layout.labels);
  int64_t homes = 0;
  for (int64_t r = 0; r < layout.repetitions; ++r) {
    const int64_t* row = layout.offsets + r * (layout.buckets + 1);
    homes += row[layout.buckets] - row[0];
    require(homes <= entries, "the buckets of the repetitions must not overlap");
  }
  const PackedMatrix &ranker = layout.ranker, &near = layout.near;
  check_packed(ranker.starts, ranker.features, ranker.gaps, weights, layout.labels);
  require(near.outputs <= kMostNumbers, "known rows must have 32-bit numbers");
  check_packed(near.starts, near.features, near.gaps, numbers, near.outputs);
  require(rises(layout.near_starts, near.outputs, near_entries),
          "the starts of the known rows' labels must rise, up to the number of labels");
  check_entries(layout.near_labels, near_entries, layout.labels);
}

void check_packed(const int64_t* starts, int64_t features, const uint16_t* gaps, int64_t weights,
                  int64_t labels) {
  require(rises(starts, features, weights),
          "the starts of the features must rise, up to the number of weights");
  bool good = true;
  for (int64_t feature = 0; feature < features; ++feature) {
    int64_t label = 0;
    for (int64_t w = starts[feature]; w < starts[feature + 1]; ++w) label += gaps[w];
    good &= label < labels || starts[feature] == starts[feature + 1];
  }
  require(good, "weights must belong to labels or rows of the index");
}

bool check_rows(const SparseRows& rows, int64_t first, int64_t last, int64_t size, int64_t dim) {
  if (!rises(rows.indptr + first, last - first, size)) return false;
  bool good = true;
  for (int64_t e = rows.indptr[first]; e < rows.indptr[last]; ++e)
    good &= static_cast<uint32_t>(rows.indices[e]) < static_cast<uint64_t>(dim);
  return good;
}

bool are_items(const int32_t* rows, int64_t count, int64_t items) {
  // The highest bit is set if a row is negative, or larger than the last one. Every search with a
  // filter comes here, so this must be a loop that compilers turn into vectors.
  const uint32_t last = static_cast<uint32_t>(items - 1);
  uint32_t bits = 0;
  for (int64_t t = 0; t < count; ++t) {
    const uint32_t row = static_cast<uint32_t>(rows[t]);
    bits |= row | (last - row);
  }
  return count <= items && bits >> 31 == 0;
}

}  // namespace irli
