#include "client/cli/png.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace precis::cli {
namespace {

std::string big_endian(std::uint32_t number) {
  std::string bytes(4, '\0');
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<char>(number >> (24 - 8 * i));
  return bytes;
}

std::uint32_t crc32(const std::string& bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

std::string chunk(std::string_view type, const std::string& data) {
  const std::string checked = std::string(type) + data;
  return big_endian(static_cast<std::uint32_t>(data.size())) + checked + big_endian(crc32(checked));
}

std::uint32_t adler32(const std::string& bytes) {
  std::uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<std::uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

// A zlib stream (RFC 1950) of blocks that are not compressed.
std::string stored(const std::string& bytes) {
  constexpr std::size_t kBlockMax = 65535;
  std::string stream("\x78\x01", 2);
  for (std::size_t at = 0; at < bytes.size(); at += kBlockMax) {
    const std::size_t size = std::min(kBlockMax, bytes.size() - at);
    stream += at + size == bytes.size() ? '\1' : '\0';  // whether it is the last block
    for (const std::size_t number : {size, ~size}) {
      stream += static_cast<char>(number);
      stream += static_cast<char>(number >> 8);
    }
    stream.append(bytes, at, size);
  }
  return stream + big_endian(adler32(bytes));
}

// 3 columns and 5 rows each, the highest of 15 bits first.
constexpr std::array<std::uint16_t, 10> kDigits = {0x7b6f, 0x2c97, 0x73e7, 0x73cf, 0x5bc9,
                                                   0x79cf, 0x79ef, 0x7252, 0x7bef, 0x7bcf};
constexpr std::uint16_t kPercent = 0x52a5;

}  // namespace

Picture::Picture(std::uint32_t width_, std::uint32_t height_, std::vector<Color> palette_)
    : width(width_),
      height(height_),
      palette(std::move(palette_)),
      pixels(std::size_t{width_} * height_) {}

void Picture::fill(std::uint32_t x, std::uint32_t y, std::uint32_t columns, std::uint32_t rows,
                   std::uint8_t color) {
  for (std::uint32_t row = y; row < std::min(height, y + rows); ++row) {
    for (std::uint32_t column = x; column < std::min(width, x + columns); ++column) {
      pixels[std::size_t{row} * width + column] = color;
    }
  }
}

void Picture::write(std::uint32_t x, std::uint32_t y, const std::string& digits,
                    std::uint8_t color) {
  for (const char digit : digits) {
    const std::uint16_t bits = digit == '%' ? kPercent : kDigits.at(digit - '0');
    for (std::uint32_t bit = 0; bit < 15; ++bit) {
      if (bits >> (14 - bit) & 1) fill(x + bit % 3, y + bit / 3, 1, 1, color);
    }
    x += 4;
  }
}

std::string png(const Picture& picture) {
  std::string palette, rows;
  for (const Color& color : picture.palette) palette.append(color.begin(), color.end());
  for (std::uint32_t y = 0; y < picture.height; ++y) {
    rows += '\0';  // no filter
    const auto row = picture.pixels.begin() + std::size_t{y} * picture.width;
    rows.append(row, row + picture.width);
  }
  // 8 bits a pixel, of a palette, without interlacing.
  const std::string header =
      big_endian(picture.width) + big_endian(picture.height) + std::string("\x08\x03\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("PLTE", palette) +
         chunk("IDAT", stored(rows)) + chunk("IEND", "");
}

}  // namespace precis::cli
