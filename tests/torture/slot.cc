#include "tests/torture/slot.h"

#include <algorithm>

#include "cachesvc/store/files.h"
#include "precis/recipe.h"
#include "precis/record_format.h"

namespace precis::torture {
namespace {

using testing::HeadCopy;
using testing::PrefixCopy;

// Indices of the head's entries in `stored`: those with seats up to their segment's budget.
std::vector<std::size_t> kept(const HeadCopy& head, const Stored& stored) {
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < head.seats.size(); ++i) {
    const bool child = head.positions[i] >= kParentTokens;
    if (head.seats[i] <= (child ? stored.child : stored.parent)) kept.push_back(i);
  }
  return kept;
}

}  // namespace

std::string Stored::to_string() const {
  return "(" + std::to_string(parent) + ", " + std::to_string(child) + ")";
}

Stored Change::applied_to(const Stored& before) const {
  if (child) return {before.parent, entries};
  return {entries, kind == Kind::kRemove ? 0 : before.child};
}

std::string Change::to_string() const {
  static constexpr const char* kKinds[] = {"put", "trim", "remove"};
  return std::string(kKinds[static_cast<int>(kind)]) + " of the " + (child ? "child" : "parent") +
         " to " + std::to_string(entries) + " entries at " +
         std::string(durability_name(durability));
}

Slot::Slot(std::uint32_t seed, const ModelSpec& model) : model_(model) {
  std::mt19937 random(seed);
  path_ = testing::random_tokens(random, kParentTokens + kChildTokens);
  parent_path_.assign(path_.begin(), path_.begin() + kParentTokens);
  parent_kv_ = testing::random_kv(random, model, 0, kParentTokens);
  child_kv_ = testing::random_kv(random, model, kParentTokens, kChildTokens);
}

std::uint64_t Slot::entries(bool child, const Budget& budget) const {
  return budget_entries(parse_recipe(kTortureRecipe).value(), model_,
                        child ? kChildTokens : kParentTokens, budget, child ? kParentTokens : 0)
      .value();
}

PrefixCopy Slot::expected(const Stored& stored) const {
  const std::size_t row_bytes = model_.head_dim * dtype_size_bytes(model_.dtype);
  PrefixCopy copy = whole_;
  for (auto& layer : copy) {
    for (HeadCopy& head : layer) {
      HeadCopy cut;
      for (const std::size_t i : kept(head, stored)) {
        const auto row = [&](const std::vector<std::byte>& rows, std::vector<std::byte>& out) {
          const auto* begin = rows.data() + i * row_bytes;
          out.insert(out.end(), begin, begin + row_bytes);
        };
        cut.positions.push_back(head.positions[i]);
        cut.seats.push_back(head.seats[i]);
        cut.scores.push_back(head.scores[i]);
        row(head.keys, cut.keys);
        row(head.values, cut.values);
      }
      head = std::move(cut);
    }
  }
  return copy;
}

bool Slot::learn(PrefixCopy whole) {
  whole_ = std::move(whole);
  return entries_of(whole_) == full(false) + full(true) &&
         rows_are_of(whole_, {&parent_kv_, &child_kv_});
}

// The result of `change` for each possible state. If a put or trim of the child survives a crash,
// so does the current state of its parent.
std::set<Stored> Slot::after(const Change& change) const {
  std::set<Stored> after;
  for (Stored before : possible_) {
    if (change.child && change.kind != Change::Kind::kRemove) before.parent = now_.parent;
    after.insert(change.applied_to(before));
  }
  return after;
}

void Slot::answered(const Change& change) {
  std::set<Stored> then = after(change);
  now_ = change.applied_to(now_);
  if (change.durability == Durability::kMemory) then.merge(possible_);
  possible_ = std::move(then);
}

void Slot::unanswered(const Change& change) { possible_.merge(after(change)); }

bool Slot::found(const Stored& stored) {
  const bool may_be = possible_.contains(stored);
  now_ = stored;
  possible_ = {stored};  // data found when the store opens is durable
  return may_be;
}

std::string Slot::possible_text() const {
  std::string text;
  for (const Stored& stored : possible_) text += (text.empty() ? "" : ", ") + stored.to_string();
  return text;
}

std::uint64_t Slot::payload_bytes(const Stored& stored) const {
  std::uint64_t sum = 0;
  for (const Stored& one : {Stored{stored.parent, 0}, Stored{0, stored.child}}) {
    if (one == Stored{}) continue;
    for (const auto& layer : whole_) {
      std::uint64_t bytes = 0;
      for (const HeadCopy& head : layer) {
        const auto count = static_cast<std::uint32_t>(kept(head, one).size());
        bytes += RecordLayout::of(count, {model_.head_dim, model_.dtype}).size;
      }
      sum += (bytes + kFileBlockBytes - 1) / kFileBlockBytes * kFileBlockBytes;
    }
  }
  return sum;
}

}  // namespace precis::torture
