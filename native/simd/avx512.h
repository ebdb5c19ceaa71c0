// AVX-512 (F, BW, DQ, VL, VNNI). See plain.h for what each function does.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

namespace irli {
namespace {

constexpr const char* kName = "avx512";
constexpr int64_t kTile = 8, kSets = 2;

struct Floats {
  __m512 all;
};

inline Floats fill(float value) { return {_mm512_set1_ps(value)}; }
inline Floats load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, const Floats& a) { _mm512_storeu_ps(to, a.all); }

inline __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>((uint32_t{1} << count) - 1);
}
inline Floats load_some(const float* from, int64_t count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count), from)};
}

inline Floats widen(const int8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline Floats widen_some(const int8_t* from, int64_t count) {
  const __m128i bytes = _mm_maskz_loadu_epi8(first_lanes(count), from);
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
inline Floats widen(const int32_t* from) { return {_mm512_cvtepi32_ps(_mm512_loadu_si512(from))}; }

inline Floats add(const Floats& a, const Floats& b) { return {_mm512_add_ps(a.all, b.all)}; }
inline Floats subtract(const Floats& a, const Floats& b) { return {_mm512_sub_ps(a.all, b.all)}; }
inline Floats multiply(const Floats& a, const Floats& b) { return {_mm512_mul_ps(a.all, b.all)}; }
inline Floats divide(const Floats& a, const Floats& b) { return {_mm512_div_ps(a.all, b.all)}; }
inline Floats fused(const Floats& a, const Floats& b, const Floats& c) {
  return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
inline Floats larger(const Floats& a, const Floats& b) { return {_mm512_max_ps(a.all, b.all)}; }
inline Floats smaller(const Floats& a, const Floats& b) { return {_mm512_min_ps(a.all, b.all)}; }

inline uint32_t reaching(const Floats& a, float cut) {
  return _mm512_cmp_ps_mask(a.all, _mm512_set1_ps(cut), _CMP_NLT_UQ);
}

inline int64_t count_reaching(const float* values, int64_t times, float cut) {
  int64_t found = 0;
  for (int64_t j = 0; j < times; ++j)
    found += __builtin_popcount(reaching(load(values + 16 * j), cut));
  return found;
}

inline float largest(const Floats& a) {
  const __m256 eight =
      _mm256_max_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline float sum(const Floats& a) {
  const __m256 eight =
      _mm256_add_ps(_mm512_castps512_ps256(a.all), _mm512_extractf32x8_ps(a.all, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// Each step adds the halves of two vectors at once, and leaves both sums in one vector.
inline Floats sum_each(const Floats* rows) {
  __m512 fours[4];  // vector j has four lanes for each of the rows j, j + 4, j + 8 and j + 12
  for (int j = 0; j < 4; ++j) {
    const auto halve = [&](int first) {
      const __m512 a = rows[first].all, b = rows[first + 4].all;
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    };
    const __m512 a = halve(j), b = halve(j + 8);
    fours[j] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  }
  const auto pair = [&](int j) {
    const __m512d a = _mm512_castps_pd(fours[j]), b = _mm512_castps_pd(fours[j + 1]);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  };
  const __m512 a = pair(0), b = pair(2);
  return {_mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD))};
}

inline void store_bytes(uint8_t* to, const Floats& a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(a.all)));
}

// 256 bits at a time: wider registers are slower here on processors that split them in two.
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
  const __m256i bound = _mm256_set1_epi16(static_cast<int16_t>(cut));
  return static_cast<uint32_t>(_mm256_cmpge_epu16_mask(even, bound)) |
         static_cast<uint32_t>(_mm256_cmpge_epu16_mask(odd, bound)) << 16;
}

inline void sum_bytes(const uint8_t* row, int64_t fours, const int8_t* weights, int32_t* sums) {
  __m512i total[4];
  for (__m512i& part : total) part = _mm512_setzero_si512();
  for (int64_t four = 0; four < fours; ++four) {
    int32_t bytes;
    memcpy(&bytes, row + 4 * four, 4);
    const __m512i factor = _mm512_set1_epi32(bytes);
    for (int part = 0; part < 4; ++part)
      total[part] = _mm512_dpbusd_epi32(total[part], factor,
                                        _mm512_loadu_si512(weights + 256 * four + 64 * part));
  }
  for (int part = 0; part < 4; ++part) _mm512_storeu_si512(sums + 16 * part, total[part]);
}

}  // namespace
}  // namespace irli
