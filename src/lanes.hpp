// Vectors of 16 numbers and what is computed with them, for the processor generation that includes this (see
// CMakeLists.txt).
//
// All of it has internal linkage: a function that the linker could share would be the copy of any one generation.

#pragma once

#ifndef GENERATION
#define GENERATION baseline
#endif

namespace GENERATION {
namespace {

constexpr int LANES = 16;

// Any address: memory of torch is aligned further, but a kernel that depends on it breaks far from the cause.
typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int Ints __attribute__((vector_size(4 * LANES), aligned(4)));

inline Lanes load(const float* at) { return *reinterpret_cast<const Lanes*>(at); }
inline void store(float* at, Lanes value) { *reinterpret_cast<Lanes*>(at) = value; }
inline Lanes splat(float value) { return Lanes{} + value; }

inline float sum(Lanes value) {
  float total = 0;
  for (int lane = 0; lane < LANES; ++lane) total += value[lane];
  return total;
}

// e^x to 2 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its Taylor series. Below -87 it is 0, above 88
// infinite; NaN stays.
inline Lanes exponential(Lanes x) {
  const Lanes bounded = x < -87.0f ? splat(-87.0f) : x > 88.0f ? splat(88.0f) : x;
  const Lanes magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const Lanes shifted = bounded * 1.44269504f + magic;
  const Lanes n = shifted - magic;
  const Lanes r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
  Lanes series = splat(1.0f / 5040);
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const Ints exponent = ((Ints)shifted - 0x4b400000 + 127) << 23;
  const Lanes value = series * (Lanes)exponent;
  return x < -87.0f ? splat(0.0f) : x > 88.0f ? splat(__builtin_inff()) : value;
}

// GELU by the tanh approximation, x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)).
inline Lanes gelu(Lanes x) {
  return x / (1.0f + exponential(x * (-1.59576912f - 0.0713548163f * x * x)));
}

}  // namespace
}  // namespace GENERATION
