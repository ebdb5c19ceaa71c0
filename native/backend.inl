// All kernels, compiled once for each instruction set. A back-end includes its header of vector
// instructions, then this file. Everything has internal linkage: otherwise the linker could keep
// one back-end's copy of a function for code that must run on any processor.

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"
#include "margins.h"
#include "select.h"

namespace irli {
namespace {

#include "dense.inl"
#include "pq.inl"
#include "search.inl"
#include "predict.inl"
#include "top_k.inl"
#include "product.inl"
#include "training.inl"

constexpr Kernels kKernels = {
    kName,         multiply_rows, normalize_rows,    find_top_k,    merge_best,
    log_sum_exps,  find_codes,    improve_codes,     route,         route_part,
    search_block,  count_votes,   route_row_part,    predict_block, list_candidates,
    learn_forward, update_out,    update_project,    update_shift,  score_rows,
    copy_panel,    pack_panel,    find_best_columns, score_columns,
};

}  // namespace
}  // namespace irli
