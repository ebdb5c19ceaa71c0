// pq.inl with each back-end: the codes are the best ones, and the same wherever FMA exists.
#include <math.h>

#include <algorithm>

#include "check.h"
#include "exposed.h"
#include "layouts.h"
#include "learning.h"
#include "tests.h"

namespace irli {
namespace {

// Vectors (n, M s), their directions, and codewords (M, s, 16).
struct Problem {
  bool wild;  // sums may overflow, so that no code is the best
  int64_t count, pieces, size;
  Exact<float> x, along, codewords;

  Problem(Source& source, int64_t count_, int64_t pieces_, int64_t size_)
      : wild(source.mood == kWild), count(count_), pieces(pieces_),
        size(size_),
        x(draw_floats(source, count * pieces * size)),
        along(draw_floats(source, count * pieces * size)),
        codewords(draw_floats(source, pieces * size * kWords)) {}

  // |e|^2 + (eta - 1) <e, along>^2 of vector i.
  double loss(int64_t i, const uint8_t* codes, double eta) const {
    double error = 0, inner = 0;
    for (int64_t p = 0; p < pieces * size; ++p) {
      const double gap = static_cast<double>(x[i * pieces * size + p]) -
                         codewords[p * kWords + codes[p / size]];
      error += gap * gap;
      inner += gap * along[i * pieces * size + p];
    }
    return error + (eta - 1) * inner * inner;
  }
};

void test_find_codes(const Kernels& kernels, const Problem& problem, Exact<uint8_t>& codes) {
  kernels.find_codes(problem.x.data(), problem.count, problem.codewords.data(), problem.pieces,
                     problem.size, codes.data());
  for (const uint8_t code : codes) CHECK(code < kWords);
  for (int64_t i = 0; i < problem.count && !problem.wild; ++i) {
    uint8_t* mine = codes.data() + i * problem.pieces;
    const double loss = problem.loss(i, mine, 1.0);
    for (int64_t m = 0; m < problem.pieces; ++m) {
      const uint8_t chosen = mine[m];
      for (uint8_t other = 0; other < kWords; ++other) {
        mine[m] = other;
        CHECK(problem.loss(i, mine, 1.0) >= loss - 1e-5);
      }
      mine[m] = chosen;
    }
  }
}

void test_improve_codes(const Kernels& kernels, const Problem& problem, Exact<uint8_t>& codes) {
  Exact<double> before(problem.count);
  for (int64_t i = 0; i < problem.count; ++i)
    before[i] = problem.loss(i, codes.data() + i * problem.pieces, 4.0);
  kernels.improve_codes(problem.x.data(), problem.along.data(), problem.count,
                        problem.codewords.data(), problem.pieces, problem.size, 4.0f, codes.data());
  for (int64_t i = 0; i < problem.count && !problem.wild; ++i)
    CHECK(problem.loss(i, codes.data() + i * problem.pieces, 4.0) <= before[i] + 1e-3);
  for (const uint8_t code : codes) CHECK(code < kWords);
}

}  // namespace

void test_codes() {
  const std::vector<const Exposed*>& backends = exposed_backends();
  Source source(1);
  for (const Mood mood : {kSmooth, kWhole, kWild}) {
    for (const int64_t count : {0, 1, 7, 8, 9, 20}) {
      for (const int64_t size : {1, 2, 3, 16}) {
        source.mood = mood;
        const Problem problem(source, count, source.one_of({1, 2, 5}), size);
        Exact<uint8_t> found(count * problem.pieces), improved(found.size());
        backends.back()->kernels->find_codes(problem.x.data(), count, problem.codewords.data(),
                                             problem.pieces, size, found.data());
        std::copy(found.begin(), found.end(), improved.begin());
        backends.back()->kernels->improve_codes(problem.x.data(), problem.along.data(), count,
                                                problem.codewords.data(), problem.pieces, size,
                                                4.0f, improved.data());
        for (const Exposed* backend : backends) {
          about = backend->name;
          Exact<uint8_t> codes(found.size());
          test_find_codes(*backend->kernels, problem, codes);
          const bool has_fma = backend != backends.front();
          if (has_fma) CHECK(std::equal(codes.begin(), codes.end(), found.begin()));
          test_improve_codes(*backend->kernels, problem, codes);
          if (has_fma) CHECK(std::equal(codes.begin(), codes.end(), improved.begin()));
        }
      }
    }
  }
}

}  // namespace irli
