// What oxygen_ros/pi05/kernels.py hands over. All numbers are float32; strides count floats.

#pragma once

#ifdef _OPENMP
#include <omp.h>
#endif

extern "C" {

struct OxygenTransformer {
  long depth, width, heads, kv_heads, head_dim, mlp_dim;
  float eps;
  // Per layer: query, key-value, out, gate, up, down; each in panels [outputs / P, rounded up][inputs][P], P being
  // oxygen_panel_width.
  const float* const* weights;
};

// Consecutive rows of x that belong together. They see what others keep, and what they are appended to: of the latter
// each row sees all up to itself, and those before `open` see each other.
struct OxygenRun {
  long first, rows;
  const float *keys, *values;  // [layers] of [kv_heads, seen, head_dim]
  const unsigned char* valid;  // [seen]: 0 where a position is hidden; null: all are visible
  long seen, layer_stride, head_stride;
  float *own_keys, *own_values;  // [layers] of [kv_heads, at + rows, head_dim]; the rows are written from `at` on
  const unsigned char* own_valid;
  long at, open, own_layer_stride, own_head_stride;
};

struct OxygenCall {
  long rows;
  float* x;  // [rows, width]: in; the wanted rows of the stream out, [wants, width]
  const float *cos, *sin;  // [rows, head_dim], the sine's first half negated
  long count;
  const OxygenRun* runs;
  long wants;  // 0: only keys and values
  const long* wanted;  // row numbers, ascending
  // Adaptive norms: [2 * depth + 1 norms][scale + 1, shift, gate][rows or 1][width]; null: norms without weights, and
  // none at the end.
  const float* modulation;
  long norm_stride, part_stride, row_stride;
  float* scratch;  // as many floats as oxygen_scratch_size says
  long threads;
};

struct OxygenChunk {
  long steps, action_dim;
  float* actions;      // [rows, action_dim]: noise in, actions out
  long step_stride;    // from one step's modulation to the next's
  const float *in, *in_bias, *out, *out_bias;  // the two projections, in panels as `weights`
};
}

// Rows of one run whose queries are attended with together.
struct OxygenPanel {
  long run, first, rows;
};

// Where each buffer begins, in floats. Static, as all here: an inline function could be the copy that was built for
// another instruction set.
struct OxygenScratch {
  long normed, pairs, queries, attended, wide, panels, last_panels, each_thread, thread_size, size;
};

static inline OxygenScratch oxygen_scratch(const OxygenTransformer& net, const OxygenCall& call) {
  const long inner = net.heads * net.head_dim, panel = sizeof(OxygenPanel) / sizeof(float);
  long seen = 0;
  for (long run = 0; run < call.count; ++run) {
    const long here = call.runs[run].seen + call.runs[run].at + call.runs[run].rows;
    seen = here > seen ? here : seen;
  }
  OxygenScratch at{};
  at.panels = 0;
  at.last_panels = at.panels + call.rows * panel;
  at.normed = at.last_panels + call.rows * panel;
  at.pairs = at.normed + call.rows * net.width;
  at.queries = at.pairs + call.rows * 2 * net.kv_heads * net.head_dim;
  at.attended = at.queries + call.rows * inner;
  at.wide = at.attended + call.rows * inner;
  at.each_thread = at.wide + call.rows * net.mlp_dim;
  at.thread_size = (net.head_dim + seen) * 16;
  at.size = at.each_thread + call.threads * at.thread_size;
  return at;
}
