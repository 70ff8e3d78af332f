#include "kernels/score/probe/probe.h"

#include <complex>

#include "kernels/score/keys/key_scores_op.h"
#include "precis/profile.h"

namespace precis::kernels {
namespace {

// As Transformers' rotate_half (unrotation.h).
void turn(std::span<const double> frequencies, double position, std::span<float> channels) {
  const std::size_t pairs = frequencies.size();
  for (std::size_t c = 0; c < pairs; ++c) {
    const auto turned = std::complex<double>(channels[c], channels[c + pairs]) *
                        std::polar(1.0, position * frequencies[c]);
    channels[c] = static_cast<float>(turned.real());
    channels[c + pairs] = static_cast<float>(turned.imag());
  }
}

void make_unit(std::span<float> channels) {
  double square = 0;
  for (const float x : channels) square += double{x} * x;
  const double norm = std::max(double{kNormMin}, std::sqrt(square));
  for (float& x : channels) x = static_cast<float>(x / norm);
}

}  // namespace

std::vector<float> turned_probe(const LayerInput& input) {
  const ProbeRows rows{input.keys.head_dim};
  std::vector<float> probe(input.probe.begin(), input.probe.end());
  for (std::uint32_t head = 0; head < input.num_kv_heads(); ++head) {
    const auto of_head = std::span(probe).subspan(std::size_t{head} * rows.count(), rows.count());
    const auto anchor = of_head.subspan(rows.anchor(), rows.head_dim);
    make_unit(anchor);
    turn(input.rope_frequencies, input.begin, anchor);
    turn(input.rope_frequencies, input.begin, of_head.subspan(rows.key(), rows.head_dim));
  }
  return probe;
}

}  // namespace precis::kernels
