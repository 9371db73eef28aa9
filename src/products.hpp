// A few rows, or some hundred, times matrices that are read once, in order.
//
// Each sum runs over its depth from first to last, whatever is computed beside it: a row's numbers depend neither on
// how many rows there are, nor on the threads.

#pragma once

#include "transformer.hpp"
#include "vectors.hpp"

namespace GENERATION {
namespace {

// Columns of a matrix that lie side by side in memory, and are multiplied at once.
constexpr long PANEL = WIDTH == 16 ? 2 * LANES : LANES;

// Floats to fetch ahead: half a page, so that the next page is asked for before the last line of this one.
constexpr int AHEAD = 512;

// Rows that share a pass over a panel, so that their inputs stay in a cache beside it.
constexpr long CHUNK = 96;

struct Rows {  // x(row, k): row-major, or with the rows side by side
  const float* data;
  long stride;
};

// As many rows as their sums stay in registers beside V vectors of a matrix.
template <int V>
constexpr int most_rows() {
  constexpr int sums = REGISTERS == 32 ? 24 : 12;
  return sums / V < 12 ? sums / V : 12;
}

// What is asked of memory meanwhile: from `at` on, `pace` floats further with every row of the matrix.
struct Ahead {
  const float* at;
  long pace;
};

// sums[m][v] = x(m, :) w, w being `depth` rows of V vectors that lie `step` apart.
template <int V, bool BESIDE, int M>
inline void multiply_rows(Rows x, const float* w, long step, long depth, Ahead ahead, Vector (*sums)[V]) {
  Vector total[M][V] = {};
  for (long k = 0; k < depth; ++k, w += step, ahead.at += ahead.pace) {
    for (int v = 0; v < V; v += LANES / WIDTH) __builtin_prefetch(ahead.at + v * WIDTH);
    Vector weight[V];
    for (int v = 0; v < V; ++v) weight[v] = load(w + v * WIDTH);
    for (int m = 0; m < M; ++m) {
      const float factor = x.data[BESIDE ? k * x.stride + m : m * x.stride + k];
      for (int v = 0; v < V; ++v) total[m][v] += factor * weight[v];
    }
  }
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < V; ++v) sums[m][v] = total[m][v];
  }
}

template <int V, bool BESIDE, int M = most_rows<V>()>
inline void multiply(long rows, Rows x, const float* w, long step, long depth, Ahead ahead, Vector (*sums)[V]) {
  if (rows == M) {
    multiply_rows<V, BESIDE, M>(x, w, step, depth, ahead, sums);
  } else if constexpr (M > 1) {
    multiply<V, BESIDE, M - 1>(rows, x, w, step, depth, ahead, sums);
  }
}

// Calls use(row, column, sums) for each row of x and each vector of w's V. next: what follows w, as large as it; it is
// fetched during all passes over w, or else arithmetic would wait for memory in the first and leave it idle later.
template <int V, bool BESIDE, class Use>
inline void product(long rows, Rows x, const float* w, long step, long depth, const float* next, Use use) {
  constexpr int MOST = most_rows<V>();
  const long blocks = (rows + MOST - 1) / MOST;
  for (long block = 0; block < blocks; ++block) {
    const long first = rows * block / blocks, count = rows * (block + 1) / blocks - first;
    const Ahead ahead = next && blocks > 1 ? Ahead{next + depth * step * block / blocks, step / blocks}
                                           : Ahead{w + AHEAD, step};
    Vector sums[MOST][V] = {};
    const Rows from = {x.data + first * (BESIDE ? 1 : x.stride), x.stride};
    multiply<V, BESIDE>(count, from, w, step, depth, ahead, sums);
    for (long m = 0; m < count; ++m) {
      for (int v = 0; v < V; ++v) use(first + m, v * WIDTH, sums[m][v]);
    }
  }
}

// A matrix [depth, outputs] in panels [outputs / PANEL, rounded up][depth][PANEL], the last one filled up with zeros.
struct Matrix {
  const float* panels;
  long depth, outputs;
};

// Calls use(row, column, sums) for the columns of the panel that begins with `column`. x [rows, depth].
template <class Use>
inline void panel_product(long rows, const float* x, Matrix w, long column, Use use) {
  const float* panel = w.panels + column * w.depth;
  product<PANEL / WIDTH, false>(rows, {x, w.depth}, panel, PANEL, w.depth, panel + PANEL * w.depth,
                                [&](long row, long lane, Vector sums) {
                                  if (column + lane < w.outputs) use(row, column + lane, sums);
                                });
}

// Calls work(first row, rows, first column) for every panel and chunk of rows. Called by all threads of a team, for
// which it waits, or by a thread alone.
template <class Work>
inline void in_panels(long rows, long outputs, Work work) {
  const long chunks = (rows + CHUNK - 1) / CHUNK, tasks = (outputs + PANEL - 1) / PANEL * chunks;
#pragma omp for schedule(static)
  for (long task = 0; task < tasks; ++task) {
    const long first = task % chunks * CHUNK;
    work(first, rows - first < CHUNK ? rows - first : CHUNK, task / chunks * PANEL);
  }
}

// Calls use(row, column, sums) for all of x [rows, depth] w, as `in_panels`.
template <class Use>
inline void linear(long rows, const float* x, Matrix w, Use use) {
  in_panels(rows, w.outputs, [&](long first, long count, long column) {
    panel_product(count, x + first * w.depth, w, column,
                  [&](long row, long at, Vector sums) { use(first + row, at, sums); });
  });
}

}  // namespace
}  // namespace GENERATION
