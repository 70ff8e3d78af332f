// A client that implements the wire itself: greeting, bulk socket, shared memory, requests. It
// follows the rules unless a Twister changes its frames.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "precis/greeting.h"
#include "precis/messages.h"
#include "tests/hostile/memory_file.h"
#include "tests/hostile/twist.h"
#include "tests/hostile/wire.h"

namespace precis::hostile {

class Talk {
 public:
  struct Options {
    bool over_unix = false;          // the control socket
    std::uint8_t host = 1;           // 127.0.0.host
    Twister* twister = nullptr;      // null: frames are sent unchanged
    Recording* recording = nullptr;  // receives a copy of every frame
    milliseconds patience{5000};     // for an answer, before the first change
  };
  Talk(const Target& target, const Options& options) : target_(target), options_(options) {}

  // Connects and greets. Returns the status in the answer, or kUnavailable.
  Status greet(const Login& login);
  // Opens the bulk socket; false if it is refused.
  bool bind(bool over_unix);
  // Sends a Bind of any content on a new socket. Returns the kind of the answer.
  std::optional<FrameKind> bind_with(const Bind& bind, bool over_unix = false);
  std::uint64_t connection() const { return welcome_.connection; }
  const Proof& key() const { return key_; }
  const Welcome& welcome() const { return welcome_; }

  // Shares the window and one buffer of kBufferBytes over a bound Unix socket. False if refused.
  static constexpr std::size_t kBufferBytes = 256u << 10;
  static constexpr std::uint64_t kBuffer = 2;
  bool share();
  bool share_file(std::uint64_t id, std::uint64_t size_bytes, const std::vector<int>& pass);

  // Exposes memory to the service: in the shared buffer from `offset` on, or over the stream.
  RemoteRegion expose(std::size_t offset, std::size_t size_bytes, bool shared);

  // Sends a request, handles bulk frames, and returns the reply; nothing if the connection ended or
  // no reply came in time.
  std::optional<msg::Reply> call(msg::RequestBody body);
  std::uint64_t send(msg::RequestBody body);
  std::optional<msg::Reply> await(std::uint64_t id);

  Wire& control() { return control_; }
  Wire& data() { return data_; }
  MutableBytes window() const { return window_ ? window_->bytes() : MutableBytes(); }
  MutableBytes buffer() const { return buffer_ ? buffer_->bytes() : MutableBytes(); }
  bool is_over() const { return over_; }
  std::uint64_t pushed_bytes() const { return pushed_bytes_; }

 private:
  void say(Wire& wire, Buffer bytes, const std::vector<int>& pass = {});
  milliseconds patience() const;
  Wire dial(bool over_unix) const;
  bool step(std::optional<std::uint64_t> reply);
  bool read_control();
  bool read_data();
  bool serve_pull(const BulkHeader& header);

  const Target target_;
  const Options options_;
  Wire control_, data_;
  Nonce challenge_{};
  Hello hello_;
  Welcome welcome_;
  Proof key_{};
  std::unique_ptr<MemoryFile> window_, buffer_;
  std::map<std::uint64_t, Buffer> regions_;  // sent over the stream
  std::uint64_t next_region_ = 1, next_request_ = 1, pushed_bytes_ = 0;
  std::uint32_t next_slot_ = 0;
  std::map<std::uint64_t, bool> shared_;
  std::map<std::uint64_t, msg::Reply> replies_;
  bool over_ = false;
};

}  // namespace precis::hostile
