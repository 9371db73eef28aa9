// What oxygen_ros/pi05/kernels.py hands over. All numbers are float32; strides count floats.

#pragma once

static constexpr long LANES = 16;  // what all widths are multiples of

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
  const long* wanted;  // row numbers, ascending; all of them where there is a modulation
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
  const float *in_panels, *in_bias, *out_panels, *out_bias;  // the two projections
};
