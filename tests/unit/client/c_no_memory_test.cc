// The C interface when memory runs out: each call fails with a status, and none throws into C.
#include <precis/precis.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <vector>

namespace {

thread_local bool no_memory = false;

}  // namespace

// These operators serve the whole process, also libprecis.so.
void* operator new(std::size_t size) {
  void* const memory = no_memory ? nullptr : std::malloc(size > 0 ? size : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace {

precis_status without_memory(const std::function<precis_status()>& call) {
  no_memory = true;
  const precis_status status = call();
  no_memory = false;
  return status;
}

TEST_CASE("calls that find no memory fail with a status, and work once there is memory",
          "[client]") {
  char name[] = "/tmp/precis-c-no-memory-XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const std::string folder = name;
  precis_client* const client = precis_client_new();
  REQUIRE(client != nullptr);
  CHECK(without_memory([] { return precis_client_new() ? PRECIS_OK : PRECIS_OUT_OF_SPACE; }) ==
        PRECIS_OUT_OF_SPACE);
  const std::string token(1000, 't');
  precis_connect_options options{};
  options.token = token.c_str();
  CHECK(without_memory([&] { return precis_client_connect(client, "127.0.0.1:1", &options); }) ==
        PRECIS_OUT_OF_SPACE);
  CHECK(std::string(precis_client_error(client)) == "no memory");
  CHECK(without_memory([&] { return precis_client_open(client, folder.c_str(), 64u << 20); }) ==
        PRECIS_OUT_OF_SPACE);
  REQUIRE(precis_client_open(client, folder.c_str(), 64u << 20) == PRECIS_OK);

  precis_model_spec spec{};
  spec.name = "a model whose name is too long to be kept in the string itself";
  spec.num_layers = spec.num_q_heads = spec.num_kv_heads = 1;
  spec.head_dim = 16;
  spec.dtype = PRECIS_F32;
  precis_model* model = nullptr;
  precis_put* put = nullptr;
  precis_match* match = nullptr;
  precis_segment_id segment{};
  const std::vector<std::uint32_t> tokens(200, 7);
  const auto size = tokens.size();
  const auto register_model = [&] { return precis_model_register(client, &spec, &model); };
  CHECK(without_memory(register_model) == PRECIS_OUT_OF_SPACE);
  CHECK(model == nullptr);
  REQUIRE(register_model() == PRECIS_OK);
  const auto begin = [&] {
    return precis_put_begin(client, model, tokens.data(), size, "knorm", 0.5, &put);
  };
  CHECK(without_memory(begin) == PRECIS_OUT_OF_SPACE);
  CHECK(put == nullptr);
  const auto look_up = [&] { return precis_lookup(client, model, tokens.data(), size, &match); };
  CHECK(without_memory(look_up) == PRECIS_OUT_OF_SPACE);
  CHECK(match == nullptr);
  REQUIRE(look_up() == PRECIS_OK);
  CHECK(without_memory([&] { return precis_session_open(client, "chat", 0); }) ==
        PRECIS_OUT_OF_SPACE);
  CHECK(precis_session_tip(client, "chat", &segment, nullptr) == PRECIS_NOT_FOUND);

  REQUIRE(begin() == PRECIS_OK);
  const auto wrong = static_cast<precis_durability>(7);  // its message needs memory
  CHECK(without_memory([&] { return precis_put_commit(put, wrong, nullptr, nullptr); }) ==
        PRECIS_OUT_OF_SPACE);
  CHECK(std::string(precis_put_error(put)) == "no memory");
  CHECK(precis_put_abort(put) == PRECIS_OK);
  precis_put_free(put);
  precis_match_free(match);
  precis_model_free(model);
  precis_client_free(client);
  std::filesystem::remove_all(folder);
}

}  // namespace
