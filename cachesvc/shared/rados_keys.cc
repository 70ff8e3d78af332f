#include "cachesvc/shared/rados_keys.h"

#include <charconv>
#include <system_error>

namespace precis::rados {
namespace {

constexpr char kEscape = 1;
constexpr std::string_view kObjectBegin = "object.";

std::string digits_of(std::uint32_t shard) {
  std::string text(4, '0');
  for (std::size_t i = text.size(); i-- > 0; shard /= 16) text[i] = "0123456789abcdef"[shard % 16];
  return text;
}

}  // namespace

std::string rows_object(std::uint32_t group) { return "rows." + std::to_string(group); }

std::string piece_name(const std::string& object, std::size_t piece) {
  return std::string(kObjectBegin) + object + (piece == 0 ? "" : ":" + std::to_string(piece));
}

std::optional<Piece> piece_in(std::string_view name) {
  const auto colon = name.find(':');
  if (!name.starts_with(kObjectBegin)) return {};
  Piece piece{std::string(name.substr(0, colon).substr(kObjectBegin.size())), 0};
  if (colon == std::string_view::npos) return piece;
  const std::string_view digits = name.substr(colon + 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), piece.number);
  const bool is_ours = error == std::errc() && piece.number < kPiecesMax &&
                       piece_name(piece.object, piece.number) == name;
  if (!is_ours) return {};
  return piece;
}

std::string mark_key(std::uint32_t shard) { return "e" + digits_of(shard); }

std::string row_prefix(std::uint32_t shard) { return "r" + digits_of(shard); }

std::string without_zeros(std::string_view key) {
  std::string text;
  text.reserve(key.size() + 8);
  for (const char byte : key) {
    if (byte == 0 || byte == kEscape) {
      text += kEscape;
      text += static_cast<char>(byte + 1);
    } else {
      text += byte;
    }
  }
  return text;
}

std::optional<std::string> with_zeros(std::string_view text) {
  std::string key;
  key.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == 0) return {};
    if (text[i] != kEscape) {
      key += text[i];
      continue;
    }
    if (++i == text.size() || (text[i] != 1 && text[i] != 2)) return {};
    key += static_cast<char>(text[i] - 1);
  }
  return key;
}

}  // namespace precis::rados
