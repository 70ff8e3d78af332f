#include "tests/hostile/twist.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace precis::hostile {
namespace {

constexpr std::uint32_t kAgainOneIn = 6;  // after the first change, one frame in so many is changed

}  // namespace

std::vector<Twister::Piece> Twister::twist(Buffer bytes, const std::vector<int>& pass, int other) {
  std::vector<Piece> pieces;
  Piece piece{std::move(bytes), pass};
  const bool changes = untouched_ == 0 && (!begun_ || random_() % kAgainOneIn == 0);
  if (untouched_ > 0) --untouched_;
  if (!changes) {
    pieces.push_back(std::move(piece));
    for (Piece& late : std::exchange(held_, {})) pieces.push_back(std::move(late));
    return pieces;
  }
  begun_ = true;
  change(piece, pieces, other);
  return pieces;
}

void Twister::change(Piece& piece, std::vector<Piece>& pieces, int other) {
  switch (random_() % 12) {
    case 0:
    case 1: flip_bits(piece.bytes); break;
    case 2:
    case 3: change_number(piece.bytes); break;
    case 4: piece.bytes.resize(random_() % (piece.bytes.size() + 1)); break;
    case 5: {  // extra bytes
      const std::size_t more = random_() % 300;
      for (std::size_t i = 0; i < more; ++i) piece.bytes.push_back(std::byte(random_()));
      break;
    }
    case 6: pieces.push_back(piece); break;  // sent twice
    case 7: held_.push_back(std::exchange(piece, {})); break;
    case 8: return split(piece, pieces);
    case 9:
      if (!recording_.empty()) piece.bytes = recording_[random_() % recording_.size()];
      break;
    case 10: piece.pass.assign(1 + random_() % 4, other); break;
    default: hangs_up_ = random_() % 2 == 0; piece = {};
  }
  if (!piece.bytes.empty()) pieces.push_back(std::move(piece));
}

void Twister::flip_bits(Buffer& bytes) {
  for (std::size_t i = 1 + random_() % 8; i > 0 && !bytes.empty(); --i) {
    // Headers are changed as often as bodies, which are longer.
    const std::size_t range =
        random_() % 2 == 0 ? std::min<std::size_t>(48, bytes.size()) : bytes.size();
    bytes[random_() % range] ^= std::byte(1u << random_() % 8);
  }
}

// Lengths, ids, offsets and kinds are numbers of 1 to 8 bytes.
void Twister::change_number(Buffer& bytes) {
  constexpr std::array<std::uint64_t, 12> kNumbers{
      0, 1, 2, 7, 0xff, 0xffff, 4096, 4097, 0x7fffffff, 0xffffffff, 1ull << 40, ~0ull};
  const std::size_t size = std::size_t{1} << random_() % 4;
  if (bytes.size() < size) return;
  const std::size_t range =
      random_() % 2 == 0 ? std::min<std::size_t>(32, bytes.size()) : bytes.size();
  const std::size_t at = std::min(random_() % range / size * size, bytes.size() - size);
  const std::uint64_t number = kNumbers[random_() % kNumbers.size()];
  std::memcpy(bytes.data() + at, &number, size);
}

void Twister::split(Piece& piece, std::vector<Piece>& pieces) {
  if (piece.bytes.empty()) return;
  const auto at = static_cast<std::ptrdiff_t>(random_() % piece.bytes.size());
  Piece rest{Buffer(piece.bytes.begin() + at, piece.bytes.end()), {}, /*late=*/true};
  piece.bytes.resize(static_cast<std::size_t>(at));
  if (at > 0) pieces.push_back(std::move(piece));
  pieces.push_back(std::move(rest));
}

}  // namespace precis::hostile
