// Of what whoever reaches the port can make happen, the log has some at a time and how many more:
// it could be filled otherwise.
#pragma once

#include <utility>

namespace precis {

// Loop thread only.
class ToldSome {
 public:
  static constexpr unsigned kMax = 10;  // between two calls of more()

  // Whether the one that has just happened is to be told.
  bool tell() { return ++happened_ <= kMax; }
  // How many were not told since the last call; begins anew.
  unsigned more() {
    const unsigned happened = std::exchange(happened_, 0);
    return happened > kMax ? happened - kMax : 0;
  }

 private:
  unsigned happened_ = 0;
};

}  // namespace precis
