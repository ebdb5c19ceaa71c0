# What building irli needs: a C++20 compiler and Python's headers. Where one is missing, this says
# what was found instead and how to install it; CMake's own messages are hard to read.

function(refuse found)
  message(FATAL_ERROR
    "irli is compiled when it is installed from its source. This needs a C++20 compiler (GCC 11, "
    "Clang 14, Visual Studio 2022 or newer) and Python's headers.\n"
    "${found}\n"
    "How to install both:\n"
    "  Debian, Ubuntu   apt install g++ python3-dev\n"
    "  Fedora           dnf install gcc-c++ python3-devel\n"
    "  macOS            xcode-select --install\n"
    "  Windows          Visual Studio Build Tools, with \"Desktop development with C++\"\n"
    "The environment variable CXX can name another compiler.")
endfunction()

# Macros, not functions: what they find is for the whole project.
macro(require_compiler)
  include(CheckLanguage)
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
  elseif(DEFINED ENV{CXX})
    refuse("The C++ compiler '$ENV{CXX}' is not there, or does not work.")
  else()
    refuse("No C++ compiler was found.")
  endif()

  set(CMAKE_CXX_STANDARD 20)
  set(CMAKE_CXX_EXTENSIONS OFF)
  include(CheckSourceCompiles)
  check_source_compiles(CXX "
    #include <bit>
    #include <concepts>
    #include <span>
    template <std::integral T> auto size(std::span<T> all) { return std::bit_width(all.size()); }
    struct Point { int x, y; };
    int main() {
      int values[] = {1, 2, 3};
      Point point{.x = 1, .y = 2};
      return static_cast<int>(size<int>(values)) + point.x;
    }" IRLI_COMPILES_CXX20)
  if(NOT IRLI_COMPILES_CXX20)
    refuse("${CMAKE_CXX_COMPILER} is ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, \
which does not compile C++20.")
  endif()
endmacro()

macro(require_python)
  find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module
               OPTIONAL_COMPONENTS Development.SABIModule)
  if(NOT Python_FOUND)
    refuse("The headers of Python ${Python_VERSION} (${Python_EXECUTABLE}) were not found.")
  endif()
endmacro()
