// The vectors of the processor generation that includes this (see CMakeLists.txt), and what is computed with them.
//
// All of it has internal linkage: a function that the linker could share would be the copy of any one generation.

#pragma once

#ifndef GENERATION
#define GENERATION baseline
#endif

namespace GENERATION {
namespace {

// Floats in a vector, and vectors that there is room for. A wider type than the processor's own would be taken apart
// by the compiler, through memory.
#if defined(__AVX512F__)
constexpr int WIDTH = 16, REGISTERS = 32;
#elif defined(__AVX__)
constexpr int WIDTH = 8, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int WIDTH = 4, REGISTERS = 32;
#else
constexpr int WIDTH = 4, REGISTERS = 16;
#endif

// Any address: memory of torch is aligned further, but a kernel that depends on it breaks far from the cause.
typedef float Vector __attribute__((vector_size(4 * WIDTH), aligned(4)));
typedef int Ints __attribute__((vector_size(4 * WIDTH), aligned(4)));

inline Vector load(const float* at) { return *reinterpret_cast<const Vector*>(at); }
inline void store(float* at, Vector value) { *reinterpret_cast<Vector*>(at) = value; }
// Minus: the compiler may not leave out plus 0, which makes a -0 a 0.
inline Vector splat(float value) { return value - Vector{}; }

inline float sum(Vector value) {
  float total = 0;
  for (int lane = 0; lane < WIDTH; ++lane) total += value[lane];
  return total;
}

// e^x to 2 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, and e^r by its Taylor series. Below -87 it is 0, above 88
// infinite; NaN stays.
inline Vector exponential(Vector x) {
  const Vector bounded = x < -87.0f ? splat(-87.0f) : x > 88.0f ? splat(88.0f) : x;
  const Vector magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
  const Vector shifted = bounded * 1.44269504f + magic;
  const Vector n = shifted - magic;
  const Vector r = (bounded - n * 0.693145752f) - n * 1.42860677e-6f;
  Vector series = splat(1.0f / 5040);
  series = series * r + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const Ints exponent = ((Ints)shifted - 0x4b400000 + 127) << 23;
  const Vector value = series * (Vector)exponent;
  return x < -87.0f ? splat(0.0f) : x > 88.0f ? splat(__builtin_inff()) : value;
}

// GELU by the tanh approximation, x sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3)).
inline Vector gelu(Vector x) {
  return x / (1.0f + exponential(x * (-1.59576912f - 0.0713548163f * x * x)));
}

}  // namespace
}  // namespace GENERATION
