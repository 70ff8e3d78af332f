#include "tests/reference/kvpress_vectors.h"

#include <cstring>
#include <fstream>
#include <stdexcept>

namespace precis::reference {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) : in_(path, std::ios::binary) {
    if (!in_) throw std::runtime_error("cannot open " + path);
  }
  void read(void* out, std::size_t size) {
    if (!in_.read(static_cast<char*>(out), static_cast<std::streamsize>(size))) {
      throw std::runtime_error("the vectors end early");
    }
  }
  std::uint32_t word() {
    std::uint32_t value;
    read(&value, sizeof value);
    return value;
  }
  std::vector<std::byte> bytes(std::size_t size) {
    std::vector<std::byte> out(size);
    read(out.data(), size);
    return out;
  }
  bool at_end() { return in_.peek() == std::char_traits<char>::eof(); }

 private:
  std::ifstream in_;
};

Case read_case(Reader& in, const Vectors& v) {
  Case c;
  c.layer = in.word();
  c.removed_ppm = in.word();
  c.preset.resize(in.word());
  in.read(c.preset.data(), c.preset.size());
  c.kept.resize(v.num_kv_heads);
  for (auto& positions : c.kept) {
    positions.resize(in.word());
    for (std::uint32_t& position : positions) position = in.word();
  }
  return c;
}

}  // namespace

Vectors read_vectors(const std::string& path) {
  Reader in(path);
  char magic[4];
  in.read(magic, sizeof magic);
  if (std::memcmp(magic, "PKV1", 4) != 0) throw std::runtime_error(path + " is not of version 1");
  Vectors v;
  v.layers.resize(in.word());
  v.num_q_heads = in.word();
  v.num_kv_heads = in.word();
  v.num_tokens = in.word();
  v.head_dim = in.word();
  v.window = in.word();
  v.cases.resize(in.word());
  const std::size_t kv_bytes = std::size_t{2} * v.num_kv_heads * v.num_tokens * v.head_dim;
  for (Layer& layer : v.layers) {
    layer.keys = in.bytes(kv_bytes);
    layer.values = in.bytes(kv_bytes);
    layer.queries = in.bytes(std::size_t{2} * v.num_q_heads * v.window * v.head_dim);
  }
  for (Case& c : v.cases) c = read_case(in, v);
  if (!in.at_end()) throw std::runtime_error(path + " has bytes left over");
  return v;
}

}  // namespace precis::reference
