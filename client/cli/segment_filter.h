// Chooses segments by their properties. The service filters by model; the client applies the other
// conditions to every page of the list, in bounded memory. So a choice costs the service one row
// for each segment of the model, and the network about 300 bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "precis/client.h"

namespace precis::cli {

struct SegmentFilter {
  std::string model;                       // name or fingerprint; empty: all models
  std::string session;                     // only the segments of this session's prefix; empty: all
  std::optional<std::uint64_t> unused_ms;  // not used for so long; if never used, since its commit
  std::optional<std::uint64_t> larger_bytes;  // stored in more bytes than this

  bool chooses_all() const {
    return model.empty() && session.empty() && !unused_ms && !larger_bytes;
  }
  // Whether a segment of that model and session is chosen. `now_ms`: milliseconds since 1970.
  bool accepts(const msg::SegmentInfo& row, std::uint64_t now_ms) const;
};

// "7d", "12h", "30m", "45s" or "2w", in milliseconds. kInvalidArgument names `option`.
Result<std::uint64_t> parse_age(const std::string& text, const std::string& option);
// "1GiB", as in a budget.
Result<std::uint64_t> parse_bytes(const std::string& text, const std::string& option);

// When it was last used; if it never was, when it was stored.
std::uint64_t used_unix_ms(const msg::SegmentInfo& row);

// Calls `visit` with each chosen segment until it returns false: the newest first, or from a
// session's tip to its root. kNotFound: there is no such model or session. kCanceled: Ctrl-C.
Status each_segment(Client& client, const SegmentFilter& filter,
                    const std::function<bool(msg::SegmentInfo)>& visit);

}  // namespace precis::cli
