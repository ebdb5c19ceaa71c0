// The table of kernels that each back-end fills. One of them is chosen when the module is imported.
#pragma once

#include "layout.h"
#include "training.h"

namespace irli {

struct Kernels {
  const char* name;
  // dense.inl
  void (*multiply_rows)(const float* rows, int64_t count, int64_t row_step, const float* matrix,
                        int64_t depth, int64_t width, const float* bias, float* out,
                        int64_t out_step);
  void (*normalize_rows)(const float* rows, int64_t count, int64_t dim, float* out);
  // top_k.inl
  void (*find_top_k)(const float* scores, int64_t rows, int64_t width, int64_t k, float* values,
                     int64_t* columns);
  void (*merge_best)(const float* scores, int64_t rows, int64_t width, int64_t first,
                     const int64_t* skip, int64_t k, float* values, int64_t* ids);
  void (*log_sum_exps)(const float* scores, int64_t rows, int64_t width, float* sums);
  // pq.inl
  void (*find_codes)(const float* x, int64_t count, const float* codewords, int64_t pieces,
                     int64_t size, uint8_t* codes);
  void (*improve_codes)(const float* x, const float* along, int64_t count, const float* codewords,
                        int64_t pieces, int64_t size, float eta, uint8_t* codes);
  // search.inl
  void (*route)(const VectorLayout&, const float* queries, int64_t count, Scratch&);
  bool (*route_part)(const VectorLayout&, const SearchPlan&, const float* query, Form,
                     int64_t first, int64_t last, Scratch&);
  bool (*search_block)(const VectorLayout&, const SearchPlan&, const Selector&, const int64_t* ids,
                       Form, const float* queries, int64_t count, Scratch&, float* distances,
                       int64_t* items, Counts* counts);
  void (*count_votes)(const VectorLayout&, const Selector&, Scratch&);
  // predict.inl
  void (*route_row_part)(const LabelLayout&, const SparseRows&, int64_t row, int64_t first,
                         int64_t last, LabelScratch&);
  void (*predict_block)(const LabelLayout&, const LabelPlan&, const SparseRows& routed,
                        const SparseRows& ranked, int64_t first, int64_t count, LabelScratch&,
                        float* scores, int64_t* labels);
  void (*list_candidates)(const LabelLayout&, const LabelPlan&, const SparseRows& routed,
                          const SparseRows& ranked, int64_t first, int64_t count, LabelScratch&,
                          const Candidates& out);
  // training.inl
  void (*learn_forward)(const TrainedNetwork&, const Examples&, const TrainingStep&, Loss,
                        int64_t first, int64_t last, const TrainingMemory&, TrainingScratch&);
  void (*update_out)(const TrainedNetwork&, const TrainingStep&, const TrainingMemory&,
                     int64_t first, int64_t last, TrainingScratch&);
  void (*update_project)(const TrainedNetwork&, const TrainingStep&, const TrainingMemory&,
                         int64_t first, int64_t last, TrainingScratch&);
  void (*update_shift)(const TrainedNetwork&, const TrainingStep&, const TrainingMemory&,
                       TrainingScratch&);
  void (*score_rows)(const TrainedNetwork&, const QueryRows&, int64_t head, const int64_t* rows,
                     int64_t count, float* x, float* features, float* logits);
  void (*copy_panel)(const TrainedNetwork&, int64_t first);
  // product.inl
  void (*pack_panel)(const float* rows, int64_t count, int64_t step, int64_t width, float* panel);
  void (*find_best_columns)(const float* rows, int64_t count, int64_t depth, const float* panels,
                            const float* offsets, int64_t columns, float* scores, int64_t* best);
  void (*score_columns)(const float* rows, int64_t count, int64_t depth, const float* panels,
                        const float* offsets, int64_t columns, float* scores, float* out);
};

// The table of one back-end, or null if this build does not have it.
const Kernels* plain_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();
const Kernels* neon_kernels();
const Kernels* neondot_kernels();

}  // namespace irli
