// Where random numbers come from: a generator in tests, the input of a fuzzer in fuzz targets.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <initializer_list>

namespace irli {

// What floats look like.
enum Mood : int64_t {
  kSmooth = 0,  // between -1 and 1
  kWhole = 1,   // small whole numbers, so that sums are exact and ties abound
  kWild = 2,    // now and then NaN, infinite, huge or tiny
};

class Source {
 public:
  explicit Source(uint64_t seed) : state_(seed * 2 + 1) {}
  Source(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {
    uint64_t seed = 0;
    for (size_t i = 0; i < size && i < 8; ++i) seed = seed << 8 | bytes[i];
    state_ = seed * 2 + 1;
  }

  Mood mood = kSmooth;
  bool is_fuzzer() const { return bytes_; }  // which prefers many small cases

  // A whole number in [0, bound). Takes the next bytes of the input while there are some.
  int64_t below(int64_t bound) {
    if (at_ >= size_) return static_cast<int64_t>(bits() % static_cast<uint64_t>(bound));
    uint64_t value = 0;
    for (int64_t most = bound; most > 1 && at_ < size_; most = (most + 255) / 256)
      value = value << 8 | bytes_[at_++];
    return static_cast<int64_t>(value % static_cast<uint64_t>(bound));
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool coin() { return below(2) == 1; }
  int64_t one_of(std::initializer_list<int64_t> values) {
    return values.begin()[below(static_cast<int64_t>(values.size()))];
  }

  // Many numbers come from a generator that the input seeds: an input stays small.
  uint64_t bits() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ * 0x2545F4914F6CDD1DULL >> 16;
  }
  int64_t draw(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits() % static_cast<uint64_t>(high - low + 1));
  }
  float smooth() { return static_cast<float>(draw(-(1 << 23), 1 << 23)) / (1 << 23); }
  float value() {
    if (mood == kWhole) return static_cast<float>(draw(-3, 3));
    if (mood == kWild && draw(0, 9) == 0) return wild();
    return smooth();
  }
  static constexpr float kWildValues[] = {NAN,    -NAN,    INFINITY, -INFINITY, 3e38f, -3e38f,
                                          1e-40f, -1e-40f, 0.0f,     -0.0f,     1e19f, 1e-30f};
  float wild() { return kWildValues[draw(0, 11)]; }

 private:
  const uint8_t* bytes_ = nullptr;
  size_t size_ = 0, at_ = 0;
  uint64_t state_;
};

}  // namespace irli
