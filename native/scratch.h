// The scratch memory of threads, and a pool of it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "layout.h"

namespace irli {

// Memory that starts at a cache line.
struct FreeAligned {
  void operator()(void* memory) const;
};
using Memory = std::unique_ptr<void, FreeAligned>;
Memory allocate(size_t bytes, bool zeroed);

// Hands out arrays and owns them.
class Arena {
 public:
  template <class T>
  T* make(int64_t count, bool zeroed = false) {
    held_.push_back(allocate(static_cast<size_t>(count < 1 ? 1 : count) * sizeof(T), zeroed));
    return static_cast<T*>(held_.back().get());
  }

 private:
  std::vector<Memory> held_;
};

// The scratch memory of one thread for vector search.
class SearchScratch {
 public:
  explicit SearchScratch(const VectorLayout& layout);
  Scratch& prepare(const SearchPlan& plan);  // makes room for its results

 private:
  Arena arena_;
  Memory keys_, compared_, columns_, firsts_;
  int64_t dim_;
  Scratch scratch_{};
};

// The scratch memory of one thread for label prediction.
class PredictScratch {
 public:
  explicit PredictScratch(const LabelLayout& layout);
  LabelScratch& get() { return scratch_; }

 private:
  Arena arena_;
  LabelScratch scratch_{};
};

// Idle scratch memory. Each piece is made on demand and used by one thread at a time.
//
// The lock is only tried for: a thread that does not get it makes new memory. So a fork while
// another thread holds the lock leaves nobody waiting.
template <class T>
class Pool {
 public:
  std::unique_ptr<T> take() {
    if (!try_lock()) return nullptr;
    std::unique_ptr<T> piece;
    if (!idle_.empty()) {
      piece = std::move(idle_.back());
      idle_.pop_back();
    }
    lock_.clear(std::memory_order_release);
    return piece;
  }

  void put(std::unique_ptr<T> piece) {
    if (!try_lock()) return;
    if (idle_.size() < 64) idle_.push_back(std::move(piece));
    lock_.clear(std::memory_order_release);
  }

 private:
  bool try_lock() {
    for (int attempt = 0; attempt < 1000; ++attempt)
      if (!lock_.test_and_set(std::memory_order_acquire)) return true;
    return false;
  }

  std::atomic_flag lock_ = ATOMIC_FLAG_INIT;
  std::vector<std::unique_ptr<T>> idle_;
};

// A piece of a pool, made if none is idle, and put back at the end.
template <class T>
class Borrowed {
 public:
  template <class Layout>
  Borrowed(Pool<T>& pool, const Layout& layout) : pool_(pool), piece_(pool.take()) {
    if (!piece_) piece_ = std::make_unique<T>(layout);
  }
  ~Borrowed() { pool_.put(std::move(piece_)); }
  Borrowed(const Borrowed&) = delete;
  T& operator*() const { return *piece_; }
  T* operator->() const { return piece_.get(); }

 private:
  Pool<T>& pool_;
  std::unique_ptr<T> piece_;
};

}  // namespace irli
