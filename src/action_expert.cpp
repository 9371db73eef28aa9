// The action expert over the few rows of a chunk: one velocity, or all Euler steps from noise to actions, in one call.
//
// A denoise step multiplies ten to fifty rows with every weight of the expert. A general matrix library reads those
// weights at half the memory's speed, and between its products a hundred small operations are dispatched. Here each
// weight is read once, in order, and what lies between the products stays in cache.

#include "action_expert.hpp"
#include "lanes.hpp"

namespace GENERATION {
namespace {

static_assert(LANES == 16, "what action_expert.hpp and compiled_expert.py lay panels out for");

// As many rows as their sums stay in registers beside the weight.
#ifdef __AVX512F__
constexpr int MOST_ROWS = 12;
#else
constexpr int MOST_ROWS = 6;
#endif

// How many rows of a panel are fetched ahead: half a page, so that the next page is asked for before the last line of
// this one.
constexpr int AHEAD = 32;

struct Rows {  // x(row, k): row-major, or with the rows side by side
  const float* data;
  long stride;
};

// sums[m] = x(m, :) w, w being `depth` rows of LANES that lie `step` apart.
template <int M, bool BESIDE>
inline void multiply(Rows x, const float* w, long step, long depth, Lanes* sums) {
  Lanes total[M] = {};
  for (long k = 0; k < depth; ++k, w += step) {
    __builtin_prefetch(w + AHEAD * LANES);
    const Lanes weight = load(w);
    for (int m = 0; m < M; ++m) total[m] += weight * x.data[BESIDE ? k * x.stride + m : m * x.stride + k];
  }
  for (int m = 0; m < M; ++m) sums[m] = total[m];
}

template <bool BESIDE, int M = MOST_ROWS>
inline void multiply(int rows, Rows x, const float* w, long step, long depth, Lanes* sums) {
  if (rows == M) {
    multiply<M, BESIDE>(x, w, step, depth, sums);
  } else if constexpr (M > 1) {
    multiply<BESIDE, M - 1>(rows, x, w, step, depth, sums);
  }
}

// Calls use(row, sums) for each row of x w.
template <bool BESIDE, class Use>
inline void product(long rows, Rows x, const float* w, long step, long depth, Use use) {
  const long blocks = (rows + MOST_ROWS - 1) / MOST_ROWS;
  for (long block = 0; block < blocks; ++block) {
    const long first = rows * block / blocks, count = rows * (block + 1) / blocks - first;
    Lanes sums[MOST_ROWS] = {};
    const Rows from = {x.data + first * (BESIDE ? 1 : x.stride), x.stride};
    multiply<BESIDE>(static_cast<int>(count), from, w, step, depth, sums);
    for (long m = 0; m < count; ++m) use(first + m, sums[m]);
  }
}

// Panels of LANES outputs, each [depth][LANES]. Called by all threads of a team; waits for all.
template <class Use>
inline void linear(long rows, const float* x, long depth, const float* panels, long outputs, Use use) {
#pragma omp for schedule(static)
  for (long panel = 0; panel < outputs / LANES; ++panel) {
    product<false>(rows, {x, depth}, panels + panel * depth * LANES, LANES, depth,
                   [&](long row, Lanes sums) { use(row, panel * LANES, sums); });
  }
}

struct Modulation {
  const float *scale, *shift, *gate;  // of row 0
  long row;                           // floats from one row's to the next's, 0 where all have the same
};

inline Modulation modulation(const OxygenVelocity& call, long norm) {
  const float* first = call.modulation + norm * call.norm_stride;
  return {first, first + call.part_stride, first + 2 * call.part_stride, call.row_stride};
}

inline void normalize(const OxygenExpert& expert, const float* x, Modulation by, long rows, float* out) {
  const long width = expert.width;
#pragma omp for schedule(static)
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    Lanes squares = {};
    for (long i = 0; i < width; i += LANES) squares += load(from + i) * load(from + i);
    const float factor = 1.0f / __builtin_sqrtf(sum(squares) / width + expert.eps);
    const float *scale = by.scale + row * by.row, *shift = by.shift + row * by.row;
    for (long i = 0; i < width; i += LANES) {
      store(out + row * width + i, load(from + i) * factor * load(scale + i) + load(shift + i));
    }
  }
}

inline float rotated(const float* head, long i, long half, const float* cos, const float* sin) {
  return head[i] * cos[i] + head[i < half ? i + half : i - half] * sin[i];
}

// Keys and values go to the suffix of the frame's cache; queries, scaled, to panels: per key head
// [horizon * heads that share it / LANES, rounded up][head_dim][LANES].
inline void place(const OxygenExpert& expert, const OxygenVelocity& call, long layer, const float* qkv,
                  float* queries) {
  const long dim = expert.head_dim, half = dim / 2, heads = expert.heads, kv = expert.kv_heads, group = heads / kv;
  const long panels = oxygen_panels(call.horizon * group);
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
#pragma omp for schedule(static)
  for (long row = 0; row < call.horizon; ++row) {
    const float *from = qkv + row * (heads + 2 * kv) * dim, *cos = call.cos + row * dim, *sin = call.sin + row * dim;
    for (long head = 0; head < heads; ++head) {
      const long at = row * group + head % group;
      float* to = queries + ((head / group * panels + at / LANES) * dim) * LANES + at % LANES;
      for (long i = 0; i < dim; ++i) to[i * LANES] = rotated(from + head * dim, i, half, cos, sin) * scale;
    }
    for (long head = 0; head < kv; ++head) {
      float* key = call.keys[layer] + head * call.head_stride + row * dim;
      float* value = call.values[layer] + head * call.head_stride + row * dim;
      for (long i = 0; i < dim; ++i) key[i] = rotated(from + (heads + head) * dim, i, half, cos, sin);
      for (long i = 0; i < dim; ++i) value[i] = from[(heads + kv + head) * dim + i];
    }
  }
}

// One panel of queries over all that is visible; out [horizon, heads * head_dim]. scores: room for seen * LANES.
inline void attend(const OxygenExpert& expert, const OxygenVelocity& call, long layer, long head, long panel,
                   const float* queries, float* scores, float* out) {
  const long dim = expert.head_dim, group = expert.heads / expert.kv_heads, seen = call.seen;
  const float* keys = call.keys[layer] + head * call.head_stride;
  const float* values = call.values[layer] + head * call.head_stride;
  Lanes highest = splat(-__builtin_inff());
  product<false>(seen, {keys, dim}, queries, LANES, dim, [&](long key, Lanes score) {
    if (call.valid && !call.valid[key]) score = splat(-__builtin_inff());
    highest = score > highest ? score : highest;
    store(scores + key * LANES, score);
  });
  Lanes total = {};
  for (long key = 0; key < seen; ++key) {
    const Lanes weight = exponential(load(scores + key * LANES) - highest);
    total += weight;
    store(scores + key * LANES, weight);
  }
  const long first = panel * LANES, rows = call.horizon * group - first < LANES ? call.horizon * group - first : LANES;
  for (long column = 0; column < dim; column += LANES) {
    product<true>(rows, {scores, LANES}, values + column, dim, seen, [&](long row, Lanes sums) {
      const long at = first + row, action = at / group, query_head = head * group + at % group;
      store(out + (action * expert.heads + query_head) * dim + column, sums / total[row]);
    });
  }
}

}  // namespace

void velocity(const OxygenExpert& expert, const OxygenVelocity& call) {
  const long horizon = call.horizon, width = expert.width, inner = expert.heads * expert.head_dim, mlp = expert.mlp_dim;
  const long qkv_width = inner + 2 * expert.kv_heads * expert.head_dim;
  const long panels = oxygen_panels(horizon * (expert.heads / expert.kv_heads));
  const OxygenScratch scratch = oxygen_scratch(expert, horizon, call.seen, call.threads);
  float *normed = call.scratch + scratch.normed, *wide = call.scratch + scratch.wide;
  float *queries = call.scratch + scratch.queries, *attended = call.scratch + scratch.attended;
  float* const x = call.x;

#pragma omp parallel num_threads(call.threads) if (call.threads > 1)
  {
    float* scores = call.scratch + scratch.scores + oxygen_thread() * call.seen * LANES;
    for (long layer = 0; layer < expert.depth; ++layer) {
      const float* const* weights = expert.weights + 4 * layer;
      const Modulation before = modulation(call, 2 * layer), between = modulation(call, 2 * layer + 1);

      normalize(expert, x, before, horizon, normed);
      linear(horizon, normed, width, weights[0], qkv_width,
             [&](long row, long column, Lanes sums) { store(wide + row * qkv_width + column, sums); });
      place(expert, call, layer, wide, queries);
#pragma omp for schedule(static)
      for (long task = 0; task < expert.kv_heads * panels; ++task) {
        attend(expert, call, layer, task / panels, task % panels, queries + task * expert.head_dim * LANES, scores,
               attended);
      }
      linear(horizon, attended, inner, weights[1], width, [&](long row, long column, Lanes sums) {
        float* to = x + row * width + column;
        store(to, load(to) + load(before.gate + row * before.row + column) * sums);
      });

      normalize(expert, x, between, horizon, normed);
#pragma omp for schedule(static)
      for (long column = 0; column < mlp; column += LANES) {
        const float *gate = weights[2] + column * width, *up = weights[2] + (mlp + column) * width;
        product<false>(horizon, {normed, width}, gate, LANES, width,
                       [&](long row, Lanes sums) { store(wide + row * mlp + column, gelu(sums)); });
        product<false>(horizon, {normed, width}, up, LANES, width, [&](long row, Lanes sums) {
          float* to = wide + row * mlp + column;
          store(to, load(to) * sums);
        });
      }
      linear(horizon, wide, mlp, weights[3], width, [&](long row, long column, Lanes sums) {
        float* to = x + row * width + column;
        store(to, load(to) + load(between.gate + row * between.row + column) * sums);
      });
    }
    normalize(expert, x, modulation(call, 2 * expert.depth), horizon, x);
  }
}

// Euler steps from noise at flow time 1 to actions at 0.
void denoise(const OxygenExpert& expert, OxygenVelocity call, const OxygenChunk& chunk) {
  const long width = expert.width, actions = chunk.action_dim;
  const float length = -1.0f / chunk.steps;
  for (long step = 0; step < chunk.steps; ++step, call.modulation += chunk.step_stride) {
    linear(call.horizon, chunk.actions, actions, chunk.in, width, [&](long row, long column, Lanes sums) {
      store(call.x + row * width + column, sums + load(chunk.in_bias + column));
    });
    velocity(expert, call);
    linear(call.horizon, call.x, width, chunk.out, actions, [&](long row, long column, Lanes sums) {
      float* to = chunk.actions + row * actions + column;
      store(to, load(to) + length * (sums + load(chunk.out_bias + column)));
    });
  }
}

}  // namespace GENERATION
