#include "tests/bench/service/bare.h"

#include "tests/bench/all_at_once.h"

namespace precis::bench {

Result<std::unique_ptr<Bare>> Bare::make(const std::string& transport, const ModelSpec& model,
                                         const Payload& payload, TransportCeiling& ceiling) {
  std::unique_ptr<Bare> made(new Bare(model, payload, transport == "tcp" ? &ceiling : nullptr));
  PRECIS_ASSIGN(made->stages_, StagesAlone::make(model, payload, keep_everything()));
  return made;
}

template <typename Work>
Result<double> Bare::beside_socket(const Work& work) {
  Status moved, worked;
  const double seconds = all_at_once(2, [&](std::size_t i) {
    if (i == 0) {
      moved = socket_->rate(1).status();
    } else {
      worked = work();
    }
  });
  PRECIS_TRY(moved);
  PRECIS_TRY(worked);
  return static_cast<double>(gets_.bytes()) * 1e-9 / seconds;
}

Result<double> Bare::put_rate() {
  if (socket_ == nullptr) return stages_->rate();
  return beside_socket([&] { return stages_->rate().status(); });
}

Result<double> Bare::get_rate() {
  if (socket_ == nullptr) return gets_.rate();
  return beside_socket([&] { return gets_.check(); });
}

}  // namespace precis::bench
