// The functions that Python calls, of the processor generation that it names: 0 is the best that this machine has.

#include "resize.hpp"
#include "scratch.hpp"

namespace {
using Transformer = void(const OxygenTransformer&, const OxygenCall&);
using Denoise = void(const OxygenTransformer&, OxygenCall, const OxygenChunk&);
using Linear = void(const float*, long, long, const float*, long, float*, long);
using Gelu = void(float*, long, long, long);
using Resize = bool(const OxygenPicture&, const OxygenWeights&, const OxygenWeights&, unsigned char*, long);
}  // namespace

#define DECLARE(GENERATION)        \
  namespace GENERATION {           \
  extern const long panel_width;   \
  Transformer transformer;         \
  Denoise denoise;                 \
  Linear linear_rows;              \
  Gelu gelu_rows;                  \
  Resize resize;                   \
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
  const long& panel_width;
  Transformer* transformer;
  Denoise* denoise;
  Linear* linear;
  Gelu* gelu;
  Resize* resize;
};

#ifdef OXYGEN_X86
const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
#endif

#define ROW(NAME, RUNS_HERE, GENERATION)                                                                   \
  {                                                                                                        \
    NAME, RUNS_HERE, GENERATION::panel_width, GENERATION::transformer, GENERATION::denoise,                \
        GENERATION::linear_rows, GENERATION::gelu_rows, GENERATION::resize                                 \
  }

const Generation generations[] = {
#ifdef OXYGEN_X86
    ROW("AVX-512", avx512, v4),
    ROW("AVX2", avx2, v3),
#endif
    ROW("baseline", true, baseline),
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

long oxygen_panel_width(long generation) { return runnable(generation)->panel_width; }

long oxygen_scratch_size(const OxygenTransformer* net, const OxygenCall* call) {
  return oxygen_scratch(*net, *call).size;
}

void oxygen_transformer(long generation, const OxygenTransformer* net, const OxygenCall* call) {
  runnable(generation)->transformer(*net, *call);
}

void oxygen_denoise(long generation, const OxygenTransformer* net, const OxygenCall* call, const OxygenChunk* chunk) {
  runnable(generation)->denoise(*net, *call, *chunk);
}

void oxygen_linear(long generation, const float* x, long rows, long depth, const float* panels, long outputs,
                   float* out, long threads) {
  runnable(generation)->linear(x, rows, depth, panels, outputs, out, threads);
}

void oxygen_gelu(long generation, float* x, long rows, long width, long threads) {
  runnable(generation)->gelu(x, rows, width, threads);
}

bool oxygen_resize(long generation, const OxygenPicture* picture, const OxygenWeights* rows,
                   const OxygenWeights* columns, unsigned char* out, long out_stride) {
  return runnable(generation)->resize(*picture, *rows, *columns, out, out_stride);
}
}
