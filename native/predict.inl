// Label prediction, Algorithm 2 of the paper for labels, stage by stage:
//
//   route    the logits of all buckets, for a block of sparse rows
//   gather   probe the best buckets of each repetition, collect their labels and add up scores
//   keep     the candidates: the labels with the best scores
//   propose  more of them: the ranker's own best labels, and those of near rows
//   complete the routers' scores of all candidates, whoever proposed them
//   blend    one score from those of the routers, the ranker and near rows
//   write    the k best labels, best first
//
// `predict_block` runs all stages for up to kBlock rows.

// --- route --------------------------------------------------------------------------------------

constexpr int64_t kRowsAhead = 8;  // rows of weights that are prefetched ahead

// Write the features relu(shift + x' project) of a sparse row x with trunk t, for `Parts` times 16
// columns from `low` on. Products are rounded before they are added: so all back-ends agree.
template <int Parts>
inline void project_columns(const LabelLayout& layout, int64_t t, const SparseRows& rows,
                            int64_t row, int64_t low, float* out) {
  const int64_t width = layout.width, stop = rows.indptr[row + 1];
  const int8_t* project = layout.project + t * layout.dim * width;
  const float* scale = layout.project_scale + t * layout.dim;
  Floats total[Parts];
  for (int part = 0; part < Parts; ++part)
    total[part] = load(layout.shift + t * width + low + 16 * part);
  for (int64_t e = rows.indptr[row]; e < stop; ++e) {
    if (low == 0 && e + kRowsAhead < stop)
      fetch(project + rows.indices[e + kRowsAhead] * width, width);
    const int64_t feature = rows.indices[e];
    const Floats value = fill(rows.data[e] * scale[feature]);
    for (int part = 0; part < Parts; ++part)
      total[part] =
          add(total[part], multiply(value, widen(project + feature * width + low + 16 * part)));
  }
  for (int part = 0; part < Parts; ++part)
    store(out + low + 16 * part, larger(total[part], fill(0)));
}

// The same for the last few columns.
inline void project_rest(const LabelLayout& layout, int64_t t, const SparseRows& rows, int64_t row,
                         int64_t low, float* out) {
  const int64_t width = layout.width, columns = width - low;
  const int8_t* project = layout.project + t * layout.dim * width + low;
  const float* scale = layout.project_scale + t * layout.dim;
  Floats total = load_some(layout.shift + t * width + low, columns);
  for (int64_t e = rows.indptr[row]; e < rows.indptr[row + 1]; ++e) {
    const int64_t feature = rows.indices[e];
    const Floats value = fill(rows.data[e] * scale[feature]);
    total = add(total, multiply(value, widen_some(project + feature * width, columns)));
  }
  store_some(out + low, larger(total, fill(0)), columns);
}

inline void compute_features(const LabelLayout& layout, int64_t t, const SparseRows& rows,
                             int64_t row, float* out) {
  int64_t low = 0;
  for (; low + 64 <= layout.width; low += 64) project_columns<4>(layout, t, rows, row, low, out);
  for (; low + 16 <= layout.width; low += 16) project_columns<1>(layout, t, rows, row, low, out);
  if (low < layout.width) project_rest(layout, t, rows, row, low, out);
}

// Write the logits of repetition r: bias + step * scale * sums.
inline void scale_sums(const LabelLayout& layout, int64_t r, float step, const int32_t* sums,
                       float* logits) {
  const float* scale = layout.out_scale + r * layout.buckets;
  const float* bias = layout.bias + r * layout.buckets;
  for (int64_t b = 0; b < layout.buckets; b += 16) {
    const int64_t left = layout.buckets - b;
    const Floats factor = left < 16 ? load_some(scale + b, left) : load(scale + b);
    const Floats start = left < 16 ? load_some(bias + b, left) : load(bias + b);
    store(logits + b, fused(multiply(fill(step), factor), widen(sums + b), start));
  }
}

// Write the logits of the repetitions from `from` to `to` for `count` rows from `first` on.
inline void route_some(const LabelLayout& layout, const SparseRows& rows, int64_t first,
                       int64_t count, int64_t from, int64_t to, LabelScratch& scratch) {
  const int64_t panels = round_up(layout.buckets, kPanel) / kPanel;
  const int64_t fours = round_up(layout.width, 4) / 4;
  float steps[kBlock];
  for (int64_t r = from; r < to; ++r) {
    const bool shared = layout.trunks == 1;  // one trunk serves all repetitions
    for (int64_t i = 0; (r == from || !shared) && i < count; ++i) {
      float* features = scratch.features + i * scratch.width_floats;
      compute_features(layout, shared ? 0 : r, rows, first + i, features);
      steps[i] =
          round_to_bytes(features, layout.width, 0, 127, scratch.bytes + i * scratch.width_floats);
    }
    multiply_bytes(scratch.bytes, count, scratch.width_floats,
                   layout.out + r * panels * fours * 4 * kPanel, panels, fours, scratch.sums,
                   scratch.sum_columns);
    for (int64_t i = 0; i < count; ++i)
      scale_sums(layout, r, steps[i], scratch.sums + i * scratch.sum_columns,
                 scratch.logits + (i * layout.repetitions + r) * scratch.bucket_floats);
  }
}

// Write the logits of all buckets for `count` rows from `first` on, or take them over if other
// threads have written them.
inline void route(const LabelLayout& layout, const SparseRows& rows, int64_t first, int64_t count,
                  LabelScratch& scratch) {
  if (!scratch.routed)
    return route_some(layout, rows, first, count, 0, layout.repetitions, scratch);
  for (int64_t r = 0; r < count * layout.repetitions; ++r)
    memcpy(scratch.logits + r * scratch.bucket_floats, scratch.routed + r * layout.buckets,
           static_cast<size_t>(layout.buckets) * sizeof(float));
}

// Route one row as `predict_block` does, but only the repetitions from `first` to `last`.
[[maybe_unused]] void route_row_part(const LabelLayout& layout, const SparseRows& rows, int64_t row,
                                     int64_t first, int64_t last, LabelScratch& scratch) {
  route_some(layout, rows, row, 1, first, last, scratch);
}

// --- gather -------------------------------------------------------------------------------------

// List the best buckets in `places`. Of equal buckets the first are taken. Return how many.
inline int64_t probe(const float* logits, int64_t buckets, int64_t probes, int32_t* places) {
  const int64_t wanted = smaller_of(probes, buckets);
  const float cut = find_cut(logits, buckets, wanted);
  const int64_t count = find_at_least(logits, buckets, cut, places);
  if (count == wanted) return count;
  int64_t ties = wanted, kept = 0;
  for (int64_t p = 0; p < count; ++p) ties -= logits[places[p]] > cut;
  for (int64_t p = 0; p < count && kept < wanted; ++p) {
    const bool above = logits[places[p]] > cut;
    if (above || ties-- > 0) places[kept++] = places[p];
  }
  return kept;
}

// Add gain(entry) to the score of each label of a bucket. Return how many labels are found by now.
//
// Without branches: whether a label was found before cannot be predicted. The score of a label that
// was not found is -0. No sum is -0 as long as no gain is.
template <class Gain>
inline int64_t add_bucket(const int32_t* entries, const int64_t* ends, int64_t found,
                          LabelScratch& scratch, Gain gain) {
  float* scores = scratch.scores;
  int32_t* touched = scratch.touched;
  const int64_t stop = ends[1];
  for (int64_t e = ends[0]; e < stop; ++e) {
    const int32_t label = entries[e];
    const float score = scores[label];
    scores[label] = score + gain(e);
    touched[found] = label;
    found += is_negative_zero(score);
  }
  return found;
}

// The score of a label whose gains add up to `sum`.
inline float finish_score(const LabelLayout& layout, const LabelPlan& plan, int32_t label,
                          float sum, const LabelScratch& scratch) {
  if (plan.score == LabelScore::kVotes) return sum;
  if (plan.score != LabelScore::kProbability) return sum + (scratch.base + layout.prior[label]);
  return logf(larger_of(sum * (1.0f / static_cast<float>(layout.repetitions)), 1e-30f));
}

// Collect the labels that enough of the best buckets hold in `touched`, and their scores in
// `values`. Return how many labels they are.
inline int64_t gather(const LabelLayout& layout, const LabelPlan& plan, int64_t row,
                      LabelScratch& scratch) {
  const float each = 1.0f / static_cast<float>(layout.repetitions);
  const bool shared = plan.score == LabelScore::kProbability;
  int64_t found = 0;
  float base = 0;
  for (int64_t r = 0; r < layout.repetitions; ++r) {
    const float* logits = scratch.logits + (row * layout.repetitions + r) * scratch.bucket_floats;
    const int64_t probed = probe(logits, layout.buckets, plan.probes, scratch.places);
    float &total = scratch.totals[r] = 0, &weakest = scratch.weakest[r] = INFINITY;
    if (shared || plan.score == LabelScore::kLogProbability)
      total = log_sum_exp(logits, layout.buckets);
    for (int64_t p = 0; p < probed; ++p) weakest = smaller_of(weakest, logits[scratch.places[p]]);
    // Buckets that are not probed count like the weakest one.
    if (plan.score == LabelScore::kLogProbability) base += (weakest - total) * each;
    for (int64_t p = 0; p < probed; ++p) {
      const int32_t b = scratch.places[p];
      const int64_t* ends = layout.offsets + r * (layout.buckets + 1) + b;
      for (int64_t e = ends[0]; plan.min_votes > 1 && e < ends[1]; ++e)
        scratch.votes[layout.entries[e]] += 1;
      float value = 1;
      if (shared) value = expf(logits[b] - total);
      if (plan.score == LabelScore::kLogit) value = logits[b] * each;
      if (plan.score == LabelScore::kLogProbability) value = (logits[b] - weakest) * each;
      value += 0.0f;  // makes 0 of -0
      if (shared) {
        const float* share = layout.share;
        found = add_bucket(layout.entries, ends, found, scratch,
                           [=](int64_t e) { return value * share[e] + 0.0f; });
      } else {
        found = add_bucket(layout.entries, ends, found, scratch, [=](int64_t) { return value; });
      }
    }
  }
  scratch.base = base;
  int64_t kept = 0;
  for (int64_t t = 0; t < found; ++t) {
    const int32_t label = scratch.touched[t];
    const float score = scratch.scores[label];
    const bool enough = plan.min_votes <= 1 || scratch.votes[label] >= plan.min_votes;
    scratch.scores[label] = -0.0f;  // as it was before
    if (plan.min_votes > 1) scratch.votes[label] = 0;
    scratch.touched[kept] = label;
    scratch.values[kept] = finish_score(layout, plan, label, score, scratch);
    kept += enough;
  }
  return kept;
}

// --- keep ---------------------------------------------------------------------------------------

// Write the keys of the `wanted` best of `count` outputs with these values, in no order. The smaller
// output wins a tie. Return how many keys there are.
inline int64_t select_keys(const int32_t* outputs, const float* values, int64_t count,
                           int64_t wanted, LabelScratch& scratch) {
  const float cut = find_cut(values, count, wanted);
  const int64_t kept = find_at_least(values, count, cut, scratch.places);
  for (int64_t p = 0; p < kept; ++p) {
    const int32_t t = scratch.places[p];
    scratch.keys[p] = make_key(values[t], static_cast<uint32_t>(outputs[t]));
  }
  if (kept <= wanted) return kept;
  kth_largest(scratch.keys, kept, wanted);  // drops surplus ties
  return wanted;
}

// The same for the labels found.
inline int64_t select_best(int64_t count, int64_t wanted, LabelScratch& scratch) {
  return select_keys(scratch.touched, scratch.values, count, wanted, scratch);
}

// Keep the `wanted` labels with the best scores. Return how many are left.
inline int64_t keep_candidates(int64_t found, int64_t wanted, LabelScratch& scratch) {
  if (found <= wanted) return found;
  const int64_t kept = select_best(found, wanted, scratch);
  for (int64_t t = 0; t < kept; ++t) {
    scratch.touched[t] = static_cast<int32_t>(key_number(scratch.keys[t]));
    scratch.values[t] = key_value(scratch.keys[t]);
  }
  return kept;
}

// --- propose ------------------------------------------------------------------------------------

// Fetch what the features of a row lead to. They are far apart in memory.
inline void fetch_features(const PackedMatrix& matrix, const SparseRows& rows, int64_t row) {
  for (int64_t e = rows.indptr[row]; e < rows.indptr[row + 1]; ++e) {
    const int64_t start = matrix.starts[rows.indices[e]];
    prefetch(matrix.gaps + start);
    prefetch(matrix.weights + start);
  }
}

// Write the keys of the `wanted` best of some outputs, in no order. Return how many keys there are.
template <class Value>
inline int64_t select_outputs(const int32_t* outputs, int64_t count, int64_t wanted,
                              LabelScratch& scratch, Value value) {
  for (int64_t t = 0; t < count; ++t) scratch.order[t] = value(outputs[t]);
  return select_keys(outputs, scratch.order, count, wanted, scratch);
}

// Add the labels of `count` keys to the `found` candidates, unless they are among them. Return how
// many candidates there are. The routers' score of a label that they did not propose counts as the
// lowest of those that they did, unless it is completed.
inline int64_t propose(int64_t count, float lowest, int64_t found, LabelScratch& scratch) {
  for (int64_t t = 0; t < count; ++t) {
    const uint32_t label = key_number(scratch.keys[t]);
    scratch.touched[found] = static_cast<int32_t>(label);
    scratch.values[found] = lowest;
    found += !scratch.proposed[label];
    scratch.proposed[label] = 1;
  }
  return found;
}

// What a bucket adds to the score of a label that it holds, probed or not.
inline float find_gain(const LabelLayout& layout, const LabelPlan& plan, int64_t row,
                       const Home& home, const LabelScratch& scratch) {
  const int64_t r = home.repetition;
  const float logit =
      scratch.logits[(row * layout.repetitions + r) * scratch.bucket_floats + home.bucket];
  const float each = 1.0f / static_cast<float>(layout.repetitions);
  switch (plan.score) {
    case LabelScore::kProbability:
      return expf(logit - scratch.totals[r]) * layout.share[home.entry];
    case LabelScore::kLogit: return logit * each;
    case LabelScore::kLogProbability: return (logit - scratch.weakest[r]) * each;
    default: return logit >= scratch.weakest[r] ? 1.0f : 0.0f;
  }
}

// Let the routers score the candidates of a row by the buckets that hold them, probed or not, but for
// labels that they have not learned. Of two buckets of one repetition that hold a label, the better
// one counts.
inline void complete_scores(const LabelLayout& layout, const LabelPlan& plan, int64_t row,
                            int64_t found, LabelScratch& scratch) {
  for (int64_t t = 0; t < found; ++t) {
    const int32_t label = scratch.touched[t];
    if (label >= plan.complete) continue;
    const Home* home = layout.homes + layout.home_starts[label];
    const Home* end = layout.homes + layout.home_starts[label + 1];
    float sum = 0;
    while (home < end) {
      const int32_t r = home->repetition;
      float best = -INFINITY;
      for (; home < end && home->repetition == r; ++home)
        best = larger_of(best, find_gain(layout, plan, row, *home, scratch));
      sum += best;
    }
    scratch.values[t] = finish_score(layout, plan, label, sum, scratch);
  }
}

inline float compute_margin(const LabelLayout& layout, int32_t label, const LabelScratch& scratch) {
  return scratch.margins[label] * layout.ranker.scale[label] + layout.constant[label];
}

// Compute the margins of the labels that the features of a row have weights for.
inline void compute_row_margins(const LabelLayout& layout, const SparseRows& rows, int64_t row,
                                LabelScratch& scratch) {
  fetch_features(layout.ranker, rows, row);
  scratch.reached_count = add_products(rows, row, layout.ranker, scratch.margins, scratch.reached);
}

// Let the nearest known rows vote for their labels, with the squares of their cosines.
inline void count_near_votes(const LabelLayout& layout, const LabelPlan& plan,
                             const SparseRows& rows, int64_t row, LabelScratch& scratch) {
  fetch_features(layout.near, rows, row);
  const int64_t others = add_products(rows, row, layout.near, scratch.products, scratch.others);
  const int64_t near =
      select_outputs(scratch.others, others, plan.near, scratch, [&](int32_t other) {
        return scratch.products[other] * layout.near.scale[other];
      });
  for (int64_t t = 0; t < others; ++t) scratch.products[scratch.others[t]] = -0.0f;
  const float length = find_length(rows, row);
  for (int64_t t = 0; t < near; ++t) {
    const float cosine = key_value(scratch.keys[t]) / length, vote = cosine * cosine;
    if (!(cosine > 0 && vote > 0 && vote < INFINITY)) continue;
    const int64_t* ends = layout.near_starts + key_number(scratch.keys[t]);
    for (int64_t e = ends[0]; e < ends[1]; ++e) {
      const int32_t label = layout.near_labels[e];
      if (scratch.near_votes[label] == 0) scratch.voted[scratch.voted_count++] = label;
      scratch.near_votes[label] += vote;
    }
  }
}

// Whether there are other sources than the routers.
inline bool is_blended(const LabelPlan& plan) { return plan.by_margin > 0 || plan.near > 0; }

// Collect the candidates of row i of a block that starts with row `first`. Return how many there
// are. `touched` has the labels and `values` the routers' scores. Margins and votes are in arrays
// by label, until `forget`.
inline int64_t collect(const LabelLayout& layout, const LabelPlan& plan, const SparseRows& rows,
                       int64_t first, int64_t i, LabelScratch& scratch) {
  scratch.reached_count = scratch.voted_count = 0;
  int64_t found = gather(layout, plan, i, scratch);
  if (!is_blended(plan)) return found;
  const int64_t each = larger_of(plan.candidates, plan.k);
  found = keep_candidates(found, each, scratch);
  float lowest = found ? INFINITY : 0;
  for (int64_t t = 0; t < found; ++t) {
    lowest = smaller_of(lowest, scratch.values[t]);
    scratch.proposed[scratch.touched[t]] = 1;
  }
  if (plan.by_margin > 0) {
    compute_row_margins(layout, rows, first + i, scratch);
    if (plan.own)
      found = propose(select_outputs(scratch.reached, scratch.reached_count, each, scratch,
                                     [&](int32_t label) {
                                       return compute_margin(layout, label, scratch);
                                     }),
                      lowest, found, scratch);
  }
  if (plan.near > 0) {
    count_near_votes(layout, plan, rows, first + i, scratch);
    found = propose(select_outputs(scratch.voted, scratch.voted_count, each, scratch,
                                   [&](int32_t label) { return scratch.near_votes[label]; }),
                    lowest, found, scratch);
  }
  if (plan.complete > 0) complete_scores(layout, plan, i, found, scratch);
  return found;
}

// Clear what `collect` left in arrays by label.
inline void forget(const LabelPlan& plan, int64_t found, LabelScratch& scratch) {
  if (!is_blended(plan)) return;
  for (int64_t t = 0; t < found; ++t) scratch.proposed[scratch.touched[t]] = 0;
  for (int64_t t = 0; t < scratch.reached_count; ++t) scratch.margins[scratch.reached[t]] = -0.0f;
  for (int64_t t = 0; t < scratch.voted_count; ++t) scratch.near_votes[scratch.voted[t]] = 0;
}

// --- blend, write -------------------------------------------------------------------------------

// What the votes of near rows add to a score, before its weight. It is 0 without votes.
inline double weigh_votes(float votes) {
  return log2(1 + static_cast<double>(votes) / kLeastVotes);
}

// Replace the scores of the candidates by blended ones.
inline void blend(const LabelLayout& layout, const LabelPlan& plan, int64_t found,
                  LabelScratch& scratch) {
  if (!is_blended(plan)) return;
  for (int64_t t = 0; t < found; ++t) {
    const int32_t label = scratch.touched[t];
    double score = plan.by_score * static_cast<double>(scratch.values[t]) + plan.threshold;
    if (plan.by_margin > 0) {
      const double margin = static_cast<double>(compute_margin(layout, label, scratch));
      const double shortfall = larger_of(0.0, 1.0 - margin);
      score -= plan.by_margin * shortfall * shortfall;
    }
    if (plan.near > 0) score += plan.by_votes * weigh_votes(scratch.near_votes[label]);
    scratch.values[t] = static_cast<float>(score);
  }
}

// Write the k best labels, best first. Places without a label get -1 and an infinite score.
inline void write_best(int64_t found, int64_t k, LabelScratch& scratch, float* scores,
                       int64_t* labels) {
  const int64_t count = select_best(found, k, scratch);
  sort_down(scratch.keys, count);
  for (int64_t t = 0; t < count; ++t) {
    scores[t] = key_value(scratch.keys[t]);
    labels[t] = key_number(scratch.keys[t]);
  }
  for (int64_t t = count; t < k; ++t) {
    scores[t] = -INFINITY;
    labels[t] = -1;
  }
}

// --- all stages ---------------------------------------------------------------------------------

// Label the rows from `first` to `first + count`. `routed` are the rows with the routers' features,
// `ranked` the same rows with the ranker's.
[[maybe_unused]] void predict_block(const LabelLayout& layout, const LabelPlan& plan,
                                    const SparseRows& routed, const SparseRows& ranked,
                                    int64_t first, int64_t count, LabelScratch& scratch,
                                    float* scores, int64_t* labels) {
  route(layout, routed, first, count, scratch);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t found = collect(layout, plan, ranked, first, i, scratch);
    blend(layout, plan, found, scratch);
    write_best(found, plan.k, scratch, scores + i * plan.k, labels + i * plan.k);
    forget(plan, found, scratch);
  }
}

// List the candidates of the rows from `first` to `first + count`, in no order, with what each
// source knows of them: (count, 3 candidates) each, padded with label -1. It is for learning how to
// blend, and for explaining.
[[maybe_unused]] void list_candidates(const LabelLayout& layout, const LabelPlan& plan,
                                      const SparseRows& routed, const SparseRows& ranked,
                                      int64_t first, int64_t count, LabelScratch& scratch,
                                      const Candidates& out) {
  route(layout, routed, first, count, scratch);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t all = collect(layout, plan, ranked, first, i, scratch);
    const int64_t found = smaller_of(all, out.width);
    for (int64_t t = 0; t < out.width; ++t) {
      const int64_t at = i * out.width + t;
      const int32_t label = t < found ? scratch.touched[t] : -1;
      out.labels[at] = label;
      out.scores[at] = label < 0 ? 0 : scratch.values[t];
      out.margins[at] = label < 0 || plan.by_margin <= 0 ? 0
                                                         : compute_margin(layout, label, scratch);
      out.votes[at] = label < 0 ? 0 : scratch.near_votes[label];
    }
    forget(plan, all, scratch);
  }
}
