#include "client/cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <system_error>

#include "precis/printable.h"
#include "precis/status.h"

namespace precis::cli {
namespace {

// Counts characters, not bytes: continuation bytes of UTF-8 take no column.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

constexpr std::size_t kGap = 2;  // blanks between columns

// The first characters of `text`, and an ellipsis if it has more than `most`.
std::string cut(const std::string& text, std::size_t most) {
  if (width(text) <= most) return text;
  std::size_t end = 0;
  for (std::size_t characters = 0; end < text.size(); ++end) {
    if ((text[end] & 0xC0) != 0x80 && characters++ + 1 == most) break;
  }
  return text.substr(0, end) + "\xe2\x80\xa6";
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  PRECIS_CHECK(cells.size() == columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

// The width of each column; 0 for one that is left out.
std::vector<std::size_t> Table::fitted(std::size_t limit) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t widest = width(columns_[c].name);
    for (const auto& row : rows_) widest = std::max(widest, width(row[c]));
    widths.push_back(widest);
  }
  if (limit == 0) return widths;
  const auto least = [&](std::size_t c) {
    if (columns_[c].least == 0) return widths[c];
    return std::min(widths[c], std::max(columns_[c].least, width(columns_[c].name)));
  };
  const auto total = [&](const auto& width_of) {
    std::size_t sum = 0;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (widths[c] > 0) sum += (sum > 0 ? kGap : 0) + width_of(c);
    }
    return sum;
  };
  while (total(least) > limit) {
    int highest = 0;
    std::size_t out = 0;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (widths[c] == 0 || columns_[c].leave_out <= highest) continue;
      highest = columns_[c].leave_out;
      out = c;
    }
    if (highest == 0) break;
    widths[out] = 0;
  }
  // Cut the widest of the cells that may be cut, as far as needed.
  while (total([&](std::size_t c) { return widths[c]; }) > limit) {
    std::size_t widest = columns_.size();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (widths[c] > least(c) && (widest == columns_.size() || widths[c] > widths[widest]))
        widest = c;
    }
    if (widest == columns_.size()) break;
    --widths[widest];
  }
  return widths;
}

std::string Table::text(std::size_t limit) const {
  const std::vector<std::size_t> widths = fitted(limit);
  std::string out;
  const auto write_row = [&](const auto& cell_of) {
    const std::size_t begin = out.size();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      if (widths[c] == 0) continue;
      const std::string cell = cut(cell_of(c), widths[c]);
      const std::string pad(widths[c] - width(cell), ' ');
      if (out.size() > begin) out.append(kGap, ' ');
      out += columns_[c].right ? pad + cell : cell + pad;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  };
  write_row([&](std::size_t c) -> const std::string& { return columns_[c].name; });
  for (const auto& row : rows_) {
    write_row([&](std::size_t c) -> const std::string& { return row[c]; });
  }
  return out;
}

std::string Facts::text() const {
  std::size_t widest = 0;
  for (const auto& [name, value] : rows_) widest = std::max(widest, name.size());
  std::string out;
  for (const auto& [name, value] : rows_) {
    out += fmt::format("{:<{}}  {}\n", name, widest, printable(value));
  }
  return out;
}

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, kUnits[unit]);
}

std::string count_text(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, " ");
  return digits;
}

std::string counted(std::uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count_text(count), noun, count == 1 ? "" : "s");
}

std::string duration_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  if (seconds < 3600) return fmt::format("{:.0f} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.1f} h", seconds / 3600);
  return fmt::format("{:.0f} d", seconds / 86400);
}

std::optional<double> parse_ms(std::string_view text,
                               std::initializer_list<std::string_view> units) {
  static constexpr std::pair<std::string_view, double> kMilliseconds[] = {
      {"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 36e5}, {"d", 864e5}, {"w", 7 * 864e5}};
  const char* const last = text.data() + text.size();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), last, number);
  const std::string_view unit(end, static_cast<std::size_t>(last - end));
  const auto known = std::ranges::find(kMilliseconds, unit, [](const auto& u) { return u.first; });
  if (error != std::errc() || std::ranges::find(units, unit) == units.end()) return std::nullopt;
  return number * known->second;
}

std::string percent_text(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f}%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::uint64_t now_unix_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

std::string when_text(std::uint64_t unix_ms) {
  if (unix_ms == 0) return "-";
  const double seconds = (static_cast<double>(now_unix_ms()) - static_cast<double>(unix_ms)) / 1e3;
  if (std::abs(seconds) < 1) return "now";
  return seconds > 0 ? duration_text(seconds) + " ago" : "in " + duration_text(-seconds);
}

}  // namespace precis::cli
