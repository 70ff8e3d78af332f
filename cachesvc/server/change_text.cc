#include "cachesvc/server/change_text.h"

namespace precis {

std::string scope_text(const msg::BudgetScope& scope) {
  return scope.model ? "model " + scope.model->hex() : "all models";
}

std::string change_text(const msg::SetBudget& request) {
  std::string text;
  if (request.recipe) text = "recipe " + (request.recipe->empty() ? "unset" : *request.recipe);
  if (request.keep) {
    const bool unset = request.keep->kind == Budget::Kind::kAll;
    text += (text.empty() ? "keep " : ", keep ") + (unset ? "unset" : request.keep->to_string());
  }
  return text;
}

std::string ttl_text(const msg::SessionRow& row) {
  return row.ttl_seconds == 0 ? "no ttl" : "ttl " + std::to_string(row.ttl_seconds) + " s";
}

std::optional<std::string> digest_of(const std::vector<msg::ProfileRow>& rows, const Digest& model,
                                     const std::string& name) {
  for (const msg::ProfileRow& row : rows) {
    if (row.model == model && row.name == name) return row.digest.hex();
  }
  return {};
}

}  // namespace precis
