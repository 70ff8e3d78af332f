#include "cachesvc/server/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "cachesvc/base/utc_time.h"
#include "precis/limits.h"
#include "precis/printable.h"

namespace precis {
namespace {

// "2026-11-25T00:00:00.123Z"
std::string time_text(std::uint64_t unix_ms) {
  std::array<char, 8> fraction;
  std::snprintf(fraction.data(), fraction.size(), ".%03uZ", static_cast<unsigned>(unix_ms % 1000));
  return utc_text(unix_ms, "%Y-%m-%dT%H:%M:%S") + fraction.data();
}

std::string cut(std::string_view text) {
  if (text.size() <= limits::kAuditValueBytesMax) return std::string(text);
  return std::string(text.substr(0, limits::kAuditValueBytesMax)) + "...";
}

void append_field(std::string& line, const char* key, const std::optional<std::string>& value) {
  line += (line.empty() ? "{\"" : ", \"") + std::string(key) + "\": ";
  line += value ? json_string(cut(*value)) : "null";
}

std::optional<std::string> unless_empty(const std::string& text) {
  if (text.empty()) return {};
  return text;
}

Status not_opened(const std::string& path, int error) {
  return Status::invalid("audit_log " + path +
                         " can't be opened: " + std::generic_category().message(error));
}

}  // namespace

std::string audit_line(const AuditWho& who, const AuditEvent& event, std::uint64_t unix_ms) {
  std::string line;
  append_field(line, "time", time_text(unix_ms));
  append_field(line, "tenant", unless_empty(who.tenant));
  append_field(line, "client", unless_empty(who.client));
  append_field(line, "from", unless_empty(who.from));
  append_field(line, "what", std::string(event.what));
  append_field(line, "of", unless_empty(event.of));
  append_field(line, "old", event.old_value);
  append_field(line, "new", event.new_value);
  append_field(line, "outcome", std::string(status_code_name(event.outcome.code())));
  append_field(line, "why", unless_empty(event.outcome.message()));
  return line + "}";
}

Status Audit::Sink::check(const std::string& path) {
  if (path.empty() || path == "stderr") return {};
  if (::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_EACCESS) == 0) return open(path).status();
  const auto folder = std::filesystem::path(path).parent_path();
  const char* const where = folder.empty() ? "." : folder.c_str();
  if (::faccessat(AT_FDCWD, where, W_OK | X_OK, AT_EACCESS) == 0) return {};
  return not_opened(path, errno);
}

Result<Audit::Sink> Audit::Sink::open(const std::string& path) {
  Sink sink;
  sink.path_ = path;
  if (path == "stderr") sink.fd_ = STDERR_FILENO;
  if (path.empty() || sink.fd_ >= 0) return sink;
  // Non-blocking, because opening a pipe would wait for its reader.
  Descriptor file(::open(path.c_str(),
                         O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600));
  if (!file) return not_opened(path, errno);
  struct stat what {};
  if (::fstat(file.get(), &what) != 0 || !S_ISREG(what.st_mode)) {
    return Status::invalid("audit_log " + path +
                           " is not a regular file: give the path of a file, or \"stderr\"");
  }
  sink.fd_ = file.get();
  sink.owned_ = std::make_shared<Descriptor>(std::move(file));
  return sink;
}

Audit::Audit(Log& log, Metrics& metrics, Runtime& runtime)
    : log_(log),
      metrics_(metrics),
      clock_(runtime.clock()),
      limit_(clock_),
      thread_(runtime.make_executor("audit", 1)) {}

// The thread ends first, after writing the waiting lines.
Audit::~Audit() { post_all(limit_.due(/*all=*/true)); }

void Audit::use(Sink sink) {
  on_ = sink.fd_ >= 0;
  thread_->post([this, sink = std::move(sink)] {
    sink_ = sink;
    torn_ = failed_ = false;
  });
}

void Audit::write(const AuditWho& who, const AuditEvent& event) {
  if (!on_) return;
  std::string line = audit_line(who, event, clock_.unix_ms());
  if (!event.outcome.ok()) {
    const std::lock_guard lock(mutex_);
    if (!limit_.take(who, event, line.size())) {
      ++metrics_.audit_suppressed;
      return;
    }
  }
  post(std::move(line));
}

void Audit::tell_suppressed() {
  std::vector<AuditLimit::Line> lines;
  {
    const std::lock_guard lock(mutex_);
    lines = limit_.due();
  }
  post_all(lines);
}

void Audit::post_all(const std::vector<AuditLimit::Line>& lines) {
  if (!on_) return;
  for (const auto& [who, event] : lines) post(audit_line(who, event, clock_.unix_ms()));
}

void Audit::post(std::string line) {
  if (waiting_.fetch_add(1) >= limits::kAuditLinesMax) {
    --waiting_;
    ++lost_;
    ++metrics_.audit_lost;
    return;
  }
  thread_->post([this, line = std::move(line)] {
    write_out(line);
    --waiting_;
  });
}

void Audit::write_out(const std::string& line) {
  if (sink_.fd_ < 0) return;  // turned off meanwhile
  if (lost_ > 0) tell_lost();
  if (append(line + "\n")) return;
  ++lost_;
  ++metrics_.audit_lost;
}

// Marks the gap at its place in the log.
void Audit::tell_lost() {
  const std::uint64_t lost = lost_.exchange(0);
  const AuditEvent gap{
      .what = "Lost", .of = std::to_string(lost) + " lines", .outcome = Status::rejected("")};
  if (!append(audit_line({}, gap, clock_.unix_ms()) + "\n")) lost_ += lost;
}

bool Audit::append(std::string text) {
  if (torn_) text.insert(text.begin(), '\n');
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = ::write(sink_.fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      torn_ = torn_ || rest.size() < text.size();
      if (!std::exchange(failed_, true)) {
        log_.error("the audit log can't be written to, so its lines are lost and counted",
                   {{"path", sink_.path_}, {"why", std::generic_category().message(errno)}});
      }
      return false;
    }
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  torn_ = failed_ = false;
  return true;
}

}  // namespace precis
