// The extension module `irli._native`.

#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "cpu.h"

namespace irli {
namespace {

// What Python and the kernels must agree on.
void bind_constants(nb::module_& m) {
  const std::pair<const char*, int64_t> numbers[] = {
      {"BLOCK", kBlock},
      {"CODES", kCodes},
      {"COMPARED", kCompared},
      {"COMPARED_LANES", kRows},
      {"COSINE", kCosine},
      {"DOT", kDot},
      {"IP", kIp},
      {"L2", kL2},
      {"LANES", kLanes},
      {"LEAST_COMPARED", kTogether},
      {"LEAST_ROUNDED", kLeastRounded},
      {"LEVELS", kLevels},
      {"LOG_PROBABILITY", kLogProbability},
      {"MOST", kMost},
      {"MOST_CANDIDATES", kMostCandidates},
      {"PANEL", kPanel},
      {"PLAIN", kPlain},
      {"PROBABILITY", kProbability},
      {"VOTES", kVotes},
      {"WORDS", kWords},
      {"ZERO", kZero},
  };
  for (const auto& [name, value] : numbers) m.attr(name) = value;
  m.attr("LEAST_VOTES") = kLeastVotes;
}

}  // namespace
}  // namespace irli

NB_MODULE(_native, m) {
  using namespace irli;
  m.doc() = "The compiled kernels of irli.";
  m.def(
      "simd", [] { return std::string(kernels().name); },
      "Return the name of the vector instructions in use.");
  m.def("available_simd", &available_simd,
        "Return the names of the vector instructions that can be used here, slowest first.");
  m.def("use_simd", &use_simd, nb::arg("name"),
        "Use other vector instructions for what is made from now on. For tests.");
  kernels();  // chooses the back-end, so that a wrong IRLI_SIMD fails at import
  bind_constants(m);
  bind_search(m);
  bind_predict(m);
  bind_dense(m);
  bind_learning(m);
  bind_labels(m);
  bind_trainer(m);
}
