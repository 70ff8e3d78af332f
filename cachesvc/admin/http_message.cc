#include "cachesvc/admin/http_message.h"

#include <optional>

#include "precis/printable.h"

namespace precis::admin {
namespace {

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return {};
}

// `plus`: whether a plus sign stands for a space, as in a query.
Result<std::string> decoded(std::string_view text, bool plus) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    char c = text[at];
    if (c == '%') {
      const auto high = at + 2 < text.size() ? hex_digit(text[at + 1]) : std::nullopt;
      const auto low = at + 2 < text.size() ? hex_digit(text[at + 2]) : std::nullopt;
      if (!high || !low) return Status::invalid("the target has an invalid percent escape");
      c = static_cast<char>(*high << 4 | *low);
      at += 2;
    } else if (c == '+' && plus) {
      c = ' ';
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return Status::invalid("the target has a control character");
    }
    out += c;
  }
  return out;
}

// Calls each(part) for the parts of `text` between separators, until it returns an error.
template <typename Each>
Status split(std::string_view text, char separator, Each each) {
  for (;;) {
    const auto end = text.find(separator);
    const std::string_view part = text.substr(0, end);
    if (!part.empty()) PRECIS_TRY(each(part));
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
}

unsigned http_status(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return 200;
    case StatusCode::kInvalidArgument: return 400;
    case StatusCode::kPermissionDenied: return 403;
    case StatusCode::kNotFound: return 404;
    case StatusCode::kConflict: return 409;
    case StatusCode::kMoved: return 421;
    case StatusCode::kRejected: return 429;
    case StatusCode::kOutOfSpace: return 507;
    case StatusCode::kTimedOut: return 504;
    case StatusCode::kUnavailable:
    case StatusCode::kCanceled: return 503;
    case StatusCode::kVersionMismatch:
    case StatusCode::kUnsupported: return 501;
    case StatusCode::kCorruption:
    case StatusCode::kInternal: return 500;
  }
  return 500;
}

}  // namespace

std::string_view method_name(Method method) {
  switch (method) {
    case Method::kGet: return "GET";
    case Method::kPost: return "POST";
    case Method::kPut: return "PUT";
    case Method::kDelete: return "DELETE";
  }
  return "";
}

Result<Target> parse_target(std::string_view target) {
  if (!target.starts_with('/')) return Status::invalid("the target does not begin with a slash");
  Target parsed;
  const auto question = target.find('?');
  PRECIS_TRY(split(target.substr(0, question), '/', [&](std::string_view part) -> Status {
    PRECIS_ASSIGN(std::string text, decoded(part, /*plus=*/false));
    parsed.parts.push_back(std::move(text));
    return {};
  }));
  if (question == std::string_view::npos) return parsed;
  PRECIS_TRY(split(target.substr(question + 1), '&', [&](std::string_view part) -> Status {
    const auto equals = part.find('=');
    PRECIS_ASSIGN(std::string name, decoded(part.substr(0, equals), /*plus=*/true));
    std::string value;
    if (equals != std::string_view::npos) {
      PRECIS_ASSIGN(value, decoded(part.substr(equals + 1), /*plus=*/true));
    }
    if (!parsed.query.emplace(name, std::move(value)).second) {
      return Status::invalid("the query gives '" + name + "' twice");
    }
    return {};
  }));
  return parsed;
}

HttpResponse error_response(const Status& status) {
  return error_response(http_status(status), status);
}

HttpResponse error_response(unsigned http, const Status& status) {
  HttpResponse response{http, "{\"error\": " + json_string(status_code_name(status.code())) +
                                  ", \"message\": " + json_string(status.message()) + "}\n"};
  // Retry-After is in whole seconds.
  const std::uint32_t wait_ms = status.retry_after_ms();
  if (wait_ms > 0) {
    response.headers.emplace_back("Retry-After", std::to_string((wait_ms + 999) / 1000));
  }
  return response;
}

}  // namespace precis::admin
