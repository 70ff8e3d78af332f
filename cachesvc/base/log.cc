#include "cachesvc/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "precis/printable.h"

namespace precis {
namespace {

spdlog::level::level_enum to_spdlog(Log::Level level) {
  switch (level) {
    case Log::Level::kTrace: return spdlog::level::trace;
    case Log::Level::kDebug: return spdlog::level::debug;
    case Log::Level::kInfo: return spdlog::level::info;
    case Log::Level::kWarn: return spdlog::level::warn;
    case Log::Level::kError: return spdlog::level::err;
    case Log::Level::kOff: return spdlog::level::off;
  }
  return spdlog::level::off;
}

// Quotes values with spaces or quotes, so that a line can be split into its fields again. Values
// come from other parties, so characters that act on a terminal are escaped.
void append_value(std::string& line, const std::string& value) {
  const bool plain = !value.empty() && value.find_first_of(" \"=\n") == std::string::npos;
  if (plain) {
    line += printable(value);
    return;
  }
  std::string quoted = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? ' ' : c;
  }
  line += printable(quoted) + '"';
}

}  // namespace

struct Log::Impl {
  spdlog::logger logger;
};

Result<Log::Level> Log::parse_level(std::string_view name) {
  static constexpr std::pair<std::string_view, Level> kLevels[] = {
      {"trace", Level::kTrace}, {"debug", Level::kDebug}, {"info", Level::kInfo},
      {"warn", Level::kWarn},   {"error", Level::kError}, {"off", Level::kOff}};
  for (const auto& [text, level] : kLevels) {
    if (text == name) return level;
  }
  return Status::invalid("log level '" + std::string(name) +
                         "' is unknown, choose trace, debug, info, warn, error or off");
}

Log::Log(Level level)
    : impl_(new Impl{
          spdlog::logger("precis", std::make_shared<spdlog::sinks::stderr_color_sink_mt>())}) {
  impl_->logger.set_level(to_spdlog(level));
  impl_->logger.set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %^%L%$ %v");
}

Log::~Log() = default;

void Log::set_level(Level level) { impl_->logger.set_level(to_spdlog(level)); }

void Log::write(Level level, std::string_view event, Fields fields) {
  const auto to = to_spdlog(level);
  if (!impl_->logger.should_log(to)) return;
  std::string line(event);
  for (const Field& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(line, field.value);
  }
  impl_->logger.log(to, line);
}

}  // namespace precis
