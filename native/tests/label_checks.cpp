#include "label_checks.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "check.h"
#include "label_layouts.h"
#include "labels.h"

namespace irli {
namespace {

// Lists of different numbers below `limit`, ascending.
struct Lists {
  Exact<int64_t> indptr;
  Exact<int32_t> numbers;
};
Lists draw_lists(Source& source, int64_t count, int64_t limit, int64_t most) {
  Lists lists{Exact<int64_t>(count + 1), {}};
  std::vector<int32_t> all;
  for (int64_t i = 0; i < count; ++i) {
    int64_t left = source.draw(0, most);
    for (int32_t number = 0; number < limit && left > 0; ++number)
      if (source.draw(0, limit - number - 1) < left) {
        all.push_back(number);
        --left;
      }
    lists.indptr[i + 1] = static_cast<int64_t>(all.size());
  }
  lists.numbers = Exact<int32_t>(static_cast<int64_t>(all.size()));
  std::copy(all.begin(), all.end(), lists.numbers.begin());
  return lists;
}

// --- text ---------------------------------------------------------------------------------------

bool is_whole(const std::string& word) {
  return !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
}

// A whole number below `limit`, or -1.
int64_t to_whole(const std::string& word, int64_t limit) {
  if (!is_whole(word)) return -1;
  const size_t start = std::min(word.find_first_not_of('0'), word.size() - 1);
  if (word.size() - start > 9) return -1;
  const int64_t value = std::stoll(word.substr(start));
  return value < limit ? value : -1;
}

// Whether a word is a number: a sign, digits with one point, and an exponent, which may be missing.
bool is_number(std::string word) {
  const auto drop_sign = [](std::string& text) {
    if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.erase(0, 1);
  };
  drop_sign(word);
  const size_t e = word.find_first_of("eE");
  if (e != std::string::npos) {
    std::string exponent = word.substr(e + 1);
    drop_sign(exponent);
    if (!is_whole(exponent)) return false;
    word.resize(e);
  }
  const size_t point = word.find('.');
  if (point != std::string::npos) word.erase(point, 1);
  return is_whole(word);
}

std::vector<std::string> split(const std::string& text, const char* separators) {
  std::vector<std::string> parts(1);
  for (const char code : text) {
    if (strchr(separators, code) && code) {
      parts.emplace_back();
    } else {
      parts.back() += code;
    }
  }
  return parts;
}

struct SimplyParsed {
  bool good = true;
  std::vector<int64_t> label_counts, pair_counts;
  std::vector<int32_t> labels, columns;
  std::vector<double> values;
};

SimplyParsed parse_simply(const std::string& text, bool labelled, int64_t n, int64_t n_columns,
                          int64_t n_labels) {
  SimplyParsed out;
  std::vector<std::string> lines = split(text, "\n");
  lines.pop_back();  // behind the last newline
  for (size_t row = 0; row < lines.size(); ++row) {
    std::vector<std::string> words = split(lines[row], " \t\r");
    const bool wanted = static_cast<int64_t>(row) < n;
    const size_t labels = out.labels.size(), pairs = out.columns.size();
    if (labelled && wanted && !words[0].empty() && words[0].find(':') == std::string::npos) {
      for (const std::string& word : split(words[0], ",")) {
        const int64_t label = to_whole(word, n_labels);
        out.good = out.good && label >= 0;
        out.labels.push_back(static_cast<int32_t>(label));
      }
      words.erase(words.begin());
    }
    for (const std::string& word : words) {
      if (word.empty()) continue;
      const size_t colon = word.find(':');
      if (!wanted || colon == std::string::npos) {
        out.good = false;
        return out;
      }
      const int64_t column = to_whole(word.substr(0, colon), n_columns);
      const std::string number = word.substr(colon + 1);
      const double value = is_number(number) ? std::strtod(number.c_str(), nullptr) : NAN;
      // Where an infinite float32 begins depends on the last digit.
      out.good = out.good && column >= 0 && std::fabs(value) <= 3.4028235677973366e38;
      out.columns.push_back(static_cast<int32_t>(column));
      out.values.push_back(value);
    }
    if (!wanted) continue;
    out.label_counts.push_back(static_cast<int64_t>(out.labels.size() - labels));
    out.pair_counts.push_back(static_cast<int64_t>(out.columns.size() - pairs));
  }
  return out;
}

}  // namespace

void check_parse(const uint8_t* bytes, size_t size) {
  const auto byte = [&](size_t i) { return static_cast<int64_t>(i < size ? bytes[i] : 0); };
  const bool labelled = byte(0) % 2;
  const int64_t n = byte(1) % 8, n_columns = byte(2), n_labels = byte(3);
  Exact<uint8_t> text(static_cast<int64_t>(size > 4 ? size - 4 : 0) + 1);
  if (size > 4) std::copy(bytes + 4, bytes + size, text.begin());
  text[text.size() - 1] = '\n';
  const ParsedText parsed = parse_text(text.data(), text.size(), labelled, n, n_columns, n_labels);
  const SimplyParsed expected =
      parse_simply(std::string(text.begin(), text.end()), labelled, n, n_columns, n_labels);
  CHECK((parsed.fault == kGood) == expected.good);
  CHECK(parsed.at >= 0 && parsed.at < text.size());
  if (parsed.fault != kGood || !expected.good) return;
  CHECK(parsed.label_counts == expected.label_counts && parsed.labels == expected.labels);
  CHECK(parsed.pair_counts == expected.pair_counts && parsed.columns == expected.columns);
  CHECK(parsed.values.size() == expected.values.size());
  for (size_t i = 0; i < parsed.values.size(); ++i)
    CHECK(near(parsed.values[i], expected.values[i], std::fabs(expected.values[i])));
}

// --- learning -----------------------------------------------------------------------------------

void check_training(Source& source) {
  const int64_t rows = source.between(1, 30), dim = source.between(1, 20);
  const int64_t labels = source.between(1, 8);
  const PlantedRows planted = make_rows(source, rows, dim);
  Exact<float> lengths(rows), usual(dim), importance(labels);
  for (int64_t i = 0; i < rows; ++i) {
    lengths[i] = 1;
    for (int64_t e = planted.indptr[i]; e < planted.indptr[i + 1]; ++e)
      lengths[i] += planted.data[e] * planted.data[e];
  }
  for (float& one : usual) one = std::fabs(source.smooth());
  for (float& one : importance) one = 0.5f + std::fabs(source.smooth());
  const Lists positive = draw_lists(source, labels, rows, 6);
  const Lists negative = draw_lists(source, labels, rows, 10);
  const TrainingRows data{planted.rows, lengths.data(), usual.data(), rows, dim};
  const RowLists yes{positive.indptr.data(), positive.numbers.data()};
  const RowLists no{negative.indptr.data(), negative.numbers.data()};
  const TrainOptions options{1, source.coin() ? 0 : 0.05f, 3, source.between(1, 12)};
  const Lists start = draw_lists(source, labels, dim, 4);
  const Exact<float> values = draw_floats(source, static_cast<int64_t>(start.numbers.size()));
  const SparseRows known{start.indptr.data(), start.numbers.data(), values.data()};
  const auto train = [&](int64_t first, int64_t last, Exact<float>& bias) {
    return train_classifiers(first, last, data, yes, no, known, options, importance.data(),
                             bias.data());
  };
  Exact<float> bias(labels), again(labels);
  const Classifiers all = train(0, labels, bias);
  CHECK(static_cast<int64_t>(all.sizes.size()) == labels);
  // What is learned does not depend on how the labels are divided.
  const int64_t middle = source.between(0, labels);
  Classifiers parts = train(0, middle, again);
  const Classifiers rest = train(middle, labels, again);
  parts.sizes.insert(parts.sizes.end(), rest.sizes.begin(), rest.sizes.end());
  parts.features.insert(parts.features.end(), rest.features.begin(), rest.features.end());
  parts.weights.insert(parts.weights.end(), rest.weights.begin(), rest.weights.end());
  CHECK(parts.sizes == all.sizes && parts.features == all.features);
  CHECK(same(bias.data(), again.data(), labels));
  CHECK(same(parts.weights.data(), all.weights.data(), static_cast<int64_t>(all.weights.size())));
  for (const int32_t feature : all.features) CHECK(feature >= 0 && feature < dim);
  for (const float weight : all.weights) CHECK(source.mood == kWild || std::isfinite(weight));
}

void check_packing(Source& source) {
  const int64_t features = source.between(1, 12);
  // Labels more than 65,535 apart need a bridge.
  const int64_t labels = source.one_of({1, 5, 100, 200000}), width = source.between(1, 5);
  const Lists lists = draw_lists(source, features, std::min<int64_t>(labels, 40), 8);
  Exact<int32_t> numbers(lists.numbers.size());
  for (int64_t e = 0; e < numbers.size(); ++e)
    numbers[e] = labels > 1000 ? lists.numbers[e] * 5000 : lists.numbers[e];
  const Exact<float> weights = draw_floats(source, numbers.size());
  const SparseRows matrix{lists.indptr.data(), numbers.data(), weights.data()};
  const PackedWeights packed = pack_weights(matrix, features, labels);
  Exact<int64_t> starts(features + 1);
  std::copy(packed.starts.begin(), packed.starts.end(), starts.begin());
  Exact<uint16_t> gaps(static_cast<int64_t>(packed.gaps.size()));
  std::copy(packed.gaps.begin(), packed.gaps.end(), gaps.begin());
  Exact<int8_t> bytes(gaps.size());
  std::copy(packed.weights.begin(), packed.weights.end(), bytes.begin());
  const Exact<float> bias = draw_floats(source, labels);
  const int64_t rows = source.between(1, 4);
  const PlantedRows given = make_rows(source, rows, features);
  Exact<int64_t> itself(rows), found(rows * width);
  for (int64_t& one : itself) one = source.draw(-1, labels - 1);
  Exact<float> margins(rows * width);
  find_best_outputs(given.rows, 0, rows,
                    {features, labels, starts.data(), gaps.data(), bytes.data(),
                     packed.scale.data()},
                    bias.data(), itself.data(), width, margins.data(), found.data());
  for (int64_t i = 0; i < rows; ++i) {
    std::set<int64_t> seen;
    for (int64_t c = i * width; c < (i + 1) * width; ++c) {
      CHECK(found[c] >= -1 && found[c] < labels);
      if (found[c] < 0) continue;
      CHECK(found[c] != itself[i] && seen.insert(found[c]).second);
      CHECK(source.mood == kWild || c == i * width || margins[c - 1] >= margins[c]);
    }
    if (source.mood == kWild) continue;
    std::set<int64_t> reached;
    for (int64_t e = given.indptr[i]; e < given.indptr[i + 1]; ++e)
      for (int64_t w = starts[given.indices[e]], label = 0; w < starts[given.indices[e] + 1]; ++w)
        reached.insert(label += gaps[w]);
    reached.erase(itself[i]);
    CHECK(seen.size() == std::min(reached.size(), static_cast<size_t>(width)));
    for (int64_t c = i * width; c < (i + 1) * width; ++c) {
      if (found[c] < 0) continue;
      double margin = static_cast<double>(bias[found[c]]), size = std::fabs(margin);
      for (int64_t e = given.indptr[i]; e < given.indptr[i + 1]; ++e)
        for (int64_t w = lists.indptr[given.indices[e]]; w < lists.indptr[given.indices[e] + 1];
             ++w)
          if (numbers[w] == found[c]) {
            margin += static_cast<double>(given.data[e]) * static_cast<double>(weights[w]);
            size += std::fabs(static_cast<double>(given.data[e]));
          }
      // Half a step of rounding, of 127, of the largest weight.
      const double most = 127 * static_cast<double>(packed.scale[static_cast<size_t>(found[c])]);
      CHECK(std::fabs(static_cast<double>(margins[c]) - margin) <=
            size * (most / 250 + 1e-5) + 1e-6);
    }
  }
}

}  // namespace irli
