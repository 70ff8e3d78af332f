// Texts about a change and the previous state, for the log and the audit log.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "precis/messages.h"

namespace precis {

// "all models", "model" with its fingerprint, or "session" with its name.
std::string scope_text(const msg::BudgetScope& scope);
// The settings of a budget that a request changes: "recipe knorm, keep 0.2".
std::string change_text(const msg::SetBudget& request);
// "ttl 60 s" or "no ttl", and "total 0.2" if it has one.
std::string session_text(const msg::SessionRow& row);
// "priority 80, ttl 60 s".
std::string retention_text(const msg::SegmentInfo& segment);
// Returns the digest of that model's profile of that name, if there is one.
std::optional<std::string> digest_of(const std::vector<msg::ProfileRow>& rows, const Digest& model,
                                     const std::string& name);

}  // namespace precis
