# What building irli needs: a C++20 compiler and Python's headers. Where one is missing, this says
# what was found instead and how to install it. CMake's own words for that are hard to read.

function(refuse FOUND)
  message(FATAL_ERROR
    "irli is compiled when it is installed from its source. This needs a C++20 compiler (GCC 11, "
    "Clang 14, Visual Studio 2022 or newer) and Python's headers.\n"
    "${FOUND}\n"
    "How to install both:\n"
    "  Debian, Ubuntu   apt install g++ python3-dev\n"
    "  Fedora           dnf install gcc-c++ python3-devel\n"
    "  macOS            xcode-select --install\n"
    "  Windows          Visual Studio Build Tools, with \"Desktop development with C++\"\n"
    "Another compiler can be named by the environment variable CXX.")
endfunction()

include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
elseif(DEFINED ENV{CXX})
  refuse("CXX is '$ENV{CXX}', which does not compile C++.")
else()
  refuse("No C++ compiler that works was found.")
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_EXTENSIONS OFF)
include(CheckSourceCompiles)
check_source_compiles(CXX "
  #include <bit>
  #include <concepts>
  #include <span>
  template <std::integral T> int count(std::span<const T> all) { return std::popcount(all.size()); }
  struct Point { int x, y; };
  int main() {
    const int values[] = {1, 2, 3};
    const Point point{.x = 1, .y = 2};
    return count<int>(values) + point.x;
  }" IRLI_COMPILES_CXX20)
if(NOT IRLI_COMPILES_CXX20)
  refuse("The C++ compiler that was found does not compile C++20: ${CMAKE_CXX_COMPILER}, which is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}.")
endif()

find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module ${SKBUILD_SABI_COMPONENT})
if(NOT Python_FOUND)
  refuse("The headers of Python ${Python_VERSION} (${Python_EXECUTABLE}) were not found.")
endif()
