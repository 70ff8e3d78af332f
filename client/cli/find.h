// Resolves the words on a command line: shortened ids, and names of models, sessions and profiles.
#pragma once

#include <string>

#include "precis/client.h"

namespace precis::cli {

// A segment's id, or any beginning of it that only one stored segment has. The messages of
// kNotFound and kInvalidArgument say what to do.
Result<SegmentId> find_segment(Client& client, const std::string& text);

// A model's name, or its fingerprint or any unambiguous beginning of that.
Result<msg::ModelRow> find_model(Client& client, const std::string& text);

// A session by its name.
Result<msg::SessionRow> find_session(Client& client, const std::string& name);

// The model whose profile is called `name`: the one that `model` names, or if `model` is empty, the
// only one.
Result<Digest> find_profile_model(Client& client, const std::string& model,
                                  const std::string& name);

}  // namespace precis::cli
