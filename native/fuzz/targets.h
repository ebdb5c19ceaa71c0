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
void fuzz_labels(const uint8_t* bytes, size_t size);
void fuzz_parse(const uint8_t* bytes, size_t size);
void fuzz_training(const uint8_t* bytes, size_t size);

struct Target {
  const char* name;
  void (*run)(const uint8_t* bytes, size_t size);
};
constexpr Target kTargets[] = {
    {"bytes", fuzz_bytes},   {"labels", fuzz_labels},     {"learning", fuzz_learning},
    {"parse", fuzz_parse},   {"predict", fuzz_predict},   {"search", fuzz_search},
    {"select", fuzz_select}, {"training", fuzz_training},
};

}  // namespace irli
