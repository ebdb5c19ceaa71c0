// select.h against sorting, with numbers from a generator or a fuzzer.
#pragma once

namespace irli {

class Source;
void check_select(Source& source);

}  // namespace irli
