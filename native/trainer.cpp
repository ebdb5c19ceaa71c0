#include "trainer.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <latch>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "cpu.h"

namespace irli {
namespace {

constexpr std::align_val_t kLine{64};
constexpr int64_t kConflict =
    1024;  // rows of a multiple of so many bytes fall into the same places
constexpr auto kSlice = std::chrono::milliseconds{100};  // after which an interrupt can be seen

int64_t pad(int64_t count, int64_t step) { return (count + step - 1) / step * step; }

// A length for rows of so many floats.
int64_t pad_row(int64_t count) {
  const int64_t wide = pad(std::max<int64_t>(count, 1), kWide);
  return wide * 4 % kConflict ? wide : wide + kWide;
}

// The part of `count` that thread `t` of `threads` works on, in whole `step`s.
std::pair<int64_t, int64_t> cut(int64_t count, int64_t step, int64_t t, int64_t threads) {
  const int64_t parts = pad(count, step) / step;
  return {std::min(count, parts * t / threads * step),
          std::min(count, parts * (t + 1) / threads * step)};
}

}  // namespace

void Aligned::Free::operator()(float* floats) const { ::operator delete[](floats, kLine); }

Aligned::Aligned(int64_t count) : size_(count) {
  if (count == 0) return;
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  floats_.reset(static_cast<float*>(::operator new[](bytes, kLine)));
  std::memset(floats_.get(), 0, bytes);
}

// What is known of one batch before it is learned.
struct Trainer::Batch {
  std::vector<float> shares;
  std::vector<int32_t> touched, ends, entry_rows;
  std::vector<float> entry_values;
  TrainingStep step{};
};

// Memory of one thread.
struct Trainer::Thread {
  Thread(const TrainedNetwork& network, int64_t most)
      : gradient(kRowsTogether * network.width_step),
        raw(network.head_step),
        chances(network.head_step),
        marked(static_cast<size_t>(network.head_step)),
        places(static_cast<size_t>(most) + 1),
        shares(static_cast<size_t>(most) + 1),
        scratch{gradient.data(), raw.data(),    chances.data(),
                marked.data(),   places.data(), shares.data()} {}

  Aligned gradient, raw, chances;
  std::vector<uint8_t> marked;
  std::vector<int32_t> places;
  std::vector<float> shares;
  TrainingScratch scratch;
};

Trainer::Trainer(const NetworkShape& shape) : shape_(shape) {
  TrainedNetwork& net = network_;
  net.dim = shape.dim;
  net.linear = shape.linear;
  net.width = shape.width;
  net.heads = shape.heads;
  net.buckets = shape.buckets;
  net.sparse = shape.sparse;
  net.dim_step = shape.sparse ? 0 : pad_row(shape.dim);
  net.width_step = pad_row(shape.width);
  net.head_step = pad(shape.buckets, kWide);
  net.scale = 1;
  const int64_t outputs = net.heads * net.head_step;
  const auto hold = [&](int64_t count) { return held_.emplace_back(count).data(); };
  for (auto [weights, count] : {std::pair{&net.project, net.dim * net.width_step},
                                {&net.shift, net.width_step},
                                {&net.out, outputs * net.width_step},
                                {&net.bias, outputs}})
    *weights = {hold(count), hold(count), hold(count)};
  net.panels = hold(outputs * net.width);
  net.centre = hold(net.dim);
  float* rates[3];
  for (float*& each : rates) {
    each = hold(std::max(net.width_step, kWide));
    std::fill_n(each, net.width_step, 1.0f);
  }
  net.project_rates = rates[0];
  net.shift_rates = rates[1];
  net.ones = rates[2];
  if (net.sparse) slots_.assign(static_cast<size_t>(net.dim), -1);
}

MatrixView Trainer::find(const std::string& name) const {
  const TrainedNetwork& net = network_;
  const size_t dot = name.find('.');
  const std::string base = name.substr(0, dot);
  const std::string moment = dot == std::string::npos ? "" : name.substr(dot + 1);
  const auto pick = [&](const Weights& weights) {
    return moment.empty()       ? weights.values
           : moment == "first"  ? weights.first
           : moment == "second" ? weights.second
                                : nullptr;
  };
  if (base == "project") return {pick(net.project), 1, net.dim, net.width, 0, net.width_step};
  if (base == "shift") return {pick(net.shift), 1, 1, net.width, 0, 0};
  if (base == "out")
    return {pick(net.out), net.heads, net.buckets, net.width, net.head_step * net.width_step,
            net.width_step};
  if (base == "bias") return {pick(net.bias), 1, net.heads, net.buckets, 0, net.head_step};
  if (!moment.empty()) return {};
  if (base == "centre") return {const_cast<float*>(net.centre), 1, 1, net.dim, 0, 0};
  if (base == "project_rates")
    return {const_cast<float*>(net.project_rates), 1, 1, net.width, 0, 0};
  if (base == "shift_rates") return {const_cast<float*>(net.shift_rates), 1, 1, net.width, 0, 0};
  return {};
}

void Trainer::refresh() {
  for (int64_t first = 0; first < network_.heads * network_.head_step; first += kWide)
    kernels().copy_panel(network_, first);
}

void Trainer::soften(float near, float most, float slope) {
  network_.near = shape_.sparse ? 0 : near;  // sparse queries have no centroids
  network_.most = most;
  network_.slope = slope;
}

// Find the weights of the rows of a batch, and sort the entries of sparse rows by their columns.
void Trainer::prepare(const Examples& given, const int64_t* rows, int64_t count, Batch& batch) {
  batch.shares.assign(static_cast<size_t>(count), 0);
  int64_t taught = 0;
  for (int64_t i = 0; i < count; ++i) {
    double total = 0;
    for (int64_t p = given.starts[rows[i]]; p < given.starts[rows[i] + 1]; ++p)
      total += static_cast<double>(given.weights[p]);
    if (!(total > 0)) continue;
    batch.shares[static_cast<size_t>(i)] = static_cast<float>(1 / total);
    ++taught;
  }
  TrainingStep& step = batch.step;
  step.rows = rows;
  step.count = count;
  step.shares = batch.shares.data();
  step.total = static_cast<float>(std::max<int64_t>(taught, 1) * network_.heads);
  if (!network_.sparse) return;
  const QueryRows& queries = given.queries;
  batch.touched.clear();
  batch.ends.assign(1, 0);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t e = queries.starts[rows[i]]; e < queries.starts[rows[i] + 1]; ++e) {
      const int32_t column = queries.columns[e];
      int32_t& slot = slots_[static_cast<size_t>(column)];
      if (slot < 0) {
        slot = static_cast<int32_t>(batch.touched.size());
        batch.touched.push_back(column);
        batch.ends.push_back(0);
      }
      ++batch.ends[static_cast<size_t>(slot) + 1];
    }
  for (size_t t = 1; t < batch.ends.size(); ++t) batch.ends[t] += batch.ends[t - 1];
  batch.entry_rows.resize(static_cast<size_t>(batch.ends.back()));
  batch.entry_values.resize(batch.entry_rows.size());
  std::vector<int32_t> next(batch.ends.begin(), batch.ends.end() - 1);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t e = queries.starts[rows[i]]; e < queries.starts[rows[i] + 1]; ++e) {
      const size_t slot = static_cast<size_t>(slots_[static_cast<size_t>(queries.columns[e])]);
      const size_t place = static_cast<size_t>(next[slot]++);
      batch.entry_rows[place] = static_cast<int32_t>(i);
      batch.entry_values[place] = queries.values[e];
    }
  for (const int32_t column : batch.touched) slots_[static_cast<size_t>(column)] = -1;
  step.touched_count = static_cast<int64_t>(batch.touched.size());
  step.touched = batch.touched.data();
  step.ends = batch.ends.data();
  step.entry_rows = batch.entry_rows.data();
  step.entry_values = batch.entry_values.data();
}

int64_t Trainer::train(const Examples& given, Loss loss, const int64_t* rows, int64_t count,
                       int64_t first, int64_t batch, const double* rates, int64_t steps_before,
                       int64_t threads, double* losses) {
  if (count == 0) return 0;
  const TrainedNetwork& net = network_;
  const Kernels& kernel = kernels();
  const int64_t outputs = net.heads * net.head_step;
  int64_t most = 0;
  for (int64_t i = 0; i < count; ++i)
    most = std::max(most, given.starts[rows[i] + 1] - given.starts[rows[i]]);
  batch = std::min(batch, count);
  const Aligned x(batch * net.dim_step), features(batch * net.width_step),
      backwards(batch * net.width_step), logits(batch * outputs);
  std::vector<double> row_losses(static_cast<size_t>(batch));
  const TrainingMemory memory{x.data(), features.data(), backwards.data(), logits.data(),
                              row_losses.data()};
  std::vector<std::unique_ptr<Thread>> own;
  for (int64_t t = 0; t < threads; ++t)
    own.push_back(std::make_unique<Thread>(net, most * given.copies));

  // While one batch is learned, the next one is prepared.
  Batch batches[2];
  const auto begin = [&](int64_t start, int64_t number) {
    Batch& next = batches[number % 2];
    prepare(given, rows + start, std::min(batch, count - start), next);
    const double done = static_cast<double>(steps_before + number + 1);
    next.step.first = first + start;
    next.step.rate = static_cast<float>(rates[number]);
    next.step.first_correction = static_cast<float>(1 / (1 - std::pow(0.9, done)));
    next.step.second_correction = static_cast<float>(1 / (1 - std::pow(0.999, done)));
  };
  begin(0, 0);
  std::optional<std::barrier<>> meeting;
  bool over = false;
  int64_t learned = 0;
  const auto until = std::chrono::steady_clock::now() + kSlice;

  const auto work = [&](int64_t t) {
    std::barrier<>& meet = *meeting;
    TrainingScratch& scratch = own[static_cast<size_t>(t)]->scratch;
    for (int64_t start = 0, number = 0; !over; start += batch, ++number) {
      const TrainingStep& step = batches[number % 2].step;
      const auto [row, row_end] = cut(step.count, kRowsTogether, t, threads);
      kernel.learn_forward(net, given, step, loss, row, row_end, memory, scratch);
      meet.arrive_and_wait();
      const auto [out, out_end] = cut(outputs, kWide, t, threads);
      kernel.update_out(net, step, memory, out, out_end, scratch);
      const auto [column, column_end] = net.sparse ? cut(step.touched_count, 1, t, threads)
                                                   : cut(net.dim, kRowsTogether, t, threads);
      kernel.update_project(net, step, memory, column, column_end, scratch);
      if (t == 0) {
        kernel.update_shift(net, step, memory, scratch);
        double total = 0;
        for (int64_t i = 0; i < step.count; ++i) total += row_losses[static_cast<size_t>(i)];
        losses[number] = total;
        learned = start + step.count;
        over = learned == count || std::chrono::steady_clock::now() > until;
        if (!over) begin(learned, number + 1);
      }
      meet.arrive_and_wait();
    }
  };
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(threads));
  std::latch ready(1);
  try {
    for (int64_t t = 1; t < threads; ++t)
      others.emplace_back([&, t] {
        ready.wait();
        work(t);
      });
  } catch (const std::system_error&) {  // there are no more of them: fewer do the same
    threads = static_cast<int64_t>(others.size()) + 1;
  }
  meeting.emplace(threads);
  ready.count_down();
  work(0);
  for (std::thread& other : others) other.join();
  return learned;
}

void Trainer::score(const QueryRows& queries, int64_t head, const int64_t* rows, int64_t count,
                    float* logits) const {
  const TrainedNetwork& net = network_;
  const Aligned x(kRowsTogether * net.dim_step), features(kRowsTogether * net.width_step),
      padded(kRowsTogether * net.head_step);
  for (int64_t start = 0; start < count; start += kRowsTogether) {
    const int64_t some = std::min(kRowsTogether, count - start);
    kernels().score_rows(net, queries, head, rows + start, some, x.data(), features.data(),
                         padded.data());
    for (int64_t i = 0; i < some; ++i)
      std::copy_n(padded.data() + i * net.head_step, net.buckets,
                  logits + (start + i) * net.buckets);
  }
}

}  // namespace irli
