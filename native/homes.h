// The buckets that hold each label: the entries of the buckets, label by label.
#pragma once

#include <stdint.h>

#include <vector>

#include "layout.h"

namespace irli {

// Lists the homes of the labels of a layout that was checked, and lets the layout point to them.
class Homes {
 public:
  explicit Homes(LabelLayout& layout);

 private:
  std::vector<int64_t> starts_;
  std::vector<Home> homes_;
};

}  // namespace irli
