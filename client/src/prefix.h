// What stands behind a Prefix.
#pragma once

#include <cstdint>
#include <memory>

#include "client/src/channel.h"
#include "client/src/get_state.h"
#include "precis/client.h"

namespace precis {

struct Prefix::Impl {
  // Sends the get; layers are on their way when this returns.
  static Result<std::shared_ptr<Impl>> begin(const std::shared_ptr<Channel>& channel,
                                             const LookupMatch& match, const Budget& keep);

  Impl(std::shared_ptr<Channel> link, std::shared_ptr<GetState> get, std::uint64_t id)
      : channel(std::move(link)), state(std::move(get)), request(id) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const std::shared_ptr<Channel> channel;  // the link lives as long as any handle on it
  const std::shared_ptr<GetState> state;  // after the channel: its buffer belongs to the pool there
  const std::uint64_t request;
};

}  // namespace precis
