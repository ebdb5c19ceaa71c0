// AVX2 and FMA. See plain.h for what each function does.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace irli {
namespace {

constexpr const char* kName = "avx2";
constexpr int64_t kTile = 4, kSets = 1;

struct Floats {
  __m256 low, high;
};

inline Floats fill(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
inline Floats load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float* to, const Floats& a) {
  _mm256_storeu_ps(to, a.low);
  _mm256_storeu_ps(to + 8, a.high);
}

inline Floats load_some(const float* from, int64_t count) {
  static constexpr int32_t kMask[32] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                        -1, -1, -1, -1, -1, -1, -1, -1};  // then zeros
  const __m256i* mask = reinterpret_cast<const __m256i*>(kMask + 16 - count);
  return {_mm256_maskload_ps(from, _mm256_loadu_si256(mask)),
          _mm256_maskload_ps(from + 8, _mm256_loadu_si256(mask + 1))};
}

inline Floats widen_bytes(__m128i bytes) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Floats widen(const int8_t* from) {
  return widen_bytes(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
// Bytes that are written to memory one by one and read at once would stall. So the last ones are
// put together in a register.
inline Floats widen_some(const int8_t* from, int64_t count) {
  uint64_t words[2] = {};
  for (int64_t done = 0, word = 0; done < count; done += 8, ++word) {
    const int8_t* at = from + done;
    const int64_t left = count - done;
    uint64_t value = 0;
    if (left >= 8) {
      memcpy(&value, at, 8);
    } else if (left >= 4) {  // the two fours may overlap
      uint32_t first, last;
      memcpy(&first, at, 4);
      memcpy(&last, at + left - 4, 4);
      value = first | uint64_t{last} << 8 * (left - 4);
    } else {
      for (int64_t i = 0; i < left; ++i) value |= uint64_t{static_cast<uint8_t>(at[i])} << 8 * i;
    }
    words[word] = value;
  }
  return widen_bytes(
      _mm_set_epi64x(static_cast<int64_t>(words[1]), static_cast<int64_t>(words[0])));
}

inline Floats widen(const int32_t* from) {
  const __m256i* at = reinterpret_cast<const __m256i*>(from);
  return {_mm256_cvtepi32_ps(_mm256_loadu_si256(at)),
          _mm256_cvtepi32_ps(_mm256_loadu_si256(at + 1))};
}

inline Floats add(const Floats& a, const Floats& b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Floats subtract(const Floats& a, const Floats& b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Floats multiply(const Floats& a, const Floats& b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Floats divide(const Floats& a, const Floats& b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Floats fused(const Floats& a, const Floats& b, const Floats& c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats larger(const Floats& a, const Floats& b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Floats smaller(const Floats& a, const Floats& b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

inline uint32_t reaching(const Floats& a, float cut) {
  const __m256 bound = _mm256_set1_ps(cut);
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, bound, _CMP_NLT_UQ));
  const int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, bound, _CMP_NLT_UQ));
  return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 8;
}

inline int64_t count_reaching(const float* values, int64_t times, float cut) {
  const __m256 bound = _mm256_set1_ps(cut);
  __m256i low = _mm256_setzero_si256(), high = low;  // each comparison subtracts -1
  for (int64_t j = 0; j < times; ++j) {
    const Floats a = load(values + 16 * j);
    low = _mm256_sub_epi32(low, _mm256_castps_si256(_mm256_cmp_ps(a.low, bound, _CMP_NLT_UQ)));
    high = _mm256_sub_epi32(high, _mm256_castps_si256(_mm256_cmp_ps(a.high, bound, _CMP_NLT_UQ)));
  }
  int32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(low, high));
  int64_t found = 0;
  for (const int32_t lane : lanes) found += lane;
  return found;
}

inline float largest(const Floats& a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline float sum(const Floats& a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Each step adds the halves of two vectors at once, and leaves both sums in one vector.
inline __m256 sum_eight(const Floats* rows) {
  __m256 fours[4];  // vector j has four lanes for each of the rows j and j + 4
  for (int j = 0; j < 4; ++j) {
    const __m256 a = _mm256_add_ps(rows[j].low, rows[j].high);
    const __m256 b = _mm256_add_ps(rows[j + 4].low, rows[j + 4].high);
    fours[j] =
        _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  }
  const auto pair = [&](int j) {
    const __m256d a = _mm256_castps_pd(fours[j]), b = _mm256_castps_pd(fours[j + 1]);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
  };
  const __m256 a = pair(0), b = pair(2);
  return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xDD));
}
inline Floats sum_each(const Floats* rows) { return {sum_eight(rows), sum_eight(rows + 8)}; }

inline void store_bytes(uint8_t* to, const Floats& a) {
  const __m256i words =
      _mm256_packus_epi32(_mm256_cvttps_epi32(a.low), _mm256_cvttps_epi32(a.high));
  const __m256i ordered = _mm256_permute4x64_epi64(words, 0xD8);
  const __m128i bytes =
      _mm_packus_epi16(_mm256_castsi256_si128(ordered), _mm256_extracti128_si256(ordered, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

inline uint32_t sum_block(const uint8_t* codes, const uint8_t* table, int64_t rows, uint16_t cut,
                          uint16_t* sums) {
  const __m256i nibble = _mm256_set1_epi8(15), byte = _mm256_set1_epi16(255);
  __m256i even = _mm256_setzero_si256(), odd = even;
  for (int64_t row = 0; row < rows; ++row) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 32 * row));
    const __m128i* at = reinterpret_cast<const __m128i*>(table + 32 * row);
    const __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128(at));
    const __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128(at + 1));
    const __m256i first = _mm256_shuffle_epi8(low, _mm256_and_si256(both, nibble));
    const __m256i second =
        _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble));
    const __m256i pair = _mm256_add_epi8(first, second);
    even = _mm256_add_epi16(even, _mm256_and_si256(pair, byte));
    odd = _mm256_add_epi16(odd, _mm256_srli_epi16(pair, 8));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), even);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 16), odd);
  // a >= cut where max(a, cut) == a: there is no unsigned comparison.
  const __m256i bound = _mm256_set1_epi16(static_cast<int16_t>(cut));
  const __m256i first = _mm256_cmpeq_epi16(_mm256_max_epu16(even, bound), even);
  const __m256i second = _mm256_cmpeq_epi16(_mm256_max_epu16(odd, bound), odd);
  const __m256i lanes = _mm256_permute4x64_epi64(_mm256_packs_epi16(first, second), 0xD8);
  return static_cast<uint32_t>(_mm256_movemask_epi8(lanes));
}

inline void sum_bytes(const uint8_t* row, int64_t fours, const int8_t* weights, int32_t* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i total[8];
  for (__m256i& part : total) part = _mm256_setzero_si256();
  for (int64_t four = 0; four < fours; ++four) {
    int32_t bytes;
    memcpy(&bytes, row + 4 * four, 4);
    const __m256i factor = _mm256_set1_epi32(bytes);
    const __m256i* at = reinterpret_cast<const __m256i*>(weights + 256 * four);
    for (int part = 0; part < 8; ++part) {
      // Two products of at most 127 * 127 do not saturate 16 bits.
      const __m256i pairs = _mm256_maddubs_epi16(factor, _mm256_loadu_si256(at + part));
      total[part] = _mm256_add_epi32(total[part], _mm256_madd_epi16(pairs, ones));
    }
  }
  for (int part = 0; part < 8; ++part)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 8 * part), total[part]);
}

}  // namespace
}  // namespace irli
