// The fuzz targets. Each makes something of the bytes of an input, runs it with every back-end, and
// checks what comes out. native_tests runs them, too, on the inputs that are kept in corpus/.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace irli {

void fuzz_search(const uint8_t* bytes, size_t size);
void fuzz_predict(const uint8_t* bytes, size_t size);
void fuzz_select(const uint8_t* bytes, size_t size);
void fuzz_bytes(const uint8_t* bytes, size_t size);
void fuzz_learning(const uint8_t* bytes, size_t size);
void fuzz_ranker(const uint8_t* bytes, size_t size);
void fuzz_parse(const uint8_t* bytes, size_t size);

struct Target {
  const char* name;
  void (*run)(const uint8_t* bytes, size_t size);
};
constexpr Target kTargets[] = {
    {"search", fuzz_search},     {"predict", fuzz_predict}, {"select", fuzz_select},
    {"bytes", fuzz_bytes},       {"ranker", fuzz_ranker},   {"parse", fuzz_parse},
    {"learning", fuzz_learning},
};

}  // namespace irli
