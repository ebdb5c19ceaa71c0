// Bindings of vector search: `SearchPlan` and `VectorSearcher`.

#include <nanobind/stl/optional.h>

#include <array>
#include <chrono>

#include "arrays.h"
#include "check_layout.h"
#include "cpu.h"
#include "scratch.h"

namespace irli {
namespace {

using Clock = std::chrono::steady_clock;

SearchPlan make_plan(int64_t k, int64_t probes, double threshold, int64_t min_votes,
                     int64_t candidates, int64_t score) {
  const bool codes = score == kCodes;
  if (k < 1 || probes < 0 || min_votes < 0 || candidates < 0 || score < 0 || score > kCodes ||
      (codes && (candidates < 1 || candidates > kMostCandidates)))
    throw std::invalid_argument("The parameters of a SearchPlan are out of range.");
  return {k, probes, threshold, min_votes, candidates, static_cast<Score>(score)};
}

// Read the arrays of a `VectorLayout` in Python, and check all that kernels rely on.
VectorLayout read_layout(nb::handle object, std::vector<nb::object>& held) {
  const auto hold = [&](Fields& fields) {
    for (nb::object& array : fields.take()) held.push_back(std::move(array));
  };
  Fields fields(object);
  VectorLayout layout{};
  const auto vectors = fields.shape("vectors"), bias = fields.shape("bias");
  const auto shift = fields.shape("shift"), rotation = fields.shape("rotation");
  if (vectors.size() != 2 || bias.size() != 2 || shift.size() != 2 || rotation.size() != 3)
    throw std::invalid_argument("The arrays of a VectorLayout have the wrong number of axes.");
  const int64_t n = layout.items = vectors[0], d = layout.dim = vectors[1];
  const int64_t R = layout.repetitions = bias[0], B = layout.buckets = bias[1];
  const int64_t G = layout.width = shift[1], F = layout.rotated = rotation[2];
  layout.linear = nb::cast<int64_t>(object.attr("linear"));
  layout.metric = static_cast<Metric>(nb::cast<int64_t>(object.attr("metric")));
  layout.vectors = fields.get<float>("vectors", {n, d});
  layout.bias = fields.get<float>("bias", {R, B});
  layout.shift = fields.get<float>("shift", {R, G});
  layout.project = fields.get<float>("project", {R, d, G});
  layout.rotation = fields.get<float>("rotation", {R, F ? G : 0, F});
  layout.rotation_shift = fields.get<float>("rotation_shift", {R, F});
  layout.depths = fields.get<int64_t>("depths", {-1});
  layout.stages = fields.shape("depths")[0];
  layout.keeps = fields.get<int64_t>("keeps", {layout.stages});
  if (layout.stages < 1) throw std::invalid_argument("A router must have at least one stage.");
  layout.first = layout.depths[0];
  const int64_t panels = (B + kPanel - 1) / kPanel, fours = (G + 3) / 4;
  if (fields.shape("bytes").at(1)) {
    layout.bytes = fields.get<int8_t>("bytes", {R, panels, fours, kPanel, 4});
    layout.zero = fields.get<int32_t>("zero", {R, B});
  } else {
    layout.coarse = fields.get<float>("coarse", {R, layout.first, B});
  }
  layout.fine = fields.get<float>("fine", {R, B, (F ? F : G) - layout.first});
  layout.step = fields.get<float>("step", {R, 1});
  layout.offsets = fields.get<int64_t>("offsets", {R, B + 1});
  layout.entries = fields.get<int32_t>("items", {-1});
  hold(fields);

  const nb::object projection_object = object.attr("projection");
  Fields projected(projection_object);
  Projection& projection = layout.projection;
  const int64_t columns = projection.columns = projected.shape("step").at(0);
  if (columns) {
    projection.centre = projected.get<float>("centre", {d});
    projection.scale = projected.get<float>("scale", {d});
    projection.bytes = projected.get<int8_t>(
        "bytes", {1, (columns + kPanel - 1) / kPanel, (d + 3) / 4, kPanel, 4});
    projection.step = projected.get<float>("step", {columns});
    projection.zero = projected.get<int32_t>("zero", {columns});
    projection.bias = projected.get<float>("bias", {columns});
  }
  hold(projected);

  const nb::object codes_object = object.attr("codes");
  Fields coded(codes_object);
  Codes& codes = layout.codes;
  const auto codewords = coded.shape("codewords");
  codes.pieces = codewords.at(0);
  codes.size = codewords.at(1);
  if (codes.pieces) {
    const int64_t p = codes.pieces * codes.size;
    codes.rotation = coded.get<float>("rotation", {d, p});
    codes.shift = coded.get<float>("shift", {p});
    codes.codewords = coded.get<float>("codewords", {codes.pieces, codes.size, kWords});
    codes.bias = coded.get<float>("bias", {codes.pieces, kWords});
    codes.blocks = coded.get<uint8_t>("blocks", {-1, codes.pieces / 2, kLanes});
    codes.offsets = coded.get<int64_t>("offsets", {R, B + 1});
  }
  hold(coded);

  const nb::object int8_object = object.attr("int8");
  Fields rounded(int8_object);
  layout.int8.present = rounded.shape("bytes").at(0) > 0;
  if (layout.int8.present) {
    layout.int8.bytes = rounded.get<int8_t>("bytes", {n, d});
    layout.int8.shift = rounded.get<float>("shift", {d});
    layout.int8.step = rounded.get<float>("step", {d});
    layout.int8.lengths = rounded.get<float>("lengths", {layout.metric == kL2 ? n : 0});
  }
  hold(rounded);
  check_layout(layout, Fields(object).shape("items")[0], Fields(codes_object).shape("blocks")[0]);
  return layout;
}

class VectorSearcher {
 public:
  using Queries = Array<const float, nb::ndim<2>>;
  using Allowed = std::optional<Array<const bool, nb::ndim<1>>>;
  using Ids = std::optional<Array<const int64_t, nb::ndim<1>>>;

  explicit VectorSearcher(nb::handle layout) : layout_(read_layout(layout, held_)) {}

  // Search the rows from `first` to `last`. Return the row that was reached: after a tenth of a
  // second this goes back to Python, where an interrupt can be seen.
  int64_t search(const Queries& queries, const SearchPlan& plan, const Allowed& allowed,
                 const Ids& ids, int64_t form, int64_t first, int64_t last,
                 const Array<float, nb::ndim<2>>& distances,
                 const Array<int64_t, nb::ndim<2>>& items) {
    const int64_t rows = static_cast<int64_t>(queries.shape(0));
    check_shape("queries", queries, {-1, layout_.dim});
    check_shape("distances", distances, {rows, plan.k});
    check_shape("items", items, {rows, plan.k});
    check_plan(plan);
    if (first < 0 || last > rows) throw std::invalid_argument("The rows are out of range.");
    const uint8_t* filter = read_allowed(allowed);
    const int64_t* names = read_ids(ids);
    nb::gil_scoped_release unlocked;
    const Borrowed<SearchScratch> borrowed(pool_, layout_);
    Scratch& scratch = borrowed->prepare(plan.k);
    const Turn turn;
    while (first < last) {
      const int64_t count = std::min(kBlock, last - first);
      if (!kernels_.search_block(layout_, plan, filter, names, static_cast<Form>(form),
                                 queries.data() + first * layout_.dim, count, scratch,
                                 distances.data() + first * plan.k, items.data() + first * plan.k))
        throw std::invalid_argument("The queries must be finite.");
      first += count;
      if (turn.is_over()) break;
    }
    return first;
  }

  // Search one query (d,). Return whether it could be: it must be contiguous, float32 and finite.
  // `ids` (N) must be int64.
  bool search_one(nb::handle query, const SearchPlan& plan, nb::handle ids, int64_t form,
                  nb::handle distances, nb::handle items) {
    const Row<const float> row(query);
    if (!row.has(layout_.dim)) return false;
    const Row<const int64_t> names(ids);
    const Row<float> near(distances);
    const Row<int64_t> found(items);
    if (!names.has(layout_.items) || !near.has(plan.k) || !found.has(plan.k))
      throw std::invalid_argument("The ids or the answers have the wrong type or shape.");
    check_plan(plan);
    nb::gil_scoped_release unlocked;
    const Borrowed<SearchScratch> borrowed(pool_, layout_);
    return kernels_.search_block(layout_, plan, nullptr, names.data(), static_cast<Form>(form),
                                 row.data(), 1, borrowed->prepare(plan.k), near.data(), found.data());
  }

  // Run the stages of one prepared query (1, d) and report what each did.
  nb::dict explain(const Queries& query, const SearchPlan& plan, const Allowed& allowed) {
    check_shape("query", query, {1, layout_.dim});
    check_plan(plan);
    const uint8_t* filter = read_allowed(allowed);
    std::vector<float> distances(static_cast<size_t>(plan.k));
    std::vector<int64_t> items(static_cast<size_t>(plan.k));
    std::vector<int32_t> votes(static_cast<size_t>(plan.k));
    std::array<double, 4> seconds{};
    std::vector<float> logits;
    std::vector<int32_t> probed, candidates;
    Counts counts{};
    {
      nb::gil_scoped_release unlocked;
      const Borrowed<SearchScratch> borrowed(pool_, layout_);
      Scratch& scratch = borrowed->prepare(plan.k);
      for (int64_t stage = kRoute; stage <= kRerank; ++stage) {
        const Clock::time_point start = Clock::now();
        kernels_.run_stage(static_cast<Stage>(stage), layout_, plan, filter, query.data(), scratch,
                           distances.data(), items.data());
        seconds[static_cast<size_t>(stage)] =
            std::chrono::duration<double>(Clock::now() - start).count();
      }
      counts = scratch.counts;
      logits.assign(scratch.logits, scratch.logits + layout_.repetitions * layout_.buckets);
      probed.assign(scratch.probed, scratch.probed + counts.probed);
      candidates.assign(scratch.touched, scratch.touched + counts.chosen);
      if (plan.score == kCodes) kernels_.count_votes(layout_, filter, scratch);
      for (size_t t = 0; t < items.size(); ++t)
        votes[t] = items[t] < 0 ? 0 : scratch.votes[items[t]];
    }
    nb::dict out;
    out["items"] = to_numpy(items);
    out["distances"] = to_numpy(distances);
    out["votes"] = to_numpy(votes);
    out["log_probabilities"] = to_numpy(logits);
    out["probed"] = to_numpy(probed);
    out["candidates"] = to_numpy(candidates);
    out["found"] = counts.found;
    out["read"] = counts.read;
    out["seconds"] = nb::make_tuple(seconds[0], seconds[1], seconds[2], seconds[3]);
    return out;
  }

 private:
  void check_plan(const SearchPlan& plan) const {
    if (plan.score == kCodes && layout_.codes.pieces == 0)
      throw std::invalid_argument("The plan scores by codes, and the index has none.");
  }

  const uint8_t* read_allowed(const Allowed& allowed) const {
    if (!allowed) return nullptr;
    check_shape("allowed", *allowed, {layout_.items});
    return reinterpret_cast<const uint8_t*>(allowed->data());
  }

  const int64_t* read_ids(const Ids& ids) const {
    if (!ids) return nullptr;
    if (static_cast<int64_t>(ids->shape(0)) != layout_.items)
      check_shape("ids", *ids, {layout_.items});
    return ids->data();
  }

  std::vector<nb::object> held_;
  VectorLayout layout_;
  const Kernels& kernels_ = kernels();
  Pool<SearchScratch> pool_;
};

}  // namespace

void bind_search(nb::module_& m) {
  nb::class_<SearchPlan>(m, "SearchPlan", "The parameters of a search, as the kernels read them.")
      .def(
          "__init__",
          [](SearchPlan* plan, int64_t k, int64_t probes, double threshold, int64_t min_votes,
             int64_t candidates, int64_t score) {
            new (plan)
                SearchPlan(make_plan(k, probes, threshold, min_votes, candidates, score));
          },
          nb::kw_only(), nb::arg("k"), nb::arg("probes"), nb::arg("threshold"),
          nb::arg("min_votes"), nb::arg("candidates"), nb::arg("score"))
      .def_ro("k", &SearchPlan::k)
      .def_ro("probes", &SearchPlan::probes)
      .def_ro("threshold", &SearchPlan::threshold)
      .def_ro("min_votes", &SearchPlan::min_votes)
      .def_ro("candidates", &SearchPlan::candidates)
      .def_prop_ro("score", [](const SearchPlan& plan) { return static_cast<int64_t>(plan.score); });

  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  nb::class_<VectorSearcher>(m, "VectorSearcher", "A vector index that threads can search.")
      .def(nb::init<nb::handle>(), nb::arg("layout"))
      .def("search", &VectorSearcher::search, as_is("queries"), nb::arg("plan"),
           as_is("allowed").none(), as_is("ids").none(), nb::arg("form"), nb::arg("first"),
           nb::arg("last"), as_is("distances"), as_is("items"))
      .def("search_one", &VectorSearcher::search_one, nb::arg("query"), nb::arg("plan"),
           nb::arg("ids"), nb::arg("form"), nb::arg("distances"), nb::arg("items"))
      .def("explain", &VectorSearcher::explain, as_is("query"), nb::arg("plan"),
           as_is("allowed").none());
}

}  // namespace irli
