// One step of training, in two phases. Each can be cut into parts that threads run side by side. A
// number depends on one part only, and sums have one order: so the threads change no bit.
//
//   learn_forward   rows: features, logits, loss, the gradients of logits and features
//   update_*        weights: their gradients over all rows of the batch, and a step of Adam

// --- forward ------------------------------------------------------------------------------------

// A number that looks random, for each number.
inline uint32_t mix(uint32_t value) {
  value ^= value >> 16;
  value *= 0x85ebca6bu;
  value ^= value >> 13;
  value *= 0xc2b2ae35u;
  return value ^ value >> 16;
}

inline uint32_t mix_long(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>(value ^ value >> 31);
}

// Write a dense query less the centre, by the scale. Before that it is moved by about `noise`.
inline void standardize(const TrainedNetwork& net, const float* query, float noise, uint32_t key,
                        float* x) {
  const float scale = net.scale;
  if (noise == 0) {
    for (int64_t j = 0; j < net.dim; ++j) x[j] = (query[j] - net.centre[j]) * scale;
    return;
  }
  // Even numbers between -half and half have the deviation half / sqrt(3).
  const float half = noise * sqrtf(3.0f / static_cast<float>(net.dim));
  const float step = half * (1.0f / 2147483648.0f);
  for (int64_t j = 0; j < net.dim; ++j) {
    const uint32_t drawn = mix(key + static_cast<uint32_t>(j) * 0x9e3779b9u);
    const float moved = query[j] + step * static_cast<float>(static_cast<int32_t>(drawn));
    x[j] = (moved - net.centre[j]) * scale;
  }
}

// Write the features of some rows: what the ReLU lets pass, too.
inline void find_features(const TrainedNetwork& net, const QueryRows& queries, const int64_t* rows,
                          int64_t count, const float* x, float* features) {
  const int64_t width = net.width, step = net.width_step;
  if (queries.dense)
    multiply_matrix({x, net.dim_step, 1}, count, net.dim, net.project.values, step, width, features,
                    step);
  for (int64_t i = 0; i < count; ++i) {
    float* row = features + i * step;
    if (!queries.dense) {
      memset(row, 0, static_cast<size_t>(step) * sizeof(float));
      for (int64_t e = queries.starts[rows[i]]; e < queries.starts[rows[i] + 1]; ++e) {
        const float* weights = net.project.values + queries.columns[e] * step;
        const Floats value = fill(queries.values[e] * net.scale);
        for (int64_t j = 0; j < width; j += 16)
          store(row + j, fused(value, load(weights + j), load(row + j)));
      }
    }
    for (int64_t j = 0; j < width; ++j) row[j] += net.shift.values[j];
    for (int64_t j = net.linear; j < width; ++j) row[j] = row[j] > 0 ? row[j] : 0;
  }
}

// Write the logits of head `head` for some rows, before they are softened.
inline void find_logits(const TrainedNetwork& net, int64_t head, const float* features,
                        int64_t count, float* logits, int64_t step) {
  const float* bias = net.bias.values + head * net.head_step;
  for (int64_t low = 0; low < net.head_step; low += kWide) {
    const float* panel = net.panels + (head * net.head_step + low) * net.width;
    multiply_matrix({features, net.width_step, 1}, count, net.width, panel, kWide, kWide,
                    logits + low, step);
  }
  for (int64_t i = 0; i < count; ++i)
    for (int64_t b = 0; b < net.head_step; ++b) logits[i * step + b] += bias[b];
}

// Make the logits of one row and head smaller, the farther the query is from all buckets: see
// `soften_logits` in search.inl. Return by what they are multiplied. `lean` becomes how fast that
// grows with the largest logit.
inline float soften(const TrainedNetwork& net, const float* x, float* logits, float& lean) {
  lean = 0;
  if (!(net.near > 0)) return 1;
  const float distance = dot(x, x, net.dim) - net.slope * find_largest(logits, net.buckets);
  if (!(distance > 0)) return 1;
  const float factor = 1 / (1 + net.near * smaller_of(distance, net.most));
  if (distance < net.most) lean = factor * factor * net.near * net.slope;
  for (int64_t b = 0; b < net.buckets; ++b) logits[b] *= factor;
  return factor;
}

// Turn the gradient of softened logits into that of the logits as they were, `raw`.
inline void harden_gradient(const TrainedNetwork& net, const float* raw, float factor, float lean,
                            float* gradient) {
  const float sum = lean > 0 ? dot(gradient, raw, net.buckets) : 0;
  for (int64_t b = 0; b < net.buckets; ++b) gradient[b] *= factor;
  if (!(lean > 0)) return;
  const float top = find_largest(raw, net.buckets);
  for (int64_t b = 0; b < net.buckets; ++b)
    if (raw[b] == top) {
      gradient[b] += sum * lean;
      return;
    }
}

// List the buckets of a pair's item, and return how many they are.
inline int64_t list_buckets(const Examples& given, int64_t head, int64_t pair, int32_t* places) {
  const int32_t* buckets = given.assignments[head] + given.item(pair) * given.copies;
  int64_t count = 0;
  for (int64_t c = 0; c < given.copies; ++c) {
    places[count] = buckets[c];
    count += buckets[c] >= 0;
  }
  return count;
}

inline Floats bounded_exponential(const Floats& x) {
  return exponential(larger(smaller(x, fill(0)), fill(-60.0f)));
}

// Cross-entropy on the buckets of the relevant items: an item with two buckets is found in either of
// them. Replace the logits of a row by their gradient, and return the loss.
inline double learn_softmax(const TrainedNetwork& net, const Examples& given,
                            const TrainingStep& step, int64_t head, int64_t i, float* logits,
                            TrainingScratch& scratch) {
  const int64_t row = step.rows[i];
  const float all = log_sum_exp(logits, net.buckets);
  double loss = 0;
  float sum = 0;
  int64_t found = 0;
  for (int64_t p = given.starts[row]; p < given.starts[row + 1]; ++p) {
    const float weight = given.weights[p] * step.shares[i];
    int32_t* places = scratch.places + found;
    const int64_t count = list_buckets(given, head, p, places);
    if (count == 0 || !(weight > 0)) continue;
    float top = logits[places[0]], together = 0;
    for (int64_t c = 1; c < count; ++c) top = larger_of(top, logits[places[c]]);
    for (int64_t c = 0; c < count; ++c) together += expf(logits[places[c]] - top);
    loss += static_cast<double>(weight) * static_cast<double>(all - top - logf(together));
    sum += weight;
    const float part = weight / (together * step.total);
    for (int64_t c = 0; c < count; ++c)
      scratch.shares[found + c] = part * expf(logits[places[c]] - top);
    found += count;
  }
  const Floats factor = fill(sum / step.total), level = fill(all);
  for (int64_t b = 0; b < net.buckets; b += 16)
    store(logits + b, multiply(factor, bounded_exponential(subtract(load(logits + b), level))));
  for (int64_t t = 0; t < found; ++t) logits[scratch.places[t]] -= scratch.shares[t];
  return loss / static_cast<double>(step.total);
}

// List the buckets that hold a relevant item, each once. Return how many they are.
inline int64_t list_targets(const Examples& given, int64_t head, int64_t row,
                            TrainingScratch& scratch) {
  int64_t found = 0;
  for (int64_t p = given.starts[row]; p < given.starts[row + 1]; ++p) {
    int32_t* places = scratch.places + found;
    const int64_t count = list_buckets(given, head, p, places);
    int64_t kept = 0;
    for (int64_t c = 0; c < count; ++c) {
      const int32_t place = places[c];
      places[kept] = place;
      kept += !scratch.marked[place];
      scratch.marked[place] = 1;
    }
    found += kept;
  }
  for (int64_t t = 0; t < found; ++t) scratch.marked[scratch.places[t]] = 0;
  return found;
}

// The sum of the logarithms of 16 numbers.
inline double sum_logs(const Floats& numbers) {
  float lanes[16];
  store(lanes, numbers);
  double total = 0;
  for (const float lane : lanes) total += static_cast<double>(logf(lane));
  return total;
}

// Binary cross-entropy over "the bucket holds a relevant item", with a sigmoid (the authors' code).
inline double learn_sigmoid(const TrainedNetwork& net, const Examples& given,
                            const TrainingStep& step, int64_t head, int64_t i, float* logits,
                            TrainingScratch& scratch) {
  const float part = 1 / static_cast<float>(step.count * net.heads * net.buckets);
  const int64_t found = list_targets(given, head, step.rows[i], scratch);
  double loss = 0;
  for (int64_t t = 0; t < found; ++t) loss -= static_cast<double>(logits[scratch.places[t]]);
  for (int64_t b = net.buckets; b < net.head_step; ++b) logits[b] = -60;  // adds next to nothing
  const Floats none = fill(0), one = fill(1), share = fill(part);
  // log(1 + exp(-|x|)) of 64 vectors together: a product of so many numbers up to 2 is a float.
  for (int64_t low = 0; low < net.buckets; low += 16 * 64) {
    Floats product = one, positive = none;
    for (int64_t b = low; b < smaller_of(low + 16 * 64, net.buckets); b += 16) {
      const Floats x = load(logits + b), below = smaller(x, none);
      const Floats other = subtract(none, larger(x, none));
      const Floats sum = add(one, bounded_exponential(add(below, other)));  // below + other is -|x|
      product = multiply(product, sum);
      positive = subtract(positive, other);
      store(logits + b, multiply(share, divide(bounded_exponential(below), sum)));
    }
    loss += sum_logs(product) + static_cast<double>(sum(positive));
  }
  for (int64_t t = 0; t < found; ++t) logits[scratch.places[t]] -= part;
  return loss * static_cast<double>(part);
}

// The same with a softmax (the paper's text). No bucket is so unlikely that none learns.
inline double learn_softmax_bce(const TrainedNetwork& net, const Examples& given,
                                const TrainingStep& step, int64_t head, int64_t i, float* logits,
                                TrainingScratch& scratch) {
  constexpr float kSure = 1 - 1e-7f;
  const float part = 1 / static_cast<float>(step.count * net.heads * net.buckets);
  const int64_t found = list_targets(given, head, step.rows[i], scratch);
  const float all = log_sum_exp(logits, net.buckets);
  double loss = 0;
  for (int64_t t = 0; t < found; ++t) loss += static_cast<double>(all - logits[scratch.places[t]]);
  float* chances = scratch.chances;
  for (int64_t b = 0; b < net.buckets; b += 16)
    store(chances + b, bounded_exponential(subtract(load(logits + b), fill(all))));
  float product = 1, sum = 0;  // of 1 - p, which all p together keep from 0
  for (int64_t b = 0; b < net.buckets; ++b) {
    const float p = smaller_of(chances[b], kSure);
    product *= 1 - p;
    logits[b] = chances[b] < kSure ? p / (1 - p) : 0;
    sum += logits[b];
  }
  for (int64_t t = 0; t < found; ++t) {
    const int32_t place = scratch.places[t];
    loss += static_cast<double>(logf(1 - smaller_of(chances[place], kSure)));
    sum -= 1 + logits[place];
    logits[place] = -1;
  }
  loss -= static_cast<double>(logf(product));
  for (int64_t b = 0; b < net.buckets; ++b) logits[b] = part * (logits[b] - chances[b] * sum);
  return loss * static_cast<double>(part);
}

// Replace the logits of a row by their gradient. Return the loss.
inline double learn_row(const TrainedNetwork& net, const Examples& given, const TrainingStep& step,
                        Loss loss, int64_t i, const float* x, float* logits,
                        TrainingScratch& scratch) {
  const auto learn = loss == kSoftmax      ? learn_softmax
                     : loss == kSigmoidBce ? learn_sigmoid
                                           : learn_softmax_bce;
  double total = 0;
  for (int64_t head = 0; head < net.heads; ++head, logits += net.head_step) {
    float lean;
    if (net.near > 0) memcpy(scratch.raw, logits, static_cast<size_t>(net.buckets) * sizeof(float));
    const float factor = soften(net, x, logits, lean);
    total += learn(net, given, step, head, i, logits, scratch);
    if (factor < 1) harden_gradient(net, scratch.raw, factor, lean, logits);
    for (int64_t b = net.buckets; b < net.head_step; ++b) logits[b] = 0;
  }
  return total;
}

// Answer the rows from `first` to `last` of a batch, and write the gradients of their logits and
// features.
[[maybe_unused]] void learn_forward(const TrainedNetwork& net, const Examples& given,
                                    const TrainingStep& step, Loss loss, int64_t first,
                                    int64_t last, const TrainingMemory& memory,
                                    TrainingScratch& scratch) {
  const int64_t outputs = net.heads * net.head_step;
  for (; first < last; first += kRowsTogether) {
    const int64_t count = smaller_of(kRowsTogether, last - first);
    float* x = memory.x + first * net.dim_step;
    float* features = memory.features + first * net.width_step;
    float* logits = memory.logits + first * outputs;
    float* backwards = memory.backwards + first * net.width_step;
    for (int64_t i = 0; given.queries.dense && i < count; ++i) {
      const int64_t row = step.rows[first + i];
      const uint64_t place = static_cast<uint64_t>(step.first + first + i);
      standardize(net, given.queries.dense + row * net.dim, given.noise ? given.noise[row] : 0,
                  mix_long(given.seed + place * 0x9e3779b97f4a7c15ull), x + i * net.dim_step);
    }
    find_features(net, given.queries, step.rows + first, count, x, features);
    for (int64_t head = 0; head < net.heads; ++head)
      find_logits(net, head, features, count, logits + head * net.head_step, outputs);
    for (int64_t i = 0; i < count; ++i)
      memory.losses[first + i] = learn_row(net, given, step, loss, first + i, x + i * net.dim_step,
                                           logits + i * outputs, scratch);
    multiply_matrix({logits, outputs, 1}, count, outputs, net.out.values, net.width_step, net.width,
                    backwards, net.width_step);
    for (int64_t i = 0; i < count * net.width_step; i += net.width_step)
      for (int64_t j = net.linear; j < net.width; ++j)
        backwards[i + j] = features[i + j] > 0 ? backwards[i + j] : 0;
  }
}

// Write the logits (count, head_step) of one head, as a search will see them.
[[maybe_unused]] void score_rows(const TrainedNetwork& net, const QueryRows& queries, int64_t head,
                                 const int64_t* rows, int64_t count, float* x, float* features,
                                 float* logits) {
  for (int64_t i = 0; queries.dense && i < count; ++i)
    standardize(net, queries.dense + rows[i] * net.dim, 0, 0, x + i * net.dim_step);
  find_features(net, queries, rows, count, x, features);
  find_logits(net, head, features, count, logits, net.head_step);
  float lean;
  for (int64_t i = 0; i < count; ++i)
    soften(net, x + i * net.dim_step, logits + i * net.head_step, lean);
}

// --- a step of Adam ---------------------------------------------------------------------------------

inline void descend(const Weights& weights, int64_t at, const float* gradient, const float* rates,
                    int64_t count, const TrainingStep& step) {
  constexpr float kFirst = 0.9f, kSecond = 0.999f, kLeast = 1e-8f;
  float *values = weights.values + at, *first = weights.first + at, *second = weights.second + at;
  const float mean = step.first_correction, square = step.second_correction, rate = step.rate;
  for (int64_t j = 0; j < count; ++j) {
    const float slope = gradient[j];
    first[j] = kFirst * first[j] + (1 - kFirst) * slope;
    second[j] = kSecond * second[j] + (1 - kSecond) * (slope * slope);
    values[j] -= rate * rates[j] * (mean * first[j]) / (sqrtf(square * second[j]) + kLeast);
  }
}

[[maybe_unused]] void copy_panel(const TrainedNetwork& net, int64_t first) {
  pack_panel(net.out.values + first * net.width_step, kWide, net.width_step, net.width,
             net.panels + first * net.width);
}

// Learn the rows of `out` and `bias` from `first` to `last`, whole panels.
[[maybe_unused]] void update_out(const TrainedNetwork& net, const TrainingStep& step,
                                 const TrainingMemory& memory, int64_t first, int64_t last,
                                 TrainingScratch& scratch) {
  const int64_t outputs = net.heads * net.head_step, width = net.width_step;
  for (; first < last; first += kWide) {
    const float* logits = memory.logits + first;
    multiply_matrix({logits, 1, outputs}, kWide, step.count, memory.features, width, net.width,
                    scratch.gradient, width);
    for (int64_t r = 0; r < kWide; ++r)
      descend(net.out, (first + r) * width, scratch.gradient + r * width, net.ones, net.width,
              step);
    float sums[kWide] = {};
    for (int64_t i = 0; i < step.count; ++i)
      for (int64_t r = 0; r < kWide; ++r) sums[r] += logits[i * outputs + r];
    descend(net.bias, first, sums, net.ones, kWide, step);
    copy_panel(net, first);
  }
}

// Learn some rows of `project`: of all columns of dense queries, or of those that sparse rows have.
[[maybe_unused]] void update_project(const TrainedNetwork& net, const TrainingStep& step,
                                     const TrainingMemory& memory, int64_t first, int64_t last,
                                     TrainingScratch& scratch) {
  const int64_t width = net.width_step;
  float* gradient = scratch.gradient;
  if (net.sparse) {
    for (; first < last; ++first) {
      memset(gradient, 0, static_cast<size_t>(width) * sizeof(float));
      for (int32_t e = step.ends[first]; e < step.ends[first + 1]; ++e) {
        const float* row = memory.backwards + step.entry_rows[e] * width;
        const Floats value = fill(step.entry_values[e] * net.scale);
        for (int64_t j = 0; j < net.width; j += 16)
          store(gradient + j, fused(value, load(row + j), load(gradient + j)));
      }
      descend(net.project, step.touched[first] * width, gradient, net.project_rates, net.width,
              step);
    }
    return;
  }
  for (; first < last; first += kRowsTogether) {
    const int64_t count = smaller_of(kRowsTogether, last - first);
    multiply_matrix({memory.x + first, 1, net.dim_step}, count, step.count, memory.backwards, width,
                    net.width, gradient, width);
    for (int64_t r = 0; r < count; ++r)
      descend(net.project, (first + r) * width, gradient + r * width, net.project_rates, net.width,
              step);
  }
}

[[maybe_unused]] void update_shift(const TrainedNetwork& net, const TrainingStep& step,
                                   const TrainingMemory& memory, TrainingScratch& scratch) {
  float* gradient = scratch.gradient;
  memset(gradient, 0, static_cast<size_t>(net.width_step) * sizeof(float));
  for (int64_t i = 0; i < step.count; ++i)
    for (int64_t j = 0; j < net.width; ++j) gradient[j] += memory.backwards[i * net.width_step + j];
  descend(net.shift, 0, gradient, net.shift_rates, net.width, step);
}
