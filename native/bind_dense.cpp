// Bindings of dense loops: products of rows with a matrix, and normalizing.

#include "arrays.h"
#include "cpu.h"

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

}  // namespace

void bind_dense(nb::module_& m) {
  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("multiply_rows", &multiply, as_is("rows"), as_is("matrix"), as_is("bias"), as_is("out"));
  m.def("normalize_rows", &normalize, as_is("rows"), as_is("out"));
}

}  // namespace irli
