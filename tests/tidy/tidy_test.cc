// The tree keeps its own rules (CONTRIBUTING.md; ARCHITECTURE.md, The parts), and the rules find
// violations.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rules.h"

namespace precis::tidy {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

// Every text file of ours; built and fetched files are in other folders.
Tree read_tree() {
  static const std::vector<std::string> kFolders = {"cachesvc", "client", "cmake", "deploy", "docs",
                                                    "kernels",  "schema", "tests", ".ci"};
  static const std::vector<std::string> kTop = {
      "LICENSE",         "CMakeLists.txt",  "CMakePresets.json", "README.md",
      "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md",      "dev"};
  static const std::vector<std::string> kKinds = {
      ".h",  ".def",  ".c",    ".cc", ".cu", ".cuh",  ".capnp",   ".py",   ".pyi", ".txt", ".cmake",
      ".md", ".toml", ".yaml", ".sh", ".in", ".json", ".service", ".html", ".js",  ".css", ""};
  const fs::path root = PRECIS_SOURCE_DIR;
  Tree tree;
  for (const std::string& name : kTop) tree[name] = read(root / name);
  for (const std::string& folder : kFolders) {
    for (auto it = fs::recursive_directory_iterator(root / folder); it != fs::end(it); ++it) {
      const std::string name = it->path().filename().string();
      if (it->is_directory() && (name == "__pycache__" || name == "build" || name == "dist")) {
        it.disable_recursion_pending();
      }
      const std::string kind = it->path().extension().string();
      // Documents show images, so the tree has their names.
      if (kind == ".png") tree[it->path().lexically_relative(root).generic_string()] = "";
      if (!it->is_regular_file() || std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
        continue;
      }
      tree[it->path().lexically_relative(root).generic_string()] = read(it->path());
    }
  }
  return tree;
}

std::string lines(const Findings& findings) {
  std::string text;
  for (const std::string& finding : findings) text += "\n  " + finding;
  return text;
}

void require_clean(const Findings& findings) {
  INFO(lines(findings));
  REQUIRE(findings.empty());
}

}  // namespace

TEST_CASE("the tree was found and holds every part", "[tidy]") {
  const Tree tree = read_tree();
  REQUIRE(tree.count("schema/include/precis/status.h") == 1);
  REQUIRE(tree.count("cachesvc/transport/transport.h") == 1);
  REQUIRE(tree.count("client/include/precis/client.h") == 1);
  REQUIRE(tree.count("kernels/include/precis/kernels.h") == 1);
}

TEST_CASE("dependencies point one way", "[tidy]") {
  require_clean(check_dependencies(read_tree()));
}

TEST_CASE("foreign headers stay in their homes", "[tidy]") {
  require_clean(check_foreign_headers(read_tree()));
}

TEST_CASE("lines and files keep to their lengths", "[tidy]") {
  require_clean(check_sizes(read_tree()));
}

TEST_CASE("nothing is left unfinished or bound to one machine", "[tidy]") {
  require_clean(check_words(read_tree()));
}

TEST_CASE("nothing is written that this compiler gets wrong", "[tidy]") {
  require_clean(check_compiler_traps(read_tree()));
}

TEST_CASE("no name has two meanings", "[tidy]") { require_clean(check_twice_defined(read_tree())); }

TEST_CASE("every source file is in the build", "[tidy]") {
  require_clean(check_build_lists(read_tree()));
}

TEST_CASE("links in documents lead somewhere", "[tidy]") {
  require_clean(check_links(read_tree()));
}

TEST_CASE("sentences of comments begin with their subject", "[tidy]") {
  require_clean(check_plain_words(read_tree()));
}

TEST_CASE("time, threads and randomness come from a runtime", "[tidy]") {
  require_clean(check_machine_time(read_tree()));
}

TEST_CASE("the members of a class are in one source", "[tidy]") {
  require_clean(check_one_source(read_tree()));
}

TEST_CASE("promises name tests that are there", "[tidy]") {
  require_clean(check_promises(read_tree()));
}

TEST_CASE("comments and documents cite what is there", "[tidy]") {
  require_clean(check_citations(read_tree()));
}

// ---- the rules find violations
// -------------------------------------------------------------------

TEST_CASE("a name that two headers of a namespace define is found", "[tidy]") {
  const std::string open = "#pragma once\nnamespace precis::kernels {\n";
  Tree tree = {{"kernels/a.h", open + "inline constexpr int kRows = 1;\nstruct Shape {};\n"},
               {"kernels/b.h", open + "struct Shape;\nvoid f(int kRows);\n"},
               {"cachesvc/c.h", "namespace precis {\nstruct Shape {\n};\n"}};
  REQUIRE(check_twice_defined(tree).empty());
  SECTION("a constant") {
    tree["kernels/b.h"] += "inline constexpr std::size_t kRows = 32;\n";
    REQUIRE(check_twice_defined(tree) ==
            Findings{"kernels/b.h:5: precis::kernels::kRows is defined in kernels/a.h too"});
  }
  SECTION("a class") {
    tree["kernels/b.h"] += "class Shape final : public Base {\n";
    REQUIRE(check_twice_defined(tree).size() == 1);
  }
}

TEST_CASE("an include that points up is found", "[tidy]") {
  Tree tree = {{"schema/include/precis/types.h", "#pragma once\n"},
               {"cachesvc/base/clock.h", "#include \"precis/types.h\"\n"},
               {"cachesvc/store/store.h", "#include \"cachesvc/base/clock.h\"\n"},
               {"client/include/precis/client.h", "#include \"precis/types.h\"\n"},
               {"cachesvc/embed/open.cc", "#include \"precis/client.h\"\n"}};
  REQUIRE(check_dependencies(tree).empty());

  SECTION("kernels on base") {
    tree["kernels/score.cc"] = "#include \"cachesvc/base/clock.h\"\n";
    REQUIRE(check_dependencies(tree) ==
            Findings{"kernels/score.cc:1: kernels may not include base (cachesvc/base/clock.h)"});
  }
  SECTION("client on the stages of compression") {
    tree["kernels/include/precis/record.h"] = tree["kernels/include/precis/stages.h"] = "";
    tree["client/src/client.cc"] = "#include \"precis/record.h\"\n";
    REQUIRE(check_dependencies(tree).empty());
    tree["client/src/client.cc"] = "#include \"precis/stages.h\"\n";
    REQUIRE(check_dependencies(tree).size() == 1);
  }
  SECTION("client or server on embed, which stands on both") {
    tree["cachesvc/embed/loopback.h"] = "#pragma once\n";
    tree["client/src/client.cc"] = "#include \"cachesvc/embed/loopback.h\"\n";
    tree["cachesvc/server/service.cc"] = "#include \"cachesvc/embed/loopback.h\"\n";
    REQUIRE(check_dependencies(tree).size() == 2);
  }
  SECTION("client on store, through spaces") {
    tree["client/src/client.cc"] = "// x\n  #  include \"cachesvc/store/store.h\"  // why\n";
    REQUIRE(
        check_dependencies(tree) ==
        Findings{"client/src/client.cc:2: client may not include store (cachesvc/store/store.h)"});
  }
  SECTION("transport on store, relative") {
    tree["cachesvc/transport/t.cc"] = "#include \"../store/store.h\"\n";
    REQUIRE(check_dependencies(tree).size() == 1);
  }
  SECTION("a header that is not there") {
    tree["cachesvc/base/log.cc"] = "#include \"precis/gone.h\"\n";
    REQUIRE(check_dependencies(tree) ==
            Findings{"cachesvc/base/log.cc:1: no file is precis/gone.h"});
  }
  SECTION("a folder that the architecture does not know") {
    tree["cachesvc/misc/x.cc"] = "";
    REQUIRE(check_dependencies(tree).size() == 1);
  }
  SECTION("asio.h in a header") {
    tree["cachesvc/base/asio.h"] = "";
    tree["cachesvc/base/event_loop.cc"] = "#include \"cachesvc/base/asio.h\"\n";
    REQUIRE(check_dependencies(tree).empty());
    tree["cachesvc/base/socket.h"] = "#include \"cachesvc/base/asio.h\"\n";
    REQUIRE(check_dependencies(tree).size() == 1);
  }
}

TEST_CASE("a foreign header outside its home is found", "[tidy]") {
  const auto found = [](const std::string& path, const std::string& content) {
    return check_foreign_headers({{path, content}}).size();
  };
  REQUIRE(found("cachesvc/net/rdma/uct_peer.cc", "#include <uct/api/uct.h>\n") == 0);
  REQUIRE(found("cachesvc/net/rdma/rdma.h", "#include <uct/api/uct.h>\n") == 1);
  REQUIRE(found("cachesvc/net/tls.cc", "#include <openssl/ssl.h>\n") == 0);
  REQUIRE(found("cachesvc/net/socket.cc", "#include <openssl/ssl.h>\n") == 1);
  REQUIRE(found("cachesvc/store/rocksdb_store.cc", "#include <rocksdb/db.h>\n") == 0);
  REQUIRE(found("cachesvc/catalog/catalog.cc", "#include <rocksdb/db.h>\n") == 1);
  REQUIRE(found("cachesvc/base/event_loop.cc", "#include <boost/asio.hpp>\n") == 1);
  REQUIRE(found("schema/src/messages.cc", "#include \"control.capnp.h\"\n") == 0);
  REQUIRE(found("client/src/client.cc", "#include \"schema/control.capnp.h\"\n") == 1);
  REQUIRE(found("kernels/score/score_cuda.cu", "#include <cuda_runtime.h>\n") == 0);
  REQUIRE(found("kernels/score/score.h", "#include <cuda_runtime.h>\n") == 1);
  REQUIRE(found("kernels/include/precis/record.h", "#include <xxhash.h>\n") == 1);
  REQUIRE(check_foreign_headers({{"schema/src/a.cc", "catch (const kj::Exception& e)"},
                                 {"schema/src/b.cc", "catch (const kj::Exception& e)"}})
              .size() == 1);
}

TEST_CASE("a line or a file that is too long is found", "[tidy]") {
  const std::string line(100, 'x');
  REQUIRE(check_sizes({{"a.cc", line + "\n"}}).empty());
  REQUIRE(check_sizes({{"a.cc", line + "x\n"}}) == Findings{"a.cc:1: 101 columns"});
  std::string wide;
  for (int i = 0; i < 100; ++i) wide += "\u00e9";
  REQUIRE(check_sizes({{"a.py", wide}}).empty());
  REQUIRE(check_sizes({{"a.h", std::string(220, '\n')}}).empty());
  REQUIRE(check_sizes({{"a.h", std::string(221, '\n')}}).size() == 1);
  REQUIRE(check_sizes({{"a.cc", std::string(451, '\n')}}).size() == 1);
}

TEST_CASE("unfinished work and machine paths are found", "[tidy]") {
  REQUIRE(check_words({{"client/src/a.cc", "int x;  // TODO later\n"}}).size() == 1);
  REQUIRE(check_words({{"README.md", "cd /home/someone/precis\n"}}).size() == 1);
  REQUIRE(check_words({{"client/src/a.cc", "std::getenv(\"HOME\")\n"}}).size() == 1);
  REQUIRE(check_words({{"cachesvc/main.cc", "std::getenv(\"HOME\")\n"}}).empty());
}

TEST_CASE("a co_await inside a conditional expression is found", "[tidy]") {
  const auto found = [](const std::string& code) {
    return check_compiler_traps({{"cachesvc/pipeline/a.cc", code}}).size();
  };
  REQUIRE(found("const Status s = ok ? co_await store() : failure;") == 1);
  REQUIRE(found("const Status s = ok ? failure\n  : co_await store();") == 1);
  REQUIRE(found("const bool b = x ? y : z;\nif (b) co_await store();") == 0);
}

TEST_CASE("a test that is not in the build is found", "[tidy]") {
  Tree tree = {{"tests/unit/base/CMakeLists.txt", "precis_test(base_test SOURCES log_test.cc)\n"},
               {"tests/unit/base/log_test.cc", ""}};
  REQUIRE(check_build_lists(tree).empty());
  tree["tests/unit/base/arena_test.cc"] = "";
  REQUIRE(check_build_lists(tree) ==
          Findings{"tests/unit/base/arena_test.cc:1: stands in no CMakeLists.txt"});
}

TEST_CASE("a promise that no test holds is found", "[tidy]") {
  const std::string test = "TEST_CASE_METHOD(F, \"what is \"\n    \"put is there\", \"[x]\") {";
  REQUIRE(check_promises({{"docs/promises.md", "held by `what is put is there`, `dev test`\n"},
                          {"tests/a.cc", test}})
              .empty());
  REQUIRE(
      check_promises({{"docs/promises.md", "\n`what is lost is there`\n"}, {"tests/a.cc", test}}) ==
      Findings{"docs/promises.md:2: no test is called 'what is lost is there'"});
}

TEST_CASE("a promise may name one of pytest's tests, which must be there", "[tidy]") {
  const std::string test = "import x\n\n\ndef test_what_is_put(cache):\n    pass\n";
  REQUIRE(check_promises(
              {{"docs/promises.md", "held by `test_what_is_put`\n"}, {"tests/python/a.py", test}})
              .empty());
  REQUIRE(check_promises({{"docs/promises.md", "\n`test_what`\n"}, {"tests/python/a.py", test}}) ==
          Findings{"docs/promises.md:2: no test is called 'test_what'"});
}

TEST_CASE("a link to a file that is not there is found", "[tidy]") {
  REQUIRE(check_links(
              {{"docs/a.md", "[b](../src/b.h#l1) [c](https://example.org/x)\n"}, {"src/b.h", ""}})
              .empty());
  REQUIRE(check_links({{"docs/a.md", "x\n[b](b.h)\n"}}) == Findings{"docs/a.md:2: no file is b.h"});
}

TEST_CASE("a page of the design names tests, and its formulas are none", "[tidy]") {
  REQUIRE(
      check_promises({{"docs/design/a.md",
                       "`n = a / b` and `-(n - 1 - j)` and `a + b + c`\n`no such test here`\n"}}) ==
      Findings{"docs/design/a.md:2: no test is called 'no such test here'"});
}

TEST_CASE("a file that is cited and not there is found", "[tidy]") {
  const auto found = [](const std::string& path, const std::string& content) {
    return check_citations({{path, content},
                            {"docs/design/words.md", "# Words\n"},
                            {"kernels/include/precis/record.h", ""}});
  };
  REQUIRE(found("kernels/a.h", "// Entries (words.md); see precis/record.h.\n").empty());
  REQUIRE(found("kernels/a.h", "// The terms (terms.md).\n") ==
          Findings{"kernels/a.h:1: no file is terms.md"});
  REQUIRE(found("docs/b.md", "\nAs design/words.md and kernels/record.h say.\n") ==
          Findings{"docs/b.md:2: no file is kernels/record.h"});
  REQUIRE(found("client/c.py", "x = 'a/b.py'  # as a/c.py\n") ==
          Findings{"client/c.py:1: no file is a/c.py"});
  REQUIRE(found("client/c.py", "\"\"\"Reads\na/c.py.\n\"\"\"\nopen('a/d.py')\n") ==
          Findings{"client/c.py:2: no file is a/c.py"});
  REQUIRE(found("schema/d.capnp", "const x = 1;  # y/z.h\n").size() == 1);
}

TEST_CASE("a pattern, an address or a file of another project is no citation", "[tidy]") {
  REQUIRE(check_citations({{"kernels/a.cc",
                            "#include \"gone/a.h\"\n"
                            "// https://example.org/x/a.md, /etc/x/a.toml\n"
                            "// <stage>/a.h, x/*_op.h, FOLDER/a.h, x/NAME.h, a.h\n"
                            "// doc/xxhash_spec.md of xxHash\n"}})
              .empty());
}

TEST_CASE("a heading that is cited and not there is found", "[tidy]") {
  const Tree tree = {{"docs/design/words.md", "# Words\n\n## Orders, seats and budgets\n"},
                     {"kernels/a.h",
                      "// words.md, \"Orders, seats and budgets\"\n"
                      "// docs/design/words.md#orders-seats-and-budgets\n"
                      "// words.md, \"Seats\"\n"
                      "// words.md#budgets\n"
                      "// words.md 2.4\n"}};
  REQUIRE(check_citations(tree) == Findings{"kernels/a.h:3: words.md has no heading 'Seats'",
                                            "kernels/a.h:4: words.md has no heading 'budgets'",
                                            "kernels/a.h:5: words.md has no heading '2.4'"});
}

TEST_CASE("a decision that is cited and not listed is found", "[tidy]") {
  Tree tree = {{"docs/design/policies.md", "| # | decision |\n|---|---|\n| D7 | two stages |\n"},
               {"kernels/a.h", "// Two stages (D7), on 2D grids of D dims, D3D12 and ID77.\n"}};
  REQUIRE(check_citations(tree).empty());
  tree["kernels/a.h"] += "// Never built (D70).\n";
  REQUIRE(check_citations(tree) == Findings{"kernels/a.h:2: no decision is D70"});
}

TEST_CASE("a sentence that opens with a relative word is found", "[tidy]") {
  const auto found = [](const std::string& content) {
    return check_plain_words({{"a.h", content}}).size();
  };
  CHECK(found("// Of what is stored nothing is written.\n") == 1);
  CHECK(found("int a;\n  // The row. Who waits is told.\n") == 1);
  CHECK(found("// The row.\n// Where it ends.\n") == 1);
  CHECK(found("// The file of\n// Of is a word here, and What another.\n") == 0);
  CHECK(found("// Often. Whole rows.\nauto s = \"// Of\";\n") == 0);
}

TEST_CASE("a clock that is read outside of a runtime is found", "[tidy]") {
  const auto found = [](const std::string& path) {
    return check_machine_time({{path, "auto now = std::chrono::steady_clock::now();\n"}}).size();
  };
  CHECK(found("cachesvc/pipeline/put.cc") == 1);
  CHECK(found("cachesvc/base/clock.cc") == 0);
  CHECK(found("tests/unit/a.cc") == 0);
}

TEST_CASE("a class with members in two sources is found", "[tidy]") {
  const std::string open = "namespace precis {\n", wrong = ": precis::Log has members in ";
  const auto found = [&](const std::string& one, const std::string& other) {
    return check_one_source({{"cachesvc/a.cc", open + one}, {"cachesvc/b.cc", open + other}});
  };
  const std::string name = "std::function<void()> Log::name(\n    int x) const {\n";
  const Findings twice = {"cachesvc/b.cc:2" + wrong + "cachesvc/a.cc too"};
  CHECK(found(name, "Log::~Log() = default;\nStatus Log::drop() {\n") == twice);
  CHECK(found(name, "bool Log::operator<(const Log& other) const {\n") == twice);
  CHECK(found(name, "Status log::Log::drop() {\n") == twice);
  CHECK(found(name, "class Log;\nLog::Log() {}\n") ==
        Findings{"cachesvc/b.cc:3" + wrong + "cachesvc/a.cc too"});
  SECTION("a use of the class is no member") {
    CHECK(found(name, "Log::Names names() { return Log::none(); }\n").empty());
    CHECK(found(name, "const Log kLog = Log::none();\n  Log::none();\n// Log::none()\n").empty());
  }
  SECTION("another class of the same name") {
    CHECK(found(name, "class Log final : public Base {\n};\nStatus Log::drop() {\n").empty());
    CHECK(found("Log::Log() {}\n", "struct Log::Impl {\n};\nint Log::Impl::f() {\n").empty());
    CHECK(found(name, "namespace python {\nStatus Log::drop() {\n").empty());
    CHECK(found(name,
                "namespace {\nnamespace a {\n}  // namespace a\n}  // namespace\nLog::Log() {\n")
              .size() == 1);
  }
  SECTION("a nested class") {
    CHECK(found(name, "Status Log::Names::drop() {\n").empty());
    CHECK(found("int Log::Names::size() {\n", "Status Log::Names::drop() {\n").size() == 1);
  }
  SECTION("a part of a platform, and a test") {
    const auto in = [&](const std::string& path, const std::string& code) {
      return check_one_source({{"client/src/connect.cc", open + code}, {path, open + code}}).size();
    };
    CHECK(in("cachesvc/embed/open.cc", "Result<Client> Client::open() {\n") == 0);
    CHECK(in("cachesvc/embed/run.cc", "Result<Client> Client::open() {\n") == 1);
    CHECK(in("tests/unit/a.cc", "Result<Client> Client::open() {\n") == 0);
  }
}

}  // namespace precis::tidy
