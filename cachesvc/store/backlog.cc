#include "cachesvc/store/backlog.h"

#include <utility>

namespace precis {

std::vector<Backlog::ChangePtr> Backlog::copy() const {
  std::vector<ChangePtr> changes;
  for (const auto& [place, change] : all_) changes.push_back(change);
  return changes;
}

void Backlog::add(const ChangePtr& change) {
  change->place = next_++;
  all_.emplace(change->place, change);
  if (!change->payload.keys.empty() && !change->kept) droppable_.emplace(change->place, change);
  if (!change->name.empty()) by_name_.emplace(change->name, change);
  if (!change->rests_on.empty()) by_base_.emplace(change->rests_on, change);
  row_bytes_ += change->row_bytes;
}

void Backlog::remove(const ChangePtr& change) {
  all_.erase(change->place);
  droppable_.erase(change->place);
  failed_.erase(change->place);
  erase(by_name_, change->name, change);
  erase(by_base_, change->rests_on, change);
  row_bytes_ -= change->row_bytes;
}

void Backlog::erase(ByName& names, const std::string& name, const ChangePtr& change) {
  const auto [begin, end] = names.equal_range(name);
  for (auto each = begin; each != end; ++each) {
    if (each->second == change) return void(names.erase(each));
  }
}

void Backlog::keep(WaitingChange& change) {
  change.kept = true;
  droppable_.erase(change.place);
}

void Backlog::set_failed(WaitingChange& change, Status status) {
  change.failed = std::move(status);
  if (change.failed.ok()) {
    failed_.erase(change.place);
  } else {
    failed_.insert_or_assign(change.place, &change);
  }
}

Status Backlog::first_failure(const WaitingChange* end) const {
  if (failed_.empty()) return {};
  const auto& [place, change] = *failed_.begin();
  return end && place >= end->place ? Status() : change->failed;
}

std::vector<Backlog::ChangePtr> Backlog::resting_on(const ChangePtr& change) const {
  std::vector<ChangePtr> all{change};
  std::set<const WaitingChange*> found{change.get()};
  for (std::size_t next = 0; next < all.size(); ++next) {
    if (all[next]->name.empty()) continue;
    const auto [begin, end] = by_base_.equal_range(all[next]->name);
    for (auto each = begin; each != end; ++each) {
      // An older dependent depends on an older change of that name.
      if (each->second->place < all[next]->place) continue;
      if (found.insert(each->second.get()).second) all.push_back(each->second);
    }
  }
  return all;
}

std::set<const WaitingChange*> Backlog::needed_for(const std::string& name) const {
  std::set<const WaitingChange*> needed;
  std::vector<std::string> names{name};
  while (!names.empty()) {
    const auto [begin, end] = by_name_.equal_range(names.back());
    names.pop_back();
    for (auto each = begin; each != end; ++each) {
      if (needed.insert(each->second.get()).second) names.push_back(each->second->rests_on);
    }
  }
  return needed;
}

}  // namespace precis
