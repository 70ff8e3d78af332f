#include "client/cli/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "precis/status.h"

namespace precis::cli {
namespace {

// A word that may come next.
struct Word {
  std::string text, help;
  bool takes_value = false;          // an option that the next word is the value of
  std::vector<std::string> choices;  // all values that it takes; empty: any
};

struct Command {
  std::string path;  // "precisctl prefix ls"
  std::vector<Word> subcommands, options;
  std::vector<std::string> choices;  // of its argument
};

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// CLI11 describes a fixed set of values in the type: "TEXT:{bash,zsh,fish}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == type.npos || end == type.npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

void add_options(const CLI::App& app, Command& command) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.choices = choices_of(*option);
      continue;
    }
    const bool takes_value = option->get_expected_min() > 0 && option->get_type_size_max() > 0;
    for (const std::string& name : option->get_lnames()) {
      command.options.push_back(
          {"--" + name, option->get_description(), takes_value, choices_of(*option)});
    }
  }
}

void add_commands(const CLI::App& app, const std::string& path, const CLI::App& root,
                  std::vector<Command>& all) {
  Command command{path, {}, {}, {}};
  add_options(app, command);
  if (&app != &root) add_options(root, command);  // an option of precisctl may come anywhere
  const auto less = [](const Word& a, const Word& b) { return a.text < b.text; };
  std::ranges::stable_sort(command.options, less);
  const auto same = [](const Word& a, const Word& b) { return a.text == b.text; };
  command.options.erase(std::unique(command.options.begin(), command.options.end(), same),
                        command.options.end());
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* sub : below) {
    command.subcommands.push_back({sub->get_name(), sub->get_description(), false, {}});
  }
  all.push_back(std::move(command));
  for (const CLI::App* sub : below) add_commands(*sub, path + " " + sub->get_name(), root, all);
}

// Makes a description safe in single quotes of every shell, and in a field of zsh, which ends at
// ':'.
std::string quotable(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '\\' || c == '`'; });
  std::ranges::replace(text, ':', ',');
  return text;
}

// A function that sets `at` to the path of the command before the cursor, in bash and zsh. $1: the
// words up to the cursor.
std::string path_function(const std::string& name, const std::vector<Command>& commands) {
  std::string paths;
  std::vector<std::string> options;
  for (const Command& command : commands) {
    if (&command != &commands.front()) {
      paths += (paths.empty() ? "'" : "|'") + command.path + "'";
    }
    for (const Word& option : command.options) {
      if (option.takes_value) options.push_back(option.text);
    }
  }
  std::ranges::sort(options);
  options.erase(std::unique(options.begin(), options.end()), options.end());
  return fmt::format(R"(_{0}_path() {{
  local word skip=
  at={0}
  for word in "$@"; do
    if [[ -n $skip ]]; then skip=; continue; fi
    case "$word" in
      {1}) skip=1; continue ;;
    esac
    case "$at $word" in
      {2}) at="$at $word" ;;
    esac
  done
}}
)",
                     name, fmt::join(options, "|"), paths);
}

// "'precisctl prefix ls --sort') VALUES" for each option with fixed values.
template <typename Line>
std::string value_cases(const std::vector<Command>& commands, const Line& line) {
  std::string cases;
  for (const Command& command : commands) {
    for (const Word& option : command.options) {
      if (option.takes_value)
        cases += fmt::format("    '{} {}') {} ;;\n", command.path, option.text, line(option));
    }
  }
  return cases;
}

std::string bash_script(const std::string& name, const std::vector<Command>& commands) {
  std::string words;
  for (const Command& command : commands) {
    std::vector<std::string> all = command.choices;
    for (const Word& word : command.subcommands) all.push_back(word.text);
    for (const Word& word : command.options) all.push_back(word.text);
    words += fmt::format("    '{}') words='{}' ;;\n", command.path, joined(all));
  }
  const std::string values = value_cases(commands, [](const Word& option) {
    return option.choices.empty() ? std::string("return")
                                  : fmt::format("words='{}'", joined(option.choices));
  });
  return path_function(name, commands) + fmt::format(R"(_{0}() {{
  local at words= current=${{COMP_WORDS[COMP_CWORD]}}
  _{0}_path "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"
  COMPREPLY=()
  case "$at ${{COMP_WORDS[COMP_CWORD-1]}}" in
{1}  esac
  if [[ -z $words ]]; then case "$at" in
{2}  esac; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o bashdefault -o default -F _{0} {0}
)",
                                                     name, values, words);
}

std::string zsh_script(const std::string& name, const std::vector<Command>& commands) {
  std::string words;
  for (const Command& command : commands) {
    std::vector<std::string> all = command.choices;
    for (const auto* list : {&command.subcommands, &command.options}) {
      for (const Word& word : *list)
        all.push_back(fmt::format("'{}:{}'", word.text, quotable(word.help)));
    }
    words += fmt::format("    '{}') offers=({}) ;;\n", command.path, joined(all));
  }
  const std::string values = value_cases(commands, [](const Word& option) {
    return option.choices.empty() ? std::string("_files; return")
                                  : fmt::format("offers=({})", joined(option.choices));
  });
  return "#compdef " + name + "\n" + path_function(name, commands) +
         fmt::format(R"(_{0}() {{
  local at
  local -a offers before
  before=("${{(@)words[2,CURRENT-1]}}")
  _{0}_path "${{before[@]}}"
  case "$at ${{before[-1]:-}}" in
{1}  esac
  if (( ${{#offers}} == 0 )); then case "$at" in
{2}  esac; fi
  _describe '{0}' offers
}}
if [[ "$funcstack[1]" == _{0} ]]; then _{0} "$@"; else compdef _{0} {0}; fi
)",
                     name, values, words);
}

std::string fish_script(const std::string& name, const std::vector<Command>& commands) {
  std::string with_value, paths, lines;
  for (const Command& command : commands) {
    if (&command != &commands.front()) paths += fmt::format(" '{}'", command.path);
    const auto line = [&](const std::string& what, const std::string& help) {
      lines += fmt::format("complete -c {} -n '__{}_at \"{}\"' {} -d '{}'\n", name, name,
                           command.path, what, quotable(help));
    };
    for (const Word& word : command.subcommands) line("-f -a " + word.text, word.help);
    for (const std::string& choice : command.choices) line("-f -a " + choice, "");
    for (const Word& option : command.options) {
      std::string what = "-l " + option.text.substr(2);
      if (option.takes_value) what += " -r";
      if (!option.choices.empty()) what += fmt::format(" -f -a '{}'", joined(option.choices));
      line(what, option.help);
      const std::string known = " " + option.text;
      if (option.takes_value && (with_value + " ").find(known + " ") == with_value.npos)
        with_value += known;
    }
  }
  return fmt::format(R"(function __{0}_at
  set -l at {0}
  set -l skip 0
  for word in (commandline -opc)[2..-1]
    if test $skip = 1
      set skip 0
    else if contains -- $word{1}
      set skip 1
    else if contains -- "$at $word"{2}
      set at "$at $word"
    end
  end
  test "$at" = "$argv[1]"
end
)",
                     name, with_value, paths) +
         lines;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  std::vector<Command> commands;
  add_commands(app, app.get_name(), app, commands);
  if (shell == "bash") return bash_script(app.get_name(), commands);
  if (shell == "zsh") return zsh_script(app.get_name(), commands);
  PRECIS_CHECK(shell == "fish");
  return fish_script(app.get_name(), commands);
}

}  // namespace precis::cli
