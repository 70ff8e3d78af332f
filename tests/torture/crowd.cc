#include "tests/torture/crowd.h"

#include <signal.h>

#include <charconv>
#include <utility>

namespace precis::torture {

// ---- one client

Member::Member(const std::string& address, std::uint32_t seed, std::uint32_t shared_seed)
    : seed_(seed),
      process_({CHAOS_CLIENT_PATH, address, std::to_string(seed), std::to_string(shared_seed)}),
      listener_([this] { listen(); }) {}

Member::~Member() {
  if (process_.pid() > 0) kill();
}

void Member::listen() {
  while (const auto line = process_.read_line()) {
    const std::size_t space = line->find(' ');
    if (line->starts_with("error ")) {
      const std::lock_guard lock(mutex_);
      if (error_.empty()) error_ = line->substr(space + 1);
    } else if (line->starts_with("put ") || line->starts_with("get ")) {
      std::uint64_t bytes = 0;
      std::from_chars(line->data() + space + 1, line->data() + line->size(), bytes);
      ++operations_;
      bytes_ += bytes;
    }
  }
  ended_ = true;
}

std::string Member::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Member::kill() {
  process_.signal(SIGKILL);
  process_.wait();
  listener_.join();
}

int Member::stop() {
  process_.signal(SIGTERM);
  const int code = process_.wait();
  listener_.join();
  return code;
}

// ---- all clients

Crowd::Crowd(std::string address, std::uint32_t seed, std::uint32_t shared_seed, std::size_t count)
    : address_(std::move(address)), seed_(seed), shared_seed_(shared_seed) {
  for (std::size_t i = 0; i < count; ++i) members_.push_back(make());
}

// Every process has its own path, because requests of a killed process may still be carried out.
std::unique_ptr<Member> Crowd::make() {
  return std::make_unique<Member>(address_, seed_ + ++made_, shared_seed_);
}

std::uint32_t Crowd::replace(std::size_t i) {
  Member& old = *members_[i];
  const std::uint32_t seed = old.seed();
  old.kill();
  gone_operations_ += old.operations();
  gone_bytes_ += old.bytes();
  members_[i] = make();
  return seed;
}

std::uint64_t Crowd::operations() const {
  std::uint64_t sum = gone_operations_;
  for (const auto& member : members_) sum += member->operations();
  return sum;
}

std::uint64_t Crowd::bytes() const {
  std::uint64_t sum = gone_bytes_;
  for (const auto& member : members_) sum += member->bytes();
  return sum;
}

std::uint64_t Crowd::operations_without(const Member& one) const {
  return operations() - one.operations();
}

Status Crowd::first_failure() const {
  for (const auto& member : members_) {
    if (const std::string error = member->error(); !error.empty()) {
      return Status::internal("a client that nobody killed: " + error);
    }
    if (member->ended()) return Status::internal("a client ended by itself and said nothing");
  }
  return {};
}

Status Crowd::stop() {
  PRECIS_TRY(first_failure());
  for (const auto& member : members_) member->signal(SIGTERM);
  Status status;
  for (const auto& member : members_) {
    const int code = member->stop();
    if (code == 0 || !status.ok()) continue;
    status =
        Status::internal("a client ended with " + std::to_string(code) + ": " + member->error());
  }
  return status;
}

std::vector<std::uint32_t> Crowd::seeds() const {
  std::vector<std::uint32_t> seeds;
  for (const auto& member : members_) seeds.push_back(member->seed());
  return seeds;
}

}  // namespace precis::torture
