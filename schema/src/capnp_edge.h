// Converts bytes to and from Cap'n Proto messages. Only capnp_edge.cc catches kj::Exception.
#pragma once

#include <capnp/message.h>

#include <functional>
#include <string_view>
#include <vector>

#include "precis/status.h"
#include "precis/view.h"

namespace precis {

// A message builder. Its first segment has room for `payload_bytes` of arrays besides the small
// fields, so an ordinary message is one segment.
class MessageWriter {
 public:
  explicit MessageWriter(std::size_t payload_bytes = 0);
  template <typename Wire>
  typename Wire::Builder root() {
    return builder_.initRoot<Wire>();
  }
  // The message in Cap'n Proto's stream framing, after `header_bytes` zero bytes that the caller
  // fills in.
  std::vector<std::byte> take(std::size_t header_bytes = 0);

 private:
  capnp::MallocMessageBuilder builder_;
};

// Runs `read` on the message in `bytes`, which must be exactly one message of at most `bytes_max`.
// Malformed bytes are kInvalidArgument: "`what`: ...". Work and memory are bounded by the size of
// `bytes`, whatever the pointers in the message claim.
Status read_message(std::string_view what, Bytes bytes, std::size_t bytes_max,
                    const std::function<Status(capnp::MessageReader&)>& read);

// Decodes the root of type Wire into a T with the overload read(Wire::Reader, T&).
template <typename Wire, typename T>
Result<T> decode_root(std::string_view what, Bytes bytes, std::size_t bytes_max) {
  T value;
  PRECIS_TRY(read_message(what, bytes, bytes_max, [&](capnp::MessageReader& message) {
    return read(message.getRoot<Wire>(), value);
  }));
  return value;
}

}  // namespace precis
