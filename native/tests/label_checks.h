// The kernels of learning on labels, and the parser of XMC text, against straightforward code.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace irli {

class Source;
void check_training(Source& source);
void check_packing(Source& source);

// Parse a text. The first bytes choose how many rows, columns and labels there may be.
void check_parse(const uint8_t* bytes, size_t size);

}  // namespace irli
