#include "training_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "cpu.h"
#include "exposed.h"
#include "layouts.h"
#include "trainer.h"

namespace irli {
namespace {

using Numbers = std::vector<double>;

int64_t up(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

bool is_plain(const Kernels* kernels) { return std::string(kernels->name) == "plain"; }

// A matrix of a network with its moments. Rows are padded. Of every `period` rows, the first `filled`
// are in use.
struct Part {
  const char* name;
  int64_t rows, columns, step, period, filled;
  Exact<float> values, first, second;

  bool used(int64_t at) const { return at % step < columns && at / step % period < filled; }
  int64_t draw(Source& source) const {
    const int64_t row = source.draw(0, rows / period - 1) * period + source.draw(0, filled - 1);
    return row * step + source.draw(0, columns - 1);
  }
};

// Queries and their relevant items, a network, and the memory that they point to.
struct Lesson {
  NetworkShape shape{};
  int64_t queries, items, copies, most = 0;
  Loss loss;
  float scale, near, most_near, slope;
  Exact<float> dense, values, noise, weights, centre, project_rates, shift_rates;
  Exact<int64_t> query_starts, starts, long_items;
  Exact<int32_t> columns, short_items;
  std::vector<Exact<int32_t>> assignments;
  std::vector<const int32_t*> places;
  Examples given{};
};

Exact<int64_t> draw_starts(Source& source, int64_t rows, int64_t longest) {
  Exact<int64_t> starts(rows + 1);
  for (int64_t i = 0; i < rows; ++i) starts[i + 1] = starts[i] + source.draw(0, longest);
  return starts;
}

Lesson make_lesson(Source& source) {
  Lesson lesson;
  const bool sparse = source.coin();
  const int64_t dim = source.between(1, 20), linear = sparse ? 0 : source.between(0, 5);
  lesson.shape = {dim,
                  linear,
                  linear + source.one_of({1, 5, 30, 35}),
                  source.between(1, 2),
                  source.one_of({1, 2, 15, 31, 32, 33, 70}),
                  sparse};
  lesson.queries = source.between(1, 9);
  lesson.items = source.between(1, 12);
  lesson.copies = source.between(0, 2);
  lesson.loss = static_cast<Loss>(source.below(3));
  lesson.scale = 0.5f;
  lesson.near = !sparse && source.coin() ? 0.7f : 0;
  lesson.most_near = source.coin() ? 3.0f : 0.1f;
  lesson.slope = 0.2f;
  Examples& given = lesson.given;
  if (sparse) {
    lesson.query_starts = draw_starts(source, lesson.queries, std::min<int64_t>(dim, 6));
    const int64_t entries = lesson.query_starts[lesson.queries];
    lesson.columns = Exact<int32_t>(entries);
    for (int32_t& column : lesson.columns) column = static_cast<int32_t>(source.draw(0, dim - 1));
    lesson.values = draw_floats(source, entries);
    given.queries = {nullptr, lesson.query_starts.data(), lesson.columns.data(),
                     lesson.values.data()};
  } else {
    lesson.dense = draw_floats(source, lesson.queries * dim);
    given.queries.dense = lesson.dense.data();
    if (source.coin()) {
      lesson.noise = Exact<float>(lesson.queries);
      for (float& noise : lesson.noise) noise = std::fabs(source.smooth());
      given.noise = lesson.noise.data();
    }
  }
  lesson.starts = draw_starts(source, lesson.queries, 4);
  for (int64_t i = 0; i < lesson.queries; ++i)
    lesson.most = std::max(lesson.most, lesson.starts[i + 1] - lesson.starts[i]);
  const int64_t pairs = lesson.starts[lesson.queries];
  lesson.weights = Exact<float>(pairs);
  lesson.short_items = Exact<int32_t>(pairs);
  lesson.long_items = Exact<int64_t>(pairs);
  for (int64_t p = 0; p < pairs; ++p) {
    lesson.weights[p] = source.draw(0, 4) ? std::fabs(source.value()) : 0;
    lesson.long_items[p] = source.draw(0, lesson.items - 1);
    lesson.short_items[p] = static_cast<int32_t>(lesson.long_items[p]);
  }
  given.starts = lesson.starts.data();
  given.weights = lesson.weights.data();
  if (source.coin()) {
    given.items = lesson.short_items.data();
  } else {
    given.long_items = lesson.long_items.data();
  }
  for (int64_t head = 0; head < lesson.shape.heads; ++head) {
    Exact<int32_t> assignment(lesson.items * lesson.copies);
    for (int32_t& bucket : assignment)
      bucket =
          static_cast<int32_t>(source.draw(source.draw(0, 3) ? 0 : -1, lesson.shape.buckets - 1));
    lesson.assignments.push_back(std::move(assignment));
    lesson.places.push_back(lesson.assignments.back().data());
  }
  given.assignments = lesson.places.data();
  given.copies = lesson.copies;
  given.seed = source.bits();
  lesson.centre = draw_floats(source, dim);
  const int64_t step = up(lesson.shape.width, kWide);
  lesson.project_rates = Exact<float>(step);
  lesson.shift_rates = Exact<float>(step);
  for (int64_t j = 0; j < lesson.shape.width; ++j) {
    lesson.project_rates[j] = 1 + source.smooth();
    lesson.shift_rates[j] = 1 + source.smooth();
  }
  return lesson;
}

Part make_part(Source& source, const char* name, std::array<int64_t, 5> sizes, float scale) {
  const auto [rows, columns, step, period, filled] = sizes;
  Part part{name,
            rows,
            columns,
            step,
            period,
            filled,
            Exact<float>(rows * step),
            Exact<float>(rows * step),
            Exact<float>(rows * step)};
  for (int64_t at = 0; at < rows * step; ++at)
    if (part.used(at)) {
      part.values[at] = scale * source.value();
      part.first[at] = 0.01f * source.smooth();
      part.second[at] = 0.01f + std::fabs(0.01f * source.smooth());
    }
  return part;
}

// project, shift, out and bias.
std::vector<Part> draw_parts(Source& source, const NetworkShape& shape) {
  const int64_t width = shape.width, step = up(width, kWide);
  const int64_t head_step = up(shape.buckets, kWide), outputs = shape.heads * head_step;
  std::vector<Part> parts;
  parts.push_back(make_part(source, "project", {shape.dim, width, step, 1, 1}, 0.7f));
  parts.push_back(make_part(source, "shift", {1, width, step, 1, 1}, 0.5f));
  parts.push_back(make_part(source, "out", {outputs, width, step, head_step, shape.buckets}, 0.5f));
  // As a column, so that the same rows are in use.
  parts.push_back(make_part(source, "bias", {outputs, 1, 1, head_step, shape.buckets}, 0.5f));
  return parts;
}

// A batch of the lesson, sorted by columns in a simple way.
struct Prepared {
  Exact<int64_t> rows;
  std::vector<float> shares, entry_values;
  std::vector<int32_t> touched, ends{0}, entry_rows;
  TrainingStep step{};
};

void prepare(const Lesson& lesson, Prepared& batch) {
  double taught = 0;
  for (const int64_t row : batch.rows) {
    double total = 0;
    for (int64_t p = lesson.starts[row]; p < lesson.starts[row + 1]; ++p)
      total += static_cast<double>(lesson.weights[p]);
    batch.shares.push_back(total > 0 ? static_cast<float>(1 / total) : 0);
    taught += total > 0;
  }
  std::map<int32_t, std::vector<std::pair<int64_t, float>>> found;
  for (int64_t i = 0; lesson.shape.sparse && i < batch.rows.size(); ++i)
    for (int64_t e = lesson.query_starts[batch.rows[i]]; e < lesson.query_starts[batch.rows[i] + 1];
         ++e)
      found[lesson.columns[e]].emplace_back(i, lesson.values[e]);
  for (const auto& [column, entries] : found) {
    batch.touched.push_back(column);
    for (const auto& [row, value] : entries) {
      batch.entry_rows.push_back(static_cast<int32_t>(row));
      batch.entry_values.push_back(value);
    }
    batch.ends.push_back(static_cast<int32_t>(batch.entry_rows.size()));
  }
  const float total = static_cast<float>(std::max(taught, 1.0)) *
                      static_cast<float>(lesson.shape.heads);
  batch.step = {batch.rows.data(),
                batch.rows.size(),
                0,
                batch.shares.data(),
                total,
                static_cast<int64_t>(batch.touched.size()),
                batch.touched.data(),
                batch.ends.data(),
                batch.entry_rows.data(),
                batch.entry_values.data(),
                0.01f,
                1 / (1 - 0.9f),
                1 / (1 - 0.999f)};
}

// What a step of one back-end leaves.
struct Stepped {
  std::vector<Part> parts;
  Exact<float> x;
  Exact<double> losses;
};

TrainedNetwork make_network(const Lesson& lesson, std::vector<Part>& parts, float* panels,
                            const float* ones) {
  const NetworkShape& shape = lesson.shape;
  TrainedNetwork net{};
  net.dim = shape.dim;
  net.linear = shape.linear;
  net.width = shape.width;
  net.heads = shape.heads;
  net.buckets = shape.buckets;
  net.sparse = shape.sparse;
  net.dim_step = shape.sparse ? 0 : shape.dim;
  net.width_step = parts[0].step;
  net.head_step = parts[2].period;
  Weights* const weights[] = {&net.project, &net.shift, &net.out, &net.bias};
  for (size_t p = 0; p < 4; ++p)
    *weights[p] = {parts[p].values.data(), parts[p].first.data(), parts[p].second.data()};
  net.panels = panels;
  net.project_rates = lesson.project_rates.data();
  net.shift_rates = lesson.shift_rates.data();
  net.ones = ones;
  net.centre = lesson.centre.data();
  net.scale = lesson.scale;
  net.near = lesson.near;
  net.most = lesson.most_near;
  net.slope = lesson.slope;
  return net;
}

Stepped take_step(const Kernels& kernels, const Lesson& lesson, const Prepared& batch, bool wild,
                  const std::vector<Part>& before) {
  Stepped done;
  for (const Part& part : before) {
    Part copy{part.name,
              part.rows,
              part.columns,
              part.step,
              part.period,
              part.filled,
              Exact<float>(part.values.size()),
              Exact<float>(part.values.size()),
              Exact<float>(part.values.size())};
    std::copy(part.values.begin(), part.values.end(), copy.values.begin());
    std::copy(part.first.begin(), part.first.end(), copy.first.begin());
    std::copy(part.second.begin(), part.second.end(), copy.second.begin());
    done.parts.push_back(std::move(copy));
  }
  const int64_t outputs = before[2].rows, width = before[0].step, count = batch.step.count;
  Exact<float> panels(outputs * lesson.shape.width), ones(std::max(width, kWide));
  std::fill(ones.begin(), ones.end(), 1.0f);
  const TrainedNetwork net = make_network(lesson, done.parts, panels.data(), ones.data());
  done.x = Exact<float>(count * net.dim_step);
  done.losses = Exact<double>(count);
  Exact<float> features(count * width), backwards(count * width), logits(count * outputs);
  const TrainingMemory memory{done.x.data(), features.data(), backwards.data(), logits.data(),
                              done.losses.data()};
  Exact<float> gradient(kRowsTogether * width), raw(net.head_step), chances(net.head_step);
  Exact<uint8_t> marked(net.head_step);
  const int64_t places_count = lesson.most * lesson.copies;
  Exact<int32_t> places(places_count);
  Exact<float> shares(places_count);
  TrainingScratch scratch{gradient.data(), raw.data(),    chances.data(),
                          marked.data(),   places.data(), shares.data()};
  for (int64_t first = 0; first < outputs; first += kWide) kernels.copy_panel(net, first);
  kernels.learn_forward(net, lesson.given, batch.step, lesson.loss, 0, count, memory, scratch);
  kernels.update_out(net, batch.step, memory, 0, outputs, scratch);
  kernels.update_project(net, batch.step, memory, 0,
                         net.sparse ? batch.step.touched_count : net.dim, scratch);
  kernels.update_shift(net, batch.step, memory, scratch);
  for (const uint8_t mark : marked) CHECK(mark == 0);
  for (const Part& part : done.parts)  // what pads rows stays 0, and so do rows of no bucket
    for (int64_t at = 0; at < part.values.size(); ++at)
      if (!part.used(at)) CHECK(wild || part.values[at] == 0);
  // The panels are those of the new weights.
  for (int64_t row = 0; row < outputs; ++row)
    for (int64_t j = 0; j < net.width; ++j)
      CHECK(same(panels[(row / kWide * net.width + j) * kWide + row % kWide],
                 net.out.values[row * width + j]));
  return done;
}

double log_sum(const double* logits, const std::vector<int64_t>& places) {
  double top = -HUGE_VAL, total = 0;
  for (const int64_t place : places) top = std::max(top, logits[place]);
  for (const int64_t place : places) total += std::exp(logits[place] - top);
  return top + std::log(total);
}

// The loss of one row and head by the definitions.
double find_loss(const Lesson& lesson, const Prepared& batch, int64_t i, int64_t head,
                 const double* logits) {
  const int64_t row = batch.rows[i], buckets = lesson.shape.buckets;
  std::vector<int64_t> all;
  for (int64_t b = 0; b < buckets; ++b) all.push_back(b);
  std::vector<bool> holds(static_cast<size_t>(buckets));
  double loss = 0;
  for (int64_t p = lesson.starts[row]; p < lesson.starts[row + 1]; ++p) {
    std::vector<int64_t> mine;
    for (int64_t c = 0; c < lesson.copies; ++c) {
      const int32_t bucket =
          lesson.assignments[static_cast<size_t>(head)][lesson.long_items[p] * lesson.copies + c];
      if (bucket < 0) continue;
      mine.push_back(bucket);
      holds[static_cast<size_t>(bucket)] = true;
    }
    if (mine.empty()) continue;
    const double weight = static_cast<double>(lesson.weights[p]) *
                          static_cast<double>(batch.shares[static_cast<size_t>(i)]);
    loss += weight * (log_sum(logits, all) - log_sum(logits, mine));
  }
  if (lesson.loss == kSoftmax) return loss / static_cast<double>(batch.step.total);
  loss = 0;
  const double whole = log_sum(logits, all);
  for (int64_t b = 0; b < buckets; ++b) {
    const bool held = holds[static_cast<size_t>(b)];
    if (lesson.loss == kSigmoidBce) {
      const double z = held ? -logits[b] : logits[b];
      loss += std::max(z, 0.0) + std::log1p(std::exp(-std::fabs(z)));
    } else {
      const double p = std::min(std::exp(logits[b] - whole), static_cast<double>(1 - 1e-7f));
      loss -= held ? logits[b] - whole : std::log(1 - p);
    }
  }
  return loss / static_cast<double>(batch.step.count * lesson.shape.heads * buckets);
}

// The loss of a batch by the definitions, for weights that are padded as those of the network.
double find_loss(const Lesson& lesson, const Prepared& batch, const float* x,
                 const std::vector<Numbers>& weights, int64_t step, int64_t head_step) {
  const NetworkShape& shape = lesson.shape;
  double total = 0;
  for (int64_t i = 0; i < batch.rows.size(); ++i) {
    Numbers row(static_cast<size_t>(shape.dim)), features;
    if (shape.sparse) {
      for (int64_t e = lesson.query_starts[batch.rows[i]];
           e < lesson.query_starts[batch.rows[i] + 1]; ++e)
        row[static_cast<size_t>(lesson.columns[e])] += static_cast<double>(lesson.values[e]) *
                                                       static_cast<double>(lesson.scale);
    } else {
      std::copy_n(x + i * shape.dim, shape.dim, row.begin());
    }
    for (int64_t j = 0; j < shape.width; ++j) {
      double sum = weights[1][static_cast<size_t>(j)];
      for (int64_t d = 0; d < shape.dim; ++d)
        sum += row[static_cast<size_t>(d)] * weights[0][static_cast<size_t>(d * step + j)];
      features.push_back(j < shape.linear ? sum : std::max(sum, 0.0));
    }
    double length = 0;
    for (const double value : row) length += value * value;
    for (int64_t head = 0; head < shape.heads; ++head) {
      Numbers logits;
      for (int64_t b = 0; b < shape.buckets; ++b) {
        const int64_t place = head * head_step + b;
        double sum = weights[3][static_cast<size_t>(place)];
        for (int64_t j = 0; j < shape.width; ++j)
          sum += features[static_cast<size_t>(j)] *
                 weights[2][static_cast<size_t>(place * step + j)];
        logits.push_back(sum);
      }
      const double far = length - static_cast<double>(lesson.slope) *
                                      *std::max_element(logits.begin(), logits.end());
      const double softer = 1 + static_cast<double>(lesson.near) *
                                    std::clamp(far, 0.0, static_cast<double>(lesson.most_near));
      for (double& logit : logits) logit /= softer;
      total += find_loss(lesson, batch, i, head, logits.data());
    }
  }
  return total;
}

// Dense queries less the centre, by the scale. Noise moves each of them, but not far.
void check_queries(const Lesson& lesson, const Prepared& batch, const Exact<float>& x) {
  const int64_t dim = lesson.shape.dim;
  for (int64_t i = 0; !lesson.shape.sparse && i < batch.rows.size(); ++i) {
    const int64_t row = batch.rows[i];
    const double noise = lesson.noise.size() ? static_cast<double>(lesson.noise[row]) : 0;
    const double most = noise * std::sqrt(3.0 / static_cast<double>(dim)) *
                        static_cast<double>(lesson.scale);
    for (int64_t j = 0; j < dim; ++j) {
      const double still = (static_cast<double>(lesson.dense[row * dim + j]) -
                            static_cast<double>(lesson.centre[j])) *
                           static_cast<double>(lesson.scale);
      CHECK(std::fabs(static_cast<double>(x[i * dim + j]) - still) <= most * 1.0001 + 1e-5);
    }
  }
}

// The gradients that the moments tell of, by finite differences. What Adam makes of them.
void check_gradients(Source& source, const Lesson& lesson, const Prepared& batch,
                     const std::vector<Part>& before, const Stepped& after) {
  const int64_t step = before[0].step, head_step = before[2].period;
  std::vector<Numbers> weights;
  for (const Part& part : before) weights.emplace_back(part.values.begin(), part.values.end());
  const auto measure = [&] {
    return find_loss(lesson, batch, after.x.data(), weights, step, head_step);
  };
  double total = 0;
  for (const double loss : after.losses) total += loss;
  const double right = measure();
  CHECK(std::fabs(total - right) <= 1e-4 * (std::fabs(right) + 0.1));
  const double rate = static_cast<double>(batch.step.rate);
  for (size_t p = 0; p < 4; ++p) {
    const Part &old = before[p], &now = after.parts[p];
    for (int time = 0; time < 4; ++time) {
      const int64_t at = old.draw(source);
      constexpr double kGap = 1e-5;
      double& weight = weights[p][static_cast<size_t>(at)];
      const double middle = weight;
      weight = middle + kGap;
      const double above = measure();
      weight = middle - kGap;
      const double below = measure();
      weight = middle;
      const double slope = (above - below) / (2 * kGap);
      const double first = static_cast<double>(now.first[at]);
      const double second = static_cast<double>(now.second[at]);
      const bool learned =
          p > 0 || !lesson.shape.sparse ||
          std::count(batch.touched.begin(), batch.touched.end(), static_cast<int32_t>(at / step));
      if (!learned) {
        CHECK(slope == 0 && same(now.values[at], old.values[at]) &&
              same(now.first[at], old.first[at]) && same(now.second[at], old.second[at]));
        continue;
      }
      const double gradient = (first - 0.9 * static_cast<double>(old.first[at])) / 0.1;
      // Of both sides of a corner, a ReLU or the largest logit, the gradient has one.
      const bool corner = std::fabs(above + below - 2 * right) > 1e-2 * kGap * std::fabs(slope);
      if (!corner) CHECK(std::fabs(gradient - slope) <= 1e-3 * (std::fabs(slope) + 0.01));
      const double square = 0.999 * static_cast<double>(old.second[at]) +
                            0.001 * gradient * gradient;
      CHECK(std::fabs(second - square) <= 1e-5 * square);
      const float column = p == 0   ? lesson.project_rates[at % step]
                           : p == 1 ? lesson.shift_rates[at]
                                    : 1;
      const double moved =
          rate * static_cast<double>(column) * first *
          static_cast<double>(batch.step.first_correction) /
          (std::sqrt(second * static_cast<double>(batch.step.second_correction)) + 1e-8);
      CHECK(near(now.values[at], middle - moved, 1 + std::fabs(middle)));
    }
  }
}

void check_same(const Part& one, const Part& other) {
  CHECK(same(one.values.data(), other.values.data(), one.values.size()));
  CHECK(same(one.first.data(), other.first.data(), one.values.size()));
  CHECK(same(one.second.data(), other.second.data(), one.values.size()));
}

Exact<int64_t> draw_rows(Source& source, int64_t count, int64_t queries) {
  Exact<int64_t> rows(count);
  for (int64_t& row : rows) row = source.draw(0, queries - 1);
  return rows;
}

// All numbers of a trainer that learning changes.
std::vector<float> list_numbers(const Trainer& trainer) {
  std::vector<float> numbers;
  for (const std::string base : {"project", "shift", "out", "bias"})
    for (const std::string moment : {"", ".first", ".second"}) {
      const MatrixView view = trainer.find(base + moment);
      for (int64_t h = 0; h < view.heads; ++h)
        for (int64_t i = 0; i < view.rows; ++i) {
          const float* row = view.values + h * view.head_step + i * view.row_step;
          numbers.insert(numbers.end(), row, row + view.columns);
        }
    }
  return numbers;
}

void begin(Trainer& trainer, const Lesson& lesson, const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    const bool bias = &part == &parts.back();
    const std::pair<const char*, const Exact<float>*> moments[] = {{"", &part.values},
                                                                   {".first", &part.first},
                                                                   {".second", &part.second}};
    for (const auto& [moment, values] : moments) {
      const MatrixView view = trainer.find(std::string(part.name) + moment);
      const float* from = values->data();
      for (int64_t h = 0; h < view.heads; ++h, from += part.period * part.step)
        for (int64_t i = 0; i < view.rows; ++i)
          std::copy_n(from + i * (bias ? part.period : part.step), view.columns,
                      view.values + h * view.head_step + i * view.row_step);
    }
  }
  const std::pair<const char*, const float*> vectors[] = {{"centre", lesson.centre.data()},
                                                          {"project_rates",
                                                           lesson.project_rates.data()},
                                                          {"shift_rates",
                                                           lesson.shift_rates.data()}};
  for (const auto& [name, values] : vectors) {
    const MatrixView view = trainer.find(name);
    std::copy_n(values, view.columns, view.values);
  }
  trainer.set_scale(lesson.scale);
  trainer.soften(lesson.near, lesson.most_near, lesson.slope);
  trainer.refresh();
}

}  // namespace

void check_product(Source& source, int64_t count, int64_t depth, int64_t columns) {
  const Exact<float> rows = draw_floats(source, count * depth);
  const Exact<float> matrix = draw_floats(source, columns * depth);
  const Exact<float> offsets = draw_floats(source, columns);
  const int64_t step = up(columns, kWide);
  const bool exact = source.mood == kWhole, wild = source.mood == kWild;
  Exact<float> expected(count * columns);
  for (auto kernels = all_kernels().rbegin(); kernels != all_kernels().rend(); ++kernels) {
    Exact<float> panels(step * depth), scores(kRowsTogether * step), out(count * columns);
    Exact<int64_t> best(count);
    for (int64_t low = 0; low < columns; low += kWide)
      (*kernels)->pack_panel(matrix.data() + low * depth, std::min(kWide, columns - low), depth,
                             depth, panels.data() + low * depth);
    (*kernels)->score_columns(rows.data(), count, depth, panels.data(), offsets.data(), columns,
                              scores.data(), out.data());
    (*kernels)->find_best_columns(rows.data(), count, depth, panels.data(), offsets.data(), columns,
                                  scores.data(), best.data());
    if (kernels == all_kernels().rbegin()) std::copy(out.begin(), out.end(), expected.begin());
    for (int64_t i = 0; i < count; ++i) {
      CHECK(best[i] >= 0 && best[i] < columns);
      if (wild) continue;
      const float* row = out.data() + i * columns;
      CHECK(best[i] == std::max_element(row, row + columns) - row);  // the first of the largest
      if (!is_plain(*kernels)) CHECK(same(row, expected.data() + i * columns, columns));
      for (int64_t j = 0; j < columns; ++j) {
        double right = static_cast<double>(offsets[j]), size = std::fabs(right);
        for (int64_t d = 0; d < depth; ++d) {
          const double part = static_cast<double>(rows[i * depth + d]) *
                              static_cast<double>(matrix[j * depth + d]);
          right += part;
          size += std::fabs(part);
        }
        CHECK(exact ? static_cast<double>(row[j]) == right : near(row[j], right, 3 * size));
      }
    }
  }
}

void check_step(Source& source) {
  const Lesson lesson = make_lesson(source);
  const std::vector<Part> before = draw_parts(source, lesson.shape);
  Prepared batch;
  batch.rows = draw_rows(source, source.one_of({1, 3, 32, 35}), lesson.queries);
  prepare(lesson, batch);
  const bool wild = source.mood == kWild;
  const Stepped expected = take_step(*all_kernels().back(), lesson, batch, wild, before);
  for (const Kernels* kernels : all_kernels()) {
    const Stepped found = take_step(*kernels, lesson, batch, wild, before);
    if (wild) continue;
    check_queries(lesson, batch, found.x);
    // Sums of whole numbers meet the corners of ReLUs.
    if (source.mood == kSmooth) check_gradients(source, lesson, batch, before, found);
    if (is_plain(kernels)) continue;
    for (size_t p = 0; p < 4; ++p) check_same(found.parts[p], expected.parts[p]);
    CHECK(std::equal(found.losses.begin(), found.losses.end(), expected.losses.begin()));
  }
}

void check_trainer(Source& source) {
  const Lesson lesson = make_lesson(source);
  const std::vector<Part> before = draw_parts(source, lesson.shape);
  const int64_t count = source.one_of({1, 40, 100}), batch = source.one_of({1, 7, 32, 50, 200});
  const Exact<int64_t> rows = draw_rows(source, count, lesson.queries);
  const int64_t steps = (count + batch - 1) / batch;
  Exact<double> rates(steps);
  for (double& rate : rates) rate = 0.01;
  std::vector<float> expected;
  Exact<double> expected_losses(steps);
  for (const int64_t threads : {1, 2, 3, 5}) {
    Trainer trainer(lesson.shape);
    begin(trainer, lesson, before);
    Exact<double> losses(steps);
    const bool pieces = threads == 2;  // one batch at a time
    for (int64_t done = 0, step = 0; done < count;) {
      const int64_t some = pieces ? std::min(batch, count - done) : count - done;
      const int64_t learned = trainer.train(lesson.given, lesson.loss, rows.data() + done, some,
                                            done, batch, rates.data() + step, step, threads,
                                            losses.data() + step);
      CHECK(learned > 0 && learned <= some && (learned == some || learned % batch == 0));
      done += learned;
      step = (done + batch - 1) / batch;
    }
    const std::vector<float> numbers = list_numbers(trainer);
    if (threads == 1) {
      expected = numbers;
      std::copy(losses.begin(), losses.end(), expected_losses.begin());
    }
    CHECK(same(numbers.data(), expected.data(), static_cast<int64_t>(numbers.size())));
    for (int64_t step = 0; step < steps; ++step)
      CHECK(losses[step] == expected_losses[step] || losses[step] != losses[step]);
    // The first step is that of the kernels in use.
    if (steps > 1 || source.mood == kWild) continue;
    Prepared only;
    only.rows = Exact<int64_t>(count);
    std::copy(rows.begin(), rows.end(), only.rows.begin());
    prepare(lesson, only);
    only.step.first_correction = static_cast<float>(1 / (1 - std::pow(0.9, 1.0)));
    only.step.second_correction = static_cast<float>(1 / (1 - std::pow(0.999, 1.0)));
    const Stepped stepped = take_step(kernels(), lesson, only, false, before);
    Trainer again(lesson.shape);
    begin(again, lesson, stepped.parts);
    CHECK(same(list_numbers(again).data(), numbers.data(), static_cast<int64_t>(numbers.size())));
  }
}

}  // namespace irli
