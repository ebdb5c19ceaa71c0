// Plain C++: the reference that every other back-end is tested against.
//
// Each back-end has the same types and functions as this file:
//   Floats          16 floats. Sums run in these 16 lanes on every processor, and `sum` folds the
//                   lanes in one fixed order. So all processors with FMA give the same bits.
//   kTile, kSets    a tile of so many items and sets of 16 queries has its sums in registers
//   sum_block       the sums of 32 items' 4-bit codes
//   add_byte_sums   products of unsigned and signed bytes
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

namespace irli {
namespace {

constexpr const char* kName = "plain";
constexpr int64_t kTile = 4, kSets = 1;

struct Floats {
  float lane[16];
};

inline Floats fill(float value) {
  Floats out;
  for (float& lane : out.lane) lane = value;
  return out;
}

inline Floats load(const float* from) {
  Floats out;
  memcpy(out.lane, from, sizeof out.lane);
  return out;
}

inline void store(float* to, const Floats& a) { memcpy(to, a.lane, sizeof a.lane); }

// The first `count` (< 16) floats, then zeros. Nothing behind them is read.
inline Floats load_some(const float* from, int64_t count) {
  Floats out = {};
  memcpy(out.lane, from, static_cast<size_t>(count) * sizeof(float));
  return out;
}

inline Floats widen(const int8_t* from) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = static_cast<float>(from[i]);
  return out;
}

// The first `count` (< 16) bytes, then zeros.
inline Floats widen_some(const int8_t* from, int64_t count) {
  Floats out = {};
  for (int64_t i = 0; i < count; ++i) out.lane[i] = static_cast<float>(from[i]);
  return out;
}

inline Floats widen(const int32_t* from) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = static_cast<float>(from[i]);
  return out;
}

inline Floats add(const Floats& a, const Floats& b) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] + b.lane[i];
  return out;
}

inline Floats subtract(const Floats& a, const Floats& b) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] - b.lane[i];
  return out;
}

inline Floats multiply(const Floats& a, const Floats& b) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] * b.lane[i];
  return out;
}

inline Floats divide(const Floats& a, const Floats& b) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] / b.lane[i];
  return out;
}

// a * b + c. Rounded twice here, because an fma without the instruction is very slow. The tests of
// other back-ends define IRLI_FUSED to compare bits.
inline Floats fused(const Floats& a, const Floats& b, const Floats& c) {
  Floats out;
#ifdef IRLI_FUSED
  for (int i = 0; i < 16; ++i) out.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
#else
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] * b.lane[i] + c.lane[i];
#endif
  return out;
}

// The larger or smaller of each pair, or b where one of them is NaN.
inline Floats larger(const Floats& a, const Floats& b) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return out;
}

inline Floats smaller(const Floats& a, const Floats& b) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return out;
}

// A bit for each lane that is at least `cut`, or NaN.
inline uint32_t reaching(const Floats& a, float cut) {
  uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) bits |= static_cast<uint32_t>(!(a.lane[i] < cut)) << i;
  return bits;
}

// How many of 16 * `times` values are at least `cut`, or NaN.
inline int64_t count_reaching(const float* values, int64_t times, float cut) {
  int64_t found = 0;
  for (int64_t j = 0; j < 16 * times; ++j) found += !(values[j] < cut);
  return found;
}

// The largest lane. NaN must not come here.
inline float largest(const Floats& a) {
  float most = a.lane[0];
  for (float lane : a.lane) most = lane > most ? lane : most;
  return most;
}

// The sum of all lanes: lane i with i + 8, then i + 4, i + 2, i + 1.
inline float sum(Floats a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
  return a.lane[0];
}

// The sums of 16 vectors, each in the order of `sum`.
inline Floats sum_each(const Floats* rows) {
  Floats out;
  for (int i = 0; i < 16; ++i) out.lane[i] = sum(rows[i]);
  return out;
}

// 16 floats in [0, 255], cut to whole numbers. NaN must not come here.
inline void store_bytes(uint8_t* to, const Floats& a) {
  for (int i = 0; i < 16; ++i) to[i] = static_cast<uint8_t>(static_cast<int32_t>(a.lane[i]));
}

// Sum up one block of codes into `sums` (32). Return a bit for each lane whose sum is at least
// `cut`. A block has `rows` rows of 32 bytes. The low nibbles of row r are piece 2 r, the high
// nibbles piece 2 r + 1. Byte 2 i of a row belongs to lane i, byte 2 i + 1 to lane 16 + i: so 8-bit
// sums split into two vectors of 16-bit sums without reordering. `table` has 32 bytes for each
// row: 16 values for the low nibbles, then 16 for the high ones. A value is at most 127, so that
// the sum of two fits into 8 bits.
inline uint32_t sum_block(const uint8_t* codes, const uint8_t* table, int64_t rows, uint16_t cut,
                          uint16_t* sums) {
  uint32_t bits = 0;
  for (int lane = 0; lane < 32; ++lane) {
    uint32_t total = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const uint8_t byte = codes[32 * row + 2 * (lane % 16) + lane / 16];
      total += table[32 * row + (byte & 15)] + table[32 * row + 16 + (byte >> 4)];
    }
    sums[lane] = static_cast<uint16_t>(total);
    bits |= static_cast<uint32_t>(sums[lane] >= cut) << lane;
  }
  return bits;
}

// sums[b] = sum over j of row[j] * weights[j / 4][b][j % 4] for 64 columns b, in 32-bit integers.
// The bytes of a row are at most 127.
inline void sum_bytes(const uint8_t* row, int64_t fours, const int8_t* weights, int32_t* sums) {
  for (int b = 0; b < 64; ++b) {
    int32_t total = 0;
    for (int64_t four = 0; four < fours; ++four)
      for (int j = 0; j < 4; ++j) total += row[4 * four + j] * weights[256 * four + 4 * b + j];
    sums[b] = total;
  }
}

}  // namespace
}  // namespace irli
