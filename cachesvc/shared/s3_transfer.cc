#include "cachesvc/shared/s3_transfer.h"

#include <algorithm>
#include <cstring>

namespace precis::s3 {

std::size_t Transfer::send(char* to, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  const Bytes rest = transfer.body.subspan(transfer.sent);
  const std::size_t bytes = std::min(rest.size(), size * count);
  std::memcpy(to, rest.data(), bytes);
  transfer.sent += bytes;
  return bytes;
}

// If the connection was closed meanwhile, the request is sent again.
int Transfer::rewind(void* self, curl_off_t offset, int origin) {
  auto& transfer = *static_cast<Transfer*>(self);
  const bool is_inside = origin == SEEK_SET && offset >= 0 &&
                         static_cast<std::uint64_t>(offset) <= transfer.body.size();
  if (!is_inside) return CURL_SEEKFUNC_CANTSEEK;
  transfer.sent = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

std::size_t Transfer::receive(char* from, std::size_t size, std::size_t count, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  return transfer.take({reinterpret_cast<const std::byte*>(from), size * count});
}

// A result other than the size ends the transfer.
std::size_t Transfer::take(Bytes some) {
  Answer& to = answer;
  library.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &to.status);
  if (to.status < 200 || to.status >= 300) {
    const std::size_t room = kErrorBytesMax - std::min(kErrorBytesMax, to.error.size());
    to.error.append(reinterpret_cast<const char*>(some.data()), std::min(room, some.size()));
    return some.size();
  }
  const std::size_t room =
      to.has_exact ? to.exact.size() - to.received : to.bytes_max - to.bytes.size();
  to.is_too_long = some.size() > room;
  if (to.is_too_long) return 0;
  if (to.has_exact) {
    std::ranges::copy(some, to.exact.begin() + static_cast<std::ptrdiff_t>(to.received));
    to.received += some.size();
  } else {
    to.bytes.insert(to.bytes.end(), some.begin(), some.end());
  }
  return some.size();
}

}  // namespace precis::s3
