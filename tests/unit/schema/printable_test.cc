// Text from outside, as a terminal and the log show it.
#include "precis/printable.h"

#include <catch2/catch.hpp>

namespace precis {

TEST_CASE("what acts on a terminal is escaped, and nothing else", "[unit][schema]") {
  CHECK(printable("plain \"caf\xc3\xa9\" \xe6\x97\xa5 \xf0\x9f\x98\x80 \\") ==
        "plain \"caf\xc3\xa9\" \xe6\x97\xa5 \xf0\x9f\x98\x80 \\");
  CHECK(printable("a\x1b[2J\r\n\tb\x7f") == "a\\u001b[2J\\u000d\\u000a\\u0009b\\u007f");
  CHECK(printable(std::string_view("\0", 1)) == "\\u0000");
  CHECK(printable("\xc2\x9b[2J") == "\\u009b[2J");  // C1's control sequence introducer
  CHECK(printable("\xc2\xa0") == "\xc2\xa0");
  for (const char* bidi : {"\xd8\x9c", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xaa",
                           "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"}) {
    CHECK(printable(bidi).starts_with("\\u"));
    CHECK(printable(bidi).size() == 6);
  }
  CHECK(printable("gpj.\xe2\x80\xae"
                  "exe") == "gpj.\\u202eexe");
  CHECK(printable("\xe2\x80\xa8\xe2\x80\xa9") == "\\u2028\\u2029");
}

TEST_CASE("bytes that are no UTF-8 are escaped one by one", "[unit][schema]") {
  CHECK(printable("\x9b[2J") == "\\x9b[2J");
  CHECK(printable("a\xff\xc3") == "a\\xff\\xc3");
  CHECK(printable("\xe2\x80") == "\\xe2\\x80");
  CHECK(printable("\xc0\x9b") == "\\xc0\\x9b");  // an overlong form of ESC
}

TEST_CASE("lines stay lines where they are meant to", "[unit][schema]") {
  CHECK(printable_lines("one\n  two\x1b\n") == "one\n  two\\u001b\n");
  CHECK(printable_lines("one\rtwo") == "one\\u000dtwo");
}

TEST_CASE("a JSON string stays one, on one line, whatever is in it", "[unit][schema]") {
  CHECK(json_string("") == "\"\"");
  CHECK(json_string("a\"b\\c\n\x1b\xe2\x80\xae") == R"("a\"b\\c\u000a\u001b\u202e")");
  CHECK(json_string("a\xff") == "\"a\xef\xbf\xbd\"");
}

}  // namespace precis
