// The kernels of learning on labels, and the parser of XMC text.
#include "check.h"
#include "label_checks.h"
#include "labels.h"
#include "source.h"
#include "tests.h"

namespace irli {
namespace {

// Rows, columns and labels below 7, 50 and 60.
ParsedText parse(const std::string& text) {
  return parse_text(reinterpret_cast<const uint8_t*>(text.data()),
                    static_cast<int64_t>(text.size()), true, 7, 50, 60);
}

void test_texts() {
  const std::string texts[] = {
      "1,2 3:4 5:0.5\n\n7 \n8:1\n",
      "  3:1\t4:2 \r\n0 0:-1.5e-3\n",
      "59 49:3.4e38 1:-.5 2:5. 3:+1E+2\n",
      "1 2:00000000000000000000000000000000000000000000012.5000000000000000000000000000000001\n",
      "1 2:1e-400 3:0e999999999999 4:123456789012345678901234567890e-25\n",
      "00059 00049:1\n",
      "1, 2:3\n",
      "60 1:1\n",
      "1 50:1\n",
      "1 2\n",
      "1 2:\n",
      "1 2:x\n",
      "1 2:1e\n",
      "1 2:1e+\n",
      "1 2:1e999\n",
      "1 2:.\n",
      "1 2:-\n",
      "1 2:1.2.3\n",
      "1 2:nan\n",
      "1 2:inf\n",
      ":\n",
      ",\n",
      "1 2:3 4\n",
      "99999999999999999999 1:1\n",
      "1 99999999999999999999:1\n",
      "-1 1:1\n",
      "\n\n\n\n\n\n\n\n",
      "\n\n\n\n\n\n\n1\n",
      "1 2:1:3\n",
      "1;2 3:4\n",
  };
  for (const std::string& text : texts) {
    about = "text '" + text + "'";
    std::string input = "\x01\x07\x32\x3c" + text;  // labelled, 7 rows, 50 columns, 60 labels
    input.pop_back();                               // check_parse adds the newline
    check_parse(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  about = "faults";
  CHECK(parse("1 2:3\n,1 2:3\n").fault == kBadLabel && parse("1 2:3\n,1 2:3\n").at == 6);
  CHECK(parse("1 2:3 4\n").fault == kBadPair && parse("1 2:3 4\n").at == 6);
  CHECK(parse("1 2:y\n").fault == kBadValue && parse("1 2:y\n").at == 4);
  CHECK(parse("\n\n\n\n\n\n\n1:1\n").fault == kRowTooMany);
  CHECK(parse("\n\n\n\n\n\n\n1:1\n").at == 7);
  const char codes[] = "0123456789:,. \n\te-+";
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Source source(seed);
    about = "random text, seed " + std::to_string(seed);
    std::string input = "\x01\x05\x08\x08";
    for (int64_t length = source.draw(0, 40); length > 0; --length)
      input += codes[source.draw(0, 18)];
    check_parse(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
}

}  // namespace

void test_labels() {
  test_texts();
  for (uint64_t seed = 0; seed < 300; ++seed) {
    for (const auto check : {check_training, check_packing}) {
      Source source(seed);
      source.mood = static_cast<Mood>(seed % 3);
      about = "learning on labels, seed " + std::to_string(seed);
      check(source);
    }
  }
}

}  // namespace irli
