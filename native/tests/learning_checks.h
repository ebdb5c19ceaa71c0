// The kernels of learning against straightforward code, with numbers from a generator or a fuzzer.
#pragma once

namespace irli {

class Source;
void check_ranking(Source& source);
void check_placement(Source& source);
void check_codes(Source& source);
void check_top_k(Source& source);

}  // namespace irli
