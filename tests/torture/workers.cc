#include "tests/torture/workers.h"

#include <optional>

namespace precis::torture {
namespace {

using testing::copy_of;
using testing::PrefixCopy;
using testing::put_all;
using testing::read_all;

constexpr std::uint32_t kKeeps[] = {450'000, 300'000, 200'000, 100'000};  // of trims and reads
constexpr std::uint32_t kTimeoutMs = 120'000;

struct Joined {
  std::shared_ptr<Client> client;
  Model model;
};

Result<Joined> connect(const std::string& address) {
  ConnectOptions options;
  options.timeout_ms = kTimeoutMs;
  options.retry = false;  // clients end with the service
  PRECIS_ASSIGN(auto client, Client::connect(address, options));
  PRECIS_ASSIGN(Model model, client->register_model(testing::tiny_model()));
  return Joined{std::move(client), std::move(model)};
}

Result<Joined> join(const Work& work) {
  auto joined = connect(work.address);
  if (!joined.ok()) work.failure.report("a client: " + joined.status().to_string());
  work.connected.count_down();
  return joined;
}

bool is_gone(const Status& status) { return status.code() == StatusCode::kUnavailable; }

Durability any_durability(std::mt19937& random) {
  const auto dice = random() % 10;
  if (dice < 2) return Durability::kMemory;
  return dice < 9 ? Durability::kWal : Durability::kFsync;
}

// A random change that fits the stored state.
Change any_change(const Slot& slot, std::mt19937& random) {
  const Stored& now = slot.now();
  Change change;
  change.child = now.parent > 0 && random() % 2 == 0;
  const std::uint64_t stored = change.child ? now.child : now.parent;
  change.durability = any_durability(random);
  change.budget = Budget::ratio_ppm(kKeeps[random() % std::size(kKeeps)]);
  const std::uint64_t less = slot.entries(change.child, change.budget);
  if (stored > less && random() % 3 > 0) {
    change.kind = Change::Kind::kTrim;
    change.entries = less;
  } else if (stored > 0 && random() % 3 == 0) {
    change.kind = Change::Kind::kRemove;
    change.durability = Durability::kWal;
  } else {
    change.budget = Budget::ratio_ppm(kKeepPpm);
    change.entries = slot.full(change.child);
  }
  return change;
}

Result<msg::SegmentInfo> put(Client& client, const Model& model, const Slot& slot,
                             const Change& change) {
  PutOptions options;
  options.recipe = kTortureRecipe;
  options.keep = change.budget;
  return put_all(client, model, slot.path(change.child), slot.kv(change.child), options,
                 change.durability);
}

Status perform(Client& client, const Model& model, const Slot& slot, const Change& change,
               Counts& counts) {
  if (change.kind == Change::Kind::kPut) {
    ++counts.puts;
    PRECIS_ASSIGN(const msg::SegmentInfo info, put(client, model, slot, change));
    if (info.entries == change.entries) return {};
    return Status::corruption("the put stored " + std::to_string(info.entries) + " entries");
  }
  PRECIS_ASSIGN(const LookupMatch match, client.lookup(model, slot.path(change.child)));
  if (match.links.size() != (change.child ? 2u : 1u)) {
    return Status::corruption("the lookup found " + std::to_string(match.links.size()) + " links");
  }
  const SegmentId id = match.links.back().segment.id;
  if (change.kind == Change::Kind::kRemove) {
    ++counts.removes;
    return client.remove_segment(id, /*recursive=*/true).status();
  }
  ++counts.trims;
  PRECIS_ASSIGN(const msg::Trimmed trimmed,
                client.trim_segment(id, change.budget, change.durability));
  if (trimmed.entries == change.entries) return {};
  return Status::corruption("the trim left " + std::to_string(trimmed.entries) + " entries");
}

// The state that a successful read returned: every link cut at `keep`.
Stored served(const Slot& slot, const LookupMatch& match, const Budget& keep) {
  const auto of = [&](std::size_t link, bool child) -> std::uint64_t {
    if (match.links.size() <= link) return 0;
    return keep.kind == Budget::Kind::kAll ? match.links[link].segment.entries
                                           : slot.entries(child, keep);
  };
  return {of(0, false), of(1, true)};
}

Status read_one(Client& client, const Model& model, const Slot& slot, const Budget& keep,
                Counts& counts) {
  PRECIS_ASSIGN(const LookupMatch match, client.lookup(model, slot.path(true)));
  if (!match) return {};
  const auto prefix = client.get(match, keep);
  Status status = prefix.status();
  if (status.ok()) status = prefix->wait();
  // The segment was trimmed or removed after the lookup.
  const StatusCode code = status.code();
  if (code == StatusCode::kNotFound || code == StatusCode::kInvalidArgument) return {};
  PRECIS_TRY(status);
  ++counts.reads;
  if (copy_of(*prefix) == slot.expected(served(slot, match, keep))) return {};
  return Status::corruption("a read at " + keep.to_string() + " is not what was pushed");
}

}  // namespace

void Failure::report(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (what_.empty()) what_ = what;
}

std::string Failure::what() const {
  const std::lock_guard lock(mutex_);
  return what_;
}

Result<Stored> look(Client& client, const Model& model, const Slot& slot) {
  PRECIS_ASSIGN(const LookupMatch match, client.lookup(model, slot.path(true)));
  Stored stored;
  if (match) stored.parent = match.links[0].segment.entries;
  if (match.links.size() > 1) stored.child = match.links[1].segment.entries;
  return stored;
}

Status check_slot(Client& client, const Model& model, const Slot& slot, const Stored& stored) {
  PRECIS_ASSIGN(const Stored there, look(client, model, slot));
  if (there != stored) {
    return Status::corruption(there.to_string() + " is stored, not " + stored.to_string());
  }
  if (stored == Stored{}) return {};
  PRECIS_ASSIGN(const PrefixCopy copy, read_all(client, model, slot.path(true)));
  if (copy == slot.expected(stored)) return {};
  return Status::corruption("the rows of " + stored.to_string() +
                            " are not those that were pushed");
}

void change_slots(const Work& work, std::span<Slot> mine, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto joined = join(work);
  Status status = joined.status();
  while (status.ok()) {
    Slot& slot = mine[random() % mine.size()];
    if (random() % 4 == 0) {
      status = check_slot(*joined->client, joined->model, slot, slot.now());
      ++work.counts.checks;
      if (!status.ok() && !is_gone(status)) work.failure.report(status.to_string());
      continue;
    }
    const Change change = any_change(slot, random);
    status = perform(*joined->client, joined->model, slot, change, work.counts);
    if (status.ok()) {
      slot.answered(change);
      continue;
    }
    ++work.counts.unanswered;
    slot.unanswered(change);
    if (!is_gone(status)) work.failure.report(change.to_string() + ": " + status.to_string());
  }
}

void read_slots(const Work& work, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto joined = join(work);
  Status status = joined.status();
  while (status.ok()) {
    const std::size_t which = random() % (std::size(kKeeps) + 1);
    const Budget keep =
        which == std::size(kKeeps) ? Budget::all() : Budget::ratio_ppm(kKeeps[which]);
    status = read_one(*joined->client, joined->model, work.slots[random() % work.slots.size()],
                      keep, work.counts);
  }
  if (!is_gone(status)) work.failure.report("a reader: " + status.to_string());
}

}  // namespace precis::torture
