#include "cachesvc/server/change_text.h"

namespace precis {
namespace {

std::string ttl_of(std::uint64_t seconds) {
  return seconds == 0 ? "no ttl" : "ttl " + std::to_string(seconds) + " s";
}

}  // namespace

std::string scope_text(const msg::BudgetScope& scope) {
  if (!scope.session.empty()) return "session " + scope.session;
  return scope.model ? "model " + scope.model->hex() : "all models";
}

std::string change_text(const msg::SetBudget& request) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& value) {
    text += (text.empty() ? name : ", " + name) + " " + value;
  };
  const auto add_budget = [&](const std::string& name, const std::optional<Budget>& value) {
    if (value) add(name, value->kind == Budget::Kind::kAll ? "unset" : value->to_string());
  };
  if (request.recipe) add("recipe", request.recipe->empty() ? "unset" : *request.recipe);
  add_budget("keep", request.keep);
  add_budget("limit", request.limit);
  if (!request.user.empty()) add("by", request.user);
  return text;
}

std::string session_text(const msg::SessionRow& row) {
  const std::string ttl = ttl_of(row.ttl_seconds);
  return row.total ? ttl + ", total " + row.total->to_string() : ttl;
}

std::string retention_text(const msg::SegmentInfo& segment) {
  return "priority " + std::to_string(segment.priority) + ", " + ttl_of(segment.ttl_seconds);
}

std::optional<std::string> digest_of(const std::vector<msg::ProfileRow>& rows, const Digest& model,
                                     const std::string& name) {
  for (const msg::ProfileRow& row : rows) {
    if (row.model == model && row.name == name) return row.digest.hex();
  }
  return {};
}

}  // namespace precis
