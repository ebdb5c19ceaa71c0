// Bindings of learning: ranking and placing items, the largest scores, 4-bit codes.

#include "arrays.h"
#include "cpu.h"
#include "learning.h"

namespace irli {
namespace {

template <class T>
using Flat = Array<T, nb::ndim<1>>;
template <class T>
using Matrix = Array<T, nb::ndim<2>>;
template <class T>
using Cube = Array<T, nb::ndim<3>>;

template <class A>
int64_t length(const A& array, size_t axis = 0) {
  return static_cast<int64_t>(array.shape(axis));
}

// Run a loop without the GIL. It returns false where an index is out of bounds.
template <class Loop>
void run_checked(const char* name, Loop loop) {
  bool good;
  {
    nb::gil_scoped_release unlocked;
    good = loop();
  }
  if (!good)
    throw std::invalid_argument(std::string("An array of ") + name +
                                " holds a number that is out of bounds.");
}

// --- buckets ------------------------------------------------------------------------------------

template <class Bucket, class Index>
void bind_rank_buckets(nb::module_& m) {
  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def(
      "rank_buckets",
      [](const Flat<const int64_t>& items, const Flat<const bool>& allowed,
         const Matrix<const int32_t>& other_buckets, const Matrix<const float>& other_suits,
         const Flat<const int32_t>& held, const Flat<const float>& item_weight,
         const Flat<const Index>& indptr, const Flat<const Index>& queries,
         const Flat<const float>& weights, const Matrix<const Bucket>& best_buckets,
         const Matrix<const float>& best_chances, const Flat<const float>& factors,
         const Matrix<int32_t>& ranking, const Flat<float>& lead) {
        const int64_t count = length(items), all = length(held), buckets = length(allowed);
        const int64_t kept = length(best_buckets, 1), points = length(best_buckets);
        const int64_t others = length(other_buckets) ? length(other_buckets, 1) : 0;
        check_shape("other_buckets", other_buckets, {others ? count : -1, -1});
        check_shape("other_suits", other_suits, {length(other_buckets), length(other_buckets, 1)});
        check_shape("item_weight", item_weight, {all});
        check_shape("indptr", indptr, {all + 1});
        check_shape("weights", weights, {length(queries)});
        check_shape("best_chances", best_chances, {points, kept});
        check_shape("factors", factors, {buckets});
        check_shape("ranking", ranking, {count, -1});
        check_shape("lead", lead, {count});
        if (length(ranking, 1) < 1)
          throw std::invalid_argument("The array 'ranking' must have at least one column.");
        run_checked("rank_buckets", [&] {
          return rank_buckets<Bucket, Index>(
              {items.data(), held.data(), item_weight.data(), count, all}, allowed.data(), buckets,
              {other_buckets.data(), other_suits.data(), others},
              {indptr.data(), queries.data(), weights.data(), length(queries)},
              {best_buckets.data(), best_chances.data(), factors.data(), points, kept},
              length(ranking, 1), ranking.data(), lead.data());
        });
      },
      as_is("items"), as_is("allowed"), as_is("other_buckets"), as_is("other_suits"), as_is("held"),
      as_is("item_weight"), as_is("indptr"), as_is("queries"), as_is("weights"),
      as_is("best_buckets"), as_is("best_chances"), as_is("factors"), as_is("ranking"),
      as_is("lead"));
}

void bind_place_least_loaded(const Flat<const int64_t>& order, const Matrix<const int32_t>& best,
                             const Flat<int64_t>& loads, const Flat<int32_t>& chosen) {
  check_shape("best", best, {length(chosen), -1});
  if (length(best, 1) < 1)
    throw std::invalid_argument("The array 'best' must have at least one column.");
  run_checked("place_least_loaded", [&] {
    return place_least_loaded(order.data(), length(order),
                              {best.data(), length(best), length(best, 1)}, loads.data(),
                              length(loads), chosen.data());
  });
}

void bind_place_bounded(const Flat<const int64_t>& order, const Flat<const int64_t>& rows,
                        const Matrix<const int32_t>& best, int64_t limit,
                        const Flat<int64_t>& loads, const Flat<const int32_t>& taken,
                        const Flat<int32_t>& chosen) {
  check_shape("rows", rows, {length(order)});
  check_shape("taken", taken, {length(chosen)});
  run_checked("place_bounded", [&] {
    return place_bounded(order.data(), rows.data(), length(order),
                         {best.data(), length(best), length(best, 1)}, limit, loads.data(),
                         length(loads), taken.data(), chosen.data(), length(chosen));
  });
}

// --- the largest scores -------------------------------------------------------------------------

void bind_find_top_k(const Matrix<const float>& scores, const Matrix<float>& values,
                     const Matrix<int64_t>& columns) {
  const int64_t rows = length(scores), width = length(scores, 1), k = length(values, 1);
  check_shape("values", values, {rows, k});
  check_shape("columns", columns, {rows, k});
  if (k < 1 || k > width || k > kMostLargest)
    throw std::invalid_argument("The array 'values' must have 1 to " +
                                std::to_string(kMostLargest) + " columns, and not more than " +
                                "'scores'. Got " + std::to_string(k) + " instead.");
  nb::gil_scoped_release unlocked;
  kernels().find_top_k(scores.data(), rows, width, k, values.data(), columns.data());
}

void bind_merge_best(const Matrix<const float>& scores, int64_t first,
                     const Flat<const int64_t>& skip, const Matrix<float>& values,
                     const Matrix<int64_t>& ids) {
  const int64_t rows = length(scores), k = length(values, 1);
  check_shape("skip", skip, {rows});
  check_shape("values", values, {rows, k});
  check_shape("ids", ids, {rows, k});
  if (k < 1) throw std::invalid_argument("The array 'values' must have at least one column.");
  nb::gil_scoped_release unlocked;
  kernels().merge_best(scores.data(), rows, length(scores, 1), first, skip.data(), k, values.data(),
                       ids.data());
}

void bind_log_sum_exps(const Matrix<const float>& scores, const Flat<float>& sums) {
  check_shape("sums", sums, {length(scores)});
  nb::gil_scoped_release unlocked;
  kernels().log_sum_exps(scores.data(), length(scores), length(scores, 1), sums.data());
}

// --- codes --------------------------------------------------------------------------------------

// Throw ValueError unless x (n, M s), `along` and codes (n, M) fit codewords of M pieces.
template <class Code>
void check_coded(const Matrix<const float>& x, const Matrix<const float>& along,
                 const Matrix<Code>& codes, int64_t pieces, int64_t size) {
  check_shape("x", x, {-1, pieces * size});
  check_shape("along", along, {length(x), pieces * size});
  check_shape("codes", codes, {length(x), pieces});
  uint8_t most = 0;
  const size_t count = codes.size();
  for (size_t i = 0; i < count; ++i) most = most < codes.data()[i] ? codes.data()[i] : most;
  if (most >= kWords) throw std::invalid_argument("The array 'codes' must hold codes below 16.");
}

void bind_find_codes(const Matrix<const float>& x, const Cube<const float>& codewords,
                     const Matrix<uint8_t>& codes) {
  const int64_t pieces = length(codewords), size = length(codewords, 1);
  check_shape("codewords", codewords, {-1, -1, kWords});
  check_shape("x", x, {-1, pieces * size});
  check_shape("codes", codes, {length(x), pieces});
  nb::gil_scoped_release unlocked;
  kernels().find_codes(x.data(), length(x), codewords.data(), pieces, size, codes.data());
}

void bind_improve_codes(const Matrix<const float>& x, const Matrix<const float>& along,
                        const Cube<const float>& codewords, float eta,
                        const Matrix<uint8_t>& codes) {
  const int64_t pieces = length(codewords), size = length(codewords, 1);
  check_shape("codewords", codewords, {-1, -1, kWords});
  check_coded(x, along, codes, pieces, size);
  nb::gil_scoped_release unlocked;
  kernels().improve_codes(x.data(), along.data(), length(x), codewords.data(), pieces, size, eta,
                          codes.data());
}

void bind_improve_codewords(const Matrix<const float>& x, const Matrix<const float>& along,
                            const Matrix<const uint8_t>& codes, double eta,
                            const Cube<float>& codewords) {
  const int64_t pieces = length(codewords), size = length(codewords, 2);
  check_shape("codewords", codewords, {-1, kWords, -1});
  check_coded(x, along, codes, pieces, size);
  nb::gil_scoped_release unlocked;
  improve_codewords({x.data(), along.data(), codes.data(), length(x), pieces, size}, eta,
                    codewords.data());
}

void bind_fill_blocks(const Matrix<const uint8_t>& codes, const Matrix<const int64_t>& offsets,
                      const Flat<const int32_t>& items, const Matrix<const int64_t>& starts,
                      const Cube<uint8_t>& blocks) {
  const int64_t pieces = length(codes, 1);
  check_shape("starts", starts, {length(offsets), length(offsets, 1)});
  check_shape("blocks", blocks, {-1, pieces / 2, kLanes});
  run_checked("fill_blocks", [&] {
    return fill_blocks(codes.data(), length(codes), pieces,
                       {offsets.data(), starts.data(), items.data(), length(offsets),
                        length(offsets, 1) - 1, length(items)},
                       blocks.data(), length(blocks));
  });
}

}  // namespace

void bind_learning(nb::module_& m) {
  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  bind_rank_buckets<uint16_t, int32_t>(m);
  bind_rank_buckets<uint16_t, int64_t>(m);
  bind_rank_buckets<int32_t, int32_t>(m);
  bind_rank_buckets<int32_t, int64_t>(m);
  m.def("place_least_loaded", &bind_place_least_loaded, as_is("order"), as_is("best"),
        as_is("loads"), as_is("chosen"));
  m.def("place_bounded", &bind_place_bounded, as_is("order"), as_is("rows"), as_is("best"),
        nb::arg("limit"), as_is("loads"), as_is("taken"), as_is("chosen"));
  m.def("find_top_k", &bind_find_top_k, as_is("scores"), as_is("values"), as_is("columns"));
  m.def("merge_best", &bind_merge_best, as_is("scores"), nb::arg("first"), as_is("skip"),
        as_is("values"), as_is("ids"));
  m.def("log_sum_exps", &bind_log_sum_exps, as_is("scores"), as_is("sums"));
  m.def("find_codes", &bind_find_codes, as_is("x"), as_is("codewords"), as_is("codes"));
  m.def("improve_codes", &bind_improve_codes, as_is("x"), as_is("along"), as_is("codewords"),
        nb::arg("eta"), as_is("codes"));
  m.def("improve_codewords", &bind_improve_codewords, as_is("x"), as_is("along"), as_is("codes"),
        nb::arg("eta"), as_is("codewords"));
  m.def("fill_blocks", &bind_fill_blocks, as_is("codes"), as_is("offsets"), as_is("items"),
        as_is("starts"), as_is("blocks"));
}

}  // namespace irli
