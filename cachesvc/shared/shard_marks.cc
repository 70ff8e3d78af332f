#include "cachesvc/shared/shard_marks.h"

#include <string>
#include <string_view>

#include "precis/little_endian.h"

namespace precis {
namespace {

constexpr std::uint8_t kFormat = 1;
// Epochs grow by one, so that this is never reached.
constexpr std::uint64_t kEpochMax = std::uint64_t{1} << 62;

void put_text(std::vector<std::byte>& out, std::string_view text) {
  put_le(out, static_cast<std::uint32_t>(text.size()));
  put_bytes(out, std::as_bytes(std::span(text)));
}

std::string get_text(LeReader& reader) {
  const Bytes text = reader.take(reader.get<std::uint32_t>());
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

}  // namespace

std::vector<std::byte> encode(const ShardMark& mark) {
  std::vector<std::byte> bytes;
  put_le(bytes, kFormat);
  put_le(bytes, mark.epoch);
  put_le(bytes, mark.sequence);
  put_le(bytes, static_cast<std::uint8_t>(mark.released ? 1 : 0));
  put_text(bytes, mark.node);
  put_text(bytes, mark.instance);
  return bytes;
}

Result<ShardMark> decode_mark(Bytes bytes) {
  LeReader reader(bytes);
  const auto format = reader.get<std::uint8_t>();
  if (format != kFormat) {
    return Status::corruption("read a shard's mark: its format is " + std::to_string(format) +
                              ", and this version knows " + std::to_string(kFormat));
  }
  ShardMark mark;
  mark.epoch = reader.get<std::uint64_t>();
  mark.sequence = reader.get<std::uint64_t>();
  const auto released = reader.get<std::uint8_t>();
  mark.released = released == 1;
  mark.node = get_text(reader);
  mark.instance = get_text(reader);
  if (!reader.ok() || !reader.rest().empty() || released > 1 || mark.epoch > kEpochMax) {
    return Status::corruption("read a shard's mark: its " + std::to_string(bytes.size()) +
                              " bytes are not those of a mark");
  }
  return mark;
}

Status other_mark(std::uint32_t shard, const std::optional<ShardMark>& now) {
  return Status::conflict("take shard " + std::to_string(shard) +
                          (now ? ": its mark is of node '" + now->node + "', instance '" +
                                     now->instance + "', epoch " + std::to_string(now->epoch)
                               : ": it has no mark"));
}

Status other_holder(std::uint32_t shard, const std::optional<ShardMark>& now) {
  return Status::moved("write rows of shard " + std::to_string(shard) +
                       (now ? ": node '" + now->node + "' holds it, instance '" + now->instance +
                                  "', epoch " + std::to_string(now->epoch) + ", write " +
                                  std::to_string(now->sequence)
                            : ": nobody holds it"));
}

}  // namespace precis
