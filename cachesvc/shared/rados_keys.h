// The names of the keys and objects that the shared storage has in Ceph. Pure.
//
// The rows of a group of shards are the omap keys of one object:
//   e SHARD      the shard's mark
//   r SHARD KEY  a row
// SHARD is four hexadecimal digits. librados takes the key after which a list begins as a text that
// ends with a zero byte. Therefore no byte of a key is zero: 00 becomes 01 01, and 01 becomes 01
// 02, which also keeps the order of keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace precis::rados {

inline constexpr char kCommonObject[] = "common";
std::string rows_object(std::uint32_t group);
// The pieces of an object begin with piece 0. No name of an object has a colon (shared_tier.h).
std::string piece_name(const std::string& object, std::size_t piece);
inline constexpr std::size_t kPiecesMax = 4096;  // of 64 MiB; no layer has so many
// The reverse; none for another name.
struct Piece {
  std::string object;
  std::size_t number = 0;
};
std::optional<Piece> piece_in(std::string_view name);

std::string mark_key(std::uint32_t shard);
// The beginning of the keys of a shard's rows.
std::string row_prefix(std::uint32_t shard);
// The beginning of the keys of common rows.
inline constexpr char kCommonPrefix[] = "r";

std::string without_zeros(std::string_view key);
// Absent if the text is none that without_zeros() gives.
std::optional<std::string> with_zeros(std::string_view text);

}  // namespace precis::rados
