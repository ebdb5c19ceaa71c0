// The training of routers against straightforward code, with numbers from a generator or a fuzzer.
#pragma once

#include <stdint.h>

namespace irli {

class Source;

// Products of rows with panels, and the largest of each, for matrices of these sizes.
void check_product(Source& source, int64_t count, int64_t depth, int64_t columns);

// One step of training with every back-end: losses, gradients, and what Adam makes of them.
void check_step(Source& source);

// Several batches by a `Trainer`: the number of threads, and where it stops, change no bit.
void check_trainer(Source& source);

}  // namespace irli
