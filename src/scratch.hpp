// Where each buffer of a call begins. Static: an inline function could be the copy that was built for another
// instruction set.

#pragma once

#include "transformer.hpp"

// Rows of one run that are attended from together.
struct OxygenTile {
  long run, first, rows;
};

struct OxygenScratch {  // in floats
  long tiles, last_tiles, normed, pairs, queries, attended, wide, each_thread, thread_size, size;
};

static inline OxygenScratch oxygen_scratch(const OxygenTransformer& net, const OxygenCall& call) {
  const long inner = net.heads * net.head_dim, tile = sizeof(OxygenTile) / sizeof(float);
  long seen = 0;
  for (long run = 0; run < call.count; ++run) {
    const long here = call.runs[run].seen + call.runs[run].at + call.runs[run].rows;
    seen = here > seen ? here : seen;
  }
  OxygenScratch at{};
  at.last_tiles = at.tiles + call.rows * tile;
  at.normed = at.last_tiles + call.rows * tile;
  at.pairs = at.normed + call.rows * net.width;
  at.queries = at.pairs + call.rows * 2 * net.kv_heads * net.head_dim;
  at.attended = at.queries + call.rows * inner;
  at.wide = at.attended + call.rows * inner;
  at.each_thread = at.wide + call.rows * net.mlp_dim;
  at.thread_size = (net.head_dim + seen) * LANES;
  at.size = at.each_thread + call.threads * at.thread_size;
  return at;
}
