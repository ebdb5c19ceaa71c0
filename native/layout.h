// What the kernels read and write: plain structs of pointers. `src/irli/engine/vector_layout.py`
// and `label_layout.py` describe the same arrays with their meaning.
#pragma once

#include <stdint.h>

namespace irli {

// Python reads many of these constants: see module.cpp.
constexpr int64_t kBlock = 8;   // queries routed together, so that a weight is read once for all
constexpr int64_t kLanes = 32;  // items in a block of codes
constexpr int64_t kPanel = 64;  // columns of 8-bit weights that are summed together
constexpr int64_t kWords = 16;  // codewords of a piece: as many as 4 bits can number
constexpr int64_t kMost = 127;  // the largest value in the table of a query
constexpr int64_t kBin = 3;     // a bin of the histogram holds 2^kBin different sums of codes
constexpr int64_t kMostCandidates = 16384;  // that a scan of codes can choose
constexpr int64_t kMostLargest = 256;       // scores of a row that a top-k can find
constexpr int64_t kLevels = 24;  // a search at level j is as wide as one for 2^j times the items
constexpr int32_t kZero = 64;    // the byte that stands for zero: the bytes of a query are unsigned
constexpr int64_t kLeastRounded = 16;  // dimensions from which on centroids have 8 bits
constexpr double kLeastVotes = 0.01;   // less than this of a near row's vote is as good as none

// Queries that are compared with all items together, at most. Fewer than kTogether are compared one
// by one.
constexpr int64_t kCompared = 64, kTogether = 4;
constexpr int64_t kRows = 16;     // of them whose columns are stored together (d, 16)
constexpr int64_t kFirsts = 128;  // items that they are compared with before any is kept
// The keys that a query keeps for its k nearest: few, so that the k-th best soon excludes most items.
inline int64_t count_kept(int64_t k) { return k > 16 ? 4 * k : 64; }
// How many of these queries are compared together: all their keys take 8 MB at most.
inline int64_t count_compared(int64_t k) {
  const int64_t count = (int64_t{1} << 20) / count_kept(k);
  return count > kCompared ? kCompared : count < 1 ? 1 : count;
}

constexpr int64_t kMostRuns = 16;  // of entries: those of a fit, and those added since

enum Metric : int64_t { kL2 = 0, kDot = 1 };
// A distance x becomes x, 1 + x or -x. COSINE normalizes the queries, too.
enum Form : int64_t { kPlain = 0, kCosine = 1, kIp = 2 };
// The score that chooses the candidates, in the order of its names.
enum Score : int64_t { kVotes = 0, kProbability = 1, kLogProbability = 2, kCodes = 3 };

struct Projection {
  const float* centre;  // (d)
  const float* scale;   // (d)
  const int8_t* bytes;  // (columns / 64, d / 4, 64, 4)
  const float* step;    // (columns)
  const int32_t* zero;  // (columns)
  const float* bias;    // (columns)
  int64_t columns;      // 0 without a projection
};

// The rows of an array (n, dim): the first of them in one piece of memory, and those that were added
// later in chunks of 2^shift rows, which never move.
template <class T>
struct Rows {
  const T* first;         // (count, dim)
  int64_t count;          // all, unless some were added
  const T* const* added;  // chunks (2^shift, dim)
  int64_t shift;

  const T* at(int64_t row, int64_t dim) const {
    if (row < count) return first + row * dim;
    const int64_t later = row - count, chunk = later >> shift;
    return added[chunk] + (later - (chunk << shift)) * dim;
  }
};

// Items bucket by bucket: those of a fit, or some that were added later. With codes, each bucket has
// whole blocks of them.
struct Run {
  const int64_t* offsets;        // (R, B + 1)
  const int32_t* items;          // (entries)
  const int64_t* block_offsets;  // (R, B + 1)
  const uint8_t* blocks;         // (blocks, M / 2, 32)
};

struct Codes {
  const float* rotation;   // (d, p)
  const float* shift;      // (p)
  const float* codewords;  // (M, s, 16)
  const float* bias;       // (M, 16)
  int64_t pieces, size;    // M, s; p = M s
};

struct Int8Vectors {
  Rows<int8_t> bytes;   // (N, d)
  const float* shift;   // (d)
  const float* step;    // (d)
  Rows<float> lengths;  // (N) for l2, and for what was added
  bool present;
};

// How near the items of each bucket of the first repetition are to a query, for queries that the
// routers do not know.
struct Centroids {
  const float* centre;   // (d): subtracted from the query
  const float* columns;  // (d, B): the mean of each bucket, less the centre
  const float* bias;     // (B): minus half the mean squared length for l2, or 0
  const float* spread;   // (B): the deviation of its items from the mean, along one axis
  const float* base;     // (B): a query is far from a bucket beyond base + far * reach
  const float* reach;    // (B): how far apart its items are
  const int8_t* bytes;   // (B / 64, d / 4, 64, 4): the columns with 8 bits, or null
  const float* step;     // (B)
  const int32_t* zero;   // (B)
  bool present;
};

struct VectorLayout {
  int64_t items, dim, repetitions, buckets;
  int64_t room;    // items that scratch memory has room for: more, if some may be added
  int64_t width;   // G, features of a router
  int64_t linear;  // the first features, which skip the ReLU
  Projection projection;
  const float* project;  // (R, d, G)
  const float* shift;    // (R, G)
  const float* weights;  // (R, G, B), or null
  const int8_t* bytes;   // (R, B / 64, G / 4, 64, 4): the same in 8 bits, or null
  const float* step;     // (R, B)
  const int32_t* zero;   // (R, B)
  const float* bias;     // (R, B)
  const float* centre;   // (R, d)
  const float* soften;   // (R, 3): see `soften_logits`
  Run runs[kMostRuns];
  int64_t run_count;
  Rows<float> vectors;  // (N, d)
  Codes codes;
  Int8Vectors int8;
  Centroids centroids;
  Metric metric;
};

// The items that a search may return: those that a filter allows and that are not removed. What is
// null leaves out none. Where removed items alone are left out, a search goes on as without them.
struct Selector {
  const uint8_t* allowed;  // (N): whether a filter allows each item
  const uint8_t* removed;  // (N): whether each item was removed
  const int32_t* rows;     // (count): the allowed items in order, if they are known
  int64_t count;           // of the rows

  bool has_mask() const { return allowed || removed; }
  bool is_removed(int64_t item) const { return removed && removed[item]; }
  bool permits(int64_t item) const { return !is_removed(item) && (!allowed || allowed[item]); }
};

struct SearchPlan {
  int64_t k;
  // What is read at each level: a search at level j reads as much as one for k 2^j items.
  int64_t levels;              // 1 at least
  double thresholds[kLevels];  // the lowest log-probability of a bucket
  double centroids[kLevels];   // buckets besides: those with the nearest centroids
  int64_t probes;              // the most buckets in each repetition that routers choose, or 0
  bool fill;                   // go on if fewer than k items are found; `tune` looks without that
  // Under a filter, the search starts at the level `start` and widens by what it allows. From the
  // level `exact_from` on, it costs less to compare all allowed items.
  double start;  // negative: there is no filter, or it changes nothing
  double exact_from;
  bool exact;  // compare all items, without routing
  // A query is strange to the routers if the buckets of at least the log-probability `likely` have
  // less than the probability `unsure` together, or if its nearest item is more than `far` times as
  // far as those of its best bucket are from each other. It goes on until it has read `wide` buckets
  // in all, those with the nearest centroids.
  double likely;
  double unsure;  // 0: none
  double far;     // infinite: none
  int64_t wide;
  int64_t picked;  // candidates that codes choose for it, or 0 to choose them as for others
  // Inner products rank the items alike whatever the length of the query. So all queries are routed
  // at one length, which the routers know well.
  double length;  // 0: as they are
  Score score;
  int64_t min_votes;
  int64_t candidates;  // the most exact distances to compute, or 0 for no limit
  bool by_score;       // rank by score, and equal ones by distance
};

enum Stage : int64_t { kRoute = 0, kScan = 1, kSelect = 2, kRerank = 3 };

// What a search did. `passed` and `permitted` are the entries that were looked at, without those of
// removed items, and those of them that the filter allows.
struct Counts {
  int64_t probed, found, read, chosen;
  int64_t near;  // buckets read because their centroids are near
  int64_t last;  // candidates of the last scan, if there were several
  int64_t passed, permitted;
  int64_t coded;   // entries that were read as codes
  int64_t picked;  // candidates that codes chose
  int64_t plain;   // candidates of scans without codes
  double sure;     // the probability of the likely buckets, averaged over the repetitions
  double level;
  bool exact, strange;
};

// The memory in which one thread answers queries. Arrays over the items are not cleared between
// queries: `stamp` holds the number of the last scan that found the item.
struct Scratch {
  float* scaled;           // (kBlock, d): the queries at the length of the plan
  float* rows;             // (block, d): the queries
  float* compared;         // (compared, d): queries that are compared with all items
  float* columns;          // (compared / 16, d, 16): the same, column by column
  float* firsts;           // (compared / 16, kFirsts, 16): how near the first items are to them
  float* centred;          // (d)
  uint8_t* query;          // (block, d rounded up to 16): queries as bytes
  float* projected;        // (block, columns rounded up to 64)
  float* hidden;           // (block, G rounded up to 16)
  uint8_t* bytes;          // (block, G rounded up to 16)
  int32_t* sums;           // (block, columns or B, rounded up to 64)
  int32_t* alive;          // (B)
  float* logits;           // (block, R, B): log-probabilities after routing
  const float* routed;     // (1, R, B): those of a query that is already routed, or null
  float* order;            // (max(B, room))
  int32_t* probed;         // (R B + 1): r B + bucket
  float* values;           // (R B): what each probed bucket adds to a score
  uint64_t* bucket_keys;   // (R B)
  uint8_t* marked;         // (R B): which buckets are read already, 0 between two uses
  float* weakest;          // (R): the lowest log-probability that routers chose
  uint8_t* stamp;          // (room)
  int32_t* votes;          // (room)
  float* scores;           // (room)
  int32_t* touched;        // (room): the items found for this query
  float* coordinates;      // (p rounded up to 16)
  float* codeword_values;  // (M, 16)
  uint8_t* table;          // (M / 2, 32)
  int32_t* bins;           // the histogram of the sums of codes
  float* near;             // (B): how near the items of each bucket are on average
  float* left;             // (B): the same, of the buckets that are not probed yet
  bool near_known;         // for this query
  bool table_known;
  uint64_t* keys;  // (room): the value and the item of each possible candidate
  int64_t room;
  int64_t dim_bytes, width_floats, width_bytes, columns_floats, sum_columns;
  uint8_t clock;  // the number of the scan, 1 to 255: bytes stay in the cache
  Counts counts;
  double (*now)();    // a clock, or null
  double last;        // when the last stage ended
  double seconds[4];  // of each stage
};

// --- labels -------------------------------------------------------------------------------------

// What a probed bucket adds to the score of its labels.
enum class LabelScore : int64_t {
  kWeightedVotes,  // and the prior of the label
  kProbability,
  kLogit,
  kLogProbability,
  kVotes
};

// Rows of a CSR.
struct SparseRows {
  const int64_t* indptr;  // (n + 1)
  const int32_t* indices;
  const float* data;
};

// A sparse matrix (features, outputs), feature by feature, in three bytes a number. Outputs are
// labels, for the ranker's weights, or rows that are known, for finding near ones.
struct PackedMatrix {
  int64_t features, outputs;
  const int64_t* starts;  // (features + 1)
  const uint16_t* gaps;   // the output of each number, less the output before it
  const int8_t* weights;  // multiples of the output's scale
  const float* scale;     // (outputs)
};

// A bucket that holds a label, and the place of the label in `entries`.
struct Home {
  int32_t repetition, bucket;
  int64_t entry;
};

struct LabelLayout {
  int64_t labels, dim, trunks, repetitions, buckets;
  int64_t width;               // G, features of a router
  const int8_t* project;       // (T, d, G)
  const float* project_scale;  // (T, d)
  const float* shift;          // (T, G)
  const int8_t* out;           // (R, B / 64, G / 4, 64, 4)
  const float* out_scale;      // (R, B)
  const float* bias;           // (R, B)
  const int64_t* offsets;      // (R, B + 1)
  const int32_t* entries;      // labels, bucket by bucket
  const float* share;          // P(label | bucket) of each entry
  const float* prior;          // (L)
  const int64_t* home_starts;  // (L + 1): where the homes of each label start
  const Home* homes;           // label by label, by repetition: see homes.h
  PackedMatrix ranker;         // without features if there is none
  const float* constant;       // (L)
  PackedMatrix near;           // known rows of unit length; without features if there are none
  const int64_t* near_starts;  // (known rows + 1)
  const int32_t* near_labels;  // the labels of each known row
};

struct LabelPlan {
  int64_t k;
  int64_t probes;      // buckets in each repetition
  int64_t candidates;  // labels that each source proposes
  LabelScore score;
  double by_margin;       // the weight of the ranker's margin, or 0 to leave the ranker out
  double by_score;        // the weight of the routers' score
  double threshold;       // added to the calibrated score
  int64_t min_votes = 1;  // probed buckets that must hold a label
  int64_t near = 0;       // known rows that vote for their labels, or 0 for none
  double by_votes = 0;    // the weight of their votes
  bool own = false;       // whether the ranker proposes labels of its own
  int64_t complete = 0;  // so many of the first labels are scored by routers, whoever proposes them
};

// Candidates of rows, and what each source knows of them: (n, width).
struct Candidates {
  int64_t* labels;
  float *scores, *margins, *votes;
  int64_t width;
};

// The memory in which one thread labels rows.
struct LabelScratch {
  float* features;      // (block, G rounded up to 16)
  uint8_t* bytes;       // (block, G rounded up to 16): features as bytes
  int32_t* sums;        // (block, B rounded up to 64)
  float* logits;        // (block, R, B rounded up to 16)
  const float* routed;  // (1, R, B): logits that other threads have written for one row, or null
  int32_t* places;      // (max(B, L, known rows))
  float* order;         // (max(L, known rows)): what outputs are selected by
  float* scores;        // (L): by label, -0 if the label was not found
  int32_t* votes;       // (L): by label, 0 between two rows
  int32_t* touched;     // (L + 1): the labels found for this row
  float* values;        // (L + 1): their scores, in the order of `touched`
  float* margins;       // (L): by label, -0 if no feature of the row has a weight for it
  int32_t* reached;     // (L + 1): the labels with a margin
  float* products;      // (known rows): with the row, -0 between two rows
  int32_t* others;      // (known rows + 1): those that share a feature with the row
  float* near_votes;    // (L): by label, 0 between two rows
  int32_t* voted;       // (L): the labels that near rows vote for
  uint8_t* proposed;    // (L): whether a label is a candidate of this row, 0 between two rows
  uint64_t* keys;       // (max(L, known rows))
  float* totals;        // (R): log of the sum of exp(logit), where the score needs it
  float* weakest;       // (R): the smallest logit that was probed
  float base;           // what all labels of this row have in common
  int64_t reached_count, voted_count;  // for this row
  int64_t width_floats, sum_columns, bucket_floats;
};

}  // namespace irli
