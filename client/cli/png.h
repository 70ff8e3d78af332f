// Pictures as PNG files (ISO/IEC 15948), with colors from a palette.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace precis::cli {

using Color = std::array<std::uint8_t, 3>;  // red, green, blue

struct Picture {
  std::uint32_t width, height;       // in pixels, at least 1
  std::vector<Color> palette;        // at most 256
  std::vector<std::uint8_t> pixels;  // [height, width], indices of the palette

  Picture(std::uint32_t width, std::uint32_t height, std::vector<Color> palette);
  void fill(std::uint32_t x, std::uint32_t y, std::uint32_t columns, std::uint32_t rows,
            std::uint8_t color);
  // Decimal digits and '%', 4 pixels apart and 5 high, from the upper left corner on.
  void write(std::uint32_t x, std::uint32_t y, const std::string& digits, std::uint8_t color);
};

// The bytes of the file. The pixels are stored as they are, without compression.
std::string png(const Picture& picture);

}  // namespace precis::cli
