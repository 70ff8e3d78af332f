#include "tests/unit/kernels/cuda_emulator/grid.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "tests/unit/kernels/cuda_emulator/fiber.h"

namespace precis::cuda_emulator {
namespace {

enum class State : std::uint8_t { kReady, kAtBarrier, kInWarp, kLeft };

struct Thread {
  Fiber fiber;
  Index index;
};

// Lanes exchange words on two boards in turn. Two boards are enough, because no lane can be two
// exchanges ahead of another.
struct Warp {
  std::uint64_t words[2][kWarpLanes];
  std::uint32_t board = 0, lanes = 0, arrived = 0;
  const char* exchange = nullptr;  // the name of the exchange that its first lane entered
};

constexpr std::align_val_t kSharedAlign{128};
struct FreeShared {
  void operator()(std::byte* memory) const { ::operator delete(memory, kSharedAlign); }
};

struct Block {
  std::vector<std::unique_ptr<Thread>> threads;  // stacks are kept from block to block
  std::vector<State> states;                     // of the threads
  std::vector<std::uint32_t> order;              // in which threads run
  std::vector<Warp> warps;
  std::uint32_t count = 0, at_barrier = 0, running = 0;
  std::unique_ptr<std::byte, FreeShared> shared;
  const std::function<void()>* kernel = nullptr;
  std::string error;
  std::uint64_t turn = 0;  // blocks run so far; chooses the order of threads
};

std::mutex grid_mutex;
Block current;  // guarded by grid_mutex

std::string text(const Index& i) {
  return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

void fail(const std::string& what) {
  if (current.error.empty()) current.error = "block " + text(block_index) + ": " + what;
}

void wait_as(State state) {
  current.states[current.running] = state;
  current.threads[current.running]->fiber.suspend();
}

// The entry of a fiber. The grid never resumes a thread that left.
void thread_main() {
  (*current.kernel)();
  wait_as(State::kLeft);
}

// Which thread runs i-th in this block.
std::uint32_t turn_of(std::uint32_t i) {
  const std::uint32_t n = current.count;
  const auto shift = static_cast<std::uint32_t>(current.turn / 2 * 0x9e3779b9u % n);
  const std::uint32_t at = (i + (current.turn % 4 < 2 ? 0 : shift)) % n;
  return current.turn % 2 == 0 ? at : n - 1 - at;
}

// Names the first thread that left, the first at a barrier, and the first that waits in its warp.
void describe_deadlock() {
  std::string left, at_barrier, in_warp;
  for (std::uint32_t t = 0; t < current.count; ++t) {
    const std::string thread = ", thread " + std::to_string(t);
    switch (current.states[t]) {
      case State::kReady: break;
      case State::kLeft:
        if (left.empty()) left = thread + " left";
        break;
      case State::kAtBarrier:
        if (at_barrier.empty()) at_barrier = thread + " waits at __syncthreads";
        break;
      case State::kInWarp:
        if (in_warp.empty())
          in_warp = thread + " waits in " + current.warps[t / kWarpLanes].exchange;
        break;
    }
  }
  fail("deadlock" + left + at_barrier + in_warp);
}

void run_block() {
  current.at_barrier = 0;
  for (std::uint32_t t = 0; t < current.count; ++t) {
    current.states[t] = State::kReady;
    current.order[t] = turn_of(t);
    current.threads[t]->fiber.start(&thread_main);
  }
  for (std::uint32_t w = 0; w < current.warps.size(); ++w) {
    current.warps[w] = Warp{};
    current.warps[w].lanes = std::min(kWarpLanes, current.count - w * kWarpLanes);
  }
  for (bool moved = true; moved && current.error.empty();) {
    moved = false;
    for (std::uint32_t i = 0; i < current.count && current.error.empty(); ++i) {
      const std::uint32_t t = current.order[i];
      if (current.states[t] != State::kReady) continue;
      moved = true;
      current.running = t;
      Thread& thread = *current.threads[t];
      thread_index = thread.index;
      thread.fiber.resume();
    }
  }
  const auto left = [](State state) { return state == State::kLeft; };
  if (current.error.empty() && !std::ranges::all_of(current.states, left)) describe_deadlock();
}

void prepare(const Extent& block, std::size_t shared_bytes) {
  current.count = static_cast<std::uint32_t>(block.count());
  while (current.threads.size() < current.count) {
    current.threads.push_back(std::make_unique<Thread>());
  }
  current.states.resize(current.count);
  current.order.resize(current.count);
  for (std::uint32_t t = 0; t < current.count; ++t) {
    current.threads[t]->index = {t % block.x, t / block.x % block.y, t / block.x / block.y};
  }
  current.warps.resize((current.count + kWarpLanes - 1) / kWarpLanes);
  // The memory has exactly the requested size, so that AddressSanitizer detects reads beyond it.
  current.shared.reset(static_cast<std::byte*>(::operator new(shared_bytes, kSharedAlign)));
}

}  // namespace

std::string run_grid(Extent grid, Extent block, std::size_t shared_bytes,
                     const std::function<void()>& kernel) {
  const std::lock_guard lock(grid_mutex);
  if (grid.count() == 0 || grid.y > 65535 || grid.z > 65535) return "the grid has no such size";
  if (block.count() == 0 || block.count() > kBlockThreadsMax) return "a block has no such size";
  if (shared_bytes > kSharedBytesMax) return "a block has less shared memory";
  current.error.clear();
  current.kernel = &kernel;
  prepare(block, shared_bytes);
  grid_extent = grid;
  block_extent = block;
  for (std::uint64_t b = 0; b < grid.count() && current.error.empty(); ++b) {
    block_index = {static_cast<std::uint32_t>(b % grid.x),
                   static_cast<std::uint32_t>(b / grid.x % grid.y),
                   static_cast<std::uint32_t>(b / grid.x / grid.y)};
    std::memset(current.shared.get(), 0xff, shared_bytes);
    run_block();
    ++current.turn;
  }
  return current.error;
}

std::byte* shared_memory() { return current.shared.get(); }

std::uint32_t lane() { return current.running % kWarpLanes; }

void sync_block() {
  if (++current.at_barrier < current.count) return wait_as(State::kAtBarrier);
  current.at_barrier = 0;
  for (std::uint32_t t = 0; t < current.count; ++t) {
    if (current.states[t] == State::kAtBarrier) current.states[t] = State::kReady;
  }
  // The last thread to arrive yields to the others; otherwise it would always continue first.
  wait_as(State::kReady);
}

const std::uint64_t* exchange(const char* name, std::uint32_t mask, std::uint64_t word) {
  const std::uint32_t first = current.running / kWarpLanes * kWarpLanes, own = lane();
  Warp& warp = current.warps[first / kWarpLanes];
  if (warp.lanes != kWarpLanes || mask != 0xffffffffu) {
    fail(std::string(name) + " needs a whole warp");
    wait_as(State::kLeft);
  }
  if (warp.arrived > 0 && warp.exchange != name && std::strcmp(warp.exchange, name) != 0) {
    fail("lanes of a warp meet in " + std::string(warp.exchange) + " and " + name);
    wait_as(State::kLeft);
  }
  const std::uint32_t board = warp.board;
  warp.exchange = name;
  warp.words[board][own] = word;
  if (++warp.arrived < kWarpLanes) {
    wait_as(State::kInWarp);
    return warp.words[board];
  }
  warp.arrived = 0;
  warp.board = 1 - board;
  for (std::uint32_t t = first; t < first + kWarpLanes; ++t) {
    if (current.states[t] == State::kInWarp) current.states[t] = State::kReady;
  }
  return warp.words[board];
}

}  // namespace precis::cuda_emulator
