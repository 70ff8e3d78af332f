// The acts of clients: calls whose results are compared with the model.
#pragma once

#include "tests/simulate/scene.h"

namespace precis::simulate {

class Acts : public Scene {
 protected:
  using Scene::Scene;

  // Changes of one path, by one client at a time: the others leave it alone meanwhile.
  // Puts the next segment, or a stored one once more.
  void put(Client& client, const Model& model, Path& path);
  void trim(Client& client, Path& path);
  void remove(Client& client, Path& path);
  // Puts a path that leaves this one inside a stored segment, so that the segment is split.
  void branch(Client& client, const Model& model, Path& path);
  // Moves the session to the last segment that is stored for certain; may pin it.
  void advance(Client& client, Path& path);
  // Begins a put and leaves it at some layer.
  void abandon(Client& client, const Model& model, Path& path);
  // Reads of any client at any time.
  void get(Client& client, const Model& model, Path& path);
  void list(Client& client, Path& path);

 private:
  void settle(Path& path, std::size_t n, Durability durability, const Span& since);
  void check_windows(const Path& path, const testing::PrefixCopy& prefix);
  void check_trims(const Path& path, const testing::PrefixCopy& prefix);
  void pin(Client& client, Path& path, const Span& since);
};

}  // namespace precis::simulate
