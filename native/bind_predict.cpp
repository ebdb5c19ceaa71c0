// Bindings of label prediction: `LabelPlan` and `LabelPredictor`.

#include <nanobind/stl/optional.h>

#include <algorithm>

#include "arrays.h"
#include "check_layout.h"
#include "cpu.h"
#include "homes.h"
#include "scratch.h"

namespace irli {
namespace {

LabelPlan make_plan(int64_t k, int64_t probes, int64_t candidates, int64_t score, double by_margin,
                    double by_score, double threshold, int64_t min_votes, int64_t near,
                    double by_votes, bool own, int64_t complete) {
  if (k < 1 || probes < 1 || candidates < 1 || score < 0 || min_votes < 1 || near < 0 ||
      complete < 0 || score > static_cast<int64_t>(LabelScore::kVotes))
    throw std::invalid_argument("The parameters of a LabelPlan are out of range.");
  return {k,         probes,   candidates, static_cast<LabelScore>(score),
          by_margin, by_score, threshold,  min_votes,
          near,      by_votes, own,        complete};
}

// The names of the arrays of a packed matrix.
struct PackedNames {
  const char *starts, *gaps, *weights, *scale;
};

// Read a matrix with so many outputs. Without features it has none. `size` gets its numbers.
PackedMatrix read_packed(Fields& fields, const PackedNames& names, int64_t outputs, int64_t& size) {
  const auto starts = fields.shape(names.starts), gaps = fields.shape(names.gaps);
  if (starts.size() != 1 || gaps.size() != 1 || starts[0] < 1)
    throw std::invalid_argument("The arrays of a LabelLayout have the wrong number of axes.");
  PackedMatrix matrix{};
  matrix.features = starts[0] - 1;
  matrix.outputs = outputs;
  size = gaps[0];
  matrix.starts = fields.get<int64_t>(names.starts, {starts[0]});
  matrix.gaps = fields.get<uint16_t>(names.gaps, {size});
  matrix.weights = fields.get<int8_t>(names.weights, {size});
  matrix.scale = fields.get<float>(names.scale, {matrix.features ? outputs : 0});
  return matrix;
}

// Read the arrays of a `LabelLayout` in Python, and check the numbers that kernels use as places.
LabelLayout read_layout(nb::handle object, std::vector<nb::object>& held) {
  Fields fields(object);
  LabelLayout layout{};
  const auto project = fields.shape("project"), bias = fields.shape("bias");
  const auto prior = fields.shape("prior"), scale = fields.shape("near_scale");
  if (project.size() != 3 || bias.size() != 2 || prior.size() != 1 || scale.size() != 1)
    throw std::invalid_argument("The arrays of a LabelLayout have the wrong number of axes.");
  const int64_t T = layout.trunks = project[0], d = layout.dim = project[1];
  const int64_t G = layout.width = project[2], L = layout.labels = prior[0];
  const int64_t R = layout.repetitions = bias[0], B = layout.buckets = bias[1];
  layout.project = fields.get<int8_t>("project", {T, d, G});
  layout.project_scale = fields.get<float>("project_scale", {T, d});
  layout.shift = fields.get<float>("shift", {T, G});
  layout.out = fields.get<int8_t>("out", {R, (B + kPanel - 1) / kPanel, (G + 3) / 4, kPanel, 4});
  layout.out_scale = fields.get<float>("out_scale", {R, B});
  layout.bias = fields.get<float>("bias", {R, B});
  layout.offsets = fields.get<int64_t>("offsets", {R, B + 1});
  layout.entries = fields.get<int32_t>("items", {-1});
  const int64_t entries = fields.shape("items")[0];
  layout.share = fields.get<float>("share", {entries});
  layout.prior = fields.get<float>("prior", {L});
  int64_t weights, numbers;
  layout.ranker = read_packed(fields, {"starts", "gaps", "weights", "scale"}, L, weights);
  layout.constant = fields.get<float>("constant", {layout.ranker.features ? L : 0});
  layout.near = read_packed(fields, {"near_starts", "near_gaps", "near_weights", "near_scale"},
                            scale[0], numbers);
  layout.near_starts = fields.get<int64_t>("near_label_starts", {scale[0] + 1});
  layout.near_labels = fields.get<int32_t>("near_labels", {-1});

  check_layout(layout, entries, weights, numbers, fields.shape("near_labels")[0]);
  held = fields.take();
  return layout;
}

// Rows (n, d) as the arrays of a CSR.
class Rows {
 public:
  Rows(const char* name, const nb::tuple& arrays, int64_t dim) : name_(name), dim_(dim) {
    if (nb::len(arrays) != 3 || !nb::try_cast(arrays[0], indptr_, false) ||
        !nb::try_cast(arrays[1], indices_, false) || !nb::try_cast(arrays[2], data_, false))
      throw std::invalid_argument(std::string("The rows '") + name +
                                  "' must be (indptr, indices, data) of int64, int32 and float32.");
  }

  int64_t count() const { return static_cast<int64_t>(indptr_.shape(0)) - 1; }
  SparseRows get() const { return {indptr_.data(), indices_.data(), data_.data()}; }

  // Throw unless the rows from `first` to `last` are well-formed. This reads little compared to a
  // prediction, so that nothing before it has to be trusted.
  void check(int64_t first, int64_t last) const {
    const int64_t size = static_cast<int64_t>(std::min(indices_.shape(0), data_.shape(0)));
    if (!check_rows(get(), first, last, size, dim_))
      throw std::invalid_argument(std::string("The rows '") + name_ + "' must be well-formed: " +
                                  "ascending indptr, and indices below " + std::to_string(dim_) +
                                  ".");
  }

 private:
  const char* name_;
  int64_t dim_;
  Array<const int64_t, nb::ndim<1>> indptr_;
  Array<const int32_t, nb::ndim<1>> indices_;
  Array<const float, nb::ndim<1>> data_;
};

class LabelPredictor {
 public:
  explicit LabelPredictor(nb::handle layout)
      : layout_(read_layout(layout, held_)), homes_(layout_) {}

  // Label the rows from `first` to `last`. Return the row that was reached. See `Turn`. A single
  // row may have its logits (R, B) already: see `route_part`.
  int64_t predict(const nb::tuple& routed, const nb::tuple& ranked, const LabelPlan& plan,
                  int64_t first, int64_t last, const Array<float, nb::ndim<2>>& scores,
                  const Array<int64_t, nb::ndim<2>>& labels,
                  const std::optional<Array<const float, nb::ndim<2>>>& logits) {
    const int64_t k = plan.k;
    return run(
        routed, ranked, plan, first, last,
        [&](int64_t count) {
          check_shape("scores", scores, {count, k});
          check_shape("labels", labels, {count, k});
          if (!logits) return;
          check_shape("logits", *logits, {layout_.repetitions, layout_.buckets});
          if (count != 1) throw std::invalid_argument("The rows are out of range.");
        },
        [&](const SparseRows& by_routers, const SparseRows& by_ranker, int64_t from, int64_t some,
            LabelScratch& scratch) {
          scratch.routed = logits ? logits->data() : nullptr;
          kernels_.predict_block(layout_, plan, by_routers, by_ranker, from, some, scratch,
                                 scores.data() + from * k, labels.data() + from * k);
          scratch.routed = nullptr;
        });
  }

  // Write the logits of the repetitions from `first` to `last` of one row into `out` (R, B). So
  // several threads can route it.
  void route_part(const nb::tuple& routed, int64_t first, int64_t last,
                  const Array<float, nb::ndim<2>>& out) {
    check_shape("out", out, {layout_.repetitions, layout_.buckets});
    if (first < 0 || last > layout_.repetitions || first > last)
      throw std::invalid_argument("The repetitions are out of range.");
    const Rows row("routed", routed, layout_.dim);
    if (row.count() != 1) throw std::invalid_argument("The rows are out of range.");
    nb::gil_scoped_release unlocked;
    row.check(0, 1);
    const Borrowed<PredictScratch> borrowed(pool_, layout_);
    LabelScratch& scratch = borrowed->get();
    kernels_.route_row_part(layout_, row.get(), 0, first, last, scratch);
    for (int64_t r = first; r < last; ++r)
      std::copy_n(scratch.logits + r * scratch.bucket_floats, layout_.buckets,
                  out.data() + r * layout_.buckets);
  }

  // List the candidates of the rows from `first` to `last`. Return the row that was reached.
  int64_t list_candidates(const nb::tuple& routed, const nb::tuple& ranked, const LabelPlan& plan,
                          int64_t first, int64_t last, const Array<int64_t, nb::ndim<2>>& labels,
                          const Array<float, nb::ndim<2>>& scores,
                          const Array<float, nb::ndim<2>>& margins,
                          const Array<float, nb::ndim<2>>& votes) {
    const int64_t width = static_cast<int64_t>(labels.shape(1));
    return run(
        routed, ranked, plan, first, last,
        [&](int64_t count) {
          check_shape("labels", labels, {count, width});
          check_shape("scores", scores, {count, width});
          check_shape("margins", margins, {count, width});
          check_shape("votes", votes, {count, width});
        },
        [&](const SparseRows& by_routers, const SparseRows& by_ranker, int64_t from, int64_t some,
            LabelScratch& scratch) {
          const int64_t at = from * width;
          kernels_.list_candidates(layout_, plan, by_routers, by_ranker, from, some, scratch,
                                   {labels.data() + at, scores.data() + at, margins.data() + at,
                                    votes.data() + at, width});
        });
  }

 private:
  // Check the rows, then run a kernel on one block after the other.
  template <class Check, class Kernel>
  int64_t run(const nb::tuple& routed, const nb::tuple& ranked, const LabelPlan& plan,
              int64_t first, int64_t last, Check check, Kernel kernel) {
    const PackedMatrix &ranker = layout_.ranker, &near = layout_.near;
    const bool ranks = plan.by_margin > 0, blends = ranks || plan.near > 0;
    if (ranks && ranker.features == 0)
      throw std::invalid_argument("The plan uses a ranker, and the index has none.");
    if (plan.near > 0 && near.features == 0)
      throw std::invalid_argument("The plan uses near rows, and the index has none.");
    if (ranks && plan.near > 0 && ranker.features != near.features)
      throw std::invalid_argument("The ranker and the known rows must have the same features.");
    const Rows by_routers("routed", routed, layout_.dim);
    const Rows by_ranker("ranked", blends ? ranked : routed,
                         ranks    ? ranker.features
                         : blends ? near.features
                                  : layout_.dim);
    const int64_t count = by_routers.count();
    check(count);
    if (first < 0 || last > count || by_ranker.count() != count)
      throw std::invalid_argument("The rows are out of range.");
    nb::gil_scoped_release unlocked;
    const Borrowed<PredictScratch> scratch(pool_, layout_);
    const Turn turn;
    while (first < last) {
      const int64_t some = std::min(kBlock, last - first);
      by_routers.check(first, first + some);
      if (blends) by_ranker.check(first, first + some);
      kernel(by_routers.get(), by_ranker.get(), first, some, scratch->get());
      first += some;
      if (turn.is_over()) break;
    }
    return first;
  }

  std::vector<nb::object> held_;
  LabelLayout layout_;
  Homes homes_;
  const Kernels& kernels_ = kernels();
  Pool<PredictScratch> pool_;
};

}  // namespace

void bind_predict(nb::module_& m) {
  nb::class_<LabelPlan>(m, "LabelPlan", "The parameters of a prediction, as the kernels read them.")
      .def(
          "__init__",
          [](LabelPlan* plan, int64_t k, int64_t probes, int64_t candidates, int64_t score,
             double by_margin, double by_score, double threshold, int64_t min_votes, int64_t near,
             double by_votes, bool own, int64_t complete) {
            new (plan) LabelPlan(make_plan(k, probes, candidates, score, by_margin, by_score,
                                           threshold, min_votes, near, by_votes, own, complete));
          },
          nb::kw_only(), nb::arg("k"), nb::arg("probes"), nb::arg("candidates"), nb::arg("score"),
          nb::arg("by_margin"), nb::arg("by_score"), nb::arg("threshold"), nb::arg("min_votes") = 1,
          nb::arg("near") = 0, nb::arg("by_votes") = 0.0, nb::arg("own") = false,
          nb::arg("complete") = 0)
      .def_ro("k", &LabelPlan::k)
      .def_ro("probes", &LabelPlan::probes)
      .def_ro("candidates", &LabelPlan::candidates)
      .def_prop_ro("score", [](const LabelPlan& plan) { return static_cast<int64_t>(plan.score); })
      .def_ro("by_margin", &LabelPlan::by_margin)
      .def_ro("by_score", &LabelPlan::by_score)
      .def_ro("threshold", &LabelPlan::threshold)
      .def_ro("min_votes", &LabelPlan::min_votes)
      .def_ro("near", &LabelPlan::near)
      .def_ro("by_votes", &LabelPlan::by_votes)
      .def_ro("own", &LabelPlan::own)
      .def_ro("complete", &LabelPlan::complete);

  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  nb::class_<LabelPredictor>(m, "LabelPredictor", "A label index that threads can predict with.")
      .def(nb::init<nb::handle>(), nb::arg("layout"))
      .def("predict", &LabelPredictor::predict, nb::arg("routed"), nb::arg("ranked"),
           nb::arg("plan"), nb::arg("first"), nb::arg("last"), as_is("scores"), as_is("labels"),
           as_is("logits").none() = nb::none())
      .def("route_part", &LabelPredictor::route_part, nb::arg("routed"), nb::arg("first"),
           nb::arg("last"), as_is("out"))
      .def("list_candidates", &LabelPredictor::list_candidates, nb::arg("routed"),
           nb::arg("ranked"), nb::arg("plan"), nb::arg("first"), nb::arg("last"), as_is("labels"),
           as_is("scores"), as_is("margins"), as_is("votes"));
}

}  // namespace irli
