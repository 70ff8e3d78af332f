// A peer in this process: its memory is moved by copying, and it has rows of a layer to push.
#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cachesvc/transport/transport.h"

namespace precis::testing {

class NoRegistration final : public Registration {
 public:
  MutableBytes bytes() const override { return {}; }
};

// Does nothing unless a test overrides it.
class NearPeer : public Connection {
 public:
  void start(Handlers) override {}
  void send(std::vector<std::byte>) override {}
  void close() override {}
  void pull(const RemoteRegion&, std::uint64_t, MutableBytes, const Registration&,
            Completion) override {}
  void push(std::vector<Bytes>, const Registration&, const RemoteRegion&, std::uint64_t,
            Completion) override {}
  std::string description() const override { return "near"; }
  std::string peer() const override { return "near"; }
};

// The region of `values`. Its address alone identifies it.
template <typename T>
RemoteRegion region_of(const std::vector<T>& values) {
  RemoteRegion region;
  region.address = reinterpret_cast<std::uint64_t>(values.data());
  region.size_bytes = values.size() * sizeof(T);
  return region;
}
inline void copy_from(const RemoteRegion& from, std::uint64_t offset, MutableBytes into) {
  REQUIRE(offset + into.size() <= from.size_bytes);
  std::memcpy(into.data(), reinterpret_cast<const std::byte*>(from.address) + offset, into.size());
}

// A layer of f32 in a client's memory; zeros until filled.
struct NearLayer {
  NearLayer(const ModelSpec& of, std::uint32_t index, std::uint32_t num_tokens)
      : model(of),
        layer(index),
        tokens(num_tokens),
        keys(std::size_t{of.num_kv_heads} * num_tokens * of.head_dim),
        values(keys.size()) {}

  std::uint64_t row_bytes() const { return model.head_dim * sizeof(float); }
  // Heads [hb, hb + hc) and tokens [tb, tb + tc), as a strided slice of the whole layer.
  msg::PushLayer piece(std::uint32_t hb, std::uint32_t hc, std::uint32_t tb,
                       std::uint32_t tc) const {
    msg::PushLayer push;
    push.layer = layer;
    push.dtype = model.dtype;
    push.head_begin = hb;
    push.head_count = hc;
    push.token_begin = tb;
    push.token_count = tc;
    push.keys_head_stride = push.values_head_stride = tokens * row_bytes();
    const std::uint64_t skip = hb * push.keys_head_stride + tb * row_bytes();
    push.keys = region_of(keys);
    push.values = region_of(values);
    for (RemoteRegion* region : {&push.keys, &push.values}) {
      region->address += skip;
      region->size_bytes -= skip;
    }
    return push;
  }

  ModelSpec model;
  std::uint32_t layer, tokens;
  std::vector<float> keys, values;
};

}  // namespace precis::testing
