#include "cpu.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(_MSC_VER)
#include <intrin.h>
#include <windows.h>
#endif

namespace irli {
namespace {

#if defined(IRLI_X86)
#if defined(_MSC_VER) && !defined(__clang__)
struct Features {
  bool avx2 = false, avx512 = false;
  Features() {
    int leaf[4];
    __cpuid(leaf, 0);
    if (leaf[0] < 7) return;
    __cpuid(leaf, 1);
    const bool fma = leaf[2] >> 12 & 1, osxsave = leaf[2] >> 27 & 1;
    if (!osxsave) return;
    const unsigned long long state = _xgetbv(0);
    __cpuidex(leaf, 7, 0);
    const unsigned ebx = static_cast<unsigned>(leaf[1]), ecx = static_cast<unsigned>(leaf[2]);
    avx2 = (state & 6) == 6 && fma && (ebx >> 5 & 1);
    const bool all = (ebx >> 16 & 1) && (ebx >> 17 & 1) && (ebx >> 30 & 1) && (ebx >> 31 & 1);
    avx512 = avx2 && (state & 0xE6) == 0xE6 && all && (ecx >> 11 & 1);
  }
};
bool has_avx2() { return Features().avx2; }
bool has_avx512() { return Features().avx512; }
#else
// These also ask whether the system saves the wide registers.
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif
#endif

#if defined(IRLI_ARM)
bool has_dot_products() {
#if defined(__linux__)
  return getauxval(AT_HWCAP) & (1UL << 20);  // HWCAP_ASIMDDP
#elif defined(__APPLE__)
  int there = 0;
  size_t size = sizeof there;
  return sysctlbyname("hw.optional.arm.FEAT_DotProd", &there, &size, nullptr, 0) == 0 && there;
#elif defined(_WIN32)
  return IsProcessorFeaturePresent(43);  // PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE
#else
  return false;
#endif
}
#endif

std::vector<const Kernels*> find_backends() {
  std::vector<const Kernels*> found = {plain_kernels()};
#if defined(IRLI_X86)
  if (has_avx2()) found.push_back(avx2_kernels());
  if (has_avx512()) found.push_back(avx512_kernels());
#endif
#if defined(IRLI_ARM)
  found.push_back(neon_kernels());
  if (has_dot_products()) found.push_back(neondot_kernels());
#endif
  return found;
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

std::vector<std::string> available_simd() {
  std::vector<std::string> names;
  for (const Kernels* backend : find_backends()) names.push_back(backend->name);
  return names;
}

const Kernels& kernels() {
  const Kernels* current = chosen.load(std::memory_order_acquire);
  if (current) return *current;
  const char* wanted = std::getenv("IRLI_SIMD");
  if (wanted && *wanted) {
    use_simd(wanted);
  } else {
    chosen.store(find_backends().back(), std::memory_order_release);
  }
  return *chosen.load(std::memory_order_acquire);
}

void use_simd(const std::string& name) {
  std::string names;
  for (const Kernels* backend : find_backends()) {
    if (name == backend->name) {
      chosen.store(backend, std::memory_order_release);
      return;
    }
    names += (names.empty() ? "" : ", ") + std::string(backend->name);
  }
  throw std::invalid_argument("The environment variable IRLI_SIMD must be one of " + names +
                              " on this processor. Got '" + name +
                              "' instead. Unset it to use the best one.");
}

}  // namespace irli
