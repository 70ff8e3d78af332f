// The rules of the tree that a program can check. They run over files in memory, so that the rules
// can be tested (tidy_test.cc). Each function returns one line per violation, "path:line: what".
#pragma once

#include <map>
#include <string>
#include <vector>

namespace precis::tidy {

using Tree = std::map<std::string, std::string>;  // path from the root -> content
using Findings = std::vector<std::string>;

// Includes of our own headers follow the direction given in ARCHITECTURE.md (The parts), and every
// quoted include is found.
Findings check_dependencies(const Tree& tree);
// Headers of UCX, RocksDB, Asio, Cap'n Proto, CUDA and other libraries are included only in their
// own files. Public headers include the standard library and each other. A foreign error type is
// converted in one file.
Findings check_foreign_headers(const Tree& tree);
// Lines have at most 100 columns; files have a bounded number of lines.
Findings check_sizes(const Tree& tree);
// No marks of unfinished work, no environment access outside main, no path of one machine.
Findings check_words(const Tree& tree);
// No co_await inside a conditional expression: GCC 12 destroys temporaries of the other branch.
Findings check_compiler_traps(const Tree& tree);
// No two headers of a namespace define the same name. Otherwise the linker merges the definitions
// without a warning, and one file reads the other's value, for example of a constant.
Findings check_twice_defined(const Tree& tree);
// Every source file is listed in a CMakeLists.txt: a test that is not built is not a test.
Findings check_build_lists(const Tree& tree);
// Links in documents point to existing files.
Findings check_links(const Tree& tree);
// Comments and documents cite files that exist, headings that these files have, and decisions (D1,
// D2) that docs/design/policies.md lists. A path with a placeholder or an address is no citation.
Findings check_citations(const Tree& tree);
// Sentences of comments begin with their subject, not with "Of", "Who", "What" or "Where".
Findings check_plain_words(const Tree& tree);
// Only the implementations of a Runtime, and what exists on a machine only, read clocks, sleep,
// start threads or ask for randomness.
Findings check_machine_time(const Tree& tree);
// The members of a class are defined in one source, apart from the exceptions that the rule lists.
Findings check_one_source(const Tree& tree);
// The tests that docs/promises.md and docs/design name exist.
Findings check_promises(const Tree& tree);

}  // namespace precis::tidy
