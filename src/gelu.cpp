// GELU over the wide rows of a picture's layers, read and written once: as single operations it is five ways through
// memory.

#include "vectors.hpp"

namespace GENERATION {

// x [rows, width], in place.
void gelu_rows(float* x, long rows, long width, long threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (long row = 0; row < rows; ++row) {
    float* const at = x + row * width;
    long i = 0;
    for (; i + WIDTH <= width; i += WIDTH) store(at + i, gelu(load(at + i)));
    if (i == width) continue;
    float rest[WIDTH] = {};
    __builtin_memcpy(rest, at + i, (width - i) * sizeof(float));
    store(rest, gelu(load(rest)));
    __builtin_memcpy(at + i, rest, (width - i) * sizeof(float));
  }
}

}  // namespace GENERATION
