// GELU over the wide rows of a prefill, read and written once: as single operations it is five ways through memory.

#include "lanes.hpp"

namespace GENERATION {
namespace {

// Calls compute(at) for whole vectors of a row, and for its rest on copies of LANES numbers.
template <class Compute>
inline void along(const float* gate, const float* up, float* out, long width, Compute compute) {
  long at = 0;
  for (; at + LANES <= width; at += LANES) store(out + at, compute(load(gate + at), load(up + at)));
  if (at == width) return;
  float rest[3][LANES] = {};
  for (long i = at; i < width; ++i) rest[0][i - at] = gate[i], rest[1][i - at] = up[i];
  store(rest[2], compute(load(rest[0]), load(rest[1])));
  for (long i = at; i < width; ++i) out[i] = rest[2][i - at];
}

}  // namespace

// x [rows, width], in place.
void gelu_rows(float* x, long rows, long width, long threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long row = 0; row < rows; ++row) {
    float* at = x + row * width;
    along(at, at, at, width, [](Lanes gate, Lanes) { return gelu(gate); });
  }
}

// gate_up [rows, 2 * width] -> out [rows, width]: gelu of the first half times the second.
void gated_gelu_rows(const float* gate_up, float* out, long rows, long width, long threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long row = 0; row < rows; ++row) {
    const float* gate = gate_up + row * 2 * width;
    along(gate, gate + width, out + row * width, width, [](Lanes gate, Lanes up) { return gelu(gate) * up; });
  }
}

}  // namespace GENERATION
