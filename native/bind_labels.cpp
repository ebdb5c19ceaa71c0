// Bindings of learning on labels: the ranker's classifiers, near rows, and the parser of XMC text.

#include <math.h>

#include <algorithm>

#include "arrays.h"
#include "check_layout.h"
#include "labels.h"

namespace irli {
namespace {

using Longs = Array<const int64_t, nb::ndim<1>>;
using Ints = Array<const int32_t, nb::ndim<1>>;
using Floats = Array<const float, nb::ndim<1>>;

int64_t length(const auto& array) { return static_cast<int64_t>(array.shape(0)); }

// Throw unless these are the first two arrays of a CSR with columns below `limit`.
void check_lists(const char* name, const Longs& indptr, const Ints& indices, int64_t limit) {
  const int64_t count = length(indptr) - 1;
  if (count >= 0 &&
      check_rows({indptr.data(), indices.data(), nullptr}, 0, count, length(indices), limit))
    return;
  throw std::invalid_argument(std::string("The ") + name +
                              " must be well-formed: ascending indptr, and indices below " +
                              std::to_string(limit) + ".");
}

// The rows of a CSR, checked.
SparseRows read_rows(const char* name, const Longs& indptr, const Ints& indices, const Floats& data,
                     int64_t columns) {
  check_lists(name, indptr, indices, columns);
  check_shape(name, data, {length(indices)});
  return {indptr.data(), indices.data(), data.data()};
}

// Whether these are the arrays of a CSR, int32 and float32, whose rows need no repair: columns that
// ascend, below `columns`, and finite values.
bool are_ordered_rows(nb::handle indptr, nb::handle indices, nb::handle data, int64_t columns) {
  Ints ends, places;
  Floats values;
  if (!nb::try_cast(indptr, ends, false) || !nb::try_cast(indices, places, false) ||
      !nb::try_cast(data, values, false))
    return false;
  const int64_t rows = length(ends) - 1, size = length(places);
  if (rows < 0 || length(values) != size || ends.data()[0] != 0 || ends.data()[rows] != size)
    return false;
  nb::gil_scoped_release unlocked;
  bool good = true;
  for (int64_t row = 0; row < rows; ++row) good &= ends.data()[row] <= ends.data()[row + 1];
  for (int64_t row = 0; good && row < rows; ++row) {
    int64_t last = -1;
    for (int64_t e = ends.data()[row]; e < ends.data()[row + 1]; ++e) {
      good &= places.data()[e] > last && isfinite(values.data()[e]);
      last = places.data()[e];
    }
    good &= last < columns;
  }
  return good;
}

nb::tuple train(int64_t first, int64_t last, const Longs& indptr, const Ints& indices,
                const Floats& data, const Floats& lengths, const Floats& usual,
                const Longs& positive_indptr, const Ints& positive_rows,
                const Longs& negative_indptr, const Ints& negative_rows, const Longs& start_indptr,
                const Ints& start_features, const Floats& start_values, float cost,
                const Floats& importance, float prune, const Array<float, nb::ndim<1>>& bias,
                int64_t seed, int64_t passes) {
  const int64_t rows = length(lengths), labels = length(bias);
  check_shape("indptr", indptr, {rows + 1});
  check_shape("positive", positive_indptr, {labels + 1});
  check_shape("negative", negative_indptr, {labels + 1});
  check_shape("start", start_indptr, {labels + 1});
  check_shape("importance", importance, {labels});
  if (first < 0 || last > labels) throw std::invalid_argument("The labels are out of range.");
  Classifiers found;
  {
    nb::gil_scoped_release unlocked;
    const TrainingRows training{read_rows("rows", indptr, indices, data, length(usual)),
                                lengths.data(), usual.data(), rows, length(usual)};
    check_lists("positive rows", positive_indptr, positive_rows, rows);
    check_lists("negative rows", negative_indptr, negative_rows, rows);
    found = train_classifiers(first, last, training, {positive_indptr.data(), positive_rows.data()},
                              {negative_indptr.data(), negative_rows.data()},
                              read_rows("start", start_indptr, start_features, start_values,
                                        length(usual)),
                              {cost, prune, seed, passes}, importance.data(), bias.data());
  }
  return nb::make_tuple(to_numpy(std::move(found.sizes)), to_numpy(std::move(found.features)),
                        to_numpy(std::move(found.weights)));
}

nb::tuple pack(const Longs& indptr, const Ints& labels, const Floats& data, int64_t label_count) {
  const SparseRows matrix = read_rows("weights", indptr, labels, data, label_count);
  const int64_t features = length(indptr) - 1;
  for (int64_t feature = 0; feature < features; ++feature)
    for (int64_t e = matrix.indptr[feature] + 1; e < matrix.indptr[feature + 1]; ++e)
      if (matrix.indices[e - 1] > matrix.indices[e])
        throw std::invalid_argument("The labels of each feature must ascend.");
  PackedWeights packed = pack_weights(matrix, features, label_count);
  return nb::make_tuple(to_numpy(std::move(packed.starts)), to_numpy(std::move(packed.gaps)),
                        to_numpy(std::move(packed.weights)), to_numpy(std::move(packed.scale)));
}

// Find the best outputs of the rows from `first` to `last`, which get their places in `values` and
// `outputs` from the start. `constant` and `itself` may be empty.
void best(int64_t first, int64_t last, const Longs& indptr, const Ints& indices, const Floats& data,
          const Longs& starts, const Array<const uint16_t, nb::ndim<1>>& gaps,
          const Array<const int8_t, nb::ndim<1>>& weights, const Floats& scale,
          const Floats& constant, const Longs& itself, const Array<float, nb::ndim<2>>& values,
          const Array<int64_t, nb::ndim<2>>& outputs) {
  const int64_t rows = length(indptr) - 1, count = length(scale);
  const int64_t k = static_cast<int64_t>(outputs.shape(1));
  if (first < 0 || first > last || last > rows)
    throw std::invalid_argument("The rows are out of range.");
  check_shape("weights", weights, {length(gaps)});
  check_shape("constant", constant, {length(constant) ? count : 0});
  check_shape("itself", itself, {length(itself) ? rows : 0});
  check_shape("values", values, {last - first, k});
  check_shape("outputs", outputs, {last - first, k});
  check_shape("starts", starts, {std::max<int64_t>(1, length(starts))});
  nb::gil_scoped_release unlocked;
  const int64_t features = length(starts) - 1;
  check_packed(starts.data(), features, gaps.data(), length(gaps), count);
  find_best_outputs(read_rows("rows", indptr, indices, data, features), first, last,
                    {features, count, starts.data(), gaps.data(), weights.data(), scale.data()},
                    length(constant) ? constant.data() : nullptr,
                    length(itself) ? itself.data() : nullptr, k, values.data(), outputs.data());
}

nb::tuple parse(const nb::bytes& text, bool labelled, int64_t n, int64_t n_columns,
                int64_t n_labels) {
  const uint8_t* start = static_cast<const uint8_t*>(text.data());
  const int64_t size = static_cast<int64_t>(text.size());
  if (size > 0 && start[size - 1] != '\n')
    throw std::invalid_argument("The text must end with a newline.");
  if (n_columns > INT32_MAX || n_labels > INT32_MAX)
    throw std::invalid_argument("Columns and labels must have 32-bit numbers.");
  ParsedText parsed;
  {
    nb::gil_scoped_release unlocked;
    parsed = parse_text(start, size, labelled, n, n_columns, n_labels);
  }
  return nb::make_tuple(static_cast<int64_t>(parsed.fault), parsed.at,
                        nb::make_tuple(to_numpy(std::move(parsed.label_counts)),
                                       to_numpy(std::move(parsed.labels)),
                                       to_numpy(std::move(parsed.pair_counts)),
                                       to_numpy(std::move(parsed.columns)),
                                       to_numpy(std::move(parsed.values))));
}

}  // namespace

void bind_labels(nb::module_& m) {
  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  m.def("are_ordered_rows", &are_ordered_rows, nb::arg("indptr"), nb::arg("indices"),
        nb::arg("data"), nb::arg("columns"),
        "Return whether the arrays of a CSR have the right types, ascending columns and finite "
        "values.");
  m.def("train_classifiers", &train, nb::arg("first"), nb::arg("last"), as_is("indptr"),
        as_is("indices"), as_is("data"), as_is("lengths"), as_is("usual"), as_is("positive_indptr"),
        as_is("positive_rows"), as_is("negative_indptr"), as_is("negative_rows"),
        as_is("start_indptr"), as_is("start_features"), as_is("start_values"), nb::arg("cost"),
        as_is("importance"), nb::arg("prune"), as_is("bias"), nb::arg("seed"), nb::arg("passes"),
        "Train one label after the other. Return the number of weights of each label, and the "
        "features and values of all weights.");
  m.def("pack_weights", &pack, as_is("indptr"), as_is("labels"), as_is("data"),
        nb::arg("label_count"), "Return the starts, gaps, weights and scale of packed weights.");
  m.def("find_best_outputs", &best, nb::arg("first"), nb::arg("last"), as_is("indptr"),
        as_is("indices"), as_is("data"), as_is("starts"), as_is("gaps"), as_is("weights"),
        as_is("scale"), as_is("constant"), as_is("itself"), as_is("values"), as_is("outputs"),
        "Write the outputs of a packed matrix with the largest products, and these products.");
  m.def("parse_xmc", &parse, nb::arg("text"), nb::arg("labelled"), nb::arg("n"),
        nb::arg("n_columns"), nb::arg("n_labels"),
        "Parse XMC text. Return the kind of fault, where it is, and the arrays of the rows.");
}

}  // namespace irli
