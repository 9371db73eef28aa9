// The functions that Python calls, of the processor generation that it names: 0 is the best that this machine has.

#include "transformer.hpp"

namespace {
using Transformer = void(const OxygenTransformer&, const OxygenCall&);
using Denoise = void(const OxygenTransformer&, OxygenCall, const OxygenChunk&);
using Linear = void(const float*, long, long, const float*, long, float*, long);
using Gelu = void(float*, long, long, long);
}  // namespace

#define DECLARE(GENERATION)  \
  namespace GENERATION {     \
  Transformer transformer;   \
  Denoise denoise;           \
  Linear linear_rows;        \
  Gelu gelu_rows;            \
  extern const int panel;    \
  }

DECLARE(baseline)
#ifdef OXYGEN_X86
DECLARE(v3)
DECLARE(v4)
#endif

namespace {

struct Generation {
  const char* name;
  bool runs_here;
  const int& panel;
  Transformer* transformer;
  Denoise* denoise;
  Linear* linear;
  Gelu* gelu;
};

#ifdef OXYGEN_X86
const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
#endif

const Generation generations[] = {
#ifdef OXYGEN_X86
    {"AVX-512", avx512, v4::panel, v4::transformer, v4::denoise, v4::linear_rows, v4::gelu_rows},
    {"AVX2", avx2, v3::panel, v3::transformer, v3::denoise, v3::linear_rows, v3::gelu_rows},
#endif
    {"baseline", true, baseline::panel, baseline::transformer, baseline::denoise, baseline::linear_rows, baseline::gelu_rows},
};

// The index-th one of those that run here; null where there are not so many.
const Generation* runnable(long index) {
  for (const Generation& generation : generations) {
    if (generation.runs_here && index-- == 0) return &generation;
  }
  return nullptr;
}

}  // namespace

extern "C" {

const char* oxygen_generation(long index) {
  const Generation* generation = runnable(index);
  return generation ? generation->name : nullptr;
}

long oxygen_panel_width(long generation) { return runnable(generation)->panel; }

long oxygen_scratch_size(const OxygenTransformer* net, const OxygenCall* call) {
  return oxygen_scratch(*net, *call).size;
}

void oxygen_transformer(long generation, const OxygenTransformer* net, const OxygenCall* call) {
  runnable(generation)->transformer(*net, *call);
}

void oxygen_denoise(long generation, const OxygenTransformer* net, const OxygenCall* call, const OxygenChunk* chunk) {
  runnable(generation)->denoise(*net, *call, *chunk);
}

void oxygen_linear(long generation, const float* x, long rows, long depth, const float* panels, long outputs, float* out,
                   long threads) {
  runnable(generation)->linear(x, rows, depth, panels, outputs, out, threads);
}

void oxygen_gelu(long generation, float* x, long rows, long width, long threads) {
  runnable(generation)->gelu(x, rows, width, threads);
}
}
