// Bindings of dense loops: products of rows with a matrix, and normalizing.

#include <algorithm>

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

}  // namespace

void bind_dense(nb::module_& m) {
  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("multiply_rows", &multiply, as_is("rows"), as_is("matrix"), as_is("bias"), as_is("out"));
  nb::class_<Panels>(m, "Panels", "A matrix that many rows are multiplied with.")
      .def(nb::init<const Matrix&, const Array<const float, nb::ndim<1>>&>(), as_is("matrix"),
           as_is("offsets"))
      .def("find_best", &Panels::find_best, as_is("rows"), as_is("best"))
      .def("score", &Panels::score, as_is("rows"), as_is("out"));
  m.def("add_rows", &add_rows, as_is("rows"), as_is("groups"), as_is("sums"));
  m.def("normalize_rows", &normalize, as_is("rows"), as_is("out"));
}

}  // namespace irli
