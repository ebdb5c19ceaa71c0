// NEON, with the dot-product instructions where the compiler was told that they exist. See plain.h
// for what each function does.
#pragma once

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

namespace irli {
namespace {

#ifdef __ARM_FEATURE_DOTPROD
constexpr const char* kName = "neondot";
#else
constexpr const char* kName = "neon";
#endif
constexpr int64_t kTile = 4, kSets = 1;

struct Floats {
  float32x4_t part[4];
};

inline Floats fill(float value) {
  const float32x4_t four = vdupq_n_f32(value);
  return {{four, four, four, four}};
}
inline Floats load(const float* from) {
  return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
}
inline void store(float* to, const Floats& a) {
  for (int p = 0; p < 4; ++p) vst1q_f32(to + 4 * p, a.part[p]);
}

inline Floats load_some(const float* from, int64_t count) {
  float lanes[16] = {};
  memcpy(lanes, from, static_cast<size_t>(count) * sizeof(float));
  return load(lanes);
}

inline Floats widen(const int8_t* from) {
  const int8x16_t bytes = vld1q_s8(from);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
inline Floats widen_some(const int8_t* from, int64_t count) {
  int8_t lanes[16] = {};
  memcpy(lanes, from, static_cast<size_t>(count));
  return widen(lanes);
}
inline Floats widen(const int32_t* from) {
  Floats out;
  for (int p = 0; p < 4; ++p) out.part[p] = vcvtq_f32_s32(vld1q_s32(from + 4 * p));
  return out;
}

inline Floats add(const Floats& a, const Floats& b) {
  Floats out;
  for (int p = 0; p < 4; ++p) out.part[p] = vaddq_f32(a.part[p], b.part[p]);
  return out;
}
inline Floats subtract(const Floats& a, const Floats& b) {
  Floats out;
  for (int p = 0; p < 4; ++p) out.part[p] = vsubq_f32(a.part[p], b.part[p]);
  return out;
}
inline Floats multiply(const Floats& a, const Floats& b) {
  Floats out;
  for (int p = 0; p < 4; ++p) out.part[p] = vmulq_f32(a.part[p], b.part[p]);
  return out;
}
inline Floats divide(const Floats& a, const Floats& b) {
  Floats out;
  for (int p = 0; p < 4; ++p) out.part[p] = vdivq_f32(a.part[p], b.part[p]);
  return out;
}
inline Floats fused(const Floats& a, const Floats& b, const Floats& c) {
  Floats out;
  for (int p = 0; p < 4; ++p) out.part[p] = vfmaq_f32(c.part[p], a.part[p], b.part[p]);
  return out;
}
// Not vmaxq and vminq: they return NaN where one side is NaN.
inline Floats larger(const Floats& a, const Floats& b) {
  Floats out;
  for (int p = 0; p < 4; ++p)
    out.part[p] = vbslq_f32(vcgtq_f32(a.part[p], b.part[p]), a.part[p], b.part[p]);
  return out;
}
inline Floats smaller(const Floats& a, const Floats& b) {
  Floats out;
  for (int p = 0; p < 4; ++p)
    out.part[p] = vbslq_f32(vcltq_f32(a.part[p], b.part[p]), a.part[p], b.part[p]);
  return out;
}

inline uint32_t reaching(const Floats& a, float cut) {
  const float32x4_t bound = vdupq_n_f32(cut);
  const uint32x4_t place = {1, 2, 4, 8};
  uint32_t bits = 0;
  for (int p = 0; p < 4; ++p)
    bits |= vaddvq_u32(vbicq_u32(place, vcltq_f32(a.part[p], bound))) << (4 * p);
  return bits;
}

inline int64_t count_reaching(const float* values, int64_t times, float cut) {
  const float32x4_t bound = vdupq_n_f32(cut);
  uint32x4_t below[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};  // each comparison subtracts -1
  for (int64_t j = 0; j < times; ++j) {
    const Floats a = load(values + 16 * j);
    for (int p = 0; p < 4; ++p) below[p % 2] = vsubq_u32(below[p % 2], vcltq_f32(a.part[p], bound));
  }
  return 16 * times - vaddlvq_u32(vaddq_u32(below[0], below[1]));
}

inline float largest(const Floats& a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.part[0], a.part[1]), vmaxq_f32(a.part[2], a.part[3])));
}

inline float sum(const Floats& a) {
  const float32x4_t four =
      vaddq_f32(vaddq_f32(a.part[0], a.part[2]), vaddq_f32(a.part[1], a.part[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

// Each step adds the halves of two vectors at once, and leaves both sums in one vector.
inline Floats sum_each(const Floats* rows) {
  Floats out;
  for (int p = 0; p < 4; ++p) {
    float32x4_t four[4];
    for (int j = 0; j < 4; ++j) {
      const Floats& a = rows[4 * p + j];
      four[j] = vaddq_f32(vaddq_f32(a.part[0], a.part[2]), vaddq_f32(a.part[1], a.part[3]));
    }
    const auto pair = [](float32x4_t a, float32x4_t b) {
      return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)),
                       vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
    };
    const float32x4_t a = pair(four[0], four[1]), b = pair(four[2], four[3]);
    out.part[p] = vaddq_f32(vuzp1q_f32(a, b), vuzp2q_f32(a, b));
  }
  return out;
}

inline void store_bytes(uint8_t* to, const Floats& a) {
  uint16x4_t words[4];
  for (int p = 0; p < 4; ++p) words[p] = vmovn_u32(vcvtq_u32_f32(a.part[p]));
  vst1q_u8(to, vcombine_u8(vmovn_u16(vcombine_u16(words[0], words[1])),
                           vmovn_u16(vcombine_u16(words[2], words[3]))));
}

inline uint32_t sum_block(const uint8_t* codes, const uint8_t* table, int64_t rows, uint16_t cut,
                          uint16_t* sums) {
  const uint8x16_t nibble = vdupq_n_u8(15);
  uint16x8_t even[2] = {vdupq_n_u16(0), vdupq_n_u16(0)}, odd[2] = {even[0], even[0]};
  for (int64_t row = 0; row < rows; ++row) {
    const uint8x16_t low = vld1q_u8(table + 32 * row), high = vld1q_u8(table + 32 * row + 16);
    for (int half = 0; half < 2; ++half) {
      const uint8x16_t both = vld1q_u8(codes + 32 * row + 16 * half);
      const uint8x16_t first = vqtbl1q_u8(low, vandq_u8(both, nibble));
      const uint8x16_t second = vqtbl1q_u8(high, vshrq_n_u8(both, 4));
      const uint16x8_t pair = vreinterpretq_u16_u8(vaddq_u8(first, second));
      even[half] = vaddq_u16(even[half], vandq_u16(pair, vdupq_n_u16(255)));
      odd[half] = vaddq_u16(odd[half], vshrq_n_u16(pair, 8));
    }
  }
  const uint16x8_t bound = vdupq_n_u16(cut), place = {1, 2, 4, 8, 16, 32, 64, 128};
  const uint16x8_t all[4] = {even[0], even[1], odd[0], odd[1]};
  uint32_t bits = 0;
  for (int p = 0; p < 4; ++p) {
    vst1q_u16(sums + 8 * p, all[p]);
    bits |= static_cast<uint32_t>(vaddvq_u16(vandq_u16(place, vcgeq_u16(all[p], bound))))
            << (8 * p);
  }
  return bits;
}

// Four columns more: sums of row[j] * weights[b][j] for 4 bytes j and 4 columns b.
inline int32x4_t add_fours(int32x4_t total, int8x16_t factor, int8x16_t weights) {
#ifdef __ARM_FEATURE_DOTPROD
  return vdotq_s32(total, factor, weights);
#else
  // Two products of at most 127 * 127 fit into 16 bits, and four of them are added in 32 bits.
  const int16x8_t low = vmull_s8(vget_low_s8(factor), vget_low_s8(weights));
  const int16x8_t high = vmull_high_s8(factor, weights);
  return vaddq_s32(total, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}

inline void sum_bytes(const uint8_t* row, int64_t fours, const int8_t* weights, int32_t* sums) {
  int32x4_t total[16];
  for (int32x4_t& part : total) part = vdupq_n_s32(0);
  for (int64_t four = 0; four < fours; ++four) {
    int32_t bytes;
    memcpy(&bytes, row + 4 * four, 4);
    const int8x16_t factor = vreinterpretq_s8_s32(vdupq_n_s32(bytes));  // bytes are at most 127
    for (int part = 0; part < 16; ++part)
      total[part] = add_fours(total[part], factor, vld1q_s8(weights + 256 * four + 16 * part));
  }
  for (int part = 0; part < 16; ++part) vst1q_s32(sums + 4 * part, total[part]);
}

}  // namespace
}  // namespace irli
