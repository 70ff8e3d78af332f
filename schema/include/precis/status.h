// Error codes of the whole project: every fallible call returns a Status or a Result<T>. Errors of
// other libraries (UCX, RocksDB, Asio, Cap'n Proto, CUDA) become a Status in exactly one file each.
// This project throws no exceptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace precis {

// A code exists only if callers act differently on it. Values are sent to peers: append only.
enum class StatusCode : std::uint8_t {
  kOk = 0,
  kNotFound = 1,          // no object has that name
  kInvalidArgument = 2,   // the caller must change the request
  kPermissionDenied = 3,  // the credentials give no access to this object
  kRejected = 4,          // overload: wait and retry (retry_after_ms() gives the time)
  kOutOfSpace = 5,        // a configured capacity is used up
  kTimedOut = 6,          // the deadline passed; the outcome may be unknown
  kUnavailable = 7,       // the peer is gone: reconnect
  kCorruption = 8,        // stored or received bytes failed their check
  kVersionMismatch = 9,   // the two sides speak different versions
  kUnsupported = 10,      // valid, but not supported by this build or machine
  kCanceled = 11,         // the caller gave up
  kInternal = 12,         // a bug in this project
  kConflict = 13,         // stored objects prevent it: change those first
  kMoved = 14,            // another node of the cluster serves it: learn which one
};
inline constexpr std::uint8_t kStatusCodeMax = 14;

constexpr bool may_have_retry_after(StatusCode code) {
  return code == StatusCode::kRejected || code == StatusCode::kPermissionDenied;
}

// The code's name in lower case with underscores, e.g. "invalid_argument".
std::string_view status_code_name(StatusCode code);
// The code with that name; none if no code has it, for example because a newer peer sent it.
std::optional<StatusCode> parse_status_code(std::string_view name);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  // `message` gives, in this order: the failed operation, the values, the limit and the
  // configuration key.
  Status(StatusCode code, std::string message, std::uint32_t retry_after_ms = 0)
      : code_(code), retry_after_ms_(retry_after_ms), message_(std::move(message)) {}

  static Status not_found(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
  static Status invalid(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
  static Status denied(std::string m, std::uint32_t retry_after_ms = 0) {
    return {StatusCode::kPermissionDenied, std::move(m), retry_after_ms};
  }
  static Status rejected(std::string m, std::uint32_t retry_after_ms = 0) {
    return {StatusCode::kRejected, std::move(m), retry_after_ms};
  }
  static Status out_of_space(std::string m) { return {StatusCode::kOutOfSpace, std::move(m)}; }
  static Status timed_out(std::string m) { return {StatusCode::kTimedOut, std::move(m)}; }
  static Status unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
  static Status corruption(std::string m) { return {StatusCode::kCorruption, std::move(m)}; }
  static Status version(std::string m) { return {StatusCode::kVersionMismatch, std::move(m)}; }
  static Status unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
  static Status canceled(std::string m) { return {StatusCode::kCanceled, std::move(m)}; }
  static Status internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }
  static Status conflict(std::string m) { return {StatusCode::kConflict, std::move(m)}; }
  static Status moved(std::string m) { return {StatusCode::kMoved, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // Set only if may_have_retry_after(code()): the same request may succeed after this many
  // milliseconds. 0: waiting is not enough, the caller must change something first, for example end
  // one of its own requests. A login is kPermissionDenied with a time if its token was not checked,
  // because wrong tokens came from its address.
  std::uint32_t retry_after_ms() const { return retry_after_ms_; }

  // Returns the same code with "`context`: " before the message. Each software layer adds at most
  // one.
  Status with_context(std::string_view context) const;
  // For people: "invalid_argument: layer 3: ...".
  std::string to_string() const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::uint32_t retry_after_ms_ = 0;
  std::string message_;
};

// Prints `message` and aborts. Only for bugs in this project, never for outside input.
[[noreturn]] void check_failed(const char* file, int line, std::string_view message);

// A value or the Status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    if (status_.ok()) check_failed(__FILE__, __LINE__, "Result built from an ok Status");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // The value. Calling these functions on an error is a bug and aborts.
  T& value() & {
    require();
    return *value_;
  }
  const T& value() const& {
    require();
    return *value_;
  }
  T&& value() && {
    require();
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void require() const {
    if (!value_) check_failed(__FILE__, __LINE__, status_.to_string());
  }
  Status status_;
  std::optional<T> value_;
};

}  // namespace precis

#define PRECIS_CONCAT_INNER(a, b) a##b
#define PRECIS_CONCAT(a, b) PRECIS_CONCAT_INNER(a, b)

// Returns the Status of `expr` from the enclosing function if it is an error.
#define PRECIS_TRY(expr) PRECIS_TRY_IMPL(PRECIS_CONCAT(precis_status_, __COUNTER__), expr, return )
// Declares `lhs` from a Result, or returns its Status.
#define PRECIS_ASSIGN(lhs, expr) \
  PRECIS_ASSIGN_IMPL(PRECIS_CONCAT(precis_result_, __COUNTER__), lhs, expr, return )
// PRECIS_TRY and PRECIS_ASSIGN for use inside a coroutine (cachesvc/base/task.h).
#define PRECIS_CO_TRY(expr) \
  PRECIS_TRY_IMPL(PRECIS_CONCAT(precis_status_, __COUNTER__), expr, co_return )
#define PRECIS_CO_ASSIGN(lhs, expr) \
  PRECIS_ASSIGN_IMPL(PRECIS_CONCAT(precis_result_, __COUNTER__), lhs, expr, co_return )

// Each use gets its own variable name, so uses can be nested.
#define PRECIS_TRY_IMPL(status, expr, leave)                          \
  do {                                                                \
    if (::precis::Status status = (expr); !status.ok()) leave status; \
  } while (false)
#define PRECIS_ASSIGN_IMPL(result, lhs, expr, leave) \
  auto result = (expr);                              \
  if (!result.ok()) leave result.status();           \
  lhs = std::move(result).value()

// `expr` must hold: if it is false, prints the expression and aborts, in release builds too.
#define PRECIS_CHECK(expr) \
  ((expr) ? (void)0 : ::precis::check_failed(__FILE__, __LINE__, "check failed: " #expr))
