// The tests that main.cpp runs.
#pragma once

namespace irli {

void test_simd();
void test_dense();
void test_select();
void test_search();
void test_many_queries();
void test_many_items();
void test_predict();
void test_top_k();
void test_codes();
void test_learning();
void test_check_layout();

}  // namespace irli
