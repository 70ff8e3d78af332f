#include "cachesvc/server/audit.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "precis/limits.h"

namespace precis {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("precis-audit-" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::vector<std::string> lines(const std::string& name) const {
    std::vector<std::string> lines;
    std::ifstream file(path(name));
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

 private:
  fs::path path_;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an audit line says who did what to what, from what to what, and how it ended",
          "[unit][server]") {
  CHECK(audit_line({"red", "precisctl/0.1", "127.0.0.1:5"},
                   {.what = "SetBudget",
                    .of = "all models",
                    .old_value = "keep 0.3",
                    .new_value = "keep 0.2"},
                   1764028800123) ==
        R"({"time": "2025-11-25T00:00:00.123Z", "tenant": "red", "client": "precisctl/0.1", )"
        R"("from": "127.0.0.1:5", "what": "SetBudget", "of": "all models", "old": "keep 0.3", )"
        R"("new": "keep 0.2", "outcome": "ok", "why": null})");
  CHECK(
      audit_line({.from = "[::1]:9"},
                 {.what = "Connect", .outcome = Status::denied("tenant 'a\n\x1b' is not admitted")},
                 0) ==
      R"({"time": "1970-01-01T00:00:00.000Z", "tenant": null, "client": null, )"
      R"("from": "[::1]:9", "what": "Connect", "of": null, "old": null, "new": null, )"
      R"("outcome": "permission_denied", "why": "tenant 'a\u000a\u001b' is not admitted"})");
}

TEST_CASE("an audit line is bounded whatever a client is called", "[unit][server]") {
  const std::string huge(1 << 20, 'x');
  const std::string line =
      audit_line({huge, huge, huge}, {"SetBudget", huge, huge, huge, Status::invalid(huge)}, 0);
  CHECK(line.size() < 8 * limits::kAuditValueBytesMax);
}

TEST_CASE("lines are appended to a file of the owner's alone, in order", "[unit][server]") {
  const Folder folder;
  Log log(Log::Level::kOff);
  Metrics metrics;
  std::ofstream(folder.path("audit")) << "of a run before\n";
  {
    MachineRuntime runtime;
    Audit audit(log, metrics, runtime);
    audit.write({}, {.what = "BeforeThereIsOne"});
    audit.use(Audit::Sink::open(folder.path("audit")).value());
    for (int i = 0; i < 100; ++i) audit.write({}, {.what = "SetBudget", .of = std::to_string(i)});
  }
  const auto lines = folder.lines("audit");
  REQUIRE(lines.size() == 101);
  CHECK(lines[0] == "of a run before");
  for (int i = 0; i < 100; ++i) {
    CHECK(contains(lines[1 + i], "\"of\": \"" + std::to_string(i) + "\""));
  }
  {
    MachineRuntime runtime;
    Audit audit(log, metrics, runtime);
    audit.use(Audit::Sink::open(folder.path("new")).value());
  }
  struct stat file {};
  REQUIRE(::stat(folder.path("new").c_str(), &file) == 0);
  CHECK((file.st_mode & 07777) == 0600);
  CHECK(metrics.audit_lost == 0);
}

TEST_CASE("a file that was renamed is left when the log is opened anew", "[unit][server]") {
  const Folder folder;
  Log log(Log::Level::kOff);
  Metrics metrics;
  {
    MachineRuntime runtime;
    Audit audit(log, metrics, runtime);
    audit.use(Audit::Sink::open(folder.path("audit")).value());
    audit.write({}, {.what = "One"});
    fs::rename(folder.path("audit"), folder.path("audit.1"));
    audit.write({}, {.what = "Two"});
    audit.use(Audit::Sink::open(folder.path("audit")).value());
    audit.write({}, {.what = "Three"});
    audit.use(Audit::Sink::open("").value());
    audit.write({}, {.what = "Four"});
  }
  CHECK(folder.lines("audit.1").size() == 2);
  const auto lines = folder.lines("audit");
  REQUIRE(lines.size() == 1);
  CHECK(contains(lines[0], "Three"));
}

TEST_CASE("what can't be an audit log is named", "[unit][server]") {
  const Folder folder;
  const auto said = [](const std::string& path) {
    const Status status = Audit::Sink::open(path).status();
    CHECK(status.code() == StatusCode::kInvalidArgument);
    CHECK(Audit::Sink::check(path) == status);  // without creating anything
    return status.message();
  };
  CHECK_THAT(said(folder.path("no/folder")), Catch::Contains("no/folder can't be opened: No such"));
  CHECK_THAT(said("/"), Catch::Contains("can't be opened: Is a directory"));
  CHECK_THAT(said("/dev/null"), Catch::Contains("/dev/null is no file"));
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  CHECK_THAT(said(folder.path("pipe")), Catch::Contains("can't be opened"));
  for (const std::string& path : {folder.path("audit"), std::string("stderr"), std::string()}) {
    CHECK(Audit::Sink::check(path).ok());
  }
  CHECK_FALSE(fs::exists(folder.path("audit")));
}

TEST_CASE("lines that come faster than they are written are lost past a bound, and counted",
          "[unit][server]") {
  Log log(Log::Level::kOff);
  Metrics metrics;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const std::string filling(4096, '.');
  while (::write(ends[1], filling.data(), filling.size()) > 0) continue;
  REQUIRE(::fcntl(ends[1], F_SETFL, 0) == 0);
  REQUIRE(::fcntl(ends[0], F_SETFL, 0) == 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);  // writes to it block now
  std::string text;
  std::thread reader;
  {
    MachineRuntime runtime;
    Audit audit(log, metrics, runtime);
    audit.use(Audit::Sink::open("stderr").value());
    for (std::size_t i = 0; i < limits::kAuditLinesMax + 10; ++i) audit.write({}, {.what = "One"});
    CHECK(metrics.audit_lost == 10);
    reader = std::thread([&] {
      char part[4096];
      for (ssize_t n; (n = ::read(ends[0], part, sizeof part)) > 0;) {
        text.append(part, static_cast<std::size_t>(n));
      }
    });
  }
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  std::size_t lines = 0;
  for (auto at = text.find("\"One\""); at != std::string::npos; at = text.find("\"One\"", at + 1)) {
    ++lines;
  }
  CHECK(lines == limits::kAuditLinesMax);
  CHECK(contains(text, R"("what": "Lost", "of": "10 lines")"));
}

TEST_CASE("lines that can't be written are counted, and the log says where they are missing",
          "[unit][server]") {
  const Folder folder;
  Log log(Log::Level::kOff);
  Metrics metrics;
  auto sink = Audit::Sink::open(folder.path("audit")).value();
  // The limit on the file's size acts as a full disk.
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto on_full = ::signal(SIGXFSZ, SIG_IGN);
  {
    MachineRuntime runtime;
    Audit audit(log, metrics, runtime);
    audit.use(sink);
    rlimit full = before;
    full.rlim_cur = 100;  // within the first line
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
    audit.write({}, {.what = "Lost1"});
    audit.write({}, {.what = "Lost2"});
    while (metrics.audit_lost < 2) ::sched_yield();
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    audit.write({}, {.what = "Kept"});
  }
  ::signal(SIGXFSZ, on_full);
  const auto lines = folder.lines("audit");
  REQUIRE(lines.size() == 3);  // the torn line, the gap, the kept line
  CHECK(lines[0].size() == 100);
  CHECK(contains(lines[1], R"("what": "Lost", "of": "2 lines")"));
  CHECK(contains(lines[2], R"("what": "Kept")"));
  CHECK(metrics.audit_lost == 2);
}

}  // namespace precis
