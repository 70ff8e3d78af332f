// A fake server that takes pushes, or never answers them.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "tests/unit/client/fake_server.h"

namespace precis::testing {

struct Taken {
  msg::PushLayer message;
  std::vector<std::byte> keys, values, queries;
};

// The puts of this server cover tokens [kBegin, kEnd).
class PagesServer {
 public:
  static constexpr std::uint32_t kBegin = 4, kEnd = 12;

  PagesServer() : server([this](FakeServer& self, const msg::Request& r) { on(self, r); }) {}

  bool silent = false, already_stored = false;
  std::vector<Taken> taken;
  FakeServer server;

 private:
  void on(FakeServer& self, const msg::Request& request) {
    if (std::holds_alternative<msg::BeginPut>(request.body)) {
      msg::PutBegun begun;
      begun.put = 77;
      begun.begin = kBegin;
      begun.end = kEnd;
      begun.already_stored = already_stored;
      return self.reply(request.id, begun);
    }
    if (std::holds_alternative<msg::CommitPut>(request.body)) {
      return self.reply(request.id, msg::SegmentInfo{});
    }
    if (silent) return;
    auto one = std::make_shared<Taken>();  // shared by the pulls
    one->message = std::get<msg::PushLayer>(request.body);
    const auto finish = [this, &self, id = request.id, one] {
      taken.push_back(*one);
      self.reply(id, msg::Done{});
    };
    const auto& message = one->message;
    self.pull(message.keys, message.keys.size_bytes, [=, &self](auto keys) {
      one->keys = std::move(keys);
      self.pull(one->message.values, one->message.values.size_bytes, [=, &self](auto values) {
        one->values = std::move(values);
        if (!one->message.queries) return finish();
        self.pull(*one->message.queries, one->message.queries->size_bytes, [=](auto queries) {
          one->queries = std::move(queries);
          finish();
        });
      });
    });
  }
};

}  // namespace precis::testing
