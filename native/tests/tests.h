// The tests that main.cpp runs.
#pragma once

namespace irli {

void test_simd();
void test_dense();
void test_select();
void test_soften();
void test_search();
void test_stages();
void test_many_queries();
void test_many_items();
void test_predict();
void test_learning();
void test_training();
void test_labels();
void test_check_layout();
void test_corpus();

}  // namespace irli
