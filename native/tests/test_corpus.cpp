// The inputs that fuzzing has kept: one in a line, as hexadecimal numbers.
#include <stdlib.h>

#include <fstream>
#include <vector>

#include "check.h"
#include "layouts.h"
#include "targets.h"
#include "tests.h"

namespace irli {

void test_corpus() {
  for (const Target& target : kTargets) {
    std::ifstream file(std::string(CORPUS) + "/" + target.name + ".txt");
    CHECK(file.good());
    int64_t number = 0;
    for (std::string line; std::getline(file, line);) {
      Exact<uint8_t> bytes(static_cast<int64_t>(line.size() / 2));
      for (int64_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<uint8_t>(
            strtoul(line.substr(static_cast<size_t>(2 * i), 2).c_str(), nullptr, 16));
      about = std::string("corpus of ") + target.name + ", line " + std::to_string(++number);
      target.run(bytes.data(), static_cast<size_t>(bytes.size()));
    }
  }
}

}  // namespace irli
