#include "client/cli/outcome.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "client/cli/json.h"
#include "precis/printable.h"

namespace precis::cli {
namespace {

enum ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kNotFound = 3,
  kUnreachable = 4,
  kDenied = 5,
  kConflict = 6,
  kBusy = 7,
  kStopped = 130  // as a shell reports a program that SIGINT ended
};

// A node that is cut off from etcd can be reached, so its address is right. The code depends on how
// often the call was repeated, and only the message says why.
bool is_of_no_member(const Status& status) {
  return exit_code(status) == kUnreachable &&
         status.message().find("is not a member of the cluster") != std::string::npos;
}

// Advice for the next step; empty if the message already contains it.
std::string advice(const Status& status) {
  if (is_of_no_member(status)) {
    return "ask another node; if all say so, check etcd and the setting cluster_etcd of the nodes";
  }
  switch (status.code()) {
    case StatusCode::kUnavailable:
      // The host is unknown, or nothing or another program listens on the port.
      return "--address HOST:PORT or PRECIS_ADDRESS says where precisd is; precisd --data DIR "
             "starts one";
    case StatusCode::kTimedOut:
      return "the service is slow or stuck: try again with a longer --timeout";
    case StatusCode::kPermissionDenied:
      if (status.retry_after_ms() > 0) {  // the token was not checked
        return "a client at this address used a wrong token (the service's log and audit log name "
               "it): check the token, or wait with a longer --timeout";
      }
      return "give --tenant and --token, or PRECIS_TENANT and PRECIS_TOKEN";
    case StatusCode::kVersionMismatch: return "use the precisctl that came with that precisd";
    case StatusCode::kRejected: return "the service is busy: try again in a moment";
    default: return {};
  }
}

Status write_text(std::FILE* to, const std::string& text) {
  errno = 0;
  const std::size_t written = std::fwrite(text.data(), 1, text.size(), to);
  if (written == text.size() && std::fflush(to) == 0) return {};
  return Status::out_of_space("output: " + std::generic_category().message(errno));
}

// If writing to stderr fails, there is no way to report that.
void print_error(const Status& status, bool json) {
  const std::string hint = advice(status);
  if (json) {
    Json error{{"code", status_code_name(status.code())}, {"message", status.message()}};
    if (!hint.empty()) error["advice"] = hint;
    (void)write_text(stderr, json_text(Json{{"error", error}}));
    return;
  }
  std::string text = fmt::format("precisctl: {}\n", printable_lines(status.message()));
  if (!hint.empty()) text += fmt::format("  {}\n", hint);
  (void)write_text(stderr, text);
}

}  // namespace

int exit_code(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return kOk;
    case StatusCode::kInvalidArgument: return kUsage;
    case StatusCode::kNotFound: return kNotFound;
    case StatusCode::kUnavailable:
    case StatusCode::kMoved:
    case StatusCode::kTimedOut: return kUnreachable;
    case StatusCode::kPermissionDenied: return kDenied;
    case StatusCode::kConflict: return kConflict;
    case StatusCode::kRejected: return kBusy;
    case StatusCode::kCanceled: return kStopped;
    case StatusCode::kOutOfSpace:
    case StatusCode::kCorruption:
    case StatusCode::kVersionMismatch:
    case StatusCode::kUnsupported:
    case StatusCode::kInternal: return kFailed;
  }
  return kFailed;
}

Status failure(const std::string& code, const std::string& message) {
  const auto known = parse_status_code(code);
  return {known && *known != StatusCode::kOk ? *known : StatusCode::kInternal, message};
}

Status write_output(const std::string& text) { return write_text(stdout, text); }

int finish(Status status, const std::string& out, bool json) {
  if (const Status written = write_output(out); !written.ok()) {
    status = status.ok() ? written
                         : Status(status.code(), status.message() + "; " + written.message(),
                                  status.retry_after_ms());
  }
  if (!status.ok()) print_error(status, json);
  return exit_code(status);
}

}  // namespace precis::cli
