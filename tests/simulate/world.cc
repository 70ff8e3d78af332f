#include "tests/simulate/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

namespace precis::simulate {
namespace {

using testing::Kv;

constexpr std::uint32_t kPaths = 6, kSegments = 4;
constexpr std::uint32_t kTokensMin = 20, kTokensMax = 90;
constexpr std::array kRecipes = {"knorm(min_entries=4)", "global_kvdiff(min_entries=4)"};
constexpr std::uint64_t kStepsMax = 20'000'000;
constexpr std::chrono::hours kTimeMax{48};

// The model's knowledge of a segment. kMaybe: an operation on it is in progress or has an unknown
// outcome, or it was not durable enough to be sure of it.
enum class State { kAbsent, kMaybe, kStored };

struct Segment {
  std::uint32_t end = 0;  // in tokens of the path
  Kv kv;
  std::string recipe;  // with the budget a part of its id: each place on a path has one segment
  Budget keep;
  State state = State::kAbsent;
  bool synced = false;  // a stored one survives a loss of power
  std::optional<SegmentId> id;
};

struct Path {
  std::vector<TokenId> tokens;
  std::vector<Segment> segments;
  std::uint64_t changes = 0;  // begun
  bool changing = false;      // one client at a time changes a path
  std::string session;
  std::optional<SegmentId> tip;  // of the session; none if unknown
};

class World {
 public:
  explicit World(const Plot& plot)
      : plot_(plot), machine_(plot.seed), kv_random_(static_cast<std::uint32_t>(plot.seed)) {
    model_.block_tokens = 16;
    for (std::uint32_t p = 0; p < kPaths; ++p) add_path();
  }

  Outcome play() {
    host_ = std::make_unique<ServiceHost>(machine_, plot_.folder);
    const auto director = machine_.start("director", [this] { direct(); });
    Status ran = machine_.run(director, kStepsMax, kTimeMax);
    if (ran.ok()) ran = broken_;
    Outcome outcome{ran, machine_.steps(), operations_, failed_, host_->crashes(), 0};
    outcome.simulated_seconds =
        std::chrono::duration<double>(machine_.now().time_since_epoch()).count();
    // Threads that hang still refer to the host.
    if (!ran.ok() && !over_) static_cast<void>(host_.release());
    return outcome;
  }

 private:
  struct Span {  // of an operation: did anything else happen to the path meanwhile?
    std::uint64_t changes, crashes, power_losses;
  };
  using ClientPtr = std::shared_ptr<Client>;

  void add_path() {
    Path& path = paths_.emplace_back();
    path.session = "session " + std::to_string(paths_.size());
    for (std::uint32_t s = 0; s < kSegments; ++s) {
      const auto begin = static_cast<std::uint32_t>(path.tokens.size());
      const auto count =
          kTokensMin + static_cast<std::uint32_t>(machine_.random(kTokensMax - kTokensMin));
      const auto tokens = testing::random_tokens(kv_random_, count);
      path.tokens.insert(path.tokens.end(), tokens.begin(), tokens.end());
      Segment& segment = path.segments.emplace_back();
      segment.end = begin + count;
      segment.kv = testing::random_kv(kv_random_, model_, begin, count);
      segment.recipe = kRecipes[machine_.random(kRecipes.size())];
      segment.keep = Budget::ratio_ppm(machine_.chance(0.5) ? 1'000'000 : 300'000);
    }
  }

  template <typename... Args>
  void trace(fmt::format_string<Args...> text, Args&&... args) {
    if (!plot_.trace) return;
    const double now = std::chrono::duration<double>(machine_.now().time_since_epoch()).count();
    fmt::print("{:12.6f} {}\n", now, fmt::format(text, std::forward<Args>(args)...));
  }
  void breaks(const std::string& promise) {
    trace("BROKEN: {}", promise);
    if (broken_.ok()) broken_ = Status::internal(promise);
  }
  bool goes_on() const { return broken_.ok(); }
  Span span(const Path& path) const {
    return {path.changes, host_->crashes(), host_->power_losses()};
  }
  bool undisturbed(const Path& path, const Span& since) const {
    return !path.changing && path.changes == since.changes && host_->crashes() == since.crashes;
  }
  void pause(double seconds_max) {
    machine_.clock().sleep(std::chrono::nanoseconds(
        machine_.random(static_cast<std::uint64_t>(seconds_max * 1e9) + 1)));
  }
  // An error that a client may see at any time, whatever the service promises.
  void note(const Status& status, const char* what) {
    ++operations_;
    if (status.ok()) return;
    ++failed_;
    trace("  {}: {}", what, status.to_string());
    switch (status.code()) {
      case StatusCode::kUnavailable:
      case StatusCode::kTimedOut:
      case StatusCode::kRejected:
      case StatusCode::kNotFound: return;
      case StatusCode::kOutOfSpace:
        if (plot_.faults) return;
        break;
      default: break;
    }
    breaks(fmt::format("{} failed: {}", what, status.to_string()));
  }

  // ---- the cast

  void direct() {
    if (const Status up = host_->start(); !up.ok()) return breaks("start: " + up.to_string());
    std::uint32_t acting = plot_.clients;
    for (std::uint32_t c = 0; c < plot_.clients; ++c) {
      machine_.start("client " + std::to_string(c), [this, c, &acting] {
        act(c);
        --acting;
      });
    }
    bool disturbing = true;
    machine_.start("trouble", [&] {
      while (acting > 0 && goes_on()) disturb(acting);
      disturbing = false;
    });
    machine_.wait([&] { return acting == 0 && !disturbing; });
    if (goes_on()) finish();
    host_->stop();
    over_ = true;
  }

  void act(std::uint32_t number) {
    ClientPtr client;
    std::optional<Model> model;
    std::uint64_t crashes = 0;
    for (std::uint32_t i = 0; i < plot_.operations && goes_on(); ++i) {
      pause(machine_.chance(0.1) ? 20 : 0.2);
      if (!client || machine_.chance(0.03)) {
        client.reset();
        model.reset();
        auto connected = host_->connect(machine_.chance(0.5) ? 0 : 8000);
        note(connected.status(), "connect");
        if (!connected.ok()) continue;
        client = std::move(*connected);
      }
      // A loss of power may take the model.
      if (!model || crashes != host_->crashes()) {
        crashes = host_->crashes();
        auto registered = client->register_model(model_);
        note(registered.status(), "register_model");
        if (!registered.ok()) continue;
        model = std::move(*registered);
      }
      Path& path = paths_[machine_.random(paths_.size())];
      const std::uint64_t dice = machine_.random(100);
      trace("client {} path {} dice {}", number, &path - paths_.data(), dice);
      if (dice < 30) {
        put(*client, *model, path);
      } else if (dice < 65) {
        get(*client, *model, path);
      } else if (dice < 73) {
        trim(*client, path);
      } else if (dice < 80) {
        remove(*client, path);
      } else if (dice < 88) {
        advance(*client, path);
      } else if (dice < 94) {
        list(*client, path);
      } else {
        abandon(*client, *model, path);
      }
    }
  }

  void disturb(const std::uint32_t& acting) {
    pause(15);
    if (acting == 0) return;
    const std::uint64_t dice = machine_.random(10);
    if (dice < 3 && plot_.faults) {
      host_->values().set_capacity(host_->values().live_bytes() + machine_.random(64u << 10));
      trace("the disk is full");
      pause(10);
      host_->values().set_capacity(~std::uint64_t{0});
      trace("the disk has room");
    } else if (dice < 5 && plot_.faults) {
      host_->rows().fail_next_write(Status::unavailable("the disk failed"));
      trace("the next write of rows fails");
    } else if (dice < 8 && plot_.crashes) {
      crash(machine_.chance(0.5) ? ServiceHost::Crash::kKill : ServiceHost::Crash::kPower);
    } else if (plot_.crashes) {
      trace("the service restarts in order");
      host_->stop();
      restart();
    }
  }

  void crash(ServiceHost::Crash how) {
    const bool power = how == ServiceHost::Crash::kPower;
    trace("{}", power ? "the power goes" : "the service is killed");
    for (Path& path : paths_) {
      for (Segment& segment : path.segments) {
        // A removal at `wal` does not survive a loss of power.
        if (power && !segment.synced && segment.id) segment.state = State::kMaybe;
      }
      if (power) path.tip.reset();
    }
    host_->crash(how);
    restart();
  }

  void restart() {
    pause(3);
    if (const Status up = host_->start(); !up.ok()) breaks("restart: " + up.to_string());
    trace("the service is up");
  }

  // ---- changes of one path, by one client at a time

  // The first segment that is not known to be stored.
  static std::size_t sure_of(const Path& path) {
    std::size_t n = 0;
    while (n < kSegments && path.segments[n].state == State::kStored) ++n;
    return n;
  }
  static std::size_t possible(const Path& path) {
    std::size_t n = 0;
    while (n < kSegments && path.segments[n].state != State::kAbsent) ++n;
    return n;
  }
  bool begin_change(Path& path) {
    if (path.changing) return false;
    path.changing = true;
    ++path.changes;
    return true;
  }
  static std::vector<TokenId> tokens_of(const Path& path, std::size_t segments) {
    const std::uint32_t end = path.segments[segments - 1].end;
    return {path.tokens.begin(), path.tokens.begin() + end};
  }

  static PutOptions options(const Path& path, std::size_t n) {
    PutOptions put;
    put.recipe = path.segments[n].recipe;
    put.keep = path.segments[n].keep;
    put.parent = n == 0 ? SegmentId{} : *path.segments[n - 1].id;
    return put;
  }

  void put(Client& client, const Model& model, Path& path) {
    // The next one, or one that is stored, once more.
    const std::size_t next = std::min<std::size_t>(sure_of(path), kSegments - 1);
    const std::size_t n = machine_.chance(0.8) ? next : machine_.random(next + 1);
    if ((n > 0 && !path.segments[n - 1].id) || !begin_change(path)) return;
    const Span since = span(path);
    Segment& segment = path.segments[n];
    if (segment.state == State::kAbsent) segment.state = State::kMaybe;
    const auto durability = static_cast<Durability>(machine_.random(3));
    const auto stored = [&]() -> Result<msg::SegmentInfo> {
      PRECIS_ASSIGN(Put put, client.begin_put(model, tokens_of(path, n + 1), options(path, n)));
      if (segment.id && segment.id != put.begun().segment) breaks("a segment has two ids");
      segment.id = put.begun().segment;
      for (std::uint32_t l = 0; l < segment.kv.layers.size(); ++l) {
        if (machine_.chance(0.02)) pause(30);  // a slow client
        PRECIS_TRY(put.start_layer(l, segment.kv.layers[l].push()));
      }
      return put.commit(durability);
    }();
    note(stored.status(), "put");
    trace("  put segment {} at {}: {}", n, static_cast<int>(durability),
          stored.status().to_string());
    if (stored.ok()) settle(path, n, durability, since);
    path.changing = false;
  }

  // A put was acknowledged; its ancestors are at least as durable.
  void settle(Path& path, std::size_t n, Durability durability, const Span& since) {
    const bool synced = durability == Durability::kFsync;
    if (durability == Durability::kMemory) return;
    const bool lost = host_->power_losses() != since.power_losses && !synced;
    for (std::size_t i = 0; i <= n; ++i) {
      Segment& segment = path.segments[i];
      segment.synced = segment.synced || synced;
      segment.state = lost ? State::kMaybe : State::kStored;
    }
  }

  void trim(Client& client, Path& path) {
    const std::size_t sure = sure_of(path);
    if (sure == 0 || !begin_change(path)) return;
    const Segment& segment = path.segments[machine_.random(sure)];
    const auto keep =
        Budget::ratio_ppm(100'000 + static_cast<std::uint32_t>(machine_.random(200'000)));
    const auto durability = static_cast<Durability>(machine_.random(3));
    const auto trimmed = client.trim_segment(*segment.id, keep, durability);
    // It may store less than that already.
    if (trimmed.status().code() != StatusCode::kInvalidArgument) note(trimmed.status(), "trim");
    path.changing = false;
  }

  void remove(Client& client, Path& path) {
    const std::size_t sure = sure_of(path);
    if (sure == 0 || !begin_change(path)) return;
    const Span since = span(path);
    const std::size_t n = machine_.random(sure);
    std::vector<State> before;
    for (std::size_t i = n; i < kSegments; ++i) {
      Segment& segment = path.segments[i];
      before.push_back(segment.state);
      if (segment.state == State::kStored) segment.state = State::kMaybe;
    }
    path.tip.reset();
    const auto removed = client.remove_segment(*path.segments[n].id, /*recursive=*/true);
    note(removed.status(), "remove");
    trace("  remove segment {}: {}", n, removed.status().to_string());
    const bool sure_gone = removed.ok() && host_->power_losses() == since.power_losses;
    if (removed.status().code() == StatusCode::kNotFound && host_->crashes() == since.crashes) {
      breaks(fmt::format("a stored segment is not found: {}", removed.status().to_string()));
    }
    for (std::size_t i = n; i < kSegments; ++i) {
      path.segments[i].synced = false;
      if (sure_gone) path.segments[i].state = State::kAbsent;
    }
    path.changing = false;
  }

  // Begins a put, and leaves it at some layer: nothing of it may ever be seen.
  void abandon(Client& client, const Model& model, Path& path) {
    const std::size_t n = sure_of(path);
    if (n == kSegments || (n > 0 && !path.segments[n - 1].id)) return;
    auto put = client.begin_put(model, tokens_of(path, n + 1), options(path, n));
    note(put.status(), "begin_put");
    if (!put.ok()) return;
    const auto layers = machine_.random(model_.num_layers);
    const Kv& kv = path.segments[n].kv;
    for (std::uint32_t l = 0; l < layers; ++l) {
      if (!put->start_layer(l, kv.layers[l].push()).ok()) return;
    }
    if (machine_.chance(0.3)) pause(60);
  }

  // ---- reads

  void get(Client& client, const Model& model, Path& path) {
    const Span since = span(path);
    const bool quiet = !path.changing;
    const std::size_t sure = sure_of(path);
    const std::size_t most = possible(path);
    const auto match = client.lookup(model, path.tokens);
    note(match.status(), "lookup");
    if (!match.ok()) return;
    const std::uint32_t matched = match->matched_tokens;
    if (quiet && undisturbed(path, since)) {
      const std::uint32_t least = sure == 0 ? 0 : path.segments[sure - 1].end;
      const std::uint32_t largest = most == 0 ? 0 : path.segments[most - 1].end;
      if (matched < least) {
        return breaks(fmt::format("{} tokens match, {} are stored for certain", matched, least));
      }
      if (matched > largest) {
        return breaks(fmt::format("{} tokens match, at most {} can be stored", matched, largest));
      }
    }
    if (!*match) return;
    const auto prefix = client.get(*match);
    Status status = prefix.status();
    if (status.ok()) {
      if (machine_.chance(0.05)) pause(20);  // a slow reader
      status = prefix->wait();
    }
    note(status, "get");
    if (!status.ok()) return;
    std::vector<const Kv*> kvs;
    for (const Segment& segment : path.segments) kvs.push_back(&segment.kv);
    if (!testing::rows_are_of(testing::copy_of(*prefix), kvs)) {
      breaks("a get served rows that were never put at their position");
    }
  }

  void list(Client& client, Path& path) {
    const Span since = span(path);
    const bool quiet = !path.changing;
    const std::size_t sure = sure_of(path);
    const auto rows = client.segments();
    note(rows.status(), "segments");
    if (!rows.ok() || !quiet || !undisturbed(path, since)) return;
    for (std::size_t i = 0; i < sure; ++i) {
      const auto found = std::ranges::find(*rows, *path.segments[i].id, &msg::SegmentInfo::id);
      if (found == rows->end()) breaks("a stored segment is missing in the list");
    }
  }

  void advance(Client& client, Path& path) {
    const std::size_t sure = sure_of(path);
    if (sure == 0 || !begin_change(path)) return;
    const Span since = span(path);
    // What was acknowledged before is there still, or an older tip of this path was removed.
    if (path.tip) {
      const auto shown = client.session(path.session);
      note(shown.status(), "session");
      const bool same = shown.ok() && shown->tip == path.tip;
      if (shown.status().code() == StatusCode::kNotFound ||
          (shown.ok() && !same && host_->crashes() == since.crashes)) {
        breaks("the tip of a session went back");
      }
    }
    const SegmentId id = *path.segments[sure - 1].id;
    path.tip.reset();
    const auto opened = client.open_session(path.session, std::nullopt);
    note(opened.status(), "open_session");
    if (opened.ok()) {
      const auto row = client.advance_session(path.session, id);
      if (row.status().code() != StatusCode::kInvalidArgument) note(row.status(), "advance");
      if (row.ok() && host_->crashes() == since.crashes) path.tip = id;
    }
    path.changing = false;
  }

  // ---- the end: everything that is certain is there, and once removed it leaves nothing

  void finish() {
    trace("the end");
    host_->rows().heal();
    auto connected = host_->connect(0);
    if (!connected.ok()) return breaks("the last connect: " + connected.status().to_string());
    Client& client = **connected;
    const auto model = client.register_model(model_);
    if (!model.ok()) return breaks("the last register_model: " + model.status().to_string());
    for (Path& path : paths_) {
      get(client, *model, path);
      if (!goes_on()) return;
    }
    for (Path& path : paths_) {
      if (path.segments[0].id) {
        const auto removed = client.remove_segment(*path.segments[0].id, /*recursive=*/true);
        if (!removed.ok() && removed.status().code() != StatusCode::kNotFound) {
          return breaks("the last remove: " + removed.status().to_string());
        }
      }
    }
    const auto rows = client.segments();
    if (!rows.ok() || !rows->empty()) return breaks("segments are left after the last removal");
    pause(60);  // leases end
    machine_.clock().sleep(std::chrono::seconds(60));
    const auto status = client.status();
    if (!status.ok()) return breaks("the last status: " + status.status().to_string());
    if (host_->values().live_bytes() != 0) {
      breaks(fmt::format("{} B of payload are left after the last removal",
                         host_->values().live_bytes()));
    }
  }

  const Plot plot_;
  Simulation machine_;
  std::mt19937 kv_random_;
  ModelSpec model_ = testing::tiny_model(Dtype::kF16);
  std::vector<Path> paths_;
  std::unique_ptr<ServiceHost> host_;
  Status broken_;
  bool over_ = false;
  std::uint64_t operations_ = 0, failed_ = 0;
};

}  // namespace

Outcome play(const Plot& plot) { return World(plot).play(); }

}  // namespace precis::simulate
