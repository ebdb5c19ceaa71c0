// NumPy arrays at the border: types, layouts and shapes are checked here, and never converted.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <type_traits>
#include <vector>

namespace irli {

namespace nb = nanobind;

template <class T, class... More>
using Array = nb::ndarray<T, nb::c_contig, nb::device::cpu, More...>;

// Throw ValueError unless the array has this shape. A length of -1 stands for any.
template <class A>
void check_shape(const char* name, const A& array, std::initializer_list<int64_t> shape) {
  bool good = array.ndim() == shape.size();
  size_t axis = 0;
  if (good)
    for (const int64_t length : shape) {
      good = good && (length < 0 || static_cast<int64_t>(array.shape(axis)) == length);
      ++axis;
    }
  if (good) return;
  const auto join = [](const std::vector<int64_t>& lengths) {
    std::string text = "(";
    for (size_t i = 0; i < lengths.size(); ++i)
      text += (i ? ", " : "") + (lengths[i] < 0 ? std::string("any") : std::to_string(lengths[i]));
    return text + (lengths.size() == 1 ? ",)" : ")");
  };
  std::vector<int64_t> got;
  for (size_t i = 0; i < array.ndim(); ++i) got.push_back(static_cast<int64_t>(array.shape(i)));
  throw std::invalid_argument(std::string("The array '") + name + "' must have the shape " +
                              join(shape) + ". Got " + join(got) + " instead.");
}

// One contiguous axis of numbers by the buffer protocol: a tenth of the time that an `Array` takes,
// for the way of a single query.
template <class T>
class Row {
 public:
  explicit Row(nb::handle object) {
    constexpr int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (kConst ? 0 : PyBUF_WRITABLE);
    held_ = PyObject_GetBuffer(object.ptr(), &buffer_, flags) == 0;
    if (!held_) PyErr_Clear();
  }
  ~Row() {
    if (held_) PyBuffer_Release(&buffer_);
  }
  Row(const Row&) = delete;

  // Whether it is an array of `count` numbers of this type.
  bool has(int64_t count) const {
    return held_ && buffer_.ndim == 1 && buffer_.shape[0] == count &&
           buffer_.itemsize == sizeof(T) && is_type(buffer_.format);
  }
  T* data() const { return static_cast<T*>(buffer_.buf); }

 private:
  static constexpr bool kConst = std::is_const_v<T>;
  static bool is_type(const char* format) {
    if (std::is_floating_point_v<T>) return *format == (sizeof(T) == 4 ? 'f' : 'd') && !format[1];
    return (*format == 'q' || (*format == 'l' && sizeof(long) == 8)) && !format[1];
  }
  Py_buffer buffer_{};
  bool held_;
};

// The field of a Python object as an array that is held, with its type and shape checked.
class Fields {
 public:
  explicit Fields(nb::handle object) : object_(object) {}

  template <class T>
  const T* get(const char* name, std::initializer_list<int64_t> shape) {
    nb::object value = object_.attr(name);
    Array<const T> array;
    if (!nb::try_cast<Array<const T>>(value, array, false))
      throw std::invalid_argument(std::string("The array '") + name +
                                  "' must be contiguous and of the type that the kernels read.");
    check_shape(name, array, shape);
    held_.push_back(std::move(value));
    return array.data();
  }

  std::vector<int64_t> shape(const char* name) const {
    return nb::cast<std::vector<int64_t>>(object_.attr(name).attr("shape"));
  }

  // The Python objects that own the memory.
  std::vector<nb::object> take() { return std::move(held_); }

 private:
  nb::handle object_;
  std::vector<nb::object> held_;
};

// A new NumPy array with the values of a vector.
template <class T>
nb::object to_numpy(std::vector<T> values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(kept->data(), {kept->size()}, owner));
}

// A native call's turn. After a tenth of a second it goes back to Python, where an interrupt
// (Ctrl-C) can be seen.
class Turn {
 public:
  bool is_over() const { return Clock::now() - start_ > std::chrono::milliseconds{100}; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

void bind_search(nb::module_& m);
void bind_predict(nb::module_& m);
void bind_dense(nb::module_& m);
void bind_learning(nb::module_& m);
void bind_labels(nb::module_& m);
void bind_trainer(nb::module_& m);

}  // namespace irli
