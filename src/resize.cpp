// A picture scaled in whole numbers as Pillow does it: along its rows, then along its columns, with weights that add up
// to 2^22 and a rounding to bytes after each.

#include "resize.hpp"

#include <cstdint>
#include <cstdlib>

#include "vectors.hpp"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "red is to be a pixel's lowest byte");

namespace GENERATION {
namespace {

typedef std::uint32_t Pixel;  // red lowest, then green and blue; the highest byte means nothing

inline Ints load(const Pixel* at) { return *reinterpret_cast<const Ints*>(at); }

// WIDTH pixels, each the weighed sum of others.
class Sum {
 public:
  void add(Ints pixels, int weight) {
    red_ += (pixels & 255) * weight;
    green_ += (pixels >> 8 & 255) * weight;
    blue_ += (pixels >> 16 & 255) * weight;
  }
  Ints rounded() const { return byte(red_) | byte(green_) << 8 | byte(blue_) << 16; }

 private:
  static constexpr int BITS = 22, LIMIT = (256 << BITS) - 1;
  static Ints byte(Ints sum) { return (sum < LIMIT ? sum : Ints{} + LIMIT) >> BITS; }  // thousands of rounded weights
  Ints red_ = Ints{} + (1 << (BITS - 1)), green_ = red_, blue_ = red_;
};

// A row's pixels, WIDTH apart.
void spread(const OxygenPicture& picture, const unsigned char* row, Pixel* to) {
  const bool reversed = picture.channel_stride < 0;
  const unsigned char* const lowest = row - 2 * reversed;
  const auto put = [&](long x, Pixel pixel) { to[x * WIDTH] = reversed ? __builtin_bswap32(pixel) >> 8 : pixel; };
  const long last = picture.width - 1;
  for (long x = 1; x < last; ++x) {
    Pixel pixel;
    __builtin_memcpy(&pixel, lowest + x * picture.pixel_stride, 4);
    put(x, pixel);
  }
  for (long x = 0; x <= last; x += last ? last : 1) {  // there may be nothing behind these
    Pixel pixel = 0;
    __builtin_memcpy(&pixel, lowest + x * picture.pixel_stride, 3);
    put(x, pixel);
  }
}

}  // namespace

// out [columns.length, rows.length, 3], its rows out_stride bytes apart. False if there is no memory.
bool resize(const OxygenPicture& picture, const OxygenWeights& rows, const OxygenWeights& columns, unsigned char* out,
            long out_stride) {
  // WIDTH rows are scaled side by side, and kept in a ring until no row of `out` wants them any more.
  const long kept = columns.taps + WIDTH, stride = rows.length + WIDTH, side_by_side = picture.width * WIDTH;
  Pixel* const memory = static_cast<Pixel*>(std::malloc((side_by_side + kept * stride) * sizeof(Pixel)));
  if (memory == nullptr) return false;
  Pixel* const ring = memory + side_by_side;
  long scaled = 0;
  for (long y = 0; y < columns.length; ++y) {
    for (; scaled < columns.first[y] + columns.taps; scaled += WIDTH) {
      Pixel* to[WIDTH];
      for (long row = 0; row < WIDTH; ++row) {
        const long from = scaled + row < picture.height ? scaled + row : picture.height - 1;
        spread(picture, picture.red + from * picture.row_stride, memory + row);
        to[row] = ring + (scaled + row) % kept * stride;
      }
      for (long x = 0; x < rows.length; ++x) {
        Sum sum;
        for (long tap = 0; tap < rows.taps; ++tap) {
          sum.add(load(memory + (rows.first[x] + tap) * WIDTH), rows.values[x * rows.taps + tap]);
        }
        const Ints pixels = sum.rounded();
        for (long row = 0; row < WIDTH; ++row) to[row][x] = pixels[row];
      }
    }
    for (long x = 0; x < rows.length; x += WIDTH) {
      Sum sum;
      for (long tap = 0; tap < columns.taps; ++tap) {
        sum.add(load(ring + (columns.first[y] + tap) % kept * stride + x), columns.values[y * columns.taps + tap]);
      }
      const Ints pixels = sum.rounded();
      for (long at = x; at < x + WIDTH && at < rows.length; ++at) {
        const Pixel pixel = pixels[at - x];
        __builtin_memcpy(out + y * out_stride + 3 * at, &pixel, 3);
      }
    }
  }
  std::free(memory);
  return true;
}

}  // namespace GENERATION
