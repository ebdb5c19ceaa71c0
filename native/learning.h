// The sequential loops of learning. They have no vector work, so they run on every processor as
// they are. Each returns false if an index is out of bounds.
#pragma once

#include <stdint.h>

namespace irli {

// --- affinity.cpp -------------------------------------------------------------------------------

// The best buckets of each query by its router score, and the chance that each is probed.
template <class Bucket>
struct BestBuckets {
  const Bucket* buckets;  // (queries, kept)
  const float* chances;   // (queries, kept)
  const float* factors;   // (B)
  int64_t queries, kept;
};

// The queries to which each item is relevant, as a CSR.
template <class Index>
struct Wanting {
  const Index* indptr;   // (N + 1)
  const Index* queries;  // (entries)
  const float* weights;  // (entries)
  int64_t entries;
};

// More buckets for some items, ranked by the router alone.
struct Others {
  const int32_t* buckets;  // (n, count)
  const float* suits;      // (n, count)
  int64_t count;           // 0 if there are none
};

// Items, and what is known of them.
struct Items {
  const int64_t* rows;   // (n): the items to rank
  const int32_t* held;   // (N): the bucket that already holds the item, or -1
  const float* weights;  // (N): of the item itself as a query
  int64_t count, all;    // n, N
};

// Write the best buckets of each item (n, wanted), best first, padded with -1, and how far the best
// one leads (n).
template <class Bucket, class Index>
bool rank_buckets(const Items& items, const bool* allowed, int64_t buckets, const Others& others,
                  const Wanting<Index>& wanting, const BestBuckets<Bucket>& best, int64_t wanted,
                  int32_t* ranking, float* lead);

// --- placement.cpp ------------------------------------------------------------------------------

// The best buckets of n items (n, choices), padded with -1.
struct Choices {
  const int32_t* best;
  int64_t rows, count;
};

// Put each item, in this order, into the least loaded of its best buckets (section 3.2).
bool place_least_loaded(const int64_t* order, int64_t count, const Choices& choices, int64_t* loads,
                        int64_t buckets, int32_t* chosen);

// Put each item, in this order, into its best bucket that has room and is not taken[item]. The best
// buckets of item order[n] are in row rows[n] of the choices. If none has room, chosen[item] is
// left as it is.
bool place_bounded(const int64_t* order, const int64_t* rows, int64_t count, const Choices& choices,
                   int64_t limit, int64_t* loads, int64_t buckets, const int32_t* taken,
                   int32_t* chosen, int64_t items);

// --- pq.cpp -------------------------------------------------------------------------------------

// Vectors (n, M s), the directions in which their errors weigh eta, and their codes (n, M) < 16.
struct Coded {
  const float* x;
  const float* along;
  const uint8_t* codes;
  int64_t count, pieces, size;
};

// Move the codewords (M, 16, s) of each piece to where the loss of their vectors is smallest.
void improve_codewords(const Coded& coded, double eta, float* codewords);

// The items of each bucket, and where its blocks of 32 items begin.
struct Buckets {
  const int64_t* offsets;  // (R, B + 1)
  const int64_t* starts;   // (R, B + 1)
  const int32_t* items;    // (entries)
  int64_t repetitions, buckets, entries;
};

// Write codes (N, M) into blocks, in the order of the buckets. See `sum_block` in simd/plain.h for
// the layout of a block.
bool fill_blocks(const uint8_t* codes, int64_t count, int64_t pieces, const Buckets& buckets,
                 uint8_t* blocks, int64_t block_count);

}  // namespace irli
