// Vector search, Algorithm 2 of the paper, stage by stage:
//
//   route    the log-probabilities of all buckets, for a block of queries
//   scan     probe the best buckets of each repetition and collect their items
//   select   the candidates, by codes or by votes and score, and the 8-bit prefilter
//   rerank   exact distances and the k nearest
//
// `search_block` routes up to kBlock queries together, and then answers them one by one. `explain` has
// it read the clock after each stage.

// --- route --------------------------------------------------------------------------------------

// Write the 8-bit projection of `count` queries: the features of all routers, then coordinates.
inline void project_queries(const VectorLayout& layout, const float* queries, int64_t count,
                            Scratch& scratch) {
  const Projection& projection = layout.projection;
  const int64_t dim = layout.dim;
  float steps[kBlock];
  for (int64_t i = 0; i < count; ++i) {
    const float* query = queries + i * dim;
    int64_t j = 0;
    for (; j + 16 <= dim; j += 16)
      store(scratch.centred + j, multiply(subtract(load(query + j), load(projection.centre + j)),
                                          load(projection.scale + j)));
    for (; j < dim; ++j)
      scratch.centred[j] = (query[j] - projection.centre[j]) * projection.scale[j];
    steps[i] = round_to_bytes(scratch.centred, dim, kZero, kZero - 1,
                              scratch.query + i * scratch.dim_bytes);
  }
  multiply_bytes(scratch.query, count, scratch.dim_bytes, projection.bytes,
                 round_up(projection.columns, kPanel) / kPanel, round_up(dim, 4) / 4, scratch.sums,
                 scratch.sum_columns);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t* sums = scratch.sums + i * scratch.sum_columns;
    float* out = scratch.projected + i * scratch.columns_floats;
    for (int64_t c = 0; c < projection.columns; ++c)
      out[c] = steps[i] * projection.step[c] * static_cast<float>(sums[c] - projection.zero[c]) +
               projection.bias[c];
  }
}

// Score all buckets of repetition `r` with 8-bit weights, a quarter of the bytes to read.
inline void score_bytes(const VectorLayout& layout, int64_t r, const float* features,
                        int64_t feature_step, int64_t count, Scratch& scratch) {
  const int64_t buckets = layout.buckets, fours = round_up(layout.width, 4) / 4;
  const int64_t panels = round_up(buckets, kPanel) / kPanel;
  float steps[kBlock];
  for (int64_t i = 0; i < count; ++i)
    steps[i] = round_to_bytes(features + i * feature_step, layout.width, kZero, kZero - 1,
                              scratch.bytes + i * scratch.width_bytes);
  multiply_bytes(scratch.bytes, count, scratch.width_bytes,
                 layout.bytes + r * panels * fours * 4 * kPanel, panels, fours, scratch.sums,
                 scratch.sum_columns);
  const int32_t* zero = layout.zero + r * buckets;
  const float *step = layout.step + r * buckets, *bias = layout.bias + r * buckets;
  for (int64_t i = 0; i < count; ++i) {
    const int32_t* sums = scratch.sums + i * scratch.sum_columns;
    float* logits = scratch.logits + (i * layout.repetitions + r) * buckets;
    for (int64_t b = 0; b < buckets; ++b)
      logits[b] = steps[i] * step[b] * static_cast<float>(sums[b] - zero[b]) + bias[b];
  }
}

// Make the logits of a query smaller the farther it is from all buckets: there, the routers are less
// sure. The largest logit tells that distance, up to the distance from the centre of all items.
// Beyond the farthest training queries nothing changes any more: even buckets for all would make a
// search probe them all.
inline void soften_logits(const VectorLayout& layout, int64_t r, const float* query,
                          float* logits) {
  const float *soften = layout.soften + 3 * r, *centre = layout.centre + r * layout.dim;
  const float top = find_largest(logits, layout.buckets);
  const float far = soften[0] * squared_distance(query, centre, layout.dim) - soften[1] * top;
  if (!(far > 0)) return;
  const float factor = 1 / (1 + (far < soften[2] ? far : soften[2]));
  for (int64_t b = 0; b < layout.buckets; ++b) logits[b] *= factor;
}

// Write the log-probabilities of the repetitions from `first` to `last`, for up to kBlock queries
// (count, d).
inline void route_some(const VectorLayout& layout, const float* queries, int64_t count,
                       int64_t first, int64_t last, Scratch& scratch) {
  const int64_t width = layout.width, buckets = layout.buckets;
  if (layout.projection.columns) project_queries(layout, queries, count, scratch);
  for (int64_t r = first; r < last; ++r) {
    float* features = scratch.hidden;
    int64_t step = scratch.width_floats;
    if (layout.projection.columns) {
      features = scratch.projected + r * width;
      step = scratch.columns_floats;
    } else {
      multiply_rows(queries, count, layout.dim, layout.project + r * layout.dim * width, layout.dim,
                    width, layout.shift + r * width, features, step);
    }
    for (int64_t i = 0; i < count; ++i)
      for (int64_t j = layout.linear; j < width; ++j)
        features[i * step + j] = features[i * step + j] > 0 ? features[i * step + j] : 0;
    if (layout.bytes) {
      score_bytes(layout, r, features, step, count, scratch);
    } else {
      multiply_rows(features, count, step, layout.weights + r * width * buckets, width, buckets,
                    layout.bias + r * buckets, scratch.logits + r * buckets,
                    layout.repetitions * buckets);
    }
    for (int64_t i = 0; i < count; ++i) {
      float* logits = scratch.logits + (i * layout.repetitions + r) * buckets;
      if (layout.soften[3 * r] > 0) soften_logits(layout, r, queries + i * layout.dim, logits);
      log_softmax(logits, buckets);
    }
  }
}

// Return the queries (count, d) at the length of the plan.
inline const float* scale_queries(const VectorLayout& layout, const SearchPlan& plan,
                                  const float* queries, int64_t count, Scratch& scratch) {
  if (plan.length <= 0) return queries;
  for (int64_t i = 0; i < count; ++i) {
    const float* query = queries + i * layout.dim;
    const double length = sqrt(static_cast<double>(dot(query, query, layout.dim)));
    const float factor = static_cast<float>(length > 0 ? plan.length / length : 1);
    for (int64_t j = 0; j < layout.dim; ++j) scratch.scaled[i * layout.dim + j] = query[j] * factor;
  }
  return scratch.scaled;
}

// Write the log-probabilities of all buckets for up to kBlock queries (count, d), or take them over
// if other threads have written them.
inline void route(const VectorLayout& layout, const float* queries, int64_t count,
                  Scratch& scratch) {
  if (!scratch.routed) return route_some(layout, queries, count, 0, layout.repetitions, scratch);
  if (layout.projection.columns) project_queries(layout, queries, count, scratch);
  memcpy(scratch.logits, scratch.routed,
         static_cast<size_t>(count * layout.repetitions * layout.buckets) * sizeof(float));
}

// Route one query as `search_block` does, but only the repetitions from `first` to `last`.
[[maybe_unused]] bool route_part(const VectorLayout& layout, const SearchPlan& plan,
                                 const float* query, Form form, int64_t first, int64_t last,
                                 Scratch& scratch) {
  if (!copy_row(query, layout.dim, form == kCosine, scratch.rows)) return false;
  route_some(layout, scale_queries(layout, plan, scratch.rows, 1, scratch), 1, first, last,
             scratch);
  return true;
}

// --- scan: the stream of buckets ----------------------------------------------------------------
//
// A search reads a stream of buckets, best first: those that the routers choose, then those with the
// nearest centroids. At level j it reads as much as a search for 2^j times as many items. A filter
// starts it at a higher level, and it goes on to higher levels as long as it sees that more is
// needed: see `answer`.

constexpr double kDeepest = 32;  // at this level, all buckets are read

// Whether the search widens by the share of the items that a filter allows.
inline bool is_filtered(const SearchPlan& plan) { return plan.start >= 0; }

// A value of a plan at a level, between those of the next whole levels.
inline double value_at(const SearchPlan& plan, const double* values, double level) {
  if (!(level < static_cast<double>(plan.levels - 1))) return values[plan.levels - 1];
  const int64_t low = static_cast<int64_t>(level);
  const double part = level - static_cast<double>(low);
  return part > 0 ? values[low] + part * (values[low + 1] - values[low]) : values[low];
}

// The lowest log-probability of a bucket that is read at a level. Beyond the levels of the plan, the
// probability is divided by four for each.
inline double threshold_at(const SearchPlan& plan, double level) {
  const double beyond = level - static_cast<double>(plan.levels - 1);
  if (level >= kDeepest) return -INFINITY;
  return value_at(plan, plan.thresholds, level) - (beyond > 0 ? beyond * 1.3862943611198906 : 0);
}

// List the buckets of one repetition that the routers choose at a level in `alive`. Return how many
// they are: the best one at least.
inline int64_t list_probed(const float* logits, const VectorLayout& layout, const SearchPlan& plan,
                           double level, Scratch& scratch) {
  const int64_t buckets = layout.buckets;
  const double most = static_cast<double>(plan.probes) * exp2(level);
  const int64_t wanted =
      plan.probes > 0 && most < static_cast<double>(buckets) ? static_cast<int64_t>(most) : buckets;
  const float cut = static_cast<float>(threshold_at(plan, level));
  int64_t count = buckets;
  if (cut > -INFINITY) count = find_at_least(logits, buckets, cut, scratch.alive);
  if (count > wanted) {
    const float higher = find_cut(logits, buckets, wanted);
    count = find_at_least(logits, buckets, higher, scratch.alive);
    return keep_best(scratch.alive, count, wanted, logits, scratch.order);  // drops surplus ties
  }
  if (count == 0)
    return find_at_least(logits, buckets, find_largest(logits, buckets), scratch.alive);
  if (!(cut > -INFINITY))
    for (int64_t b = 0; b < buckets; ++b) scratch.alive[b] = static_cast<int32_t>(b);
  return count;
}

// Read the buckets that the routers choose at a level, if they are not read already.
inline void probe_likely(const VectorLayout& layout, const SearchPlan& plan, const float* logits,
                         double level, Scratch& scratch) {
  Counts& counts = scratch.counts;
  const int64_t buckets = layout.buckets, read = counts.probed;
  for (int64_t c = 0; c < read; ++c) scratch.marked[scratch.probed[c]] = 1;
  for (int64_t r = 0; r < layout.repetitions; ++r) {
    const int64_t listed = list_probed(logits + r * buckets, layout, plan, level, scratch);
    float weakest = 0;
    for (int64_t a = 0; a < listed; ++a) {
      const int64_t place = r * buckets + scratch.alive[a];
      weakest = smaller_of(weakest, logits[place]);
      scratch.probed[counts.probed] = static_cast<int32_t>(place);
      counts.probed += !scratch.marked[place];
    }
    scratch.weakest[r] = weakest;
  }
  for (int64_t c = 0; c < read; ++c) scratch.marked[scratch.probed[c]] = 0;
}

// Add some deviations to the mean nearness of each bucket's items: those of the items along the
// query's direction. A bucket of scattered items may have some near the query though its mean is far.
inline void add_spread(const VectorLayout& layout, Scratch& scratch) {
  constexpr float kNearest = 1.5f;  // deviations
  const Centroids& centroids = layout.centroids;
  const float length = dot(scratch.centred, scratch.centred, layout.dim);
  const float dim = static_cast<float>(layout.dim);
  for (int64_t b = 0; b < layout.buckets; ++b) {
    const float spread = centroids.spread[b];
    const float squared =
        layout.metric == kL2 ? length - 2 * scratch.near[b] - dim * spread * spread : length;
    const float more = kNearest * spread * sqrtf(squared > 0 ? squared : 0);
    scratch.near[b] += more > 0 && more < INFINITY ? more : 0;  // an empty bucket stays far
  }
}

// Find how near the nearest items of each bucket are to the query, as far as centroids can tell.
inline void score_centroids(const VectorLayout& layout, const float* query, Scratch& scratch) {
  const Centroids& centroids = layout.centroids;
  const int64_t dim = layout.dim, buckets = layout.buckets;
  scratch.near_known = true;
  for (int64_t j = 0; j < dim; ++j) scratch.centred[j] = query[j] - centroids.centre[j];
  if (!centroids.bytes) {
    multiply_rows(scratch.centred, 1, dim, centroids.columns, dim, buckets, centroids.bias,
                  scratch.near, buckets);
    return add_spread(layout, scratch);
  }
  const float step = round_to_bytes(scratch.centred, dim, kZero, kZero - 1, scratch.query);
  multiply_bytes(scratch.query, 1, scratch.dim_bytes, centroids.bytes,
                 round_up(buckets, kPanel) / kPanel, round_up(dim, 4) / 4, scratch.sums,
                 scratch.sum_columns);
  for (int64_t b = 0; b < buckets; ++b)
    scratch.near[b] = step * centroids.step[b] *
                          static_cast<float>(scratch.sums[b] - centroids.zero[b]) +
                      centroids.bias[b];
  add_spread(layout, scratch);
}

// Read `more` buckets, or fewer if fewer are left: those that centroids say hold the nearest items.
inline void probe_near(const VectorLayout& layout, const float* query, int64_t more,
                       Scratch& scratch) {
  Counts& counts = scratch.counts;
  const int64_t buckets = layout.buckets;
  if (!scratch.near_known) score_centroids(layout, query, scratch);
  memcpy(scratch.left, scratch.near, static_cast<size_t>(buckets) * sizeof(float));
  int64_t open = buckets;
  for (int64_t c = 0; c < counts.probed; ++c)
    if (scratch.probed[c] < buckets) {
      scratch.left[scratch.probed[c]] = -INFINITY;
      open -= 1;
    }
  const int64_t wanted = smaller_of(more, open);
  if (wanted == 0) return;
  const float cut = find_cut(scratch.left, buckets, wanted);
  int64_t count = find_at_least(scratch.left, buckets, cut, scratch.alive);
  count = keep_best(scratch.alive, count, wanted, scratch.left, scratch.order);
  for (int64_t a = 0; a < count; ++a) {
    if (!(scratch.left[scratch.alive[a]] > -INFINITY)) continue;  // read already
    scratch.probed[counts.probed++] = scratch.alive[a];
    counts.near += 1;
  }
}

// Set what the read buckets from number `first` on add to a score.
//
// With a log-probability score, a bucket adds its lead over the weakest one that the routers chose in
// its repetition. So a bucket that they did not choose counts like the weakest one.
inline void weigh_buckets(const VectorLayout& layout, const SearchPlan& plan, const float* logits,
                          int64_t first, Scratch& scratch) {
  for (int64_t c = first; c < scratch.counts.probed; ++c) {
    const int64_t place = scratch.probed[c];
    const float lead = logits[place] - scratch.weakest[place / layout.buckets];
    scratch.values[c] = plan.score == kVotes         ? 1
                        : plan.score == kProbability ? expf(logits[place])
                                                     : larger_of(lead, 0.0f);
  }
}

// Sort the read buckets from number `first` to `last`, the likeliest first: the sums of the codes of
// their items soon exclude most of the others.
inline void sort_buckets(const float* logits, int64_t first, int64_t last, Scratch& scratch) {
  for (int64_t c = first; c < last; ++c)
    scratch.bucket_keys[c] =
        make_key(logits[scratch.probed[c]], static_cast<uint32_t>(scratch.probed[c]));
  sort_down(scratch.bucket_keys + first, last - first);
  for (int64_t c = first; c < last; ++c)
    scratch.probed[c] = static_cast<int32_t>(key_number(scratch.bucket_keys[c]));
}

// Where the numbers of a probed bucket, r B + bucket, are in an array of shape (R, B + 1).
inline int64_t place_of(const VectorLayout& layout, int64_t probed) {
  return layout.repetitions == 1 ? probed : probed + probed / layout.buckets;
}

// The number of the next scan.
inline uint8_t next_scan(const VectorLayout& layout, Scratch& scratch) {
  if (scratch.clock == 255) {
    memset(scratch.stamp, 0, static_cast<size_t>(layout.room));
    scratch.clock = 0;
  }
  return ++scratch.clock;
}

// Collect the items of the read buckets from number `first` on with their votes and scores. Return
// how many they are.
inline int64_t gather(const VectorLayout& layout, const Selector& selector, uint8_t now,
                      int64_t first, Scratch& scratch) {
  Counts& counts = scratch.counts;
  const bool has_mask = selector.has_mask();
  int64_t found = 0, read = 0, removed = 0, permitted = 0;
  for (int64_t c = first; c < counts.probed; ++c) {
    const int64_t place = place_of(layout, scratch.probed[c]);
    const float value = scratch.values[c];
    for (int64_t number = 0; number < layout.run_count; ++number) {
      const Run& run = layout.runs[number];
      const int64_t stop = run.offsets[place + 1];
      read += stop - run.offsets[place];
      for (int64_t e = run.offsets[place]; e < stop; ++e) {
        const int32_t item = run.items[e];
        if (scratch.stamp[item] == now) {
          scratch.votes[item] += 1;
          scratch.scores[item] += value;
          permitted += 1;
        } else if (has_mask && !selector.permits(item)) {
          removed += selector.is_removed(item);
        } else {
          scratch.stamp[item] = now;
          scratch.votes[item] = 1;
          scratch.scores[item] = value;
          scratch.touched[found++] = item;
        }
      }
    }
  }
  counts.read += read;
  counts.passed += read - removed;
  counts.permitted += permitted + found;
  return found;
}

// --- scan: codes --------------------------------------------------------------------------------

// Write bias + row @ codewords for the 16 codewords of a piece, less the smallest of them. Return
// the largest one.
inline float piece_values(const float* row, const float* codewords, int64_t size, const float* bias,
                          float* out) {
  Floats total = load(bias);
  for (int64_t s = 0; s < size; ++s) total = fused(fill(row[s]), load(codewords + 16 * s), total);
  store(out, total);
  float least = out[0], most = out[0];
  for (int j = 1; j < 16; ++j) {
    least = smaller_of(least, out[j]);
    most = larger_of(most, out[j]);
  }
  store(out, subtract(total, fill(least)));
  return most - least;
}

// Write the table of a routed query: what each codeword adds to a score, as small integers. The
// smallest value of each piece is 0. All pieces have the same scale.
inline void fill_table(const VectorLayout& layout, const float* query, int64_t row,
                       Scratch& scratch) {
  const Codes& codes = layout.codes;
  const float* at = scratch.coordinates;
  scratch.table_known = true;
  if (layout.projection.columns) {
    at = scratch.projected + row * scratch.columns_floats + layout.repetitions * layout.width;
  } else {
    multiply_rows(query, 1, layout.dim, codes.rotation, layout.dim, codes.pieces * codes.size,
                  codes.shift, scratch.coordinates, 0);
  }
  float widest = 0;
  for (int64_t m = 0; m < codes.pieces; ++m)
    widest = larger_of(widest, piece_values(at + m * codes.size,
                                            codes.codewords + m * codes.size * 16, codes.size,
                                            codes.bias + 16 * m, scratch.codeword_values + 16 * m));
  float scale = static_cast<float>(kMost) / widest;
  if (!(scale < INFINITY)) scale = 0;  // all values are equal
  for (int64_t m = 0; m < codes.pieces; ++m) {
    // A larger value, or NaN, would make a sum that is outside of the histogram.
    const Floats scaled = multiply(load(scratch.codeword_values + 16 * m), fill(scale));
    const Floats bounded = smaller(larger(scaled, fill(0)), fill(static_cast<float>(kMost)));
    store_bytes(scratch.table + 16 * m, add(bounded, fill(0.5f)));
  }
}

// A key holds the sum in its high bits and the item in its low bits. Move the `wanted` largest keys
// to the front. None of them has a sum below `cut`.
inline int64_t keep_largest(uint64_t* keys, int64_t count, int64_t wanted, uint64_t cut) {
  int64_t kept = 0;
  for (int64_t t = 0; t < count; ++t) {
    keys[kept] = keys[t];
    kept += keys[t] >= cut << 32;
  }
  if (kept > wanted) {
    kth_largest(keys, kept, wanted);
    kept = wanted;
  }
  return kept;
}

// Write the items with the largest sums of codes in the read buckets from number `first` on to
// `touched`, each once. Return how many they are.
//
// A histogram of the sums gives the sum that the C best items so far reach. Most blocks have no
// larger sum and are done with one comparison. Ties go to the larger item number, whatever the
// order of the buckets.
inline int64_t scan(const VectorLayout& layout, int64_t wanted, const Selector& selector,
                    uint8_t now, int64_t first, Scratch& scratch) {
  const Codes& codes = layout.codes;
  const int64_t rows = codes.pieces / 2, size = rows * kLanes;
  const bool has_mask = selector.has_mask();
  const int64_t probed = scratch.counts.probed;
  int64_t passed = 0, permitted = 0;
  const int64_t bins = (kMost * codes.pieces >> kBin) + 2;
  memset(scratch.bins, 0, static_cast<size_t>(bins) * sizeof(int32_t));
  int64_t count = 0, read = 0, above = 0, low = 0;  // `above` keys are in the bins from `low` up
  uint16_t cut = 0;
  uint16_t sums[kLanes];
  for (int64_t c = first; c < probed; ++c) {
    const int64_t place = place_of(layout, scratch.probed[c]);
    const int64_t next = c + 1 < probed ? place_of(layout, scratch.probed[c + 1]) : -1;
    for (int64_t number = 0; number < layout.run_count; ++number) {
      const Run& run = layout.runs[number];
      const int64_t *blocks = run.block_offsets + place, stop = run.offsets[place + 1];
      int64_t entry = run.offsets[place];
      read += stop - entry;
      // The blocks of the next bucket are prefetched while this one is read.
      int64_t after = next < 0 ? 0 : run.block_offsets[next];
      const int64_t end = next < 0 ? 0 : run.block_offsets[next + 1];
      for (int64_t block = blocks[0]; block < blocks[1]; ++block, entry += kLanes) {
        if (after < end) fetch(run.blocks + after++ * size, size);
        uint32_t bits = sum_block(run.blocks + block * size, scratch.table, rows, cut, sums);
        if (stop - entry < kLanes) bits &= (uint32_t{1} << (stop - entry)) - 1;
        if (!bits) continue;
        for (; bits; bits &= bits - 1) {
          const int lane = lowest_bit(bits);
          const int32_t item = run.items[entry + lane];
          if (has_mask) {
            const bool permits = selector.permits(item);
            passed += !selector.is_removed(item);
            permitted += permits;
            if (!permits) continue;
          }
          if (scratch.stamp[item] == now) continue;
          scratch.stamp[item] = now;
          scratch.keys[count++] = static_cast<uint64_t>(sums[lane]) << 32 |
                                  static_cast<uint32_t>(item);
          scratch.bins[sums[lane] >> kBin] += 1;
          ++above;
        }
        while (above - scratch.bins[low] >= wanted) above -= scratch.bins[low++];
        cut = static_cast<uint16_t>(low << kBin);
        if (count > scratch.room - kLanes) count = keep_largest(scratch.keys, count, wanted, cut);
      }
    }
  }
  count = keep_largest(scratch.keys, count, wanted, cut);
  for (int64_t t = 0; t < count; ++t) scratch.touched[t] = static_cast<int32_t>(scratch.keys[t]);
  scratch.counts.read += read;
  scratch.counts.coded += read;
  scratch.counts.passed += passed;
  scratch.counts.permitted += permitted;
  return count;
}

// --- scan: what is read -------------------------------------------------------------------------

// Whether codes choose the candidates. They read many entries for little, so that a strange query has
// them choose even where the others are compared with all items found.
inline bool is_by_codes(const SearchPlan& plan, bool strange) {
  return plan.score == kCodes || (strange && plan.picked > 0);
}

// Whether the routers are not sure of a query.
inline bool is_unsure(const VectorLayout& layout, const SearchPlan& plan, const Counts& counts) {
  return layout.centroids.present && counts.sure < plan.unsure;
}

// Read on in the stream of buckets. Return whether there were buckets left to read at this level.
//
// A strange query reads the nearest buckets until they are `wide` in all. Under a filter it reads so
// many of them besides those of its level.
inline bool read_buckets(const VectorLayout& layout, const SearchPlan& plan, const float* query,
                         const float* logits, double level, Scratch& scratch) {
  Counts& counts = scratch.counts;
  const int64_t read = counts.probed;
  probe_likely(layout, plan, logits, level, scratch);
  const int64_t likely = counts.probed;
  if (plan.unsure > 0)
    for (int64_t c = read; c < likely; ++c) {
      const float logit = logits[scratch.probed[c]];
      if (logit < static_cast<float>(plan.likely)) continue;
      counts.sure += static_cast<double>(expf(logit)) / static_cast<double>(layout.repetitions);
    }
  // Where codes choose anyway, a query is strange before it is answered if routers are not sure of it.
  counts.strange |= plan.score == kCodes && is_unsure(layout, plan, counts);
  if (layout.centroids.present) {
    int64_t more = static_cast<int64_t>(value_at(plan, plan.centroids, level) + 0.5) - counts.near;
    if (counts.strange)
      more = larger_of(more, plan.wide - (is_filtered(plan) ? counts.near : counts.probed));
    if (more > 0) probe_near(layout, query, more, scratch);
  }
  if (is_by_codes(plan, counts.strange)) sort_buckets(logits, read, likely, scratch);
  return counts.probed > read;
}

// Collect the items of the buckets read from number `first` on in `touched`, by codes or by votes and
// score. The results so far stay candidates. Where scores or votes count, they come from all buckets.
inline void collect(const VectorLayout& layout, const SearchPlan& plan, const Selector& selector,
                    const float* query, int64_t row, const float* logits, int64_t first,
                    Scratch& scratch, const int64_t* items) {
  Counts& counts = scratch.counts;
  const bool by_codes = is_by_codes(plan, counts.strange);
  if (!by_codes && (plan.by_score || plan.min_votes > 1 || plan.candidates > 0)) first = 0;
  if (first == 0) counts.passed = counts.permitted = 0;
  const uint8_t now = next_scan(layout, scratch);
  int64_t results = 0;
  for (; first > 0 && results < plan.k && items[results] >= 0; ++results)
    scratch.stamp[items[results]] = now;
  if (by_codes) {
    if (!scratch.table_known) fill_table(layout, query, row, scratch);
    const int64_t wanted = counts.strange && plan.picked > 0 ? plan.picked : plan.candidates;
    counts.found = scan(layout, wanted, selector, now, first, scratch);
  } else {
    weigh_buckets(layout, plan, logits, first, scratch);
    counts.found = gather(layout, selector, now, first, scratch);
  }
  for (int64_t t = 0; t < results; ++t)
    scratch.touched[counts.found++] = static_cast<int32_t>(items[t]);
}

// List all items that a search may return in `touched`.
inline void list_all(const VectorLayout& layout, const Selector& selector, Scratch& scratch) {
  const int64_t total = selector.rows ? selector.count : layout.items;
  int64_t count = 0;
  for (int64_t t = 0; t < total; ++t) {
    const int32_t item = selector.rows ? selector.rows[t] : static_cast<int32_t>(t);
    scratch.touched[count] = item;
    count += static_cast<uint32_t>(item) < static_cast<uint32_t>(layout.items) &&
             (selector.rows ? !selector.is_removed(item) : selector.permits(item));
  }
  scratch.counts.found = count;
  scratch.counts.read += count;
}

// --- when to stop -------------------------------------------------------------------------------

// Levels in reserve under a filter, since the near items are a sample.
constexpr double kSpare = 0.25;

// The level that a search needs, as far as it can tell: the one that it has reached, or a higher one.
//
// A filter takes away some of the near items. Then the share of the items that it allows among those
// seen near the query tells how many more are needed. If fewer than k items were found, it is the
// next level. So there are never fewer than k results if there are k allowed items.
inline double find_needed_level(const SearchPlan& plan, const Counts& counts) {
  constexpr double kEnough = 0.25;  // a level that is this much too low is not worth another scan
  constexpr double kShift = 0.4;    // more for each level beyond `start`: the allowed items are the
                                    // farther ones, which are harder to find
  double level = counts.level;
  if (!plan.fill) return level;
  if (is_filtered(plan)) {
    // Of 2^seen near items, one is allowed.
    const double seen = counts.permitted == 0 ? static_cast<double>(kLevels)
                                              : log2(static_cast<double>(counts.passed) /
                                                     static_cast<double>(counts.permitted));
    const double needed = seen + kSpare + kShift * larger_of(0.0, seen - plan.start);
    if (seen > 0 && needed > level + kEnough) level = larger_of(level + 1, needed);
  }
  return counts.found < plan.k ? larger_of(level, counts.level + 1) : level;
}

// Whether a query that was answered like the others is strange: the routers were not sure of it, or
// even the nearest item that was found is farther than those of ordinary queries are, beside the
// distances within its best bucket. Then the routers do not know where it belongs, sure as they are.
inline bool is_strange(const VectorLayout& layout, const SearchPlan& plan, const float* query,
                       const float* logits, float nearest, const Scratch& scratch) {
  const Counts& counts = scratch.counts;
  if (!layout.centroids.present || counts.strange) return false;
  if (is_unsure(layout, plan, counts)) return true;
  if (!(plan.far < INFINITY)) return false;
  int64_t best = -1;
  for (int64_t c = 0; c < counts.probed; ++c) {
    const int64_t bucket = scratch.probed[c];
    if (bucket < layout.buckets && (best < 0 || logits[bucket] > logits[best])) best = bucket;
  }
  if (best < 0) return false;
  const double length =
      layout.metric == kL2 ? 1 : sqrt(static_cast<double>(dot(query, query, layout.dim)));
  const double reach = static_cast<double>(layout.centroids.reach[best]);
  return static_cast<double>(nearest) >
         length * (static_cast<double>(layout.centroids.base[best]) + plan.far * reach);
}

// --- select -------------------------------------------------------------------------------------

// The most standard deviations below the k-th score at which a candidate is kept.
constexpr float kDeviations = 3;

// Write the query in units of the rounding steps. Return the error of a score difference: an upper
// bound on its standard deviation. A score is a sum of independent rounding errors, each with a
// variance of at most a quarter of the squared step. Two scores have twice that variance.
inline float scale_query(const VectorLayout& layout, const float* query, float* out) {
  double total = 0;  // in float64, where squares cannot overflow or underflow
  for (int64_t j = 0; j < layout.dim; ++j) {
    out[j] = (query[j] - layout.int8.shift[j]) * layout.int8.step[j];
    total += static_cast<double>(out[j]) * static_cast<double>(out[j]);
  }
  return static_cast<float>(sqrt(total / 2));
}

// Drop the candidates that are surely not among the k nearest, by 8-bit copies of the vectors: a
// quarter of the bytes to fetch. Return how many are left.
inline int64_t prefilter(const VectorLayout& layout, const float* query, int64_t chosen, int64_t k,
                         Scratch& scratch) {
  const Int8Vectors& int8 = layout.int8;
  if (!int8.present || chosen <= k) return chosen;
  int32_t* touched = scratch.touched;
  const float deviation = scale_query(layout, query, scratch.centred);
  float* near = scratch.order;
  sum_items<Product>(scratch.centred, int8.bytes, layout.dim, touched, chosen, near);
  // Added items have lengths for all metrics: NaN for those that are outside of the 8 bits.
  for (int64_t t = 0; t < chosen; ++t)
    if (layout.metric == kL2 || touched[t] >= int8.bytes.count)
      near[t] -= *int8.lengths.at(touched[t], 1);
  const float cut = bound_largest(near, chosen, k) - kDeviations * deviation;
  int64_t kept = 0;
  for (int64_t t = 0; t < chosen; ++t) {
    touched[kept] = touched[t];
    kept += !(near[t] < cut);  // keeps NaN
  }
  return kept;
}

// Move the candidates to the front of `touched`: at most as many as the plan says, if it limits them.
// Return how many they are.
inline int64_t select(const VectorLayout& layout, const SearchPlan& plan, const float* query,
                      Scratch& scratch) {
  const Counts& counts = scratch.counts;
  // A scan of codes has already chosen the candidates.
  if (is_by_codes(plan, counts.strange))
    return prefilter(layout, query, counts.found, plan.k, scratch);
  if (counts.exact) return counts.found;
  int64_t kept = counts.found;
  if (plan.min_votes > 1) {
    kept = 0;
    for (int64_t t = 0; t < counts.found; ++t) {
      const int32_t item = scratch.touched[t];
      scratch.touched[kept] = item;
      kept += scratch.votes[item] >= plan.min_votes;
    }
  }
  if (plan.candidates == 0) return kept;
  return keep_best(scratch.touched, kept, plan.candidates, scratch.scores, scratch.order);
}

// --- rerank -------------------------------------------------------------------------------------

// The squared L2 distance or the negated inner product. Smaller is nearer.
inline float compute_distance(const VectorLayout& layout, const float* query, int64_t item) {
  const float* vector = layout.vectors.at(item, layout.dim);
  if (layout.metric == kL2) return squared_distance(query, vector, layout.dim);
  return -dot(query, vector, layout.dim);
}

// Write how near the items are to the query: the inner product, or the negated squared L2 distance.
inline void compare_items(const VectorLayout& layout, const float* query, const int32_t* items,
                          int64_t count, float* near) {
  if (layout.metric != kL2)
    return sum_items<Product>(query, layout.vectors, layout.dim, items, count, near);
  sum_items<Square>(query, layout.vectors, layout.dim, items, count, near);
  for (int64_t t = 0; t < count; ++t) near[t] = -near[t];
}

// Write the items of the k largest keys, nearest first. The smaller item wins a tie. Places without
// an item get -1 and an infinite distance.
inline void write_best(uint64_t* keys, int64_t count, int64_t k, float* distances, int64_t* items) {
  if (count > k) {
    kth_largest(keys, count, k);
    count = k;
  }
  sort_down(keys, count);
  for (int64_t t = 0; t < count; ++t) {
    distances[t] = 0.0f - key_value(keys[t]);  // never -0
    items[t] = key_number(keys[t]);
  }
  for (int64_t t = count; t < k; ++t) {
    distances[t] = INFINITY;
    items[t] = -1;
  }
}

// Move the items of the k largest scores to the front of `touched`. Return how many are above the
// k-th score. `count` becomes their number and that of all items that have it.
inline int64_t keep_scored(int64_t k, Scratch& scratch, int64_t& count) {
  if (count <= k) return 0;
  const float* scores = scratch.scores;
  int32_t* touched = scratch.touched;
  for (int64_t t = 0; t < count; ++t) scratch.order[t] = scores[touched[t]];
  const float cut = kth_largest(scratch.order, count, k);
  int64_t above = 0, kept = 0;
  for (int64_t t = 0; t < count; ++t) {
    if (scores[touched[t]] < cut) continue;
    swap(touched[t], touched[kept]);
    if (scores[touched[kept]] > cut) swap(touched[kept], touched[above++]);
    ++kept;
  }
  count = kept;
  return above;
}

// Sort the results by score. Of equal scores, the nearest stays first.
inline void sort_by_score(int64_t count, Scratch& scratch, float* distances, int64_t* items) {
  uint64_t *keys = scratch.keys, *old = scratch.keys + count;
  for (int64_t t = 0; t < count; ++t) {
    keys[t] = make_key(scratch.scores[items[t]], static_cast<uint32_t>(t));
    old[t] = static_cast<uint64_t>(items[t]);
    scratch.order[t] = distances[t];
  }
  sort_down(keys, count);
  for (int64_t t = 0; t < count; ++t) {
    distances[t] = scratch.order[key_number(keys[t])];
    items[t] = static_cast<int64_t>(old[key_number(keys[t])]);
  }
}

// Write the k nearest candidates, or the k of the largest score, of which equal ones are ordered by
// distance.
inline void rerank(const VectorLayout& layout, const SearchPlan& plan, const float* query,
                   Scratch& scratch, float* distances, int64_t* items) {
  const bool by_score = plan.by_score && !scratch.counts.exact;
  int64_t chosen = scratch.counts.last;
  const int64_t above = by_score ? keep_scored(plan.k, scratch, chosen) : 0, k = plan.k - above;
  const int32_t* touched = scratch.touched;
  float* near = scratch.order;
  compare_items(layout, query, touched, chosen, near);
  const auto key_of = [=](int64_t t) -> uint64_t {
    return near[t] == near[t] ? make_key(near[t], static_cast<uint32_t>(touched[t])) : 0;
  };
  int64_t count = 0;
  for (int64_t t = 0; t < above; ++t) {
    scratch.keys[count] = key_of(t);
    count += scratch.keys[count] != 0;
  }
  uint64_t* keys = scratch.keys + count;
  const int64_t room = smaller_of(scratch.room - count, 4 * k + kGroups);
  int64_t nearest = collect_largest(near + above, chosen - above, k, room, keys,
                                    [=](int64_t t) { return key_of(above + t); });
  if (above > 0 && nearest > k) {
    kth_largest(keys, nearest, k);
    nearest = k;
  }
  write_best(scratch.keys, count + nearest, plan.k, distances, items);
  if (!by_score) return;
  for (count = 0; count < plan.k && items[count] >= 0;) ++count;
  sort_by_score(count, scratch, distances, items);
}

// --- all items ----------------------------------------------------------------------------------

inline int64_t count_sets(int64_t queries) { return round_up(queries, kRows) / kRows; }

// Compare kTile items with kSets times 16 queries.
template <bool kSquared, int64_t kSets>
inline void compare_tile(const float* columns, int64_t dim, const float* const* vectors,
                         Floats (*near)[kTile]) {
  Floats total[kSets][kTile];
  for (auto& set : total)
    for (Floats& each : set) each = fill(0);
  for (int64_t j = 0; j < dim; ++j) {
    Floats query[kSets];
    for (int64_t s = 0; s < kSets; ++s) query[s] = load(columns + kRows * (s * dim + j));
    for (int64_t t = 0; t < kTile; ++t) {
      const Floats value = fill(vectors[t][j]);
      for (int64_t s = 0; s < kSets; ++s) {
        const Floats factor = kSquared ? subtract(query[s], value) : query[s];
        total[s][t] = fused(factor, kSquared ? factor : value, total[s][t]);
      }
    }
  }
  for (int64_t s = 0; s < kSets; ++s)
    for (int64_t t = 0; t < kTile; ++t)
      near[s][t] = kSquared ? subtract(fill(0), total[s][t]) : total[s][t];
}

// The nearest items of a query so far, as keys.
struct Nearest {
  uint64_t* keys;
  int64_t kept;
};

// Add the items of a tile that are near enough to one of 16 queries.
inline void keep_near(const Floats* near, const int64_t* items, int64_t count, int64_t queries,
                      int64_t k, int64_t room, float* cuts, Nearest* nearest) {
  for (int64_t t = 0; t < count; ++t) {
    uint32_t bits = reaching(subtract(near[t], load(cuts)), 0);
    if (!bits) continue;
    float values[kRows];
    store(values, near[t]);
    for (; bits; bits &= bits - 1) {
      const int64_t i = lowest_bit(bits);
      if (i >= queries) break;
      if (!(values[i] >= cuts[i])) continue;  // NaN
      Nearest& mine = nearest[i];
      mine.keys[mine.kept++] = make_key(values[i], static_cast<uint32_t>(items[t]));
      if (mine.kept == room) {
        cuts[i] = key_value(kth_largest(mine.keys, room, k));
        mine.kept = k;
      }
    }
  }
}

// Write 16 queries column by column (d, 16). Lanes without a query repeat the last one.
inline void write_columns(const float* rows, int64_t queries, int64_t dim, float* columns) {
  const float* row[kRows];
  for (int64_t i = 0; i < kRows; ++i) row[i] = rows + smaller_of(i, queries - 1) * dim;
  for (int64_t j = 0; j < dim; ++j)
    for (int64_t i = 0; i < kRows; ++i) columns[j * kRows + i] = row[i][j];
}

// Sort the values of 16 queries into the k largest of each so far.
inline void insert_lanes(Floats values, int64_t k, Floats* best) {
  values = larger(values, fill(-INFINITY));  // NaN
  for (int64_t t = 0; t < k; ++t) {
    const Floats other = best[t];
    best[t] = larger(values, other);
    values = smaller(values, other);
  }
}

// Compare the allowed items from number `low` to `high` with many queries, a few items at a time, and
// call use(set of 16 queries, number of the first item, how near the items are, the items, how many).
template <class Use>
inline void compare_range(const VectorLayout& layout, const Selector& selector, int64_t queries,
                          int64_t low, int64_t high, const Scratch& scratch, Use use) {
  constexpr int64_t kBytes = 1 << 14;  // of items that stay in the nearest cache
  const int64_t dim = layout.dim, bytes = dim * static_cast<int64_t>(sizeof(float));
  const int64_t step = larger_of(kTile, kBytes / bytes / kTile * kTile);
  const int64_t all = count_sets(queries);
  const auto find_item = [=](int64_t t) { return selector.rows ? int64_t{selector.rows[t]} : t; };
  for (; low < high; low += step) {
    const int64_t end = smaller_of(low + step, high);
    if (selector.rows)
      for (int64_t t = end; t < smaller_of(end + step, high); ++t)
        fetch(layout.vectors.at(find_item(t), dim), bytes);
    for (int64_t set = 0; set < all;) {
      const int64_t sets = smaller_of(kSets, all - set);
      for (int64_t first = low; first < end; first += kTile) {
        int64_t tile[kTile];
        const float* vectors[kTile];
        for (int64_t t = 0; t < kTile; ++t) {
          tile[t] = find_item(smaller_of(first + t, end - 1));
          vectors[t] = layout.vectors.at(tile[t], dim);
        }
        Floats near[kSets][kTile];
        const auto compare =
            layout.metric == kL2
                ? (sets == 1 ? compare_tile<true, 1> : compare_tile<true, kSets>)
                : (sets == 1 ? compare_tile<false, 1> : compare_tile<false, kSets>);
        compare(scratch.columns + set * kRows * dim, dim, vectors, near);
        for (int64_t s = 0; s < sets; ++s)
          use(set + s, first, near[s], tile, smaller_of(kTile, end - first));
      }
      set += sets;
    }
  }
}

// Compare all allowed items with many queries, and write the k nearest of each. The items are read
// once for all of them. A vector holds the same column of 16 queries.
//
// The first items are compared before any is kept: the k-th nearest of them excludes most others.
inline void compare_all(const VectorLayout& layout, const Selector& selector, int64_t queries,
                        int64_t k, Scratch& scratch, float* distances, int64_t* items,
                        Counts* counts) {
  constexpr int64_t kSorted = 16;  // the largest k for which sorting all first items pays
  const int64_t dim = layout.dim, sets = count_sets(queries);
  const int64_t total = selector.rows ? selector.count : layout.items;
  const int64_t firsts = k <= kSorted ? smaller_of(total, kFirsts) : 0;
  const int64_t room = count_kept(k);
  float cuts[kCompared];
  Nearest nearest[kCompared];
  for (int64_t i = 0; i < kCompared; ++i) {
    cuts[i] = -INFINITY;
    nearest[i] = {scratch.keys + i * room, 0};
  }
  for (int64_t i = 0; i < queries; i += kRows)
    write_columns(scratch.compared + i * dim, smaller_of(kRows, queries - i), dim,
                  scratch.columns + i * dim);
  const auto keep = [&](int64_t set, int64_t, const Floats* near, const int64_t* tile,
                        int64_t count) {
    const int64_t i = set * kRows;
    keep_near(near, tile, count, smaller_of(kRows, queries - i), k, room, cuts + i, nearest + i);
  };
  if (firsts > 0) {
    Floats best[kCompared / kRows][kSorted];
    for (auto& set : best)
      for (Floats& each : set) each = fill(-INFINITY);
    const auto place = [&](int64_t set, int64_t t) {
      return scratch.firsts + (set * kFirsts + t) * kRows;
    };
    compare_range(layout, selector, queries, 0, firsts, scratch,
                  [&](int64_t set, int64_t first, const Floats* near, const int64_t*,
                      int64_t count) {
                    for (int64_t t = 0; t < count; ++t) {
                      store(place(set, first + t), near[t]);
                      insert_lanes(near[t], k, best[set]);
                    }
                  });
    for (int64_t set = 0; set < sets; ++set) {
      store(cuts + set * kRows, best[set][k - 1]);
      for (int64_t t = 0; t < firsts; ++t) {
        const Floats near = load(place(set, t));
        const int64_t item = selector.rows ? selector.rows[t] : t;
        keep(set, t, &near, &item, 1);
      }
    }
  }
  compare_range(layout, selector, queries, firsts, total, scratch, keep);
  for (int64_t i = 0; i < queries; ++i) {
    auto& [keys, kept] = nearest[i];
    if (kept > k) {
      kth_largest(keys, kept, k);
      kept = k;
    }
    // The same distances as those of a single query.
    for (int64_t t = 0; t < kept; ++t)
      scratch.touched[t] = static_cast<int32_t>(key_number(keys[t]));
    compare_items(layout, scratch.compared + i * dim, scratch.touched, kept, scratch.order);
    for (int64_t t = 0; t < kept; ++t)
      keys[t] = make_key(scratch.order[t], static_cast<uint32_t>(scratch.touched[t]));
    write_best(keys, kept, k, distances + i * k, items + i * k);
    if (counts) {
      counts[i] = {};
      counts[i].found = counts[i].read = counts[i].chosen = counts[i].last = total;
      counts[i].sure = 1;
      counts[i].exact = true;
    }
  }
}

// Convert kernel distances to those of the metric, and item numbers to ids, if there are some.
inline void to_user(float* distances, int64_t* items, int64_t k, const int64_t* ids, Form form) {
  for (int64_t t = 0; t < k; ++t) {
    if (form == kCosine) distances[t] += 1;
    if (form == kIp) distances[t] = -distances[t];
    if (ids && items[t] >= 0) items[t] = ids[items[t]];
  }
}

// --- all stages ---------------------------------------------------------------------------------

// Add the time since the last stage to the one that has ended, if somebody wants to know.
inline void end_stage(Stage stage, Scratch& scratch) {
  if (!scratch.now) return;
  const double now = scratch.now();
  scratch.seconds[stage] += now - scratch.last;
  scratch.last = now;
}

// Whether all allowed items are compared: as the plan says, or since that costs less than reading on
// and ranks alike.
inline bool is_exact(const SearchPlan& plan, const Counts& counts, int64_t all) {
  constexpr double kFar = 2;  // levels: by so much a strange query reads more than others
  if (plan.exact || plan.by_score || plan.min_votes > 1) return plan.exact;
  return (counts.strange ? counts.level + kFar : counts.level) >= plan.exact_from ||
         (counts.strange && plan.wide >= all);
}

// Answer query `row` of a routed block: scan, select and rerank, and go on if it has to.
//
// A query goes on at a higher level if a filter or a large k leaves it too few items. And it goes on
// once if it is strange to the routers. Where that costs more than to compare all allowed items, they
// are all compared.
inline void answer(const VectorLayout& layout, const SearchPlan& plan, const Selector& selector,
                   const float* query, int64_t row, Scratch& scratch, float* distances,
                   int64_t* items) {
  const int64_t all = layout.repetitions * layout.buckets;
  const float* logits = scratch.logits + row * all;
  Counts& counts = scratch.counts;
  counts = {};
  counts.level = is_filtered(plan) ? smaller_of(plan.start + kSpare, kDeepest) : 0;
  scratch.near_known = scratch.table_known = false;
  while (true) {
    const int64_t read = counts.probed;
    const bool more = !is_exact(plan, counts, all) &&
                      read_buckets(layout, plan, query, logits, counts.level, scratch);
    counts.exact = is_exact(plan, counts, all);
    if (counts.exact) {
      counts.probed = read;
      list_all(layout, selector, scratch);
    } else if (more) {
      collect(layout, plan, selector, query, row, logits, read, scratch, items);
    } else if (counts.found < plan.k && counts.level < kDeepest && plan.fill) {
      counts.level += 1;
      continue;
    } else {
      return;
    }
    end_stage(kScan, scratch);
    counts.last = select(layout, plan, query, scratch);
    counts.chosen += counts.last;
    if (!counts.exact && is_by_codes(plan, counts.strange)) counts.picked += counts.found;
    if (!counts.exact && !is_by_codes(plan, counts.strange)) counts.plain += counts.last;
    end_stage(kSelect, scratch);
    rerank(layout, plan, query, scratch, distances, items);
    end_stage(kRerank, scratch);
    if (counts.exact || counts.probed == all) return;
    const double level = find_needed_level(plan, counts);
    if (!(level > counts.level)) {
      if (!is_strange(layout, plan, query, logits, distances[0], scratch)) return;
      counts.strange = true;
    }
    counts.level = level;
  }
}

[[maybe_unused]] bool search_block(const VectorLayout& layout, const SearchPlan& plan,
                                   const Selector& selector, const int64_t* ids, Form form,
                                   const float* queries, int64_t count, Scratch& scratch,
                                   float* distances, int64_t* items, Counts* counts) {
  const bool together = plan.exact && count >= kTogether && count <= count_compared(plan.k);
  float* rows = together ? scratch.compared : scratch.rows;
  for (int64_t i = 0; i < count; ++i)
    if (!copy_row(queries + i * layout.dim, layout.dim, form == kCosine, rows + i * layout.dim))
      return false;
  if (together) {
    compare_all(layout, selector, count, plan.k, scratch, distances, items, counts);
    for (int64_t i = 0; i < count; ++i)
      to_user(distances + i * plan.k, items + i * plan.k, plan.k, ids, form);
    return true;
  }
  if (!plan.exact)
    route(layout, scale_queries(layout, plan, scratch.rows, count, scratch), count, scratch);
  end_stage(kRoute, scratch);
  for (int64_t i = 0; i < count; ++i) {
    answer(layout, plan, selector, scratch.rows + i * layout.dim, i, scratch,
           distances + i * plan.k, items + i * plan.k);
    if (counts) counts[i] = scratch.counts;
    to_user(distances + i * plan.k, items + i * plan.k, plan.k, ids, form);
  }
  return true;
}

// Count the votes of the items in the read buckets. A scan of codes does not count them.
[[maybe_unused]] void count_votes(const VectorLayout& layout, const Selector& selector,
                                  Scratch& scratch) {
  const Counts counts = scratch.counts;
  for (int64_t c = 0; c < counts.probed; ++c) scratch.values[c] = 0;
  gather(layout, selector, next_scan(layout, scratch), 0, scratch);
  scratch.counts = counts;
}
