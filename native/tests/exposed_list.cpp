#include <algorithm>
#include <string>

#include "cpu.h"
#include "exposed.h"

namespace irli {

// ALL_EXPOSED is the list of the back-ends in this build.
#define DECLARE(name) const Exposed* exposed_##name();
#define CALL(name) exposed_##name(),
#define EXPOSED DECLARE
ALL_EXPOSED
#undef EXPOSED
#define EXPOSED CALL

const std::vector<const Exposed*>& exposed_backends() {
  static const std::vector<const Exposed*> found = [] {
    const std::vector<std::string> names = available_simd();
    std::vector<const Exposed*> usable;
    for (const Exposed* backend : {ALL_EXPOSED}) {
      const std::string name = backend->name;
      if (name == "fused" || std::count(names.begin(), names.end(), name))
        usable.push_back(backend);
    }
    return usable;
  }();
  return found;
}

const std::vector<const Kernels*>& all_kernels() {
  static const std::vector<const Kernels*> found = [] {
    std::vector<const Kernels*> tables;
    for (const std::string& name : available_simd()) {
      use_simd(name);
      tables.push_back(&kernels());
    }
    tables.push_back(exposed_backends().back()->kernels);
    return tables;
  }();
  return found;
}

}  // namespace irli
