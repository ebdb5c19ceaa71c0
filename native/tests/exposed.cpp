// Compiled once for each back-end. SIMD_HEADER names its header, EXPOSED the function below.
#include SIMD_HEADER

#include "backend.inl"
#include "exposed.h"

namespace irli {
namespace {

#ifdef IRLI_FUSED
constexpr const char* kExposedName = "fused";
#else
constexpr const char* kExposedName = kName;
#endif

constexpr Exposed kExposed = {
    kExposedName,
    &kKernels,
    [](const float* a, const float* b, float* out) { store(out, add(load(a), load(b))); },
    [](const float* a, const float* b, float* out) { store(out, subtract(load(a), load(b))); },
    [](const float* a, const float* b, float* out) { store(out, multiply(load(a), load(b))); },
    [](const float* a, const float* b, float* out) { store(out, divide(load(a), load(b))); },
    [](const float* a, const float* b, const float* c, float* out) {
      store(out, fused(load(a), load(b), load(c)));
    },
    [](const float* a, const float* b, float* out) { store(out, larger(load(a), load(b))); },
    [](const float* a, const float* b, float* out) { store(out, smaller(load(a), load(b))); },
    [](float value, float* out) { store(out, fill(value)); },
    [](const int8_t* from, float* out) { store(out, widen(from)); },
    [](const int32_t* from, float* out) { store(out, widen(from)); },
    [](const float* a, float cut) { return reaching(load(a), cut); },
    count_reaching,
    [](const float* a) { return largest(load(a)); },
    [](const float* a) { return sum(load(a)); },
    [](const float* rows, float* out) {
      Floats loaded[16];
      for (int row = 0; row < 16; ++row) loaded[row] = load(rows + 16 * row);
      store(out, sum_each(loaded));
    },
    [](uint8_t* to, const float* a) { store_bytes(to, load(a)); },
    sum_block,
    sum_bytes,
    dot,
    dot,
    squared_distance,
    copy_row,
    find_largest,
    find_at_least,
    count_at_least,
    find_cut,
    bound_largest,
    sum_exps,
    log_softmax,
    round_to_bytes,
    soften_logits,
};

}  // namespace

const Exposed* EXPOSED() { return &kExposed; }

}  // namespace irli
