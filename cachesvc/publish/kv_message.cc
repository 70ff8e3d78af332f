#include "cachesvc/publish/kv_message.h"

#include <bit>
#include <cstdint>
#include <string_view>

namespace precis::publish {
namespace {

// Writes MessagePack. Each value in the shortest form that has room for any value of its kind here.
class Packer {
 public:
  void nil() { out_ += '\xC0'; }
  void number(std::uint32_t value) { sized('\xCE', value); }
  void number(double value) {
    out_ += '\xCB';
    big_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  void text(std::string_view text) {
    sized('\xDB', text.size());
    out_ += text;
  }
  void bytes(const Digest& digest) {
    out_ += "\xC4\x20";  // 32 bytes
    out_.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  }
  void array(std::size_t items) { sized('\xDD', items); }
  void map(std::size_t pairs) { sized('\xDF', pairs); }
  std::string take() { return std::move(out_); }

 private:
  void sized(char kind, std::size_t size) {
    out_ += kind;
    big_endian(size, 4);
  }
  void big_endian(std::uint64_t value, int bytes) {
    for (int at = bytes - 1; at >= 0; --at) out_ += static_cast<char>(value >> (8 * at));
  }
  std::string out_;
};

void pack_hashes(Packer& pack, const std::vector<Digest>& blocks) {
  pack.text("block_hashes");
  pack.array(blocks.size());
  for (const Digest& block : blocks) pack.bytes(block);
}

void pack_medium(Packer& pack) {
  pack.text("medium");
  pack.text("STORAGE");
}

void pack_stored(Packer& pack, const msg::KvEvent& event) {
  pack.map(8);
  pack.text("type");
  pack.text("BlockStored");
  pack_hashes(pack, event.blocks);
  pack.text("parent_block_hash");
  event.parent_block ? pack.bytes(*event.parent_block) : pack.nil();
  pack.text("token_ids");
  pack.array(0);
  pack.text("block_size");
  pack.number(event.block_tokens);
  pack.text("lora_id");
  pack.nil();
  pack_medium(pack);
  pack.text("lora_name");
  event.adapter.empty() ? pack.nil() : pack.text(event.adapter);
}

void pack_removed(Packer& pack, const msg::KvEvent& event) {
  pack.map(3);
  pack.text("type");
  pack.text("BlockRemoved");
  pack_hashes(pack, event.blocks);
  pack_medium(pack);
}

}  // namespace

std::string kv_message(const msg::KvEvent& event) {
  const bool stored = event.kind == msg::KvEvent::Kind::kStored;
  const bool removed = event.kind == msg::KvEvent::Kind::kRemoved;
  const bool has_event = (stored || removed) && !event.blocks.empty();
  Packer pack;
  pack.array(2);
  pack.number(static_cast<double>(event.unix_ms) / 1000);
  pack.array(has_event ? 1 : 0);
  if (has_event && stored) pack_stored(pack, event);
  if (has_event && removed) pack_removed(pack, event);
  return pack.take();
}

}  // namespace precis::publish
