// The table of kernels that each back-end fills. One of them is chosen when the module is imported.
#pragma once

#include "layout.h"

namespace irli {

struct Kernels {
  const char* name;
  // dense.inl
  void (*multiply_rows)(const float* rows, int64_t count, int64_t row_step, const float* matrix,
                        int64_t depth, int64_t width, const float* bias, float* out,
                        int64_t out_step);
  void (*normalize_rows)(const float* rows, int64_t count, int64_t dim, float* out);
  // search.inl
  bool (*search_block)(const VectorLayout&, const SearchPlan&, const uint8_t* allowed,
                       const int64_t* ids, Form, const float* queries, int64_t count, Scratch&,
                       float* distances, int64_t* items);
  void (*run_stage)(Stage, const VectorLayout&, const SearchPlan&, const uint8_t* allowed,
                    const float* query, Scratch&, float* distances, int64_t* items);
  void (*count_votes)(const VectorLayout&, const uint8_t* allowed, Scratch&);
  // predict.inl
  void (*predict_block)(const LabelLayout&, const LabelPlan&, const SparseRows& routed,
                        const SparseRows& ranked, int64_t first, int64_t count, LabelScratch&,
                        float* scores, int64_t* labels);
};

// The table of one back-end, or null if this build does not have it.
const Kernels* plain_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();
const Kernels* neondot_kernels();

}  // namespace irli
