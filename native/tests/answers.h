// Searches with every back-end, and what must hold for their answers.
#pragma once

#include "layouts.h"

namespace irli {

// Search `count` random queries with every back-end.
//
// Back-ends with FMA must give the same bits. Each answer must hold different allowed items, in
// order, with their exact distances. If the plan makes the search exhaustive, they must be the
// nearest. If the numbers are wild, only what does not depend on their rounding is checked.
void check_search(Source& source, const Planted& planted, const SearchPlan& plan, int64_t count);

// Search for one random query, and check what that leaves in the scratch memory: what was read, the
// votes, and the scores of the results.
void check_scratch(Source& source, const Planted& planted, const SearchPlan& plan);

}  // namespace irli
