// An executor of named threads (executor.h).
#pragma once

#include <memory>
#include <string>

#include "cachesvc/base/executor.h"

namespace precis {

class ThreadExecutor final : public Executor {
 public:
  // The threads' names begin with `name`.
  ThreadExecutor(std::string name, unsigned threads);
  ~ThreadExecutor() override;
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  void post(std::function<void()> fn) override;
  std::size_t queued() const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace precis
