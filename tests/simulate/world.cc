#include "tests/simulate/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

#include "tests/simulate/acts.h"

namespace precis::simulate {
namespace {

constexpr std::uint64_t kStepsMax = 20'000'000;
constexpr std::chrono::hours kTimeMax{48};

class World final : public Acts {
 public:
  explicit World(const Plot& plot) : Acts(plot) {}

  Outcome play() {
    host_ = std::make_unique<ServiceHost>(machine_, plot_.folder, plot_.max_disk_bytes);
    const auto director = machine_.start("director", [this] { direct(); });
    Status ran = machine_.run(director, kStepsMax, kTimeMax);
    if (ran.ok()) ran = broken_;
    Outcome outcome{ran, machine_.steps(), operations_, failed_, host_->crashes(), consolidations_};
    outcome.simulated_seconds =
        std::chrono::duration<double>(machine_.now().time_since_epoch()).count();
    return outcome;
  }
  // All threads have ended.
  bool is_over() const { return over_; }

 private:
  using ClientPtr = std::shared_ptr<Client>;
  std::uint64_t consolidations_ = 0;

  // ---- the threads

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
      } else if (dice < 91) {
        branch(*client, *model, path);
      } else if (dice < 95) {
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
      if (power) {
        path.tip.reset();
        path.pinned.reset();
      }
      for (Segment& segment : path.segments) segment.entries_max.reset();
    }
    host_->crash(how);
    restart();
  }

  void restart() {
    pause(3);
    if (const Status up = host_->start(); !up.ok()) breaks("restart: " + up.to_string());
    trace("the service is up");
  }

  // ---- the end: everything that is certain is there, and once removed it leaves nothing

  void finish() {
    trace("the end");
    host_->rows().heal();
    auto connected = host_->connect(0);
    if (!connected.ok()) return breaks("the last connect: " + connected.status().to_string());
    Client& client = **connected;
    const auto stats = client.stats();
    if (!stats.ok()) return breaks("the last stats: " + stats.status().to_string());
    for (const msg::Stat& row : stats->rows) {
      if (row.name == "precis_consolidations_total") {
        consolidations_ = static_cast<std::uint64_t>(row.value);
      }
    }
    const auto model = client.register_model(model_);
    if (!model.ok()) return breaks("the last register_model: " + model.status().to_string());
    for (Path& path : paths_) {
      get(client, *model, path);
      if (!goes_on()) return;
    }
    for (Path& path : paths_) {
      if (path.pinned != false) {
        const auto unpinned = client.pin_session(path.session, false);
        if (!unpinned.ok() && unpinned.status().code() != StatusCode::kNotFound) {
          return breaks("the last unpin: " + unpinned.status().to_string());
        }
      }
      if (path.segments[0].id) {
        const auto removed = client.remove_segment(*path.segments[0].id, /*recursive=*/true);
        if (!removed.ok() && removed.status().code() != StatusCode::kNotFound) {
          return breaks("the last remove: " + removed.status().to_string());
        }
      }
    }
    auto rows = client.segments();
    // The first part of a split segment stays when the segment is removed.
    const bool split =
        std::ranges::any_of(paths_, [](const Path& path) { return path.left_at_most > 0; });
    for (std::size_t i = 0; split && rows.ok() && i < rows->size(); ++i) {
      static_cast<void>(client.remove_segment((*rows)[i].id, /*recursive=*/true));
    }
    if (split) rows = client.segments();
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
};

}  // namespace

Outcome play(const Plot& plot) {
  auto world = std::make_unique<World>(plot);
  Outcome outcome = world->play();
  // Threads that hang refer to the world, and their stacks cannot be unwound.
  if (!world->is_over()) static_cast<void>(world.release());
  return outcome;
}

}  // namespace precis::simulate
