// What oxygen_ros/pi05/compiled_expert.py hands over. All numbers are float32; strides count floats.

#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

extern "C" {

struct OxygenExpert {
  long depth, width, heads, kv_heads, head_dim, mlp_dim;
  float eps;
  // Per layer: query-key-value, out, gate-up, down; each in panels [outputs / 16][inputs][16].
  const float* const* weights;
};

struct OxygenVelocity {
  long horizon, seen;           // rows of the chunk; positions of the cache that it sees, its own included
  float* x;                     // [horizon, width]: embedded actions in, normalised stream out
  const float* modulation;      // [2 * depth + 1 norms][scale + 1, shift, gate][horizon or 1][width]
  long norm_stride, part_stride, row_stride;
  const float *cos, *sin;       // [horizon, head_dim], the sine's first half negated
  float *const *keys, *const *values;  // per layer [kv_heads, seen, head_dim]; the first `horizon` rows are written
  long head_stride;
  const unsigned char* valid;   // [seen]: 0 where a position is hidden; null: all are visible
  float* scratch;               // as many floats as oxygen_scratch_size says
  long threads;
};

struct OxygenChunk {
  long steps, action_dim;
  float* actions;      // [horizon, action_dim]: noise in, actions out
  long step_stride;    // from one step's modulation to the next's
  const float *in, *in_bias, *out, *out_bias;  // the two projections, in panels as `weights`
};
}

// Static, all of it: an inline function could be the copy that was built for another instruction set.
struct OxygenScratch {
  long normed, wide, queries, attended, scores, size;
};

static inline long oxygen_panels(long rows) { return (rows + 15) / 16; }

static inline long oxygen_thread() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

// Where each buffer begins.
static inline OxygenScratch oxygen_scratch(const OxygenExpert& expert, long horizon, long seen, long threads) {
  const long inner = expert.heads * expert.head_dim, qkv = inner + 2 * expert.kv_heads * expert.head_dim;
  const long group = expert.heads / expert.kv_heads;
  OxygenScratch at{};
  at.wide = at.normed + horizon * expert.width;
  at.queries = at.wide + horizon * (qkv > expert.mlp_dim ? qkv : expert.mlp_dim);
  at.attended = at.queries + expert.kv_heads * oxygen_panels(horizon * group) * expert.head_dim * 16;
  at.scores = at.attended + horizon * inner;
  at.size = at.scores + threads * seen * 16;
  return at;
}
