// Changes bits, lengths, order, descriptors or timing of one or a few of a client's frames.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/hostile/wire.h"

namespace precis::hostile {

// Frames of whole sessions, as they were sent.
using Recording = std::vector<Buffer>;

class Twister {
 public:
  struct Piece {
    Buffer bytes;
    std::vector<int> pass;
    bool late = false;  // sent after a delay
  };
  // `recording` must outlive this object; its frames replace frames of the session. The first
  // `first` frames are sent unchanged.
  Twister(std::uint32_t seed, const Recording& recording, std::uint32_t first)
      : random_(seed), recording_(recording), untouched_(first) {}

  // The pieces to send in place of one frame with the descriptors `pass`; `other` is an unrelated
  // descriptor.
  std::vector<Piece> twist(Buffer bytes, const std::vector<int>& pass, int other);
  bool has_begun() const { return begun_; }
  bool hangs_up() const { return hangs_up_; }
  std::mt19937& random() { return random_; }

 private:
  void change(Piece& piece, std::vector<Piece>& pieces, int other);
  void flip_bits(Buffer& bytes);
  void change_number(Buffer& bytes);
  void split(Piece& piece, std::vector<Piece>& pieces);

  std::mt19937 random_;
  const Recording& recording_;
  std::uint32_t untouched_;
  bool begun_ = false, hangs_up_ = false;
  std::vector<Piece> held_;  // to be sent after the next frame
};

}  // namespace precis::hostile
