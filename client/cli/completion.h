// Shell completion, made from the command tree.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace precis::cli {

inline const std::vector<std::string> kShells = {"bash", "zsh", "fish"};

// The script that completes the commands, options and fixed values of `app` in one of kShells.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace precis::cli
