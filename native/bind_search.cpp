// Bindings of vector search: `SearchPlan` and `VectorSearcher`.

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "arrays.h"
#include "centroids.h"
#include "check_layout.h"
#include "cpu.h"
#include "scratch.h"

namespace irli {
namespace {

using Clock = std::chrono::steady_clock;

double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// Copy the values of a plan for each level. There is one at least.
int64_t read_levels(const std::vector<double>& values, double* out) {
  if (values.empty() || values.size() > kLevels)
    throw std::invalid_argument("A SearchPlan must have 1 to 24 levels.");
  std::copy(values.begin(), values.end(), out);
  return static_cast<int64_t>(values.size());
}

// Raise unless kernels can follow the plan.
void check_plan(const SearchPlan& plan) {
  const bool codes = plan.score == kCodes;
  const auto is_count = [](double value) { return value >= 0 && value < 1e9; };
  if (plan.k < 1 || plan.probes < 0 || plan.min_votes < 0 || plan.candidates < 0 ||
      plan.score < 0 || plan.score > kCodes ||
      (codes && (plan.candidates < 1 || plan.candidates > kMostCandidates)) ||
      ((codes || plan.picked > 0) && (plan.by_score || plan.min_votes > 1)) || plan.picked < 0 ||
      plan.picked > kMostCandidates || plan.wide < 0 ||
      (plan.exact && (plan.by_score || plan.min_votes > 1)) || std::isnan(plan.start) ||
      !(plan.length >= 0 && plan.length < 1e30) || plan.levels < 1 || plan.levels > kLevels ||
      !std::all_of(plan.centroids, plan.centroids + plan.levels, is_count))
    throw std::invalid_argument("The parameters of a SearchPlan are out of range.");
}

// Read the arrays of a `VectorLayout` in Python, and check all that kernels rely on.
VectorLayout read_layout(nb::handle object, std::vector<nb::object>& held) {
  const auto hold = [&](Fields& fields) {
    for (nb::object& array : fields.take()) held.push_back(std::move(array));
  };
  Fields fields(object);
  VectorLayout layout{};
  const auto vectors = fields.shape("vectors"), bias = fields.shape("bias");
  const auto shift = fields.shape("shift");
  if (vectors.size() != 2 || bias.size() != 2 || shift.size() != 2)
    throw std::invalid_argument("The arrays of a VectorLayout have the wrong number of axes.");
  const int64_t n = layout.items = layout.room = vectors[0], d = layout.dim = vectors[1];
  const int64_t R = layout.repetitions = bias[0], B = layout.buckets = bias[1];
  const int64_t G = layout.width = shift[1];
  layout.linear = nb::cast<int64_t>(object.attr("linear"));
  layout.metric = static_cast<Metric>(nb::cast<int64_t>(object.attr("metric")));
  layout.vectors = {fields.get<float>("vectors", {n, d}), n, nullptr, 0};
  layout.bias = fields.get<float>("bias", {R, B});
  layout.shift = fields.get<float>("shift", {R, G});
  layout.project = fields.get<float>("project", {R, d, G});
  const int64_t panels = (B + kPanel - 1) / kPanel, fours = (G + 3) / 4;
  if (fields.shape("bytes").at(1)) {
    layout.bytes = fields.get<int8_t>("bytes", {R, panels, fours, kPanel, 4});
    layout.zero = fields.get<int32_t>("zero", {R, B});
  } else {
    layout.weights = fields.get<float>("weights", {R, G, B});
  }
  layout.step = fields.get<float>("step", {R, B});
  layout.centre = fields.get<float>("centre", {R, d});
  layout.soften = fields.get<float>("soften", {R, 3});
  layout.run_count = 1;
  Run& run = layout.runs[0];
  run.offsets = fields.get<int64_t>("offsets", {R, B + 1});
  run.items = fields.get<int32_t>("items", {-1});
  hold(fields);

  const nb::object projection_object = object.attr("projection");
  Fields projected(projection_object);
  Projection& projection = layout.projection;
  const int64_t columns = projection.columns = projected.shape("step").at(0);
  if (columns) {
    projection.centre = projected.get<float>("centre", {d});
    projection.scale = projected.get<float>("scale", {d});
    projection.bytes = projected.get<int8_t>("bytes", {1, (columns + kPanel - 1) / kPanel,
                                                       (d + 3) / 4, kPanel, 4});
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
    run.blocks = coded.get<uint8_t>("blocks", {-1, codes.pieces / 2, kLanes});
    run.block_offsets = coded.get<int64_t>("offsets", {R, B + 1});
  }
  hold(coded);

  const nb::object int8_object = object.attr("int8");
  Fields rounded(int8_object);
  layout.int8.present = rounded.shape("bytes").at(0) > 0;
  if (layout.int8.present) {
    layout.int8.bytes = {rounded.get<int8_t>("bytes", {n, d}), n, nullptr, 0};
    layout.int8.shift = rounded.get<float>("shift", {d});
    layout.int8.step = rounded.get<float>("step", {d});
    layout.int8.lengths = {rounded.get<float>("lengths", {layout.metric == kL2 ? n : 0}), n,
                           nullptr, 0};
  }
  hold(rounded);

  const nb::object centroids_object = object.attr("centroids");
  Fields mean(centroids_object);
  layout.centroids.present = mean.shape("centre").at(0) > 0;
  if (layout.centroids.present) {
    layout.centroids.centre = mean.get<float>("centre", {d});
    layout.centroids.columns = mean.get<float>("columns", {d, B});
    layout.centroids.bias = mean.get<float>("bias", {B});
    layout.centroids.spread = mean.get<float>("spread", {B});
    layout.centroids.base = mean.get<float>("base", {B});
    layout.centroids.reach = mean.get<float>("reach", {B});
  }
  hold(mean);
  check_layout(layout, Fields(object).shape("items")[0], Fields(codes_object).shape("blocks")[0]);
  return layout;
}

class VectorSearcher {
 public:
  using Queries = Array<const float, nb::ndim<2>>;
  using Mask = std::optional<Array<const bool, nb::ndim<1>>>;
  using Listed = std::optional<Array<const int32_t, nb::ndim<1>>>;
  using Ids = std::optional<Array<const int64_t, nb::ndim<1>>>;

  explicit VectorSearcher(nb::handle layout) : layout_(read_layout(layout, held_)) {
    centroids_ = std::make_shared<RoundedCentroids>(layout_);
  }

  // The items of another searcher and those added since, `items` in all. Each of the `runs` is a
  // `Run` of Python, with the places of some added items. Chunks hold the added rows in order.
  VectorSearcher(VectorSearcher& base, int64_t items, const std::vector<nb::object>& runs,
                 const std::vector<nb::object>& vectors, const std::vector<nb::object>& bytes,
                 const std::vector<nb::object>& lengths)
      : held_(base.held_), layout_(base.layout_), centroids_(base.centroids_) {
    if (base.layout_.run_count != 1 || runs.size() >= kMostRuns || items < layout_.items)
      throw std::invalid_argument("Items are added to the searcher of a fit, in at most 15 runs.");
    const int64_t added = items - layout_.items;
    layout_.items = items;
    vectors_ = hold_rows(layout_.vectors, vectors, layout_.dim, added);
    if (layout_.int8.present) {
      bytes_ = hold_rows(layout_.int8.bytes, bytes, layout_.dim, added);
      lengths_ = hold_rows(layout_.int8.lengths, lengths, 1, added);
    }
    for (const nb::object& run : runs) add_run(run);
    if (base.more_ < items) {  // more than needed, so that the next ones find room, too
      base.more_ = items + items / 4 + 1024;
      base.larger_ = std::make_shared<Pool<SearchScratch>>();
    }
    layout_.room = base.more_;
    pool_ = base.larger_;
  }

  // Search the rows from `first` to `last`. Return the row that was reached: after a tenth of a
  // second this goes back to Python, where an interrupt can be seen. `work` gets the columns that
  // `WORK` names in `irli.vectors.searcher`. A single row may be `routed` (R, B) before: see
  // `route_part`.
  int64_t search(const Queries& queries, const SearchPlan& plan, const Mask& allowed,
                 const Listed& rows_allowed, const Mask& removed, const Ids& ids, int64_t form,
                 int64_t first, int64_t last, const Array<float, nb::ndim<2>>& distances,
                 const Array<int64_t, nb::ndim<2>>& items,
                 const std::optional<Array<int64_t, nb::ndim<2>>>& work,
                 const std::optional<Array<const float, nb::ndim<2>>>& routed) {
    const int64_t rows = static_cast<int64_t>(queries.shape(0));
    require(plan);
    check_shape("queries", queries, {-1, layout_.dim});
    check_shape("distances", distances, {rows, plan.k});
    check_shape("items", items, {rows, plan.k});
    if (work) check_shape("work", *work, {rows, kWork});
    if (first < 0 || last > rows || (routed && rows != 1))
      throw std::invalid_argument("The rows are out of range.");
    if (routed) check_shape("routed", *routed, {layout_.repetitions, layout_.buckets});
    const Selector selector = read_selector(allowed, rows_allowed, removed, plan.exact);
    const int64_t* names = read_ids(ids);
    nb::gil_scoped_release unlocked;
    const Borrowed<SearchScratch> borrowed(*pool_, layout_);
    Scratch& scratch = borrowed->prepare(plan);
    const Turn turn;
    const int64_t most = plan.exact ? count_compared(plan.k) : kBlock;
    while (first < last) {
      const int64_t count = std::min(most, last - first);
      Counts counts[kCompared];
      scratch.routed = routed ? routed->data() : nullptr;
      const bool finite =
          kernels_.search_block(layout_, plan, selector, names, static_cast<Form>(form),
                                queries.data() + first * layout_.dim, count, scratch,
                                distances.data() + first * plan.k, items.data() + first * plan.k,
                                work ? counts : nullptr);
      scratch.routed = nullptr;
      if (!finite) throw std::invalid_argument("The queries must be finite.");
      for (int64_t i = 0; work && i < count; ++i) {
        const Counts& each = counts[i];
        const int64_t row[kWork] = {each.probed,  each.read,  each.chosen, each.exact,
                                    each.strange, each.coded, each.picked, each.plain};
        std::copy(row, row + kWork, work->data() + (first + i) * kWork);
      }
      first += count;
      if (turn.is_over()) break;
    }
    return first;
  }

  // Search one query (d,). Return whether it could be: it must be contiguous, float32 and finite.
  // `ids` (N) must be int64.
  bool search_one(nb::handle query, const SearchPlan& plan, nb::handle ids, int64_t form,
                  nb::handle distances, nb::handle items, const Mask& allowed,
                  const Listed& rows_allowed, const Mask& removed) {
    const Row<const float> row(query);
    if (!row.has(layout_.dim)) return false;
    const Row<const int64_t> names(ids);
    const Row<float> near(distances);
    const Row<int64_t> found(items);
    if (!names.has(layout_.items) || !near.has(plan.k) || !found.has(plan.k))
      throw std::invalid_argument("The ids or the answers have the wrong type or shape.");
    require(plan);
    const Selector selector = read_selector(allowed, rows_allowed, removed, plan.exact);
    nb::gil_scoped_release unlocked;
    const Borrowed<SearchScratch> borrowed(*pool_, layout_);
    return kernels_.search_block(layout_, plan, selector, names.data(), static_cast<Form>(form),
                                 row.data(), 1, borrowed->prepare(plan), near.data(), found.data(),
                                 nullptr);
  }

  // Write the log-probabilities (n, R, B) of all buckets for prepared queries (n, d).
  void route(const Queries& queries, const Array<float, nb::ndim<3>>& out) {
    const int64_t rows = static_cast<int64_t>(queries.shape(0));
    const int64_t pairs = layout_.repetitions * layout_.buckets;
    check_shape("queries", queries, {-1, layout_.dim});
    check_shape("out", out, {rows, layout_.repetitions, layout_.buckets});
    nb::gil_scoped_release unlocked;
    const Borrowed<SearchScratch> borrowed(*pool_, layout_);
    Scratch& scratch = borrowed->prepare(SearchPlan{.k = 1});
    for (int64_t first = 0; first < rows; first += kBlock) {
      const int64_t count = std::min(kBlock, rows - first);
      kernels_.route(layout_, queries.data() + first * layout_.dim, count, scratch);
      std::copy_n(scratch.logits, count * pairs, out.data() + first * pairs);
    }
  }

  // Write the log-probabilities of the repetitions from `first` to `last` of one query (d,) into
  // `out` (R, B). So several threads can route it.
  void route_part(const Array<const float, nb::ndim<1>>& query, const SearchPlan& plan,
                  int64_t form, int64_t first, int64_t last, const Array<float, nb::ndim<2>>& out) {
    check_shape("query", query, {layout_.dim});
    check_shape("out", out, {layout_.repetitions, layout_.buckets});
    if (first < 0 || last > layout_.repetitions || first > last)
      throw std::invalid_argument("The repetitions are out of range.");
    nb::gil_scoped_release unlocked;
    const Borrowed<SearchScratch> borrowed(*pool_, layout_);
    Scratch& scratch = borrowed->prepare(SearchPlan{.k = 1});
    if (!kernels_.route_part(layout_, plan, query.data(), static_cast<Form>(form), first, last,
                             scratch))
      throw std::invalid_argument("The queries must be finite.");
    std::copy_n(scratch.logits + first * layout_.buckets, (last - first) * layout_.buckets,
                out.data() + first * layout_.buckets);
  }

  // Run the stages of one prepared query (1, d) and report what each did.
  nb::dict explain(const Queries& query, const SearchPlan& plan, const Mask& allowed,
                   const Listed& rows_allowed, const Mask& removed) {
    check_shape("query", query, {1, layout_.dim});
    require(plan);
    const Selector selector = read_selector(allowed, rows_allowed, removed, plan.exact);
    std::vector<float> distances(static_cast<size_t>(plan.k));
    std::vector<int64_t> items(static_cast<size_t>(plan.k));
    std::vector<int32_t> votes(static_cast<size_t>(plan.k));
    double seconds[4];
    std::vector<float> logits;
    std::vector<int32_t> probed, candidates;
    Counts counts{};
    {
      nb::gil_scoped_release unlocked;
      const Borrowed<SearchScratch> borrowed(*pool_, layout_);
      Scratch& scratch = borrowed->prepare(plan);
      std::fill_n(scratch.seconds, 4, 0.0);
      scratch.now = now;
      scratch.last = now();
      const bool finite = kernels_.search_block(layout_, plan, selector, nullptr, kPlain,
                                                query.data(), 1, scratch, distances.data(),
                                                items.data(), nullptr);
      scratch.now = nullptr;
      if (!finite) throw std::invalid_argument("The queries must be finite.");
      std::copy_n(scratch.seconds, 4, seconds);
      counts = scratch.counts;
      if (!plan.exact)
        logits.assign(scratch.logits, scratch.logits + layout_.repetitions * layout_.buckets);
      probed.assign(scratch.probed, scratch.probed + counts.probed);
      candidates.assign(scratch.touched, scratch.touched + scratch.counts.last);
      if (!counts.exact) kernels_.count_votes(layout_, selector, scratch);
      for (size_t t = 0; t < items.size(); ++t)
        votes[t] = items[t] < 0 || counts.exact ? 0 : scratch.votes[items[t]];
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
    out["chosen"] = counts.chosen;
    out["level"] = counts.level;
    out["exact"] = counts.exact;
    out["strange"] = counts.strange;
    out["seconds"] = nb::make_tuple(seconds[0], seconds[1], seconds[2], seconds[3]);
    return out;
  }

 private:
  void require(const SearchPlan& plan) const {
    check_plan(plan);
    if ((plan.score == kCodes || plan.picked > 0) && layout_.codes.pieces == 0)
      throw std::invalid_argument("The plan scores by codes, and the index has none.");
  }

  static constexpr int64_t kWork = 8;  // columns of `work`

  // A filter is a mask (N), and rows (m) if they are known. Where all items are compared at once, rows
  // are all that is read: those of all items that may be found. Then they are checked.
  Selector read_selector(const Mask& allowed, const Listed& rows, const Mask& removed,
                         bool exact) const {
    Selector selector{};
    selector.allowed = read_mask("allowed", allowed);
    selector.removed = read_mask("removed", removed);
    if (exact ? selector.has_mask() && !rows : rows && !allowed)
      throw std::invalid_argument("A filter must have a mask, or rows if all items are compared.");
    if (exact) selector.allowed = selector.removed = nullptr;
    if (!rows) return selector;
    selector.rows = rows->data();
    selector.count = static_cast<int64_t>(rows->shape(0));
    if (exact ? !are_items(selector.rows, selector.count, layout_.items)
              : selector.count > layout_.items)
      throw std::invalid_argument("The rows of a filter must be rows of the index.");
    return selector;
  }

  const uint8_t* read_mask(const char* name, const Mask& mask) const {
    if (!mask) return nullptr;
    check_shape(name, *mask, {layout_.items});
    return reinterpret_cast<const uint8_t*>(mask->data());
  }

  const int64_t* read_ids(const Ids& ids) const {
    if (!ids) return nullptr;
    if (static_cast<int64_t>(ids->shape(0)) != layout_.items)
      check_shape("ids", *ids, {layout_.items});
    return ids->data();
  }

  // Let `rows` go on in chunks, which must hold `added` rows. Return the table of the chunks.
  template <class T>
  std::vector<const T*> hold_rows(Rows<T>& rows, const std::vector<nb::object>& chunks, int64_t dim,
                                  int64_t added) {
    std::vector<const T*> table;
    for (const nb::object& chunk : chunks) {
      Array<const T> array;
      if (!nb::try_cast<Array<const T>>(chunk, array, false))
        throw std::invalid_argument("Chunks must be contiguous, of the type that kernels read.");
      int64_t size = 1;
      for (size_t axis = 0; axis < array.ndim(); ++axis)
        size *= static_cast<int64_t>(array.shape(axis));
      if (table.empty())
        while ((dim << rows.shift) < size) ++rows.shift;
      if (size != dim << rows.shift)
        throw std::invalid_argument("Each chunk must hold the same power of two of rows.");
      table.push_back(array.data());
      held_.push_back(chunk);
    }
    if (static_cast<int64_t>(table.size()) << rows.shift < added)
      throw std::invalid_argument("The chunks must hold all rows that were added.");
    rows.added = table.data();
    return table;
  }

  void add_run(const nb::object& object) {
    Fields fields(object);
    const int64_t R = layout_.repetitions, B = layout_.buckets, pieces = layout_.codes.pieces;
    Run run{};
    run.offsets = fields.get<int64_t>("offsets", {R, B + 1});
    run.items = fields.get<int32_t>("items", {-1});
    if (pieces) {
      run.block_offsets = fields.get<int64_t>("block_offsets", {R, B + 1});
      run.blocks = fields.get<uint8_t>("blocks", {-1, pieces / 2, kLanes});
    }
    check_run(layout_, run, fields.shape("items")[0], pieces ? fields.shape("blocks")[0] : 0);
    for (nb::object& array : fields.take()) held_.push_back(std::move(array));
    layout_.runs[layout_.run_count++] = run;
  }

  std::vector<nb::object> held_;
  VectorLayout layout_;
  std::vector<const float*> vectors_, lengths_;  // chunks
  std::vector<const int8_t*> bytes_;
  std::shared_ptr<RoundedCentroids> centroids_;
  const Kernels& kernels_ = kernels();
  std::shared_ptr<Pool<SearchScratch>> pool_ = std::make_shared<Pool<SearchScratch>>(), larger_;
  int64_t more_ = 0;  // items that the scratch memory of `larger_` has room for
};

}  // namespace

void bind_search(nb::module_& m) {
  // What Python leaves out has the value that changes nothing.
  nb::class_<SearchPlan>(m, "SearchPlan", "The parameters of a search, as the kernels read them.")
      .def("__init__",
           [](SearchPlan* plan) {
             new (plan) SearchPlan{};
             plan->k = plan->levels = plan->min_votes = 1;
             plan->thresholds[0] = plan->likely = -HUGE_VAL;
             plan->fill = true;
             plan->start = -1;
             plan->exact_from = plan->far = HUGE_VAL;
             plan->score = kLogProbability;
           })
      .def_rw("k", &SearchPlan::k)
      .def_prop_rw(
          "thresholds",
          [](const SearchPlan& plan) {
            return std::vector<double>(plan.thresholds, plan.thresholds + plan.levels);
          },
          [](SearchPlan& plan, const std::vector<double>& values) {
            plan.levels = read_levels(values, plan.thresholds);
          })
      .def_prop_rw(
          "centroids",
          [](const SearchPlan& plan) {
            return std::vector<double>(plan.centroids, plan.centroids + plan.levels);
          },
          [](SearchPlan& plan, const std::vector<double>& values) {
            if (read_levels(values, plan.centroids) != plan.levels)
              throw std::invalid_argument("A SearchPlan must have centroids for each threshold.");
          })
      .def_rw("probes", &SearchPlan::probes)
      .def_rw("fill", &SearchPlan::fill)
      .def_rw("start", &SearchPlan::start)
      .def_rw("exact_from", &SearchPlan::exact_from)
      .def_rw("exact", &SearchPlan::exact)
      .def_rw("likely", &SearchPlan::likely)
      .def_rw("unsure", &SearchPlan::unsure)
      .def_rw("far", &SearchPlan::far)
      .def_rw("wide", &SearchPlan::wide)
      .def_rw("picked", &SearchPlan::picked)
      .def_rw("length", &SearchPlan::length)
      .def_prop_rw(
          "score", [](const SearchPlan& plan) { return static_cast<int64_t>(plan.score); },
          [](SearchPlan& plan, int64_t score) { plan.score = static_cast<Score>(score); })
      .def_rw("min_votes", &SearchPlan::min_votes)
      .def_rw("candidates", &SearchPlan::candidates)
      .def_rw("by_score", &SearchPlan::by_score);

  const auto as_is = [](const char* name) { return nb::arg(name).noconvert(); };
  nb::class_<VectorSearcher>(m, "VectorSearcher", "A vector index that threads can search.")
      .def(nb::init<nb::handle>(), nb::arg("layout"))
      .def(nb::init<VectorSearcher&, int64_t, const std::vector<nb::object>&,
                    const std::vector<nb::object>&, const std::vector<nb::object>&,
                    const std::vector<nb::object>&>(),
           nb::arg("base"), nb::arg("items"), nb::arg("runs"), nb::arg("vectors"), nb::arg("bytes"),
           nb::arg("lengths"))
      .def("search", &VectorSearcher::search, as_is("queries"), nb::arg("plan"),
           as_is("allowed").none(), as_is("rows").none(), as_is("removed").none(),
           as_is("ids").none(), nb::arg("form"), nb::arg("first"), nb::arg("last"),
           as_is("distances"), as_is("items"), as_is("work").none() = nb::none(),
           as_is("routed").none() = nb::none())
      .def("search_one", &VectorSearcher::search_one, nb::arg("query"), nb::arg("plan"),
           nb::arg("ids"), nb::arg("form"), nb::arg("distances"), nb::arg("items"),
           as_is("allowed").none() = nb::none(), as_is("rows").none() = nb::none(),
           as_is("removed").none() = nb::none())
      .def("route", &VectorSearcher::route, as_is("queries"), as_is("out"))
      .def("route_part", &VectorSearcher::route_part, as_is("query"), nb::arg("plan"),
           nb::arg("form"), nb::arg("first"), nb::arg("last"), as_is("out"))
      .def("explain", &VectorSearcher::explain, as_is("query"), nb::arg("plan"),
           as_is("allowed").none(), as_is("rows").none(), as_is("removed").none() = nb::none());
}

}  // namespace irli
