#include "precis/printable.h"

#include <cstdint>

#include "utf8.h"

namespace precis {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// `character` must be one character of well-formed UTF-8.
std::uint32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(character[k]); };
  if (character.size() == 1) return byte(0);
  std::uint32_t point = byte(0) & (0x7fu >> character.size());
  for (std::size_t k = 1; k < character.size(); ++k) point = (point << 6) | (byte(k) & 0x3fu);
  return point;
}

bool acts_on_terminal(std::uint32_t point) {
  const auto within = [&](std::uint32_t first, std::uint32_t last) {
    return point >= first && point <= last;
  };
  return point < 0x20 || within(0x7f, 0x9f) || point == 0x61c || within(0x200e, 0x200f) ||
         within(0x2028, 0x202e) || within(0x2066, 0x2069);
}

void append_point(std::string& out, std::uint32_t point) {
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += kHex[(point >> shift) & 0xf];
}

// Escapes `text`. `own` returns true if it has written the character itself; `bad` writes a byte
// that is not UTF-8.
template <typename Own, typename Bad>
std::string escaped(std::string_view text, const Own& own, const Bad& bad) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      bad(out, static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
      continue;
    }
    const std::string_view character = text.substr(0, length);
    if (!own(out, character)) {
      const std::uint32_t point = code_point(character);
      if (acts_on_terminal(point)) {
        append_point(out, point);
      } else {
        out += character;
      }
    }
    text.remove_prefix(length);
  }
  return out;
}

void append_byte(std::string& out, unsigned char byte) {
  out += "\\x";
  out += kHex[byte >> 4];
  out += kHex[byte & 0xf];
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(
      text, [](std::string&, std::string_view) { return false; }, append_byte);
}

std::string printable_lines(std::string_view text) {
  const auto keep_line_feeds = [](std::string& out, std::string_view character) {
    if (character != "\n") return false;
    out += '\n';
    return true;
  };
  return escaped(text, keep_line_feeds, append_byte);
}

std::string json_string(std::string_view text) {
  const auto quote = [](std::string& out, std::string_view character) {
    if (character != "\"" && character != "\\") return false;
    out += '\\';
    out += character;
    return true;
  };
  const auto replace = [](std::string& out, unsigned char) { out += "\xef\xbf\xbd"; };
  return '"' + escaped(text, quote, replace) + '"';
}

}  // namespace precis
