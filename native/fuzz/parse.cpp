// Texts of XMC data: the one kernel that reads what a stranger wrote, byte by byte.
#include "label_checks.h"
#include "targets.h"

void irli::fuzz_parse(const uint8_t* bytes, size_t size) { check_parse(bytes, size); }
