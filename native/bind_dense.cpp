// Bindings of dense loops: products of rows with a matrix, and normalizing.

#include <algorithm>
#include <vector>

#include "arrays.h"
#include "cpu.h"
#include "trainer.h"

namespace irli {
namespace {

using Matrix = Array<const float, nb::ndim<2>>;

void multiply(const Matrix& rows, const Matrix& matrix, const Array<const float, nb::ndim<1>>& bias,
              const Array<float, nb::ndim<2>>& out) {
  const int64_t count = static_cast<int64_t>(rows.shape(0));
  const int64_t depth = static_cast<int64_t>(matrix.shape(0));
  const int64_t width = static_cast<int64_t>(matrix.shape(1));
  check_shape("rows", rows, {count, depth});
  check_shape("bias", bias, {width});
  check_shape("out", out, {count, width});
  nb::gil_scoped_release unlocked;
  kernels().multiply_rows(rows.data(), count, depth, matrix.data(), depth, width, bias.data(),
                          out.data(), width);
}

void normalize(const Matrix& rows, const Array<float, nb::ndim<2>>& out) {
  const int64_t count = static_cast<int64_t>(rows.shape(0));
  const int64_t dim = static_cast<int64_t>(rows.shape(1));
  check_shape("out", out, {count, dim});
  nb::gil_scoped_release unlocked;
  kernels().normalize_rows(rows.data(), count, dim, out.data());
}

// Add each row to the sum of its group. Groups are counted, too.
void add_rows(const Matrix& rows, const Array<const int64_t, nb::ndim<1>>& groups,
              const Array<double, nb::ndim<2>>& sums) {
  const int64_t count = static_cast<int64_t>(rows.shape(0));
  const int64_t dim = static_cast<int64_t>(rows.shape(1));
  const int64_t most = static_cast<int64_t>(sums.shape(0));
  check_shape("groups", groups, {count});
  check_shape("sums", sums, {-1, dim});
  bool good = true;
  {
    nb::gil_scoped_release unlocked;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t group = groups.data()[i];
      good = good && group >= 0 && group < most;
      if (!good) break;
      const float* row = rows.data() + i * dim;
      double* sum = sums.data() + group * dim;
      for (int64_t j = 0; j < dim; ++j) sum[j] += static_cast<double>(row[j]);
    }
  }
  if (!good)
    throw std::invalid_argument("The array 'groups' holds a number that is out of bounds.");
}

// A matrix (columns, depth) that many rows are multiplied with, and what is added for each column.
class Panels {
 public:
  Panels(const Matrix& matrix, const Array<const float, nb::ndim<1>>& offsets)
      : columns_(static_cast<int64_t>(matrix.shape(0))),
        depth_(static_cast<int64_t>(matrix.shape(1))),
        step_((columns_ + kWide - 1) / kWide * kWide),
        panels_(step_ * depth_),
        offsets_(step_) {
    check_shape("offsets", offsets, {columns_});
    if (columns_ < 1) throw std::invalid_argument("The array 'matrix' must have a row.");
    nb::gil_scoped_release unlocked;
    for (int64_t low = 0; low < columns_; low += kWide)
      kernels().pack_panel(matrix.data() + low * depth_, std::min(kWide, columns_ - low), depth_,
                           depth_, panels_.data() + low * depth_);
    std::copy_n(offsets.data(), columns_, offsets_.data());
  }
  Panels(const Panels&) = delete;

  void find_best(const Matrix& rows, const Array<int64_t, nb::ndim<1>>& best) const {
    const int64_t count = static_cast<int64_t>(rows.shape(0));
    check_shape("rows", rows, {count, depth_});
    check_shape("best", best, {count});
    nb::gil_scoped_release unlocked;
    const Aligned scores(kRowsTogether * step_);
    kernels().find_best_columns(rows.data(), count, depth_, panels_.data(), offsets_.data(),
                                columns_, scores.data(), best.data());
  }

  void score(const Matrix& rows, const Array<float, nb::ndim<2>>& out) const {
    const int64_t count = static_cast<int64_t>(rows.shape(0));
    check_shape("rows", rows, {count, depth_});
    check_shape("out", out, {count, columns_});
    nb::gil_scoped_release unlocked;
    const Aligned scores(kRowsTogether * step_);
    kernels().score_columns(rows.data(), count, depth_, panels_.data(), offsets_.data(), columns_,
                            scores.data(), out.data());
  }

 private:
  int64_t columns_, depth_, step_;
  Aligned panels_, offsets_;
};

// The items of clusters, and the queries that look for neighbours in each.
struct Clusters {
  const int64_t* order;   // (N): the rows of the items, cluster by cluster
  const int64_t* ends;    // (C + 1): where each cluster begins in `order`, and the last one ends
  const int64_t* asking;  // the rows of queries, cluster by cluster
  const int64_t* starts;  // (C + 1): where each cluster begins in `asking`
};

bool are_places(const int64_t* ends, int64_t first, int64_t last, int64_t count) {
  if (ends[first] < 0 || ends[last] > count) return false;
  for (int64_t c = first; c < last; ++c)
    if (ends[c] > ends[c + 1]) return false;
  return true;
}

bool are_rows(const int64_t* rows, int64_t first, int64_t last, int64_t count) {
  for (int64_t i = first; i < last; ++i)
    if (rows[i] < 0 || rows[i] >= count) return false;
  return true;
}

// Merge the items of some clusters into the best so far of the queries that ask for them. Scores
// are q x - |x|^2 / 2, for items less the centre, and ids are places in `order`.
void search_clusters(const Matrix& queries, const Array<const int64_t, nb::ndim<1>>& skip,
                     const Matrix& items, const Array<const float, nb::ndim<1>>& centre,
                     const Array<const int64_t, nb::ndim<1>>& order,
                     const Array<const int64_t, nb::ndim<1>>& ends,
                     const Array<const int64_t, nb::ndim<1>>& asking,
                     const Array<const int64_t, nb::ndim<1>>& starts, int64_t first, int64_t last,
                     const Array<float, nb::ndim<2>>& values,
                     const Array<int64_t, nb::ndim<2>>& ids) {
  const int64_t count = static_cast<int64_t>(queries.shape(0));
  const int64_t dim = static_cast<int64_t>(queries.shape(1));
  const int64_t all = static_cast<int64_t>(items.shape(0));
  const int64_t clusters = static_cast<int64_t>(ends.shape(0)) - 1;
  const int64_t k = static_cast<int64_t>(values.shape(1));
  check_shape("skip", skip, {count});
  check_shape("items", items, {all, dim});
  check_shape("centre", centre, {dim});
  check_shape("order", order, {all});
  check_shape("starts", starts, {clusters + 1});
  check_shape("values", values, {count, k});
  check_shape("ids", ids, {count, k});
  const Clusters in{order.data(), ends.data(), asking.data(), starts.data()};
  const int64_t asked = static_cast<int64_t>(asking.shape(0));
  if (k < 1 || first < 0 || last > clusters || first > last ||
      !are_places(in.ends, first, last, all) || !are_places(in.starts, first, last, asked) ||
      !are_rows(in.order, in.ends[first], in.ends[last], all) ||
      !are_rows(in.asking, in.starts[first], in.starts[last], count))
    throw std::invalid_argument("The clusters hold a number that is out of bounds.");
  nb::gil_scoped_release unlocked;
  const Kernels& kernel = kernels();
  std::vector<float> moved, panels, offsets, scores, out(0), rows(kRowsTogether * dim);
  for (int64_t c = first; c < last; ++c) {
    const int64_t size = in.ends[c + 1] - in.ends[c], wide = (size + kWide - 1) / kWide * kWide;
    if (size == 0 || in.starts[c] == in.starts[c + 1]) continue;
    moved.resize(static_cast<size_t>(size * dim));
    offsets.assign(static_cast<size_t>(wide), -INFINITY);  // columns behind the last are never best
    panels.resize(static_cast<size_t>(wide * dim));
    scores.resize(static_cast<size_t>(kRowsTogether * wide));
    out.resize(static_cast<size_t>(kRowsTogether * wide));
    for (int64_t t = 0; t < size; ++t) {
      const float* item = items.data() + in.order[in.ends[c] + t] * dim;
      float* to = moved.data() + t * dim;
      double square = 0;
      for (int64_t j = 0; j < dim; ++j) {
        to[j] = item[j] - centre.data()[j];
        square += static_cast<double>(to[j]) * static_cast<double>(to[j]);
      }
      offsets[static_cast<size_t>(t)] = static_cast<float>(-square / 2);
    }
    for (int64_t low = 0; low < size; low += kWide)
      kernel.pack_panel(moved.data() + low * dim, std::min(kWide, size - low), dim, dim,
                        panels.data() + low * dim);
    for (int64_t low = in.starts[c]; low < in.starts[c + 1]; low += kRowsTogether) {
      const int64_t some = std::min(kRowsTogether, in.starts[c + 1] - low);
      for (int64_t i = 0; i < some; ++i)
        std::copy_n(queries.data() + in.asking[low + i] * dim, dim, rows.data() + i * dim);
      kernel.score_columns(rows.data(), some, dim, panels.data(), offsets.data(), wide,
                           scores.data(), out.data());
      for (int64_t i = 0; i < some; ++i) {
        const int64_t row = in.asking[low + i];
        kernel.merge_best(out.data() + i * wide, 1, wide, in.ends[c], skip.data() + row, k,
                          values.data() + row * k, ids.data() + row * k);
      }
    }
  }
}

}  // namespace

void bind_dense(nb::module_& m) {
  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("multiply_rows", &multiply, as_is("rows"), as_is("matrix"), as_is("bias"), as_is("out"));
  nb::class_<Panels>(m, "Panels", "A matrix that many rows are multiplied with.")
      .def(nb::init<const Matrix&, const Array<const float, nb::ndim<1>>&>(), as_is("matrix"),
           as_is("offsets"))
      .def("find_best", &Panels::find_best, as_is("rows"), as_is("best"))
      .def("score", &Panels::score, as_is("rows"), as_is("out"));
  m.def("search_clusters", &search_clusters, as_is("queries"), as_is("skip"), as_is("items"),
        as_is("centre"), as_is("order"), as_is("ends"), as_is("asking"), as_is("starts"),
        nb::arg("first"), nb::arg("last"), as_is("values"), as_is("ids"));
  m.def("add_rows", &add_rows, as_is("rows"), as_is("groups"), as_is("sums"));
  m.def("normalize_rows", &normalize, as_is("rows"), as_is("out"));
}

}  // namespace irli
