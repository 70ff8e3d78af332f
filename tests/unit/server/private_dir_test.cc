#include "cachesvc/base/private_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace precis {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("precis-private-" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

mode_t mode_of(const std::string& path) {
  struct stat what {};
  REQUIRE(::stat(path.c_str(), &what) == 0);
  return what.st_mode & 07777;
}

}  // namespace

TEST_CASE("a data directory is made for its owner alone", "[unit][server]") {
  const Folder folder;
  const auto made = make_private(folder.path("a/b/data"));
  CHECK_FALSE(made.was_open);
  CHECK(made.left_open == Status());
  CHECK(mode_of(folder.path("a/b/data")) == 0700);
}

TEST_CASE("one that others may enter is closed to them, and that is told", "[unit][server]") {
  const Folder folder;
  fs::create_directory(folder.path("data"));
  fs::permissions(folder.path("data"), fs::perms(0755));
  const auto first = make_private(folder.path("data"));
  CHECK(first.was_open);
  CHECK(first.left_open == Status());
  CHECK(mode_of(folder.path("data")) == 0700);
  CHECK_FALSE(make_private(folder.path("data")).was_open);
}

TEST_CASE("a folder that all users share is left to them, and that is told", "[unit][server]") {
  const Folder folder;
  fs::create_directory(folder.path("shared"));
  fs::permissions(folder.path("shared"), fs::perms(01777));
  const auto left = make_private(folder.path("shared"));
  CHECK(left.was_open);
  CHECK_THAT(left.left_open.message(), Catch::Contains("shared by all users"));
  CHECK(mode_of(folder.path("shared")) == 01777);
}

TEST_CASE("what is no folder is left for who opens it to say", "[unit][server]") {
  const Folder folder;
  std::ofstream(folder.path("file")) << "in the way";
  CHECK(make_private(folder.path("file")).left_open == Status());
  CHECK(make_private(folder.path("file/data")).left_open == Status());
}

}  // namespace precis
