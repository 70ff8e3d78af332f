#include "capnp_edge.h"

#include <capnp/serialize.h>
#include <kj/exception.h>
#include <kj/io.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace precis {
namespace {

// Room for a message's small fields and pointers, besides its arrays.
constexpr std::size_t kSmallFieldsBytes = 1024;
// The deepest message is Reply -> Match -> links -> SegmentInfo -> Plan -> counts.
constexpr int kNestingMax = 16;
// A decoder reads each pointer once. Far pointers and struct-list tags add a few words.
constexpr std::size_t kTraversalSlackWords = 1024;

Status malformed(std::string_view what, std::string_view why) {
  return Status::invalid(std::string(what) + ": " + std::string(why));
}

}  // namespace

MessageWriter::MessageWriter(std::size_t payload_bytes)
    : builder_(
          static_cast<capnp::uint>((payload_bytes + kSmallFieldsBytes) / sizeof(capnp::word))) {}

std::vector<std::byte> MessageWriter::take(std::size_t header_bytes) {
  const auto segments = builder_.getSegmentsForOutput();
  const std::size_t size = capnp::computeSerializedSizeInWords(segments) * sizeof(capnp::word);
  std::vector<std::byte> bytes(header_bytes + size);
  kj::ArrayOutputStream out(
      kj::arrayPtr(reinterpret_cast<kj::byte*>(bytes.data()) + header_bytes, size));
  capnp::writeMessage(out, segments);
  return bytes;
}

Status read_message(std::string_view what, Bytes bytes, std::size_t bytes_max,
                    const std::function<Status(capnp::MessageReader&)>& read) {
  if (bytes.size() > bytes_max) {
    return malformed(what, std::to_string(bytes.size()) + " bytes exceed the maximum of " +
                               std::to_string(bytes_max));
  }
  if (bytes.empty() || bytes.size() % sizeof(capnp::word) != 0) {
    return malformed(what, std::to_string(bytes.size()) + " bytes are not a whole number of words");
  }
  const std::size_t num_words = bytes.size() / sizeof(capnp::word);
  kj::ArrayPtr<const capnp::word> words(reinterpret_cast<const capnp::word*>(bytes.data()),
                                        num_words);
  kj::Array<capnp::word> aligned;  // used only if the caller's buffer is not aligned
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(std::uint64_t) != 0) {
    aligned = kj::heapArray<capnp::word>(num_words);
    std::memcpy(aligned.begin(), bytes.data(), bytes.size());
    words = aligned;
  }
  try {
    capnp::ReaderOptions options;
    options.traversalLimitInWords = num_words + kTraversalSlackWords;
    options.nestingLimit = kNestingMax;
    capnp::FlatArrayMessageReader message(words, options);
    if (message.getEnd() != words.end()) {
      return malformed(
          what, std::to_string((words.end() - message.getEnd()) * 8) + " bytes follow the message");
    }
    return read(message).with_context(what);
  } catch (const kj::Exception& e) {
    return malformed(what, e.getDescription().cStr());
  }
}

}  // namespace precis
