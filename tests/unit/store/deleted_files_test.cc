// Files that are deleted under an open store, and checks that cannot find out whether they are.
#include "cachesvc/store/deleted_files.h"

#include <fcntl.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>
#include <future>

#include "cachesvc/base/descriptor.h"
#include "cachesvc/store/extent_files.h"
#include "tests/unit/store/faulty_folder.h"
#include "tests/unit/store/test_dir.h"

using namespace precis;
using namespace precis::testing;
using Catch::Matchers::Contains;

namespace {

// A folder that calls `listed` after each listing, before it returns the names.
class ListedFolder final : public Folder {
 public:
  ListedFolder(std::unique_ptr<Folder> folder, std::function<void()> listed)
      : folder_(std::move(folder)), listed_(std::move(listed)) {}
  Result<std::unique_ptr<File>> create(const std::string& name) override {
    return folder_->create(name);
  }
  Result<std::unique_ptr<File>> open(const std::string& name) override {
    return folder_->open(name);
  }
  Status remove(const std::string& name) override { return folder_->remove(name); }
  Result<std::vector<std::string>> names() override {
    auto names = folder_->names();
    listed_();
    return names;
  }
  std::optional<std::uint64_t> stamp() override { return folder_->stamp(); }
  Status sync() override { return folder_->sync(); }
  Result<DiskRoom> room() override { return folder_->room(); }
  Status linked() override { return folder_->linked(); }

 private:
  const std::unique_ptr<Folder> folder_;
  const std::function<void()> listed_;
};

// Payload files, one of which has a value.
std::unique_ptr<ExtentFiles> open_files(FaultyDrive& drive, std::function<void()> listed) {
  auto folder = std::make_unique<ListedFolder>(drive.folder(), std::move(listed));
  auto files = ExtentFiles::open(std::move(folder), {}, 1 << 20).value();
  const std::vector<std::byte> value = noise(1, 5000);
  const Bytes bytes = value;
  REQUIRE(files->append({&bytes, 1}).ok());
  return files;
}

Status append(ExtentFiles& files) {
  const std::vector<std::byte> value = noise(2, 5000);
  const Bytes bytes = value;
  return files.append({&bytes, 1}).status();
}

}  // namespace

TEST_CASE("a payload file that was deleted is said, with what to do, and stays so",
          "[unit][store]") {
  FaultyDrive drive;
  const auto files = open_files(drive, [] {});
  CHECK(files->check().ok());
  REQUIRE(drive.folder()->remove(drive.names().front()).ok());
  const Status found = files->check();
  CHECK(found.code() == StatusCode::kUnavailable);
  CHECK_THAT(found.message(), Contains("was deleted while the service ran") &&
                                  Contains("and restart the service") && !Contains(", or restart"));
  CHECK(append(*files).code() == StatusCode::kUnavailable);
  CHECK(files->sync().code() == StatusCode::kUnavailable);
}

TEST_CASE("an older look at the files does not take back what a newer one found", "[unit][store]") {
  FaultyDrive drive;
  std::promise<void> listed, deleted;
  std::atomic<bool> first = false;
  const auto files = open_files(drive, [&] {
    if (!first.exchange(false)) return;
    listed.set_value();
    deleted.get_future().wait();
  });
  first = true;
  auto older = std::async(std::launch::async, [&] { return files->check(); });
  listed.get_future().wait();
  REQUIRE(drive.folder()->remove(drive.names().front()).ok());
  CHECK(files->check().code() == StatusCode::kUnavailable);
  deleted.set_value();
  (void)older.get();
  CHECK(append(*files).code() == StatusCode::kUnavailable);
}

TEST_CASE("a directory that can't be looked at is not called deleted", "[unit][store]") {
  const TestDir dir;
  const std::string path = dir.path() + "/data";
  std::filesystem::create_directory(path);
  const Descriptor lock(::open((path + "/store.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(lock);
  CHECK(DeletedFiles(path, lock.get()).check_directory().ok());
  // ELOOP stands for any error that prevents the check.
  const std::string loop = dir.path() + "/loop";
  std::filesystem::create_symlink(loop, loop);
  CHECK(DeletedFiles(loop, lock.get()).check_directory().ok());
  std::filesystem::rename(path, dir.path() + "/away");
  CHECK(DeletedFiles(path, lock.get()).check_directory().code() == StatusCode::kUnavailable);
}

TEST_CASE("a table is missing only where two looks miss it", "[unit][store]") {
  std::vector<std::vector<std::string>> looks;
  const auto missing = [&](std::vector<std::vector<std::string>> seen) {
    looks = std::move(seen);
    return DeletedFiles::missing_twice([&] {
      auto look = looks.front();
      looks.erase(looks.begin());
      return look;
    });
  };
  CHECK_FALSE(missing({{}}));
  CHECK_FALSE(missing({{"1.sst"}, {}}));
  CHECK_FALSE(missing({{"1.sst", "2.sst"}, {"3.sst"}}));  // two compactions removed them
  CHECK(missing({{"1.sst", "2.sst"}, {"3.sst", "2.sst"}}) == "2.sst");
}

TEST_CASE("a folder without changes is not listed again and again, and a change is seen",
          "[unit][store]") {
  FaultyDrive drive;
  std::atomic<unsigned> lists = 0;
  const auto files = open_files(drive, [&] { ++lists; });
  // If the folder were listed forever, this test would exceed its time limit.
  for (unsigned before = 0; before != lists;) {
    before = lists;
    REQUIRE(files->check().ok());
  }
  const unsigned settled = lists;
  REQUIRE(append(*files).ok());  // to the same file
  for (int i = 0; i < 10; ++i) REQUIRE(files->check().ok());
  CHECK(lists == settled);
  REQUIRE(drive.folder()->remove(drive.names().front()).ok());
  CHECK(files->check().code() == StatusCode::kUnavailable);
}
