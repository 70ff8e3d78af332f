// The rules of the tree that a program can check, over files held in memory so that the rules
// themselves can be tested (tidy_test.cc). Each returns one line per violation, "path:line: what".
#pragma once

#include <map>
#include <string>
#include <vector>

namespace precis::tidy {

using Tree = std::map<std::string, std::string>;  // path from the root -> content
using Findings = std::vector<std::string>;

// Includes of our own headers point down alone, as ARCHITECTURE.md (The parts) has it, and every
// quoted include is found.
Findings check_dependencies(const Tree& tree);
// Headers of UCX, RocksDB, Asio, Cap'n Proto, CUDA and the rest stay in their homes; public headers
// include the standard library and each other; a foreign error type is converted in one file.
Findings check_foreign_headers(const Tree& tree);
// Lines of at most 100 columns, files of bounded length.
Findings check_sizes(const Tree& tree);
// No unfinished marks, no environment below main, no path of somebody's machine.
Findings check_words(const Tree& tree);
// No co_await inside ?: , of which GCC 12 destroys the other branch's temporaries.
Findings check_compiler_traps(const Tree& tree);
// No two headers of a namespace define the same name. Sources that include one each are linked
// without a word, and what one means the other reads: a constant of another value, say.
Findings check_twice_defined(const Tree& tree);
// Every source file stands in a CMakeLists.txt: a test that is not built is not a test.
Findings check_build_lists(const Tree& tree);
// Links in documents point to files that are there.
Findings check_links(const Tree& tree);
// The tests that docs/promises.md names are there.
Findings check_promises(const Tree& tree);

}  // namespace precis::tidy
