// Bindings of the training of routers on a CPU.

#include <nanobind/stl/optional.h>

#include <optional>

#include "arrays.h"
#include "trainer.h"

namespace irli {
namespace {

template <class T>
using Flat = Array<T, nb::ndim<1>>;
template <class T>
using Matrix = Array<T, nb::ndim<2>>;

template <class A>
int64_t length(const A& array) {
  return static_cast<int64_t>(array.shape(0));
}

constexpr double kMostWeights = 1e14;  // no machine has memory for more

void require(bool good, const char* what) {
  if (!good)
    throw std::invalid_argument(std::string("An array of the trainer does not fit: ") + what + ".");
}

// Whether all numbers of `starts` (n + 1) count up from 0 to `total`.
bool counts_up(const int64_t* starts, int64_t rows, int64_t total) {
  bool good = starts[0] == 0 && starts[rows] == total;
  for (int64_t i = 0; i < rows; ++i) good = good && starts[i] <= starts[i + 1];
  return good;
}

template <class T>
bool are_within(const T* numbers, int64_t count, int64_t least, int64_t end) {
  bool good = true;
  for (int64_t i = 0; i < count; ++i)
    good = good && static_cast<int64_t>(numbers[i]) >= least &&
           static_cast<int64_t>(numbers[i]) < end;
  return good;
}

// Queries to learn from or to score: a matrix, or the three arrays of a CSR. They are checked once.
class Queries {
 public:
  Queries(const std::optional<Matrix<const float>>& dense,
          const std::optional<Flat<const int64_t>>& starts,
          const std::optional<Flat<const int32_t>>& columns,
          const std::optional<Flat<const float>>& values, int64_t dim)
      : dense_(dense), starts_(starts), columns_(columns), values_(values), dim_(dim) {
    if (dense) {
      check_shape("dense", *dense, {-1, dim});
      rows_.dense = dense->data();
      count_ = length(*dense);
      return;
    }
    require(starts && columns && values && length(*starts) > 0, "the rows of a CSR");
    count_ = length(*starts) - 1;
    check_shape("values", *values, {length(*columns)});
    require(counts_up(starts->data(), count_, length(*columns)), "the starts of the rows");
    require(are_within(columns->data(), length(*columns), 0, dim), "the columns of the rows");
    rows_ = {nullptr, starts->data(), columns->data(), values->data()};
  }

  int64_t count() const { return count_; }
  int64_t dim() const { return dim_; }
  const QueryRows& rows() const { return rows_; }

 private:
  std::optional<Matrix<const float>> dense_;  // they own the memory
  std::optional<Flat<const int64_t>> starts_;
  std::optional<Flat<const int32_t>> columns_;
  std::optional<Flat<const float>> values_;
  int64_t dim_, count_ = 0;
  QueryRows rows_{};
};

// The relevant items of each query. They are checked once.
class Pairs {
 public:
  Pairs(const Flat<const int64_t>& starts, const nb::object& items,
        const Flat<const float>& weights, int64_t count)
      : starts_(starts), weights_(weights), item_count_(count) {
    const int64_t pairs = length(weights);
    require(length(starts) > 0 && counts_up(starts.data(), length(starts) - 1, pairs),
            "the starts of the pairs");
    if (nb::try_cast<Flat<const int32_t>>(items, items_, false)) {
      check_shape("items", items_, {pairs});
      require(are_within(items_.data(), pairs, 0, count), "the items of the pairs");
    } else {
      require(nb::try_cast<Flat<const int64_t>>(items, long_items_, false), "the items");
      check_shape("items", long_items_, {pairs});
      require(are_within(long_items_.data(), pairs, 0, count), "the items of the pairs");
      wide_ = true;
    }
  }

  int64_t queries() const { return length(starts_) - 1; }
  int64_t items() const { return item_count_; }
  void write(Examples& given) const {
    given.starts = starts_.data();
    given.items = wide_ ? nullptr : items_.data();
    given.long_items = wide_ ? long_items_.data() : nullptr;
    given.weights = weights_.data();
  }

 private:
  Flat<const int64_t> starts_;
  Flat<const int32_t> items_;
  Flat<const int64_t> long_items_;
  Flat<const float> weights_;
  int64_t item_count_;
  bool wide_ = false;
};

void copy_matrix(const Trainer& trainer, const std::string& name, float* given, int64_t size,
                 bool write) {
  const MatrixView view = trainer.find(name);
  require(view.values != nullptr, name.c_str());
  require(size == view.heads * view.rows * view.columns, name.c_str());
  for (int64_t h = 0; h < view.heads; ++h)
    for (int64_t i = 0; i < view.rows; ++i) {
      float* row = view.values + h * view.head_step + i * view.row_step;
      const size_t bytes = static_cast<size_t>(view.columns) * sizeof(float);
      if (write) {
        memcpy(row, given, bytes);
      } else {
        memcpy(given, row, bytes);
      }
      given += view.columns;
    }
}

void write(Trainer& trainer, const std::string& name, const Flat<const float>& values) {
  copy_matrix(trainer, name, const_cast<float*>(values.data()), length(values), true);
  if (name == "out") trainer.refresh();
}

void read(const Trainer& trainer, const std::string& name, const Flat<float>& values) {
  copy_matrix(trainer, name, values.data(), length(values), false);
}

int64_t train(Trainer& trainer, const Queries& queries, const Pairs& pairs,
              const std::vector<Matrix<const int32_t>>& assignments,
              const std::optional<Flat<const float>>& noise, uint64_t seed, int64_t loss,
              const Flat<const int64_t>& rows, int64_t first, int64_t batch,
              const Flat<const double>& rates, int64_t steps_before, int64_t threads,
              const Flat<double>& losses) {
  const NetworkShape& shape = trainer.shape();
  require(queries.dim() == shape.dim && (queries.rows().dense == nullptr) == shape.sparse,
          "queries");
  require(pairs.queries() == queries.count(), "the pairs of the queries");
  require(static_cast<int64_t>(assignments.size()) == shape.heads, "assignments");
  require(loss >= kSoftmax && loss <= kSoftmaxBce, "the loss");
  require(batch > 0 && threads > 0 && first >= 0 && steps_before >= 0, "a number");
  Examples given{};
  given.queries = queries.rows();
  pairs.write(given);
  std::vector<const int32_t*> buckets;
  given.copies = static_cast<int64_t>(assignments[0].shape(1));
  for (const Matrix<const int32_t>& each : assignments) {
    check_shape("assignments", each, {pairs.items(), given.copies});
    require(are_within(each.data(), pairs.items() * given.copies, -1, shape.buckets),
            "the buckets of the items");
    buckets.push_back(each.data());
  }
  given.assignments = buckets.data();
  given.seed = seed;
  if (noise) {
    check_shape("noise", *noise, {queries.count()});
    given.noise = noise->data();
  }
  const int64_t count = length(rows), steps = (count + batch - 1) / batch;
  require(are_within(rows.data(), count, 0, queries.count()), "the rows");
  require(length(rates) >= steps && length(losses) >= steps, "the rates");
  nb::gil_scoped_release unlocked;
  return trainer.train(given, static_cast<Loss>(loss), rows.data(), count, first, batch,
                       rates.data(), steps_before, threads, losses.data());
}

void score(const Trainer& trainer, const Queries& queries, int64_t head,
           const Flat<const int64_t>& rows, const Matrix<float>& logits) {
  const NetworkShape& shape = trainer.shape();
  require(queries.dim() == shape.dim && (queries.rows().dense == nullptr) == shape.sparse,
          "queries");
  require(head >= 0 && head < shape.heads, "the head");
  require(are_within(rows.data(), length(rows), 0, queries.count()), "the rows");
  check_shape("logits", logits, {length(rows), shape.buckets});
  nb::gil_scoped_release unlocked;
  trainer.score(queries.rows(), head, rows.data(), length(rows), logits.data());
}

}  // namespace

void bind_trainer(nb::module_& m) {
  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  nb::class_<Queries>(m, "TrainingQueries", "Dense or sparse rows of queries to learn from.")
      .def(nb::init<const std::optional<Matrix<const float>>&,
                    const std::optional<Flat<const int64_t>>&,
                    const std::optional<Flat<const int32_t>>&,
                    const std::optional<Flat<const float>>&, int64_t>(),
           as_is("dense").none(), as_is("starts").none(), as_is("columns").none(),
           as_is("values").none(), nb::arg("dim"));
  nb::class_<Pairs>(m, "TrainingPairs", "The relevant items of queries to learn from.")
      .def(nb::init<const Flat<const int64_t>&, const nb::object&, const Flat<const float>&,
                    int64_t>(),
           as_is("starts"), nb::arg("items"), as_is("weights"), nb::arg("count"));
  nb::class_<Trainer>(m, "Trainer", "A network and what training it needs.")
      .def(
          "__init__",
          [](Trainer* trainer, int64_t dim, int64_t linear, int64_t width, int64_t heads,
             int64_t buckets, bool sparse) {
            require(dim > 0 && linear >= 0 && width > linear && heads > 0 && buckets > 0, "a size");
            const double rows = static_cast<double>(dim) +
                                static_cast<double>(heads) * static_cast<double>(buckets);
            require(rows * static_cast<double>(width) < kMostWeights, "a size");
            new (trainer) Trainer({dim, linear, width, heads, buckets, sparse});
          },
          nb::arg("dim"), nb::arg("linear"), nb::arg("width"), nb::arg("heads"), nb::arg("buckets"),
          nb::arg("sparse"))
      .def("write", &write, nb::arg("name"), as_is("values"))
      .def("read", &read, nb::arg("name"), as_is("values"))
      .def("set_scale", &Trainer::set_scale, nb::arg("scale"))
      .def("soften", &Trainer::soften, nb::arg("near"), nb::arg("most"), nb::arg("slope"))
      .def("train", &train, nb::arg("queries"), nb::arg("pairs"), nb::arg("assignments"),
           as_is("noise").none(), nb::arg("seed"), nb::arg("loss"), as_is("rows"), nb::arg("first"),
           nb::arg("batch"), as_is("rates"), nb::arg("steps_before"), nb::arg("threads"),
           as_is("losses"))
      .def("score", &score, nb::arg("queries"), nb::arg("head"), as_is("rows"), as_is("logits"));
}

}  // namespace irli
