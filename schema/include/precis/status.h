// The one error vocabulary of the project: every fallible call returns a Status or a Result<T>.
// Foreign errors (UCX, RocksDB, Asio, Cap'n Proto, CUDA) are turned into a Status in exactly one
// file each; nothing of ours throws.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace precis {

// A code exists only because a caller acts differently on it. Values travel: append only.
enum class StatusCode : std::uint8_t {
  kOk = 0,
  kNotFound = 1,          // nothing is stored under that name
  kInvalidArgument = 2,   // the caller must change the request
  kPermissionDenied = 3,  // the credentials do not reach this object
  kRejected = 4,          // overload: back off and retry (retry_after_ms() says when)
  kOutOfSpace = 5,        // a configured capacity is spent
  kTimedOut = 6,          // the deadline passed; the outcome may be unknown
  kUnavailable = 7,       // the peer is gone: reconnect
  kCorruption = 8,        // stored or received bytes failed their check
  kVersionMismatch = 9,   // the two sides speak different versions
  kUnsupported = 10,      // valid, but not by this build or machine
  kCanceled = 11,         // the caller gave up
  kInternal = 12,         // a bug of ours
};
inline constexpr std::uint8_t kStatusCodeMax = 12;

// The code's name in lower case with underscores, e.g. "invalid_argument".
std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // success
  // `message` says what failed, the values, the limit and the key, in that order.
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status not_found(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
  static Status invalid(std::string m) { return {StatusCode::kInvalidArgument, std::move(m)}; }
  static Status denied(std::string m) { return {StatusCode::kPermissionDenied, std::move(m)}; }
  static Status rejected(std::string m, std::uint32_t retry_after_ms = 0) {
    Status status(StatusCode::kRejected, std::move(m));
    status.retry_after_ms_ = retry_after_ms;
    return status;
  }
  static Status out_of_space(std::string m) { return {StatusCode::kOutOfSpace, std::move(m)}; }
  static Status timed_out(std::string m) { return {StatusCode::kTimedOut, std::move(m)}; }
  static Status unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
  static Status corruption(std::string m) { return {StatusCode::kCorruption, std::move(m)}; }
  static Status version(std::string m) { return {StatusCode::kVersionMismatch, std::move(m)}; }
  static Status unsupported(std::string m) { return {StatusCode::kUnsupported, std::move(m)}; }
  static Status canceled(std::string m) { return {StatusCode::kCanceled, std::move(m)}; }
  static Status internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // Of kRejected: after so long the same may succeed. 0: only once the caller has changed something
  // itself, such as ended one of its own requests.
  std::uint32_t retry_after_ms() const { return retry_after_ms_; }

  // The same code with "`context`: " before the message; each layer adds at most one.
  Status with_context(std::string_view context) const;
  // "invalid_argument: layer 3: ..." for people.
  std::string to_string() const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::uint32_t retry_after_ms_ = 0;
  std::string message_;
};

// Prints `message` and aborts: for bugs of ours, never for what came from outside.
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

  // The value; calling these on an error is a bug and aborts.
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
// The same two inside a coroutine (cachesvc/base/task.h).
#define PRECIS_CO_TRY(expr) \
  PRECIS_TRY_IMPL(PRECIS_CONCAT(precis_status_, __COUNTER__), expr, co_return )
#define PRECIS_CO_ASSIGN(lhs, expr) \
  PRECIS_ASSIGN_IMPL(PRECIS_CONCAT(precis_result_, __COUNTER__), lhs, expr, co_return )

// Each use has a name of its own, so that they nest.
#define PRECIS_TRY_IMPL(status, expr, leave)                          \
  do {                                                                \
    if (::precis::Status status = (expr); !status.ok()) leave status; \
  } while (false)
#define PRECIS_ASSIGN_IMPL(result, lhs, expr, leave) \
  auto result = (expr);                              \
  if (!result.ok()) leave result.status();           \
  lhs = std::move(result).value()

// A bug if false: prints and aborts, in release builds too.
#define PRECIS_CHECK(expr) \
  ((expr) ? (void)0 : ::precis::check_failed(__FILE__, __LINE__, "check failed: " #expr))
