// Tables with aligned columns, and numbers with units, as people write and read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace precis::cli {

struct Column {
  std::string name;
  bool right = false;  // numbers are right-aligned
  // If a table is wider than the terminal, columns with the highest number are left out first; 0:
  // never. Cells may be cut to `least` characters; 0: never.
  int leave_out = 0;
  std::size_t least = 0;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // One cell for each column.
  void add(std::vector<std::string> cells);
  // At most `width` characters wide, as far as the columns allow; 0: as wide as the cells.
  std::string text(std::size_t width = 0) const;

 private:
  std::vector<std::size_t> fitted(std::size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "name  value" lines, the names padded to one column.
class Facts {
 public:
  void add(const std::string& name, const std::string& value) { rows_.emplace_back(name, value); }
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

std::string bytes_text(std::uint64_t bytes);  // "1.25 MiB"
std::string count_text(std::uint64_t count);  // "1 234 567", in groups of three digits
std::string counted(std::uint64_t count, std::string_view noun);  // "1 segment", "2 segments"
std::string duration_text(double seconds);  // "3.2 ms", "5 min", "2.1 h", "3 d"
// The milliseconds of a number with one of these units: "ms", "s", "m", "h", "d", "w", and "",
// which is seconds. None for any other text.
std::optional<double> parse_ms(std::string_view text,
                               std::initializer_list<std::string_view> units);
std::string percent_text(std::uint64_t part, std::uint64_t whole);  // "29.8%"
// "5 min ago", "in 2.1 h"; `unix_ms` 0 is "-".
std::string when_text(std::uint64_t unix_ms);
// Milliseconds since 1970, by this machine's clock.
std::uint64_t now_unix_ms();

}  // namespace precis::cli
