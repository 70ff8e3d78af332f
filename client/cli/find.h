// Resolves the words on a command line: shortened ids, and names of models, sessions and profiles.
#pragma once

#include <optional>
#include <string>

#include "precis/client.h"

namespace precis::cli {

// `text`: a segment's id, or any beginning of it that only one stored segment has. The messages of
// kNotFound and kInvalidArgument say what to do.
Result<SegmentId> find_segment(Client& client, const std::string& text);

// `text`: a model's name, its fingerprint, or any unambiguous beginning of the fingerprint.
Result<msg::ModelRow> find_model(Client& client, const std::string& text);

// The fingerprint of a model, as find_model(); none if `text` is empty.
Result<std::optional<Digest>> model_scope(Client& client, const std::string& text);

// A session by its name.
Result<msg::SessionRow> find_session(Client& client, const std::string& name);

// The model that has a profile called `name`: the model that `model` names or, if `model` is empty,
// the only model with such a profile.
Result<Digest> find_profile_model(Client& client, const std::string& model,
                                  const std::string& name);

}  // namespace precis::cli
