// All Euler steps from noise at flow time 1 to actions at 0, in one call.

#include "products.hpp"

namespace GENERATION {

void transformer(const OxygenTransformer& net, const OxygenCall& call);

void denoise(const OxygenTransformer& net, OxygenCall call, const OxygenChunk& chunk) {
  const long width = net.width, actions = chunk.action_dim;
  const float length = -1.0f / chunk.steps;
  for (long step = 0; step < chunk.steps; ++step, call.modulation += chunk.step_stride) {
    // The projections are so small that a team of threads would take longer to call together.
    linear(call.rows, chunk.actions, {chunk.in_panels, actions, width}, [&](long row, long column, Vector sums) {
      store(call.x + row * width + column, sums + load(chunk.in_bias + column));
    });
    transformer(net, call);
    linear(call.rows, call.x, {chunk.out_panels, width, actions}, [&](long row, long column, Vector sums) {
      float* to = chunk.actions + row * actions + column;
      store(to, load(to) + length * (sums + load(chunk.out_bias + column)));
    });
  }
}

}  // namespace GENERATION
