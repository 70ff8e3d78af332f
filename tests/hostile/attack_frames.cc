// Frames that are garbage, too long or too many, or whose answers are not read.
#include <poll.h>

#include <atomic>
#include <random>
#include <thread>

#include "precis/limits.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/talk.h"
#include "tests/integration/random_kv.h"

namespace precis::hostile {
namespace {

constexpr milliseconds kPatience{5000};

Buffer noise(std::mt19937& random, std::size_t size) {
  Buffer bytes(size);
  for (std::byte& b : bytes) b = std::byte(random());
  return bytes;
}

}  // namespace

void send_garbage(Victim& victim, Finding& finding) {
  std::mt19937 random(7);
  unsigned sent = 0, ended = 0;
  // Peers that are not admitted send noise, and each kind of frame with noise, empty or too long.
  for (unsigned i = 0; i < 1500; ++i) {
    Wire wire = i % 2 == 0 ? Wire::tcp(victim.target(), 3) : Wire::unix_socket(victim.target());
    if (i % 3 == 0) {
      wire.send(noise(random, random() % 6000));
    } else {
      const auto kind = static_cast<FrameKind>(random() % 10);
      wire.send(frame(kind, noise(random, i % 3 == 1 ? random() % 200 : random() % 5000)));
    }
    ++sent;
    if (i % 10 == 0) ended += wire.ends_within(milliseconds(5)) ? 1 : 0;
  }
  // Admitted clients do the same on both sockets.
  for (unsigned i = 0; i < 400; ++i) {
    Talk talk(victim.target(), {.host = 4});
    if (!talk.greet(Victim::login("open")).ok() || !talk.bind(i % 2 == 0)) continue;
    const auto kind = static_cast<BulkKind>(random() % 9);
    const auto size = static_cast<std::uint32_t>(random() % 9000);
    switch (i % 4) {
      case 0: talk.control().send(noise(random, 1 + random() % 9000)); break;
      case 1:
        talk.control().send(frame(FrameKind::kMessage, noise(random, random() % 9000)));
        break;
      case 2: talk.data().send(noise(random, 1 + random() % 9000)); break;
      default:
        talk.data().send(frame({kind, size, random(), random(), random()}, noise(random, size)));
    }
    ++sent;
  }
  finding.count("frames_sent", sent);
  finding.count("connections_ended_at_once", ended);
}

void announce_large_messages(Victim& victim, Finding& finding) {
  constexpr std::uint32_t kClients = 40, kBytes = 120u << 20;
  std::vector<std::unique_ptr<Talk>> talks;
  for (std::uint32_t i = 0; i < kClients; ++i) {
    auto talk = std::make_unique<Talk>(victim.target(), Talk::Options{.host = 5});
    if (talk->greet(Victim::login("open")).ok()) talks.push_back(std::move(talk));
  }
  finding.expect(talks.size() == kClients, "not all of them were admitted");
  const auto header = encode_frame_header({FrameKind::kMessage, kBytes, 0});
  std::vector<std::uint64_t> left(talks.size(), kBytes);
  for (auto& talk : talks) talk->control().send(header);
  const Buffer zeros(1u << 20);
  // Half of the clients stop one byte before the end, so that the service must keep all the bytes
  // they have sent.
  std::uint64_t sent = 0;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (bool some = true; some && std::chrono::steady_clock::now() < until;) {
    some = false;
    for (std::size_t i = 0; i < talks.size(); ++i) {
      const std::uint64_t stop = i % 2 == 0 ? 1 : 0;
      const std::size_t n = std::min<std::uint64_t>(zeros.size(), left[i] - stop);
      if (n == 0) continue;
      const std::size_t went = talks[i]->control().send_some(Bytes(zeros).first(n));
      left[i] -= went;
      sent += went;
      some |= went > 0;
    }
    if (!some) some = ::poll(nullptr, 0, 20) == 0;
  }
  finding.count("bytes_sent", static_cast<double>(sent));
  const Status honest = victim.serve_honest();
  finding.expect(honest.ok(), "beside them an honest client failed: " + honest.to_string());
}

void read_no_answers(Victim& victim, Finding& finding) {
  std::vector<std::unique_ptr<Talk>> talks;
  const Buffer ask = frame(FrameKind::kMessage, encode(msg::Request{1, msg::GetStats{}}));
  std::uint64_t asked = 0;
  for (unsigned i = 0; i < 20; ++i) {
    auto talk = std::make_unique<Talk>(victim.target(), Talk::Options{.host = 6});
    if (talk->greet(Victim::login("open")).ok()) talks.push_back(std::move(talk));
  }
  const auto until = std::chrono::steady_clock::now() + milliseconds(4000);
  while (std::chrono::steady_clock::now() < until) {
    bool some = false;
    for (auto& talk : talks) {
      const bool went = talk->control().send(ask, {}, milliseconds(0));
      asked += went ? 1 : 0;
      some |= went;
    }
    if (!some) ::poll(nullptr, 0, 5);
  }
  finding.count("requests_without_reading", static_cast<double>(asked));
  const Status honest = victim.serve_honest();
  finding.expect(honest.ok(), "beside them an honest client failed: " + honest.to_string());
}

// Gets into shared memory proceed without a reading client, and the message of each layer describes
// 1024 heads.
void read_no_layers(Victim& victim, Finding& finding) {
  ModelSpec spec = testing::tiny_model();
  spec.name = "hostile/layers";
  spec.num_layers = 16;
  spec.num_q_heads = spec.num_kv_heads = 1024;
  spec.head_dim = 2;
  std::mt19937 random(11);
  const auto tokens = testing::random_tokens(random, spec.block_tokens);
  SegmentId segment;
  {
    ConnectOptions options;
    options.tenant = "open";
    auto client = Client::connect(victim.address(), options);
    PRECIS_CHECK(client.ok());
    const auto model = (*client)->register_model(spec);
    PutOptions put;
    put.recipe = "global_kvdiff(min_entries=1)";
    const auto info = testing::put_all(**client, *model, tokens,
                                       testing::random_kv(random, spec, 0, spec.block_tokens), put);
    PRECIS_CHECK(info.ok());
    segment = info->id;
  }
  constexpr std::size_t kFileBytes = 8u << 20;
  constexpr std::uint64_t kFile = 3;
  std::vector<std::unique_ptr<MemoryFile>> files;
  std::vector<std::unique_ptr<Talk>> talks;
  std::vector<msg::Get> gets;
  for (unsigned i = 0; i < 16; ++i) {
    auto talk = std::make_unique<Talk>(victim.target(), Talk::Options{.over_unix = true});
    if (!talk->greet(Victim::login("open")).ok() || !talk->bind(true) || !talk->share()) continue;
    files.push_back(std::make_unique<MemoryFile>(kFileBytes));
    if (!talk->share_file(kFile, kFileBytes, {files.back()->descriptor()})) continue;
    msg::Get get;
    get.links.push_back({segment});
    get.budget = Budget::entries(1);
    get.destination = talk->expose(0, 0, true);
    get.destination.buffer = kFile;
    get.destination.size_bytes = kFileBytes;
    const auto first = talk->call(get);
    finding.expect(
        first && first->status.ok(),
        "a get that is read failed: " + (first ? first->status.to_string() : "no answer"));
    gets.push_back(get);
    talks.push_back(std::move(talk));
  }
  finding.expect(talks.size() == 16, "not all of them were admitted");
  std::uint64_t asked = 0;
  const auto until = std::chrono::steady_clock::now() + milliseconds(4000);
  while (std::chrono::steady_clock::now() < until) {
    bool some = false;
    for (std::size_t i = 0; i < talks.size(); ++i) {
      const Buffer ask = frame(FrameKind::kMessage, encode(msg::Request{asked + 1, gets[i]}));
      const bool went = talks[i]->control().send(ask, {}, milliseconds(0));
      asked += went ? 1 : 0;
      some |= went;
    }
    if (!some) ::poll(nullptr, 0, 5);
  }
  finding.count("gets_without_reading", static_cast<double>(asked));
  const Status honest = victim.serve_honest();
  finding.expect(honest.ok(), "beside them an honest client failed: " + honest.to_string());
}

// Clients on every bulk loop send headers as fast as they can. Half of the clients send headers
// that are answered.
void flood_bulk_headers(Victim& victim, Finding& finding) {
  std::vector<std::unique_ptr<Talk>> talks;
  for (unsigned i = 0; i < 8; ++i) {
    auto talk = std::make_unique<Talk>(victim.target(), Talk::Options{});
    if (talk->greet(Victim::login("open")).ok() && talk->bind(true))
      talks.push_back(std::move(talk));
  }
  finding.expect(talks.size() == 8, "not all of them were admitted");
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> sent{0};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < talks.size(); ++i) {
    threads.emplace_back([&, i] {
      const BulkKind kind = i % 2 == 0 ? BulkKind::kShare : BulkKind::kUnshare;
      Buffer headers;
      for (std::uint64_t id = 0; id < 2048; ++id) {
        const Buffer one = frame({kind, 0, id + 2, 0, 4096});
        headers.insert(headers.end(), one.begin(), one.end());
      }
      while (!over && talks[i]->data().send(headers, {}, milliseconds(500))) sent += 2048;
    });
  }
  const Status honest = victim.serve_honest(3);
  over = true;
  threads.clear();
  finding.count("headers_sent", static_cast<double>(sent.load()));
  finding.expect(honest.ok(), "beside them an honest client failed: " + honest.to_string());
}

}  // namespace precis::hostile
