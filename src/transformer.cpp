// Gemma's layers over new rows of one frame or of many requests, in one call: prefill, velocity and decode step alike.
//
// A denoise or decode step multiplies few rows with every weight. A general matrix library reads those weights at half
// the memory's speed, and between its products a hundred small operations are dispatched. Here each weight is read
// once, in order, and what lies between the products stays in a cache.

#ifdef _OPENMP
#include <omp.h>
#endif

#include "products.hpp"
#include "scratch.hpp"

namespace GENERATION {
namespace {

constexpr long KEYS_AHEAD = 24;  // positions of the cache to fetch ahead

struct Layer {
  Matrix query, pairs, out, gate, up, down;
};

inline Layer layer_of(const OxygenTransformer& net, long layer) {
  const float* const* at = net.weights + 6 * layer;
  const long width = net.width, inner = net.heads * net.head_dim, mlp = net.mlp_dim;
  return {{at[0], width, inner}, {at[1], width, 2 * net.kv_heads * net.head_dim}, {at[2], inner, width},
          {at[3], width, mlp},   {at[4], width, mlp},                             {at[5], mlp, width}};
}

struct Modulation {
  const float *scale, *shift, *gate;  // of row 0; null where the norm has no weights
  long row;                           // floats from one row's to the next's, 0 where all have the same
};

inline Modulation modulation(const OxygenCall& call, long norm) {
  if (!call.modulation) return {};
  const float* first = call.modulation + norm * call.norm_stride;
  return {first, first + call.part_stride, first + 2 * call.part_stride, call.row_stride};
}

inline void normalize(const OxygenTransformer& net, const float* x, Modulation by, long rows, float* out) {
  const long width = net.width;
#pragma omp for schedule(static)
  for (long row = 0; row < rows; ++row) {
    const float* from = x + row * width;
    Vector squares = {};
    for (long i = 0; i < width; i += WIDTH) squares += load(from + i) * load(from + i);
    const float factor = 1.0f / __builtin_sqrtf(sum(squares) / width + net.eps);
    const float *scale = by.scale + row * by.row, *shift = by.shift + row * by.row;
    for (long i = 0; i < width; i += WIDTH) {
      const Vector normal = load(from + i) * factor;
      store(out + row * width + i, by.scale ? normal * load(scale + i) + load(shift + i) : normal);
    }
  }
}

// x += gate * (from w)
inline void add_linear(long rows, const float* from, Matrix w, Modulation by, float* x) {
  linear(rows, from, w, [&](long row, long column, Vector sums) {
    float* to = x + row * w.outputs + column;
    store(to, load(to) + (by.gate ? load(by.gate + row * by.row + column) * sums : sums));
  });
}

inline float rotated(const float* head, long i, long half, const float* cos, const float* sin) {
  return head[i] * cos[i] + head[i < half ? i + half : i - half] * sin[i];
}

// Keys and values of all rows to where their runs keep them. pairs [rows][keys, values][kv_heads][head_dim].
inline void keep(const OxygenTransformer& net, const OxygenCall& call, long layer, const float* pairs) {
  const long dim = net.head_dim, kv = net.kv_heads;
  for (long number = 0; number < call.count; ++number) {
    const OxygenRun& run = call.runs[number];
#pragma omp for schedule(static) nowait
    for (long offset = 0; offset < run.rows; ++offset) {
      const long row = run.first + offset;
      const float *from = pairs + row * 2 * kv * dim, *cos = call.cos + row * dim, *sin = call.sin + row * dim;
      for (long head = 0; head < kv; ++head, from += dim) {
        const long to = layer * run.own_layer_stride + head * run.own_head_stride + (run.at + offset) * dim;
        for (long i = 0; i < dim; ++i) run.own_keys[to + i] = rotated(from, i, dim / 2, cos, sin);
        for (long i = 0; i < dim; ++i) run.own_values[to + i] = from[kv * dim + i];
      }
    }
  }
}

// The rows of a layer in tiles of as many as their query heads fill; how many tiles. wanted: their numbers; null: all.
inline long split(const OxygenTransformer& net, const OxygenCall& call, const long* wanted, long rows,
                  OxygenTile* tiles) {
  const long most = LANES / (net.heads / net.kv_heads);
  long count = 0, run = 0;
  for (long at = 0; at < rows; ++at) {
    while ((wanted ? wanted[at] : at) >= call.runs[run].first + call.runs[run].rows) ++run;
    if (count && tiles[count - 1].run == run && tiles[count - 1].rows < most) {
      ++tiles[count - 1].rows;
    } else {
      tiles[count++] = {run, at, 1};
    }
  }
  return count;
}

// Queries, at their positions and scaled, to lanes [head_dim][LANES]; those without one get zeros.
inline void to_lanes(const float* query, long lane, const float* cos, const float* sin, long dim, float* lanes) {
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  for (long i = 0; i < dim; ++i) {
    lanes[i * LANES + lane] = query ? rotated(query, i, dim / 2, cos, sin) * scale : 0.0f;
  }
}

// Scores [..][LANES] become e to what they are below the highest of their lane; total [LANES]: the sums of that.
inline void soften(float* scores, const float* end, float* total) {
  for (long lane = 0; lane < LANES; lane += WIDTH) {
    Vector highest = splat(-__builtin_inff()), sums = {};
    for (float* at = scores + lane; at < end; at += LANES) highest = load(at) > highest ? load(at) : highest;
    for (float* at = scores + lane; at < end; at += LANES) {
      const Vector weight = exponential(load(at) - highest);
      sums += weight;
      store(at, weight);
    }
    store(total + lane, sums);
  }
}

// Calls use(lane, column, sums) for the values [seen, dim] weighted for each lane. weights [seen][LANES].
template <class Use>
inline void across(long lanes, const float* weights, const float* values, long dim, long seen, Use use) {
  long column = 0;
  const auto there = [&](long lane, long at, Vector sums) { use(lane, column + at, sums); };
  for (; column + PANEL <= dim; column += PANEL) {
    product<PANEL / WIDTH, true>(lanes, {weights, LANES}, values + column, dim, seen, nullptr, there);
  }
  for (; column < dim; column += LANES) {
    product<LANES / WIDTH, true>(lanes, {weights, LANES}, values + column, dim, seen, nullptr, there);
  }
}

// One tile's rows over all that each sees, for the query heads of one key head. queries, out [rows][heads][head_dim].
// scratch: LANES times head_dim and what the run sees.
inline void attend(const OxygenTransformer& net, const OxygenCall& call, long layer, const OxygenTile& tile,
                   long head, const long* wanted, const float* queries, float* out, float* scratch) {
  const long dim = net.head_dim, group = net.heads / net.kv_heads, heads = tile.rows * group;
  const OxygenRun& run = call.runs[tile.run];
  const auto row_of = [&](long at) { return wanted ? wanted[tile.first + at] : tile.first + at; };
  const auto sees = [&](long at) {  // of what it is appended to
    const long after = row_of(at) - run.first + 1;
    return run.at + (after > run.open ? after : run.open);
  };
  const long shared = layer * run.layer_stride + head * run.head_stride;
  const long own = layer * run.own_layer_stride + head * run.own_head_stride;
  const struct {
    const float *keys, *values;
    const unsigned char* valid;
    long seen;
  } parts[] = {{run.keys + shared, run.values + shared, run.valid, run.seen},
               {run.own_keys + own, run.own_values + own, run.own_valid, sees(tile.rows - 1)}};
  const long seen = parts[0].seen + parts[1].seen;

  const auto place = [&](long lane) {  // of its query head, in queries and out
    return ((tile.first + lane / group) * net.heads + head * group + lane % group) * dim;
  };
  for (long lane = 0; lane < LANES; ++lane) {
    const long row = lane < heads ? row_of(lane / group) : 0;
    const float* query = lane < heads ? queries + place(lane) : nullptr;
    to_lanes(query, lane, call.cos + row * dim, call.sin + row * dim, dim, scratch);
  }

  constexpr int VECTORS = LANES / WIDTH;
  float *const scores = scratch + dim * LANES, *end = scores;
  const bool alone = tile.rows == run.rows;  // nobody has just read the same keys
  for (const auto& part : parts) {
    const auto use = [&](long key, long lane, Vector score) {
      store(end + key * LANES + lane, part.valid && !part.valid[key] ? splat(-__builtin_inff()) : score);
      if (lane || !alone) return;
      for (long i = 0; i < dim; i += LANES) {
        __builtin_prefetch(part.keys + (key + KEYS_AHEAD) * dim + i);
        __builtin_prefetch(part.values + key * dim + i);
      }
    };
    product<VECTORS, false>(part.seen, {part.keys, dim}, scratch, LANES, dim, nullptr, use);
    end += part.seen * LANES;
  }
  for (long at = 0; at < tile.rows; ++at) {
    for (long key = parts[0].seen + sees(at); key < seen; ++key) {
      for (long i = 0; i < group; ++i) scores[key * LANES + at * group + i] = -__builtin_inff();
    }
  }

  float total[LANES];
  soften(scores, end, total);
  across(heads, scores, parts[0].values, dim, parts[0].seen,
         [&](long lane, long column, Vector sums) { store(out + place(lane) + column, sums); });
  across(heads, scores + parts[0].seen * LANES, parts[1].values, dim, parts[1].seen,
         [&](long lane, long column, Vector sums) {
           float* to = out + place(lane) + column;
           store(to, (load(to) + sums) / total[lane]);
         });
}

}  // namespace

extern const long panel_width;
const long panel_width = PANEL;

void transformer(const OxygenTransformer& net, const OxygenCall& call) {
  const long width = net.width, inner = net.heads * net.head_dim, mlp = net.mlp_dim;
  const long pair_width = 2 * net.kv_heads * net.head_dim;
  const OxygenScratch scratch = oxygen_scratch(net, call);
  float *normed = call.scratch + scratch.normed, *pairs = call.scratch + scratch.pairs;
  float *queries = call.scratch + scratch.queries, *attended = call.scratch + scratch.attended;
  float *wide = call.scratch + scratch.wide, *const x = call.x;
  auto* const all_tiles = reinterpret_cast<OxygenTile*>(call.scratch + scratch.tiles);
  auto* const last_tiles = reinterpret_cast<OxygenTile*>(call.scratch + scratch.last_tiles);
  const long count = split(net, call, nullptr, call.rows, all_tiles);
  const long last_count = split(net, call, call.wanted, call.wants, last_tiles);

#pragma omp parallel num_threads(call.threads) if (call.threads > 1)
  {
#ifdef _OPENMP
    float* room = call.scratch + scratch.each_thread + omp_get_thread_num() * scratch.thread_size;
#else
    float* room = call.scratch + scratch.each_thread;
#endif
    for (long number = 0; number < net.depth; ++number) {
      const Layer layer = layer_of(net, number);
      const Modulation before = modulation(call, 2 * number), between = modulation(call, 2 * number + 1);
      // Only keys and values of the last layer are needed of rows that nobody wants.
      const bool last = number == net.depth - 1;
      const long rows = last ? call.wants : call.rows;
      const long* wanted = last ? call.wanted : nullptr;
      const OxygenTile* tiles = last ? last_tiles : all_tiles;
      const long tasks = net.kv_heads * (last ? last_count : count);

      normalize(net, x, before, call.rows, normed);
      linear(call.rows, normed, layer.pairs,
             [&](long row, long column, Vector sums) { store(pairs + row * pair_width + column, sums); });
      keep(net, call, number, pairs);
      if (last) {
#pragma omp single
        for (long at = 0; at < rows; ++at) {
          __builtin_memmove(x + at * width, x + wanted[at] * width, width * sizeof(float));
          __builtin_memmove(normed + at * width, normed + wanted[at] * width, width * sizeof(float));
        }
      }
      linear(rows, normed, layer.query,
             [&](long row, long column, Vector sums) { store(queries + row * inner + column, sums); });
#pragma omp for schedule(static)
      for (long task = 0; task < tasks; ++task) {
        attend(net, call, number, tiles[task / net.kv_heads], task % net.kv_heads, wanted, queries, attended, room);
      }
      add_linear(rows, attended, layer.out, before, x);

      normalize(net, x, between, rows, normed);
      in_panels(rows, mlp, [&](long first, long some, long column) {
        float *const to = wide + first * mlp, *const from = normed + first * width;
        panel_product(some, from, layer.gate, column,
                      [&](long row, long at, Vector sums) { store(to + row * mlp + at, gelu(sums)); });
        panel_product(some, from, layer.up, column, [&](long row, long at, Vector sums) {
          store(to + row * mlp + at, load(to + row * mlp + at) * sums);
        });
      });
      add_linear(rows, wide, layer.down, between, x);
    }
    if (call.modulation) normalize(net, x, modulation(call, 2 * net.depth), call.wants, x);
  }
}

}  // namespace GENERATION
