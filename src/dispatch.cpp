// The functions that Python calls; each goes to what was built for the best processor generation that this machine has.

#include "action_expert.hpp"

namespace {
using Velocity = void(const OxygenExpert&, const OxygenVelocity&);
using Denoise = void(const OxygenExpert&, OxygenVelocity, const OxygenChunk&);
using Gelu = void(float*, long, long, long);
using GatedGelu = void(const float*, float*, long, long, long);
}  // namespace

#define DECLARE(GENERATION)  \
  namespace GENERATION {     \
  Velocity velocity;         \
  Denoise denoise;           \
  Gelu gelu_rows;            \
  GatedGelu gated_gelu_rows; \
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
  Velocity* velocity;
  Denoise* denoise;
  Gelu* gelu;
  GatedGelu* gated_gelu;
};

#ifdef OXYGEN_X86
const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
#endif

const Generation generations[] = {
#ifdef OXYGEN_X86
    {"AVX-512", avx512, v4::velocity, v4::denoise, v4::gelu_rows, v4::gated_gelu_rows},
    {"AVX2", avx2, v3::velocity, v3::denoise, v3::gelu_rows, v3::gated_gelu_rows},
#endif
    {"baseline", true, baseline::velocity, baseline::denoise, baseline::gelu_rows, baseline::gated_gelu_rows},
};
constexpr int COUNT = sizeof(generations) / sizeof(*generations);

// The index of the best one from `first` on; COUNT where there is none.
int next(int first) {
  while (first < COUNT && !generations[first].runs_here) ++first;
  return first;
}

int chosen = next(0);

}  // namespace

extern "C" {

// The name of the index-th one, the best first, of those that run here; null after the last.
const char* oxygen_generation(int index) {
  int at = next(0);
  while (index-- > 0 && at < COUNT) at = next(at + 1);
  return at < COUNT ? generations[at].name : nullptr;
}

// Take the index-th one from now on.
void oxygen_use(int index) {
  int at = next(0);
  while (index-- > 0) at = next(at + 1);
  if (at < COUNT) chosen = at;
}

long oxygen_scratch_size(const OxygenExpert* expert, long horizon, long seen, long threads) {
  return oxygen_scratch(*expert, horizon, seen, threads).size;
}

void oxygen_gelu(float* x, long rows, long width, long threads) { generations[chosen].gelu(x, rows, width, threads); }

void oxygen_gated_gelu(const float* gate_up, float* out, long rows, long width, long threads) {
  generations[chosen].gated_gelu(gate_up, out, rows, width, threads);
}

void oxygen_velocity(const OxygenExpert* expert, const OxygenVelocity* call) {
  generations[chosen].velocity(*expert, *call);
}

void oxygen_denoise(const OxygenExpert* expert, const OxygenVelocity* call, const OxygenChunk* chunk) {
  generations[chosen].denoise(*expert, *call, *chunk);
}
}
