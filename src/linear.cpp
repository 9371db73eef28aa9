// The language head: x [rows, depth] times a matrix in panels -> out [rows, outputs].

#include "products.hpp"

namespace GENERATION {

void linear_rows(const float* x, long rows, long depth, const float* panels, long outputs, float* out, long threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
  linear(rows, x, {panels, depth, outputs},
         [&](long row, long column, Vector sums) { store(out + row * outputs + column, sums); });
}

}  // namespace GENERATION
