// W3C Trace Context: the caller's place in its trace, as its header traceparent names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace precis {

struct TraceContext {
  std::uint64_t trace_high = 0, trace_low = 0;  // the trace's id; not both are 0
  std::uint64_t span = 0;                       // the caller's span; 0: the trace begins here
  bool sampled = false;
  bool operator==(const TraceContext&) const = default;
};

// Parses "00-TRACE-SPAN-FLAGS", in lower-case hexadecimal digits. A later version is read as 00.
// None for a value of another form, of the version ff, or with an id of zeros.
std::optional<TraceContext> parse_traceparent(std::string_view text);

// Ids as in a traceparent: 16 digits.
std::string hex_id(std::uint64_t id);

}  // namespace precis
