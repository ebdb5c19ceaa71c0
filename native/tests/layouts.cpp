#include "layouts.h"

#include <algorithm>
#include <cmath>

namespace irli {
namespace {

int64_t up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// Random 8-bit weights (panels, fours, 64, 4) with zeros as padding, and 64 times their sums.
void draw_weights(Source& source, int64_t rows, int64_t columns, int8_t* tiles, int32_t* zero) {
  const int64_t fours = up(rows, 4) / 4;
  for (int64_t c = 0; c < columns; ++c) {
    int32_t total = 0;
    for (int64_t j = 0; j < rows; ++j) {
      const int64_t weight = source.mood == kWild ? source.draw(-128, 127) : source.draw(-127, 127);
      tiles[((c / kPanel * fours + j / 4) * kPanel + c % kPanel) * 4 + j % 4] =
          static_cast<int8_t>(weight);
      total += static_cast<int32_t>(weight);
    }
    zero[c] = 64 * total;
  }
}

void make_router(Source& source, Planted& planted) {
  const Shape& shape = planted.shape;
  VectorLayout& layout = planted.layout;
  const int64_t R = shape.repetitions, B = shape.buckets, G = shape.width;
  layout.width = G;
  layout.linear = source.between(0, G);
  planted.project = draw_floats(source, R * shape.dim * G);
  planted.shift = draw_floats(source, R * G);
  planted.bias = draw_floats(source, R * B);
  planted.step = draw_floats(source, R * B);
  planted.router_centre = draw_floats(source, R * shape.dim);
  planted.soften = draw_floats(source, R * 3);
  for (float& value : planted.soften) value = std::fabs(value);  // none is negative
  if (shape.router == Shape::kInt8) {
    const int64_t size = up(B, kPanel) * up(G, 4);
    planted.bytes = Exact<int8_t>(R * size);
    planted.zero = Exact<int32_t>(R * B);
    for (int64_t r = 0; r < R; ++r)
      draw_weights(source, G, B, planted.bytes.data() + r * size, planted.zero.data() + r * B);
    layout.bytes = planted.bytes.data();
    layout.zero = planted.zero.data();
  } else {
    planted.weights = draw_floats(source, R * G * B);
    layout.weights = planted.weights.data();
  }
  layout.project = planted.project.data();
  layout.shift = planted.shift.data();
  layout.bias = planted.bias.data();
  layout.step = planted.step.data();
  layout.centre = planted.router_centre.data();
  layout.soften = planted.soften.data();
}

void make_projection(Source& source, Planted& planted) {
  const Shape& shape = planted.shape;
  Projection& projection = planted.layout.projection;
  const int64_t columns = shape.repetitions * shape.width + shape.pieces * shape.size;
  projection.columns = columns;
  planted.centre = draw_floats(source, shape.dim);
  planted.scale = draw_floats(source, shape.dim);
  planted.column_step = draw_floats(source, columns);
  planted.column_bias = draw_floats(source, columns);
  planted.column_bytes = Exact<int8_t>(up(columns, kPanel) * up(shape.dim, 4));
  planted.column_zero = Exact<int32_t>(columns);
  draw_weights(source, shape.dim, columns, planted.column_bytes.data(), planted.column_zero.data());
  projection.centre = planted.centre.data();
  projection.scale = planted.scale.data();
  projection.bytes = planted.column_bytes.data();
  projection.step = planted.column_step.data();
  projection.zero = planted.column_zero.data();
  projection.bias = planted.column_bias.data();
}

// Put each item into `copies` random buckets of each repetition. Many buckets stay empty.
void make_buckets(Source& source, Planted& planted) {
  const Shape& shape = planted.shape;
  const int64_t R = shape.repetitions, B = shape.buckets;
  const int64_t spread = source.between(1, B);
  planted.offsets = Exact<int64_t>(R * (B + 1));
  std::vector<int32_t> all;
  for (int64_t r = 0; r < R; ++r) {
    std::vector<std::vector<int32_t>> buckets(static_cast<size_t>(B));
    for (int64_t item = 0; item < shape.items; ++item)
      for (int64_t copy = 0; copy < shape.copies; ++copy)
        buckets[static_cast<size_t>(source.draw(0, spread - 1))].push_back(
            static_cast<int32_t>(item));
    for (int64_t b = 0; b < B; ++b) {
      planted.offsets[r * (B + 1) + b] = static_cast<int64_t>(all.size());
      const std::vector<int32_t>& bucket = buckets[static_cast<size_t>(b)];
      all.insert(all.end(), bucket.begin(), bucket.end());
    }
    planted.offsets[r * (B + 1) + B] = static_cast<int64_t>(all.size());
  }
  planted.entries = static_cast<int64_t>(all.size());
  planted.items = Exact<int32_t>(planted.entries);
  std::copy(all.begin(), all.end(), planted.items.begin());
  planted.layout.run_count = 1;
  planted.layout.runs[0].offsets = planted.offsets.data();
  planted.layout.runs[0].items = planted.items.data();
}

void make_codes(Source& source, Planted& planted) {
  const Shape& shape = planted.shape;
  Codes& codes = planted.layout.codes;
  const int64_t R = shape.repetitions, B = shape.buckets, M = shape.pieces;
  codes.pieces = M;
  codes.size = shape.size;
  planted.code_rotation = draw_floats(source, shape.dim * M * shape.size);
  planted.code_shift = draw_floats(source, M * shape.size);
  planted.codewords = draw_floats(source, M * shape.size * kWords);
  planted.code_bias = draw_floats(source, M * kWords);
  std::vector<uint8_t> code(static_cast<size_t>(shape.items * M));
  for (uint8_t& one : code) one = static_cast<uint8_t>(source.draw(0, 15));
  planted.code_offsets = Exact<int64_t>(R * (B + 1));
  int64_t blocks = 0;
  for (int64_t at = 0; at < R * (B + 1); ++at) {
    planted.code_offsets[at] = blocks;
    if (at % (B + 1) < B)
      blocks += up(planted.offsets[at + 1] - planted.offsets[at], kLanes) / kLanes;
  }
  planted.blocks = blocks;
  planted.code_blocks = Exact<uint8_t>(blocks * M / 2 * kLanes);
  for (int64_t at = 0; at < R * (B + 1); ++at) {
    if (at % (B + 1) == B) continue;
    for (int64_t e = planted.offsets[at]; e < planted.offsets[at + 1]; ++e) {
      const int64_t place = e - planted.offsets[at], lane = place % kLanes;
      const uint8_t* own = code.data() + planted.items[e] * M;
      for (int64_t row = 0; row < M / 2; ++row)
        planted.code_blocks[((planted.code_offsets[at] + place / kLanes) * M / 2 + row) * kLanes +
                            2 * (lane % 16) + lane / 16] =
            static_cast<uint8_t>(own[2 * row] | own[2 * row + 1] << 4);
    }
  }
  codes.rotation = planted.code_rotation.data();
  codes.shift = planted.code_shift.data();
  codes.codewords = planted.codewords.data();
  codes.bias = planted.code_bias.data();
  planted.layout.runs[0].blocks = planted.code_blocks.data();
  planted.layout.runs[0].block_offsets = planted.code_offsets.data();
}

// 8-bit copies of the vectors, in 127 steps of the largest number of each dimension.
void make_int8(Source& source, Planted& planted) {
  const int64_t N = planted.shape.items, d = planted.shape.dim;
  planted.int8_bytes = Exact<int8_t>(N * d);
  planted.int8_step = Exact<float>(d);
  planted.int8_shift = Exact<float>(d);
  planted.int8_lengths = Exact<float>(planted.shape.metric == kL2 ? N : 0);
  for (int64_t j = 0; j < d; ++j) {
    float most = 0;
    for (int64_t i = 0; i < N; ++i) most = std::max(most, std::fabs(planted.vectors[i * d + j]));
    const float step = most < 1e30f ? most / 127 : 0;
    planted.int8_step[j] = step;
    planted.int8_shift[j] = planted.shape.metric == kL2 ? source.value() : 0;
    for (int64_t i = 0; i < N; ++i) {
      const float steps = step > 0 ? planted.vectors[i * d + j] / step : 0;
      planted.int8_bytes[i * d + j] =
          static_cast<int8_t>(std::fabs(steps) <= 127 ? std::lrint(steps) : 0);
    }
  }
  for (int64_t i = 0; i < planted.int8_lengths.size(); ++i) {
    double total = 0;
    for (int64_t j = 0; j < d; ++j) {
      const double gap = static_cast<double>(planted.vectors[i * d + j]) -
                         static_cast<double>(planted.int8_shift[j]);
      total += gap * gap;
    }
    planted.int8_lengths[i] = static_cast<float>(total / 2);
  }
  Int8Vectors& int8 = planted.layout.int8;
  int8.present = true;
  int8.bytes = {planted.int8_bytes.data(), N, nullptr, 0};
  int8.step = planted.int8_step.data();
  int8.shift = planted.int8_shift.data();
  int8.lengths = {planted.int8_lengths.data(), N, nullptr, 0};
}

// The mean of each bucket of the first repetition. Empty buckets are infinitely far.
void make_centroids(Source& source, Planted& planted) {
  const int64_t d = planted.shape.dim, B = planted.shape.buckets;
  planted.mean_centre = Exact<float>(d);
  planted.mean_columns = Exact<float>(d * B);
  planted.mean_bias = Exact<float>(B);
  planted.mean_spread = Exact<float>(B);
  planted.mean_base = Exact<float>(B);
  planted.mean_reach = Exact<float>(B);
  if (planted.shape.metric == kL2)
    for (float& value : planted.mean_centre) value = source.value();
  for (int64_t b = 0; b < B; ++b) {
    const int64_t begin = planted.offsets[b], end = planted.offsets[b + 1];
    const float count = static_cast<float>(std::max<int64_t>(1, end - begin));
    planted.mean_bias[b] = begin == end ? -INFINITY : 0;
    planted.mean_spread[b] = std::fabs(source.value());
    planted.mean_base[b] = source.coin() ? 0 : -1;
    planted.mean_reach[b] = std::fabs(source.value());
    for (int64_t e = begin; e < end; ++e)
      for (int64_t j = 0; j < d; ++j) {
        const float value = planted.vectors[planted.items[e] * d + j] - planted.mean_centre[j];
        planted.mean_columns[j * B + b] += value / count;
        if (planted.shape.metric == kL2) planted.mean_bias[b] -= value * value / count / 2;
      }
  }
  Centroids& centroids = planted.layout.centroids;
  centroids.present = true;
  centroids.centre = planted.mean_centre.data();
  centroids.columns = planted.mean_columns.data();
  centroids.bias = planted.mean_bias.data();
  centroids.spread = planted.mean_spread.data();
  centroids.base = planted.mean_base.data();
  centroids.reach = planted.mean_reach.data();
  if (source.coin()) planted.rounded.emplace(planted.layout);
}

}  // namespace

Exact<float> draw_floats(Source& source, int64_t count) {
  Exact<float> values(count);
  for (float& value : values) value = source.value();
  return values;
}

Shape draw_shape(Source& source) {
  const std::initializer_list<int64_t> sizes = {1,  2,  3,  4,  5,  15, 16, 17, 31,  32,
                                                33, 47, 48, 49, 63, 64, 65, 80, 100, 129};
  Shape shape{};
  if (source.is_fuzzer()) {
    shape.items = source.one_of({1, 2, 33, 64, 100});
    shape.dim = source.one_of({1, 3, 16, 17, 65});
    shape.repetitions = source.between(1, 3);
    shape.buckets = source.one_of({1, 2, 5, 16, 33, 65});
    shape.width = source.one_of({1, 3, 16, 17, 33});
    shape.pieces = source.one_of({0, 2, 4, 12});
    shape.size = source.between(1, 2);
  } else {
    shape.items = source.one_of({1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 300});
    shape.dim = source.one_of(sizes);
    shape.repetitions = source.between(1, 4);
    shape.buckets = source.one_of(sizes);
    shape.width = source.one_of(sizes);
    shape.pieces = source.one_of({0, 2, 4, 8, 12, 32, 52, 516});
    shape.size = source.between(1, 3);
  }
  shape.router = static_cast<decltype(shape.router)>(source.below(2));
  shape.projection = source.coin();
  shape.prefilter = source.coin();
  shape.copies = source.one_of({1, 1, 1, 2, 0});
  shape.metric = source.coin() ? kL2 : kDot;
  shape.centroids = source.coin();
  return shape;
}

Planted make_layout(Source& source, const Shape& shape) {
  Planted planted;
  planted.shape = shape;
  VectorLayout& layout = planted.layout;
  layout.items = layout.room = shape.items;
  layout.dim = shape.dim;
  layout.repetitions = shape.repetitions;
  layout.buckets = shape.buckets;
  layout.metric = shape.metric;
  planted.vectors = draw_floats(source, shape.items * shape.dim);
  layout.vectors = {planted.vectors.data(), shape.items, nullptr, 0};
  make_router(source, planted);
  if (shape.projection) make_projection(source, planted);
  make_buckets(source, planted);
  if (shape.pieces) make_codes(source, planted);
  if (shape.prefilter) make_int8(source, planted);
  if (shape.centroids) make_centroids(source, planted);
  if (source.below(3) == 0) scatter(source, planted);
  return planted;
}

namespace {

// Keep the first rows in one piece, and put the others into chunks.
template <class T>
void cut_rows(Exact<T>& array, int64_t dim, int64_t kept, int64_t shift, Rows<T>& rows,
              std::vector<Exact<T>>& chunks, std::vector<const T*>& table) {
  const int64_t all = array.size() / dim;
  for (int64_t row = kept; row < all; row += int64_t{1} << shift) {
    Exact<T> chunk(dim << shift);
    const int64_t count = std::min(all - row, int64_t{1} << shift);
    std::copy_n(array.begin() + row * dim, count * dim, chunk.begin());
    table.push_back(chunk.data());
    chunks.push_back(std::move(chunk));
  }
  Exact<T> first(kept * dim);
  std::copy_n(array.begin(), kept * dim, first.begin());
  array = std::move(first);
  rows = {array.data(), kept, table.data(), shift};
}

}  // namespace

void scatter(Source& source, Planted& planted) {
  const Shape& shape = planted.shape;
  VectorLayout& layout = planted.layout;
  const int64_t kept = source.between(0, shape.items), shift = source.between(0, 3);
  cut_rows(planted.vectors, shape.dim, kept, shift, layout.vectors, planted.vector_chunks,
           planted.vector_table);
  if (layout.int8.present) {
    cut_rows(planted.int8_bytes, shape.dim, kept, shift, layout.int8.bytes, planted.byte_chunks,
             planted.byte_table);
    if (shape.metric != kL2) planted.int8_lengths = Exact<float>(shape.items);
    cut_rows(planted.int8_lengths, 1, kept, shift, layout.int8.lengths, planted.length_chunks,
             planted.length_table);
  }
  layout.room = shape.items + source.below(10);
  // Deal the entries of each bucket out to the runs, with their codes.
  const int64_t runs = source.between(1, 4), rows = shape.pieces / 2;
  std::vector<int64_t> run_of(static_cast<size_t>(planted.entries));
  for (int64_t& run : run_of) run = source.draw(0, runs - 1);
  const int64_t places = shape.repetitions * (shape.buckets + 1);
  std::vector<Planted::AddedRun> dealt;
  for (int64_t number = 0; number < runs; ++number) {
    Planted::AddedRun run{Exact<int64_t>(places), Exact<int64_t>(places), {}, {}};
    std::vector<int32_t> items;
    std::vector<uint8_t> blocks;
    for (int64_t at = 0; at < places; ++at) {
      run.offsets[at] = static_cast<int64_t>(items.size());
      run.block_offsets[at] = rows ? static_cast<int64_t>(blocks.size()) / (rows * kLanes) : 0;
      if (at % (shape.buckets + 1) == shape.buckets) continue;
      int64_t place = 0;
      for (int64_t e = planted.offsets[at]; e < planted.offsets[at + 1]; ++e) {
        if (run_of[static_cast<size_t>(e)] != number) continue;
        items.push_back(planted.items[e]);
        const int64_t lane = place++ % kLanes, old = e - planted.offsets[at];
        const auto slot = [](int64_t of) { return 2 * (of % 16) + of / 16; };
        if (rows && lane == 0) blocks.resize(blocks.size() + static_cast<size_t>(rows * kLanes));
        for (int64_t row = 0; row < rows; ++row)
          blocks[blocks.size() - static_cast<size_t>((rows - row) * kLanes - slot(lane))] =
              planted
                  .code_blocks[((planted.code_offsets[at] + old / kLanes) * rows + row) * kLanes +
                               slot(old % kLanes)];
      }
    }
    run.items = Exact<int32_t>(static_cast<int64_t>(items.size()));
    std::copy(items.begin(), items.end(), run.items.begin());
    run.blocks = Exact<uint8_t>(static_cast<int64_t>(blocks.size()));
    std::copy(blocks.begin(), blocks.end(), run.blocks.begin());
    dealt.push_back(std::move(run));
  }
  planted.offsets = std::move(dealt[0].offsets);
  planted.items = std::move(dealt[0].items);
  planted.entries = planted.items.size();
  if (rows) {
    planted.code_offsets = std::move(dealt[0].block_offsets);
    planted.code_blocks = std::move(dealt[0].blocks);
    planted.blocks = planted.code_blocks.size() / (rows * kLanes);
  }
  dealt.erase(dealt.begin());
  planted.runs = std::move(dealt);
  layout.run_count = 1;
  layout.runs[0] = {planted.offsets.data(), planted.items.data(), planted.code_offsets.data(),
                    planted.code_blocks.data()};
  for (const Planted::AddedRun& run : planted.runs)
    layout.runs[layout.run_count++] = {run.offsets.data(), run.items.data(),
                                       run.block_offsets.data(), run.blocks.data()};
}

void damage(Source& source, Planted& planted) {
  planted.damaged = true;
  VectorLayout& layout = planted.layout;
  for (int64_t times = source.between(1, 3); times > 0; --times) {
    switch (source.below(7)) {
      case 0: damage_one(source, planted.offsets); break;
      case 1: damage_one(source, planted.items); break;
      case 2: damage_one(source, planted.code_offsets); break;
      case 3: damage_one(source, planted.zero); break;
      case 4: damage_one(source, planted.column_zero); break;
      case 5: layout.linear = source.between(-2, layout.width + 2); break;
      case 6: layout.metric = static_cast<Metric>(source.one_of({-1, 2})); break;
    }
  }
}

SearchPlan draw_plan(Source& source, const Shape& shape) {
  SearchPlan plan{};
  plan.k = source.one_of({1, 2, 10, shape.items, shape.items + 5, 33});
  plan.probes = source.one_of({0, 1, 2, 5, shape.buckets - 1, shape.buckets, shape.buckets + 3});
  plan.min_votes = source.one_of({0, 1, 2, 3});
  plan.by_score = source.below(4) == 0;
  const bool by_distance = !plan.by_score && plan.min_votes <= 1;
  // None below k: with fewer, a search would go on and on.
  plan.candidates = source.one_of({0, plan.k, 2 * plan.k, plan.k + 7, plan.k + 1000});
  plan.score = static_cast<Score>(source.below(shape.pieces && by_distance ? 4 : 3));
  if (plan.score == kCodes)
    plan.candidates = std::min(std::max(plan.candidates, plan.k), kMostCandidates);
  plan.exact = by_distance && source.below(8) == 0;
  plan.levels = source.one_of({1, 3, kLevels});
  double threshold = static_cast<double>(-source.between(0, 40)) / 4, centroids = 0;
  for (int64_t level = 0; level < plan.levels; ++level) {
    plan.thresholds[level] = threshold;
    plan.centroids[level] = centroids;
    threshold -= static_cast<double>(source.draw(0, 8)) / 4;
    centroids += static_cast<double>(source.draw(0, 1) * source.draw(1, 5));
  }
  plan.start = source.coin() ? -1 : static_cast<double>(source.between(0, 20)) / 4;
  plan.exact_from = source.coin() ? INFINITY : static_cast<double>(source.between(0, 100)) / 4;
  plan.far = source.coin() ? INFINITY : static_cast<double>(source.between(-8, 40)) / 8;
  plan.likely = source.coin() ? -INFINITY : -static_cast<double>(source.between(0, 40)) / 4;
  plan.unsure = source.coin() ? 0 : static_cast<double>(source.between(0, 10)) / 10;
  plan.wide = source.one_of({0, 1, 3, shape.buckets, 1000});
  if (shape.pieces && by_distance) plan.picked = source.one_of({0, 1, 20, kMostCandidates});
  plan.fill = source.below(4) != 0;
  if (shape.metric == kDot && source.coin())
    plan.length = static_cast<double>(source.between(1, 8)) / 2;
  return plan;
}

Permits draw_permits(Source& source, int64_t items, bool exact) {
  Permits permits{Exact<uint8_t>(items), Exact<uint8_t>(items), Exact<uint8_t>(items), {}, {}};
  Selector& selector = permits.selector;
  const int64_t share = source.one_of({1, 2, 10, 1000});
  for (uint8_t& one : permits.allowed) one = source.draw(1, share) == 1;
  for (uint8_t& one : permits.removed) one = source.draw(1, 4) == 1;
  if (source.coin()) selector.removed = permits.removed.data();
  if (source.coin()) selector.allowed = permits.allowed.data();
  for (int64_t item = 0; item < items; ++item) permits.permitted[item] = selector.permits(item);
  const bool listed = exact ? selector.has_mask() : selector.allowed && source.coin();
  if (!listed) return permits;
  const Exact<uint8_t>& of = exact ? permits.permitted : permits.allowed;
  permits.rows = Exact<int32_t>(std::count(of.begin(), of.end(), 1));
  int32_t* row = permits.rows.begin();
  for (int64_t item = 0; item < items; ++item)
    if (of[item]) *row++ = static_cast<int32_t>(item);
  if (exact) selector = {};
  selector.rows = permits.rows.data();
  selector.count = permits.rows.size();
  return permits;
}

}  // namespace irli
