// The inner functions of one back-end, for tests. Vectors of 16 floats are passed by pointer.
#pragma once

#include <vector>

#include "kernels.h"

namespace irli {

struct Exposed {
  const char* name;
  const Kernels* kernels;
  // simd/*.h
  void (*add)(const float* a, const float* b, float* out);
  void (*subtract)(const float* a, const float* b, float* out);
  void (*multiply)(const float* a, const float* b, float* out);
  void (*divide)(const float* a, const float* b, float* out);
  void (*fused)(const float* a, const float* b, const float* c, float* out);
  void (*larger)(const float* a, const float* b, float* out);
  void (*smaller)(const float* a, const float* b, float* out);
  void (*fill)(float value, float* out);
  void (*widen_bytes)(const int8_t* from, float* out);
  void (*widen_words)(const int32_t* from, float* out);
  uint32_t (*reaching)(const float* a, float cut);
  int64_t (*count_reaching)(const float* values, int64_t times, float cut);
  float (*largest)(const float* a);
  float (*sum)(const float* a);
  void (*sum_each)(const float* rows, float* out);
  void (*store_bytes)(uint8_t* to, const float* a);
  uint32_t (*sum_block)(const uint8_t* codes, const uint8_t* table, int64_t rows, uint16_t cut,
                        uint16_t* sums);
  void (*sum_bytes)(const uint8_t* row, int64_t fours, const int8_t* weights, int32_t* sums);
  // dense.inl
  float (*dot)(const float* a, const float* b, int64_t count);
  float (*dot_bytes)(const float* a, const int8_t* b, int64_t count);
  float (*squared_distance)(const float* a, const float* b, int64_t count);
  bool (*copy_row)(const float* row, int64_t count, bool unit, float* out);
  float (*find_largest)(const float* values, int64_t count);
  int64_t (*find_at_least)(const float* values, int64_t count, float cut, int32_t* places);
  int64_t (*count_at_least)(const float* values, int64_t count, float cut);
  float (*find_cut)(const float* values, int64_t count, int64_t k);
  float (*bound_largest)(const float* values, int64_t count, int64_t k);
  float (*sum_exps)(const float* logits, int64_t count, float top);
  void (*log_softmax)(float* logits, int64_t count);
  float (*round_to_bytes)(const float* values, int64_t count, float zero, float highest,
                          uint8_t* out);
  // search.inl
  void (*soften_logits)(const VectorLayout& layout, int64_t r, const float* query, float* logits);
};

// The back-ends that can run here. The first one is "plain", and the last one "fused": plain C++
// that rounds a product and its sum once. All others must give the bits of "fused".
const std::vector<const Exposed*>& exposed_backends();

// The tables that the module uses here, and the one of "fused" at the end.
const std::vector<const Kernels*>& all_kernels();

}  // namespace irli
