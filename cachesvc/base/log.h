// Structured logs: one event per line, key=value fields. ERROR: an operator must act. WARN:
// degraded. INFO: lifecycle, changes. DEBUG: per connection, request. TRACE: per transfer. Each
// user receives its Log as a parameter: there is no global log.
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "precis/status.h"

namespace precis {

class Log {
 public:
  enum class Level { kTrace, kDebug, kInfo, kWarn, kError, kOff };
  static Result<Level> parse_level(std::string_view name);  // "trace" .. "error", "off"

  struct Field {
    Field(std::string_view k, std::string_view v) : key(k), value(v) {}
    Field(std::string_view k, const char* v) : key(k), value(v) {}
    Field(std::string_view k, const std::string& v) : key(k), value(v) {}
    template <typename T>
    requires std::integral<T> || std::floating_point<T> Field(std::string_view k, T v)
        : key(k), value(std::to_string(v)) {}
    std::string_view key;
    std::string value;
  };
  using Fields = std::initializer_list<Field>;

  // Writes to stderr. Every value is escaped for a terminal (precis/printable.h).
  explicit Log(Level level);
  ~Log();
  void set_level(Level level);  // any thread, also while others log

  // `event` is a short constant phrase. Variable data belongs in the fields.
  void trace(std::string_view event, Fields fields = {}) { write(Level::kTrace, event, fields); }
  void debug(std::string_view event, Fields fields = {}) { write(Level::kDebug, event, fields); }
  void info(std::string_view event, Fields fields = {}) { write(Level::kInfo, event, fields); }
  void warn(std::string_view event, Fields fields = {}) { write(Level::kWarn, event, fields); }
  void error(std::string_view event, Fields fields = {}) { write(Level::kError, event, fields); }

 private:
  void write(Level level, std::string_view event, Fields fields);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
