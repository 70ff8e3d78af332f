#include "cachesvc/server/unread_answers.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace precis {
namespace {

constexpr std::size_t kLarge = kSmallAnswerBytes + 1;

class MadeUp : public Reader {
 public:
  MadeUp(std::string tenant, std::size_t unsent_bytes)
      : tenant_(std::move(tenant)), unsent_bytes_(unsent_bytes) {}

  const std::string& tenant() const override { return tenant_; }
  std::size_t unsent_bytes() const override { return unsent_bytes_; }
  void disconnect(const std::string&) override { unsent_bytes_ = 0; }

 private:
  const std::string tenant_;
  std::size_t unsent_bytes_;
};

struct Readers {
  std::vector<std::shared_ptr<Reader>> all;
  std::shared_ptr<Reader> add(const std::string& tenant, std::size_t unsent_bytes) {
    return all.emplace_back(std::make_shared<MadeUp>(tenant, unsent_bytes));
  }
};

}  // namespace

TEST_CASE("answers up to the bound are sent, and one beyond it to those who read",
          "[unit][server]") {
  Readers readers;
  readers.add("a", 3 * kLarge);
  CHECK(may_send(readers.all, 4 * kLarge, "a", kLarge).ok());
  CHECK(may_send(readers.all, 4 * kLarge, "b", kLarge).ok());
  CHECK(readers.all[0]->unsent_bytes() == 3 * kLarge);

  Readers idle;
  idle.add("a", 0);
  CHECK(may_send(idle.all, kLarge, "a", 2 * kLarge).ok());
}

TEST_CASE("a tenant's large answer gives way where most of what waits is its own",
          "[unit][server]") {
  Readers readers;
  readers.add("a", 2 * kLarge);
  readers.add("a", 2 * kLarge);
  readers.add("b", 3 * kLarge);
  const Status may = may_send(readers.all, 7 * kLarge, "a", kLarge);
  CHECK(may.code() == StatusCode::kRejected);
  CHECK(may.retry_after_ms() > 0);
  for (const auto& reader : readers.all) CHECK(reader->unsent_bytes() > 0);
}

TEST_CASE("where another tenant's answers fill the bound, its slowest connection ends",
          "[unit][server]") {
  Readers readers;
  const auto slow = readers.add("a", 3 * kLarge);
  const auto slower = readers.add("a", 4 * kLarge);
  const auto other = readers.add("b", 5 * kLarge);  // the slowest, but its tenant has less unsent
  CHECK(may_send(readers.all, 12 * kLarge, "b", kLarge).ok());
  CHECK(slow->unsent_bytes() > 0);
  CHECK(slower->unsent_bytes() == 0);
  CHECK(other->unsent_bytes() > 0);
}

TEST_CASE("a small answer is sent, and the slowest connection of its own tenant may end for it",
          "[unit][server]") {
  Readers readers;
  const auto slow = readers.add("a", kLarge);
  const auto slower = readers.add("a", 2 * kLarge);
  CHECK(may_send(readers.all, 3 * kLarge, "a", kSmallAnswerBytes).ok());
  CHECK(slow->unsent_bytes() == kLarge);
  CHECK(slower->unsent_bytes() == 0);
}

}  // namespace precis
