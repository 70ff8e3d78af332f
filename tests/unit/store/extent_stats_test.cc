// The content of the payload files in numbers.
#include <array>
#include <catch2/catch.hpp>
#include <functional>

#include "cachesvc/store/extent_files.h"
#include "tests/unit/store/store_machine.h"

using namespace precis;
using namespace precis::testing;

namespace {

// Calls a function while it makes a file.
class WatchedFolder final : public Folder {
 public:
  WatchedFolder(FaultyDrive& drive, const std::function<void()>& call)
      : folder_(drive.folder()), call_(call) {}
  Result<std::unique_ptr<File>> create(const std::string& name) override {
    call_();
    return folder_->create(name);
  }
  Result<std::unique_ptr<File>> open(const std::string& name) override {
    return folder_->open(name);
  }
  Status remove(const std::string& name) override { return folder_->remove(name); }
  Result<std::vector<std::string>> names() override { return folder_->names(); }
  std::optional<std::uint64_t> stamp() override { return folder_->stamp(); }
  Status sync() override { return folder_->sync(); }
  Result<DiskRoom> room() override { return folder_->room(); }
  Status linked() override { return folder_->linked(); }

 private:
  const std::unique_ptr<Folder> folder_;
  const std::function<void()>& call_;
};

}  // namespace

TEST_CASE("how much the payload files have is told while one of them is made", "[unit][store]") {
  FaultyDrive drive;
  std::unique_ptr<ExtentFiles> files;
  int made = 0;
  const std::function<void()> look = [&] {
    ++made;
    CHECK(files->stats().live_bytes == 0);  // stats() must not wait for the file
  };
  files = ExtentFiles::open(std::make_unique<WatchedFolder>(drive, look), {}, kFileBytes).value();
  const Value value = noise(1, 10'000);
  const std::array<Bytes, 1> values{Bytes(value)};
  const auto places = files->append(values).value();
  CHECK(made == 1);
  auto stats = files->stats();
  CHECK(stats.live_bytes == whole_blocks(value.size()));
  CHECK(stats.file_bytes == kFileBlockBytes + whole_blocks(value.size()));
  CHECK(stats.files == 1);
  files->free(places.front());
  REQUIRE(files->remove(files->empty_files()).ok());
  stats = files->stats();
  CHECK(stats.live_bytes == 0);
  CHECK(stats.file_bytes == 0);
  CHECK(stats.files == 0);
}
