// Memory that is not the client's: another connection's, stale, out of bounds, or precisd's own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "cachesvc/net/shared_window.h"
#include "precis/block_digest.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/talk.h"

namespace precis::hostile {
namespace {

constexpr std::size_t kRows = 16384;  // bytes of K, and of V, in a push
constexpr std::uint32_t kTokens = 64;
// A put of this many tokens stages more than half of the service's memory.
constexpr std::uint32_t kManyTokens = 80'000;

ModelSpec model_spec() {
  ModelSpec spec;
  spec.name = "hostile/memory";
  spec.num_layers = 1;
  spec.num_q_heads = spec.num_kv_heads = 2;
  spec.head_dim = 32;
  spec.dtype = Dtype::kF32;
  spec.block_tokens = 16;
  return spec;
}

// The id of a new put; nothing if it is refused.
std::optional<std::uint64_t> begin_put(Talk& talk, std::uint32_t path, std::uint32_t tokens) {
  talk.call(msg::RegisterModel{model_spec()});
  msg::BeginPut begin;
  begin.model = model_fingerprint(model_spec());
  begin.tokens.assign(tokens, 90'000 + path);
  begin.recipe = "global_kvdiff(min_entries=16)";
  const auto begun = talk.call(begin);
  const auto* const put = begun ? std::get_if<msg::PutBegun>(&begun->body) : nullptr;
  if (put == nullptr) return {};
  return put->put;
}

// A client with a shared buffer and a put without any pushes.
struct Pusher {
  Pusher(const Target& target, std::uint32_t path, std::uint32_t tokens = kTokens)
      : talk(target, {}) {
    PRECIS_CHECK(talk.greet(Victim::login("open")).ok() && talk.bind(true) && talk.share());
    begin(path, tokens);
  }
  void begin(std::uint32_t path, std::uint32_t tokens = kTokens) {
    const auto begun = begin_put(talk, path, tokens);
    PRECIS_CHECK(begun.has_value());
    id = *begun;
  }
  // Pushes K from `keys`, and V from valid memory. Returns the answer.
  std::optional<Status> push(const RemoteRegion& keys, std::uint32_t token_begin = 0) {
    msg::PushLayer push;
    push.token_begin = token_begin;
    push.put = id;
    push.head_count = 2;
    push.token_count = kTokens;
    push.dtype = Dtype::kF32;
    push.keys = keys;
    push.values = talk.expose(kRows, kRows, true);
    push.keys_head_stride = push.values_head_stride = kRows / 2;
    const auto reply = talk.call(push);
    if (!reply) return {};
    return reply->status;
  }
  Talk talk;
  std::uint64_t id = 0;
};

std::set<std::string> inodes_of_sockets(pid_t pid) {
  std::set<std::string> inodes;
  std::error_code gone;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
    const std::string to = std::filesystem::read_symlink(entry.path(), gone).string();
    if (to.starts_with("socket:[")) inodes.insert(to.substr(8, to.size() - 9));
  }
  return inodes;
}

// Lines of a table in /proc/net that belong to the process.
std::vector<std::vector<std::string>> sockets_of(pid_t pid, const std::string& table,
                                                 std::size_t inode_column) {
  const auto inodes = inodes_of_sockets(pid);
  std::vector<std::vector<std::string>> rows;
  std::ifstream file("/proc/net/" + table);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<std::string> row{std::istream_iterator<std::string>(words), {}};
    if (row.size() > inode_column && inodes.contains(row[inode_column])) rows.push_back(row);
  }
  return rows;
}

}  // namespace

void scan_ports(Victim& victim, Finding& finding) {
  const std::string listening = "0A";
  std::vector<std::string> tcp;
  for (const char* table : {"tcp", "tcp6"}) {
    for (const auto& row : sockets_of(victim.pid(), table, 9)) {
      if (row[3] == listening) tcp.push_back(row[1]);
    }
  }
  char wanted[16];
  std::snprintf(wanted, sizeof wanted, "0100007F:%04X", victim.target().port);
  finding.count("tcp_ports", static_cast<double>(tcp.size()));
  finding.expect(tcp == std::vector<std::string>{wanted},
                 "it listens elsewhere than " + std::string(wanted));
  for (const char* table : {"udp", "udp6", "raw", "raw6", "packet"}) {
    const std::size_t column = std::string(table) == "packet" ? 8 : 9;
    finding.expect(sockets_of(victim.pid(), table, column).empty(),
                   std::string("it has a socket of /proc/net/") + table);
  }
  std::size_t unix_listening = 0;
  for (const auto& row : sockets_of(victim.pid(), "unix", 6)) {
    if (row[3] != "00010000") continue;  // __SO_ACCEPTCON
    ++unix_listening;
    finding.expect(row.size() > 7 && row[7] == victim.target().unix_path,
                   "it listens on a Unix socket that is not its own");
  }
  finding.count("unix_sockets", static_cast<double>(unix_listening));
  finding.expect(unix_listening == 1, "it does not listen on one Unix socket");
}

// Each attempt has its own put, because a put keeps its first error.
void reach_foreign_memory(Victim& victim, Finding& finding) {
  Pusher other(victim.target(), 1);
  // This memory has an id and a slot that the other clients do not have.
  RemoteRegion theirs;
  for (unsigned i = 0; i < 500; ++i) theirs = other.talk.expose(0, kRows, true);
  std::set<std::string> texts;
  std::uint32_t tried = 0;
  const auto refused = [&](const std::string& what, auto change) {
    Pusher pusher(victim.target(), 2 + tried++);
    RemoteRegion keys = pusher.talk.expose(0, kRows, true);
    change(keys);
    const auto status = pusher.push(keys);
    finding.expect(status.has_value() && !status->ok(), "accepted or unanswered: " + what);
    if (!status) return;
    std::string text = status->message();
    std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
    texts.insert(text);
  };
  refused("a region of another connection", [&](RemoteRegion& r) { r = theirs; });
  refused("a stale slot", [](RemoteRegion& r) { r.slot += 1000; });
  refused("another id in its slot", [](RemoteRegion& r) { r.id += 1000; });
  refused("id 0 in an empty slot", [](RemoteRegion& r) { r.id = 0, r.slot = 4000; });
  refused("a slot past the window", [](RemoteRegion& r) { r.slot = 1u << 20; });
  refused("a buffer that is not shared", [](RemoteRegion& r) { r.buffer = 77; });
  refused("the window as a buffer", [](RemoteRegion& r) { r.buffer = kWindowBuffer; });
  refused("past the buffer's end",
          [](RemoteRegion& r) { r.buffer_offset = Talk::kBufferBytes - 4; });
  refused("an offset that wraps", [](RemoteRegion& r) { r.buffer_offset = ~0ull - 4096; });
  refused("an address of precisd", [](RemoteRegion& r) {
    r.buffer = 0;
    r.address = 0x1000;
    r.key = std::string(64, 'k');
  });
  finding.count("regions_refused", tried);
  finding.count("texts", static_cast<double>(texts.size()));
  std::string all;
  for (const std::string& text : texts) all += "\n    " + text;
  finding.expect(texts.size() == 1, "refusals tell one reason from another:" + all);
  refused("device memory", [](RemoteRegion& r) { r.space = MemorySpace::kDevice; });
  Pusher honest(victim.target(), 1000);
  const auto last = honest.push(honest.talk.expose(0, kRows, true));
  finding.expect(last.has_value() && last->ok(), "memory that is in order was refused: " +
                                                     (last ? last->to_string() : "no answer"));
}

void share_bad_files(Victim& victim, Finding& finding) {
  Talk talk(victim.target(), {});
  finding.expect(talk.greet(Victim::login("open")).ok() && talk.bind(true) && talk.share(),
                 "memory that is in order was refused");
  std::uint64_t id = 100;
  const auto refused = [&](const std::string& what, std::uint64_t size,
                           const std::vector<int>& pass) {
    finding.expect(!talk.share_file(++id, size, pass), "mapped: " + what);
    finding.expect(!talk.is_over(), "the connection ended at: " + what);
  };
  const std::size_t size = 1u << 20;
  const MemoryFile good(size), unsealed(size, {.sealed = false}), punched(size, {.punched = true});
  const MemoryFile sparse(std::size_t{32} << 30, {.filled = false});
  refused("no file", size, {});
  refused("a file that is too small", 2 * size, {good.descriptor()});
  refused("a file that is too large", size / 2, {good.descriptor()});
  refused("no bytes", 0, {good.descriptor()});
  refused("more bytes than there are", ~0ull, {good.descriptor()});
  refused("a file that may shrink", size, {unsealed.descriptor()});
  refused("a file with a hole", size, {punched.descriptor()});
  refused("32 GiB without a page", std::size_t{32} << 30, {sparse.descriptor()});
  for (const char* path : {"/dev/zero", "/dev/null", "/proc/self/maps", "/", "/etc/passwd"}) {
    const Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
    refused(path, 4096, {file.get()});
  }
  int pipe[2];
  PRECIS_CHECK(::pipe2(pipe, O_CLOEXEC) == 0);
  const Descriptor in(pipe[0]), out(pipe[1]);
  refused("a pipe", 4096, {in.get()});
  refused("its own socket", 4096, {talk.data().descriptor()});
  // The same valid file a thousand times; the service may keep few of them mapped.
  unsigned shared = 0;
  for (unsigned i = 0; i < 1000; ++i) shared += talk.share_file(++id, size, {good.descriptor()});
  finding.count("files_mapped_in_turn", shared);
  finding.expect(shared > 0 && !talk.is_over(), "a client that shares many files was dropped");
}

void pass_stray_descriptors(Victim& victim, Finding& finding) {
  const MemoryFile file(4096);
  unsigned sent = 0;
  for (unsigned i = 0; i < 50; ++i) {
    Talk talk(victim.target(), {.over_unix = true});
    if (!talk.greet(Victim::login("open")).ok() || !talk.bind(true)) continue;
    const std::vector<int> many(200, file.descriptor());
    // The descriptors come with control frames, with each byte of a bulk header and with data, also
    // many at once.
    const Buffer status = frame(FrameKind::kMessage, encode(msg::Request{99, msg::GetStatus{}}));
    for (const std::byte& b : status) {
      // If the kernel refuses to pass descriptors before the bind, it still takes the byte alone.
      if (talk.control().send({&b, 1}, {file.descriptor()})) {
        ++sent;
      } else {
        talk.control().send({&b, 1});
      }
    }
    const Buffer header = frame({BulkKind::kUnshare, 0, 9, 0, 0});
    for (const std::byte& b : header) talk.data().send({&b, 1}, many);
    talk.data().send(frame({BulkKind::kData, 64, 77, 0, 0}, Buffer(64)), many);
    talk.data().send(frame({BulkKind::kShare, 0, 9, 0, 4096}), many);
    sent += static_cast<unsigned>(34 * many.size());
    finding.expect(talk.await(99).has_value(), "a client that passes descriptors was not answered");
  }
  finding.count("descriptors_passed", sent);
}

// One thread shares a small and a large file in turn under one id, while pushes name the large one.
void swap_shared_files(Victim& victim, Finding& finding) {
  const MemoryFile small(4096), large(1u << 20);
  unsigned pushed = 0, taken = 0;
  for (std::uint32_t round = 0; round < 4; ++round) {
    Pusher pusher(victim.target(), 100 + round);
    std::atomic<bool> over{false};
    std::thread swapper([&] {
      // Does not use Talk, which another thread uses; that thread discards the answers.
      while (!over) {
        for (const MemoryFile* file : {&small, &large}) {
          Buffer frames = frame({BulkKind::kUnshare, 0, 5, 0, 0});
          const std::uint64_t size = file == &small ? 4096 : 1u << 20;
          const Buffer share = frame({BulkKind::kShare, 0, 5, 0, size});
          if (!pusher.talk.data().send(frames)) return;
          if (!pusher.talk.data().send(share, {file->descriptor()})) return;
        }
      }
    });
    for (unsigned i = 0; i < 100 && !pusher.talk.is_over() && pusher.talk.data().is_open(); ++i) {
      pusher.talk.call(msg::AbortPut{pusher.id});
      pusher.begin(1000 * (round + 1) + i);  // the previous put keeps its first error
      RemoteRegion keys = pusher.talk.expose(0, kRows, true);
      keys.buffer = 5;
      keys.buffer_offset = (1u << 20) - kRows;
      const auto status = pusher.push(keys);
      ++pushed;
      taken += status && status->ok() ? 1 : 0;
    }
    over = true;
    swapper.join();
  }
  finding.count("pushes", pushed);
  finding.count("pushes_taken", taken);
  finding.expect(taken < pushed, "the small file was never there when the large one was named");
}

// The client's put holds memory, and every piece that the client pushes is refused.
void push_refused_layers(Victim& victim, Finding& finding) {
  Pusher pusher(victim.target(), 1, kManyTokens);
  Talk honest(victim.target(), {.patience = milliseconds(500)});
  finding.expect(honest.greet(Victim::login("alice")).ok() && honest.bind(false),
                 "an honest client was not admitted");
  honest.call(msg::RegisterModel{model_spec()});
  msg::BeginPut begin;
  begin.model = model_fingerprint(model_spec());
  begin.tokens.assign(kManyTokens, 7);
  begin.recipe = "global_kvdiff(min_entries=16)";
  const std::uint64_t request = honest.send(begin);
  const RemoteRegion keys = pusher.talk.expose(0, kRows, true);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::optional<msg::Reply> reply;
  unsigned pushed = 0;
  while (!reply && std::chrono::steady_clock::now() < until) {
    const auto patience = std::chrono::steady_clock::now() + milliseconds(200);
    while (std::chrono::steady_clock::now() < patience) {
      const auto status = pusher.push(keys, kManyTokens);  // past the put's last token
      finding.expect(!status || !status->ok(), "a piece past the put's end was taken");
      ++pushed;
    }
    reply = honest.await(request);
  }
  finding.count("layers_refused", pushed);
  finding.expect(reply && reply->status.ok(),
                 "an honest put had no memory while another's was kept");
}

}  // namespace precis::hostile
