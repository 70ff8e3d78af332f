// Peers that are not admitted: silent peers, many peers, and peers that guess tokens.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <thread>

#include "precis/limits.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/talk.h"
#include "tests/integration/proc.h"

namespace precis::hostile {

void stay_silent(Victim& victim, Finding& finding) {
  std::vector<Wire> silent;
  for (unsigned i = 0; i < 1300; ++i) silent.push_back(Wire::tcp(victim.target(), 1));
  for (unsigned i = 0; i < 300; ++i) silent.push_back(Wire::unix_socket(victim.target()));
  for (unsigned i = 0; i < 300; ++i) {
    silent.push_back(Wire::tcp(victim.target(), static_cast<std::uint8_t>(7 + i % 100)));
  }
  unsigned served = 0;
  std::string why;
  for (unsigned i = 0; i < 10; ++i) {
    const Status honest = victim.serve_honest();
    served += honest.ok() ? 1 : 0;
    if (!honest.ok()) why = honest.to_string();
  }
  const std::uint64_t open = victim.descriptors();
  finding.count("descriptors_beside", static_cast<double>(open));
  unsigned kept = 0;
  for (Wire& wire : silent) kept += wire.ends_within(milliseconds(20)) ? 0 : 1;
  finding.count("silent_connections", static_cast<double>(silent.size()));
  finding.count("honest_clients_of_10", served);
  finding.count("silent_connections_kept", kept);
  finding.expect(served == 10, "beside silent connections an honest client failed: " + why);
  finding.expect(kept <= limits::kPendingConnectionsMax, "more silent connections stay than may");
}

// Runs many threads, so that sockets that have sent a frame are dropped to make room for others.
void connect_and_close(Victim& victim, Finding& finding) {
  constexpr unsigned kThreads = 8, kEach = 2000, kHeld = 40;
  std::atomic<std::uint64_t> connected{0}, descriptors{0};
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::deque<Wire> held;  // some close at once, some later
        for (unsigned i = 0; i < kEach; ++i) {
          Wire wire =
              (i + t) % 2 == 0 ? Wire::tcp(victim.target(), 1) : Wire::unix_socket(victim.target());
          connected += wire.is_open() ? 1 : 0;
          if (i % 3 == 0) wire.send(frame(FrameKind::kMessage, Buffer(8)));
          if (i % 3 == 1) held.push_back(std::move(wire));
          if (held.size() > kHeld) {
            held.front().send(frame(FrameKind::kHello, encode(Hello{})));
            held.pop_front();
          }
          if (i % 200 == 0) {
            descriptors = std::max<std::uint64_t>(descriptors, victim.descriptors());
          }
        }
      });
    }
  }
  const Status honest = victim.serve_honest();
  finding.expect(honest.ok(), "after a flood an honest client failed: " + honest.to_string());
  finding.count("connections", static_cast<double>(connected));
  finding.count("descriptors_at_most", static_cast<double>(descriptors));
  finding.expect(descriptors < 1000, "closed connections keep their descriptors");
}

// An admitted tenant opens as many connections as it is allowed.
void hold_connections(Victim& victim, Finding& finding) {
  std::deque<Talk> held;
  for (unsigned i = 0; i < 2 * limits::kConnectionsMax; ++i) {
    held.emplace_back(victim.target(), Talk::Options{});
    if (!held.back().greet(Victim::login("bob")).ok()) held.pop_back();
  }
  const Status honest = victim.serve_honest();
  finding.count("connections_held", static_cast<double>(held.size()));
  finding.expect(honest.ok(), "another tenant was not served: " + honest.to_string());
}

// The service releases the memory of connections, however many come and go.
void come_and_go(Victim& victim, Finding& finding) {
  constexpr unsigned kWarm = 2000, kTimes = 20'000;
  const auto visit = [&](unsigned times) {
    unsigned admitted = 0;
    for (unsigned i = 0; i < times; ++i) {
      Talk talk(victim.target(), {.over_unix = true});
      admitted += talk.greet(Victim::login("bob")).ok() ? 1 : 0;
    }
    return admitted;
  };
  visit(kWarm);
  const std::uint64_t before = testing::resident_bytes(victim.pid());
  finding.count("admitted", visit(kTimes));
  const std::uint64_t after = testing::resident_bytes(victim.pid());
  finding.count("bytes_kept", static_cast<double>(after - std::min(before, after)));
  finding.expect(after < before + kTimes * 200 + testing::kSanitizerBytes,
                 "memory of connections that went is kept");
}

// Guesses as fast as possible from one address, also for made-up tenants. The first guesses are so
// many that they fill all rows that the service remembers. Then two tenants are guessed more often
// than the attacked one.
void guess_tokens(Victim& victim, Finding& finding) {
  constexpr std::uint8_t kHost = 250;
  constexpr unsigned kTries = 500;
  unsigned looked_at = 0, told_to_wait = 0, other = 0;
  const auto guess = [&](const std::string& tenant, const std::string& token) {
    Talk talk(victim.target(), {.host = kHost});
    const Status status = talk.greet({"hostile", tenant, token});
    other += status.ok() ? 1 : 0;
    return status;
  };
  for (std::size_t i = 0; i < 2 * limits::kWrongProofRowsMax; ++i) {
    (void)guess("made up " + std::to_string(i / 2), "guess");
  }
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < kTries; ++i) {
    const Status answer = guess("bob", "guess " + std::to_string(i));
    const bool denied = answer.code() == StatusCode::kPermissionDenied;
    looked_at += denied && answer.retry_after_ms() == 0 ? 1 : 0;
    told_to_wait += denied && answer.retry_after_ms() > 0 ? 1 : 0;
    for (int k = 0; k < 2; ++k) (void)guess("often " + std::to_string(i % 2), "guess");
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  finding.count("guesses", kTries);
  finding.count("guesses_looked_at", looked_at);
  finding.count("told_to_wait", told_to_wait);
  finding.expect(other == 0, "a wrong token was let in");
  finding.expect(looked_at + told_to_wait == kTries, "a guess was not answered");
  // The first few guesses are free. Then one is checked after each wait of 1 s, 2 s, 4 s and so on,
  // independent of the machine's speed.
  const double waits = std::log2(took.count() * 1000 / limits::kWrongProofWaitMs + 1);
  finding.expect(
      looked_at <= limits::kWrongProofsFree + static_cast<unsigned>(waits) + 1,
      std::to_string(looked_at) + " of " + std::to_string(kTries) + " guesses were looked at");
  Talk right(victim.target(), {.host = kHost});
  finding.expect(right.greet(Victim::login("alice")).ok(),
                 "the right token of another tenant was refused from the same address");
  Talk far(victim.target(), {.host = kHost - 1});
  finding.expect(far.greet(Victim::login("bob")).ok(),
                 "the right token was refused from another address");
}

void bind_wrongly(Victim& victim, Finding& finding) {
  Talk alice(victim.target(), {}), bob(victim.target(), {});
  finding.expect(alice.greet(Victim::login("alice")).ok() && bob.greet(Victim::login("bob")).ok(),
                 "a right token was refused");
  unsigned refused = 0, tried = 0;
  const auto expect_refused = [&](Talk& talk, const Bind& bind, const std::string& what) {
    ++tried;
    for (const bool over_unix : {false, true}) {
      const auto answer = talk.bind_with(bind, over_unix);
      finding.expect(answer == FrameKind::kRefusal, "bound, or not answered: " + what);
      refused += answer == FrameKind::kRefusal ? 1 : 0;
    }
  };
  expect_refused(bob, {alice.connection(), {}}, "without a proof");
  expect_refused(bob, {alice.connection(), bob.key()}, "with the key of another");
  expect_refused(bob, {0, {}}, "connection 0");
  expect_refused(bob, {~0ull, {}}, "a connection that does not exist");
  // A proof of another challenge, which an eavesdropper could have.
  Nonce stale{};
  expect_refused(alice, {alice.connection(), bind_proof(alice.key(), stale, alice.connection())},
                 "a proof of another challenge");
  expect_refused(alice, {bob.connection(), bind_proof(alice.key(), stale, bob.connection())},
                 "another's connection by one's own key");
  finding.expect(alice.bind(true), "the right proof was refused");
  finding.expect(!alice.bind(true), "a connection was bound twice");
  finding.expect(bob.call(msg::GetStatus{}).has_value(), "the attacked connection ended");
  finding.count("binds_tried", tried);
  finding.count("binds_refused", refused);
}

}  // namespace precis::hostile
